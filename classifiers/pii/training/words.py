"""The word lists of the generator, and the public-domain name lists that may be added."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path


DIRECTORY = Path(__file__).parent
WORD_FILES = ("words.txt", "tongues.txt", "news.txt", "technical.txt")
TEMPLATE_FILES = (
    "templates.txt",
    "templates_europe.txt",
    "templates_news.txt",
    "templates_technical.txt",
)
CODE_FILE = "code.txt"
Pools = Mapping[str, Sequence[str]]


def load_words() -> dict[str, list[str]]:
    """Name of a list → its items."""
    pools: dict[str, list[str]] = {}
    for file in WORD_FILES:
        for line in _lines(file):
            name, _, items = line.partition(": ")
            pools.setdefault(name, []).extend(item.strip() for item in items.split(" | "))
    return pools


def load_templates() -> list[str]:
    """Of all files; comments begin with "# ---", since code and headings begin with "#"."""
    return [line for file in TEMPLATE_FILES for line in _lines(file, "# ---")]


def load_code() -> list[str]:
    """Stretches of code and manuals that name nobody."""
    lines = _lines(CODE_FILE, "# ---")
    return [line.replace("\\n", "\n").replace("\\t", "\t") for line in lines]


def _lines(file: str, comment: str = "#") -> list[str]:
    lines = (DIRECTORY / file).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith(comment)]


def load_gazetteer(file: Path) -> list[str]:
    """Names of a public list: one a line, words of letters only."""
    names = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
    return [name for name in names if len(name) > 1 and not any(map(str.isdigit, name))]


def pick(rng: random.Random, items: Sequence[str]) -> str:
    return items[int(rng.random() * len(items))]
