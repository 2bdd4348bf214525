"""`python -m tests.rooms`: writes the map of all source files from their docstrings.

`docs/rooms.md` names every source file with the first line of its docstring; ARCHITECTURE.md has a
line for each package and each room of the gateway, with the names of the rooms within.
`tests/test_tidy.py` compares both with what is made here.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final


ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = ("gateway", "policies", "classifiers", "local_engine", "migrations", "admin")
BY_NUMBER: Final = "migrations/versions"
"""Its files are named by number and date; what each does is in its own first line."""
_INTRODUCTION: Final = """# Every folder, file by file

Made from the first line of each module by `python -m tests.rooms`; a test keeps it up to date.
[ARCHITECTURE.md](../ARCHITECTURE.md) tells how a request passes through these folders, and which
of them may import which.
"""
_ROOMS = re.compile(r"(?<=\n## Rooms\n).*?(?=\n## )", re.DOTALL)


def rooms() -> Iterator[Path]:
    """Folders with source files, each before the folders inside it."""
    for package in PACKAGES:
        folders = {file.parent for file in ROOT.joinpath(package).rglob("*.py")}
        yield from sorted(each for each in folders if "node_modules" not in each.parts)


def first_line(file: Path) -> str:
    """The first line of a module's docstring, without its full stop."""
    said = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return said.partition("\n")[0].removesuffix(".")


def name_of(room: Path) -> str:
    return room.relative_to(ROOT).as_posix()


def purpose(room: Path) -> str:
    """The purpose of a folder; alembic's own is no package, so `env.py` tells it."""
    file = room / "__init__.py"
    return first_line(file) if file.exists() else first_line(room / "env.py")


def every_file() -> str:
    """The full text of docs/rooms.md."""
    parts = [_INTRODUCTION]
    for room in rooms():
        parts.append(f"\n## `{name_of(room)}/`\n\n{purpose(room)}.\n")
        files = sorted(file for file in room.glob("*.py") if file.name != "__init__.py")
        if files and name_of(room) != BY_NUMBER:
            rows = [f"| `{file.name}` | {_cell(first_line(file))} |\n" for file in files]
            parts.append("\n| file | what for |\n|---|---|\n" + "".join(rows))
    return "".join(parts)


def every_room() -> str:
    """The table of rooms, as it is in ARCHITECTURE.md."""
    rows = [
        f"| `{name_of(room)}/` | {_cell(purpose(room))}{_within(room)} |\n"
        for room in rooms()
        if _has_a_row(room)
    ]
    return (
        "\nEvery file of each, with what it is for, is in [docs/rooms.md](docs/rooms.md).\n"
        "\n| room | what happens there |\n|---|---|\n" + "".join(rows)
    )


def _has_a_row(room: Path) -> bool:
    return room.parent in (ROOT, ROOT / "gateway")


def _within(room: Path) -> str:
    """The rooms that are listed with this one, in brackets."""
    names = [
        f"`{each.relative_to(room).as_posix()}`"
        for each in rooms()
        if each.is_relative_to(room) and not _has_a_row(each)
    ]
    return f" ({', '.join(names)})" if names and name_of(room) != "gateway" else ""


def drawn(architecture: str) -> str:
    """The text of ARCHITECTURE.md with the current rooms."""
    return _ROOMS.sub(lambda _: every_room(), architecture)


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def main() -> None:
    map_of_all, map_of_rooms = ROOT / "docs" / "rooms.md", ROOT / "ARCHITECTURE.md"
    map_of_all.write_text(every_file(), encoding="utf-8")
    map_of_rooms.write_text(drawn(map_of_rooms.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
