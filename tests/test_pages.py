"""The pages are readable: links lead to an existing heading, and no paragraph is too long."""

import re
from collections import Counter
from pathlib import Path

import pytest


ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(file for name in ("docs", "benchmarks") for file in ROOT.joinpath(name).rglob("*.md")),
    ]
)
FENCED = re.compile(r"^( *```).*?^ *```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
PARAGRAPH_CHARACTERS_MAX = 900
RUNBOOK_CHARACTERS_MAX = 600
"""Pages of operations are read in a hurry."""
CHANGE_CHARACTERS_MAX = 250
CHANGES_LINES_MAX = 260
BEGINNING_CHARACTERS = 40
BEGINS = ("|", "#", "- ", "* ", "> ")


def anchors(text: str) -> set[str]:
    """The anchor of a heading, as GitHub makes it."""
    found: Counter[str] = Counter()
    names = set()
    for title in re.findall(r"^#{1,6} +(.+?) *$", FENCED.sub("", text), re.MULTILINE):
        said = re.sub(r"\]\([^)]*\)", "", title)
        name = re.sub(r"[^\w\- ]", "", said.lower()).replace(" ", "-")
        names.add(f"{name}-{found[name]}" if found[name] else name)
        found[name] += 1
    return names


def paragraphs(text: str) -> list[str]:
    """Paragraphs without tables, headings and blocks to be pasted; a list item is one."""
    found, together = [], ""
    for line in [*FENCED.sub("\n", text).splitlines(), ""]:
        said = line.strip()
        if together and (not said or said.startswith(BEGINS) or re.match(r"\d+\. ", said)):
            found.append(together)
            together = ""
        if not said.startswith(("|", "#")):
            together = f"{together} {said}".strip()
    return found


def broken(file: Path, text: str) -> list[str]:
    """Links of a page that lead to no file, or to no heading of it."""
    wrong = []
    for target in LINK.findall(FENCED.sub("", text)):
        name, _, anchor = target.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        other = (file.parent / name).resolve() if name else file
        if not other.exists() or (
            anchor
            and other.suffix == ".md"
            and anchor not in anchors(text if other == file else other.read_text(encoding="utf-8"))
        ):
            wrong.append(target)
    return wrong


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(file: Path) -> None:
    assert broken(file, file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_paragraph_is_longer_than_somebody_reads(file: Path) -> None:
    runbook = file.parent.name == "operations"
    bound = RUNBOOK_CHARACTERS_MAX if runbook else PARAGRAPH_CHARACTERS_MAX
    longest = [
        f"{len(each)}: {each[:80]}"
        for each in paragraphs(file.read_text(encoding="utf-8"))
        if len(each) > bound
    ]

    assert longest == []


def test_every_file_of_ours_that_a_page_names_is_there() -> None:
    """As code, and from the root: modules move, and a reader who looks one up must find it."""
    rooms = "gateway|admin|policies|local_engine|classifiers|migrations|benchmarks|tests|docs"
    named = re.compile(rf"`((?:{rooms})/[\w/.-]+\.(?:py|toml|md|html|txt))[`:]")

    assert [
        f"{file.relative_to(ROOT)}: {name}"
        for file in PAGES
        for name in named.findall(file.read_text(encoding="utf-8"))
        if not ROOT.joinpath(name).exists()
    ] == []


def test_no_change_takes_more_than_a_glance() -> None:
    lines = ROOT.joinpath("CHANGELOG.md").read_text(encoding="utf-8").splitlines()

    assert [line[:80] for line in lines if len(line) > CHANGE_CHARACTERS_MAX] == []
    assert len(lines) <= CHANGES_LINES_MAX


def test_no_change_is_told_twice() -> None:
    """A merge of two branches that edited one line may leave both versions."""
    lines = ROOT.joinpath("CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    begins = Counter(line[:BEGINNING_CHARACTERS] for line in lines if line.startswith("- "))

    assert [begin for begin, count in begins.items() if count > 1] == []


def test_the_index_of_operations_leads_to_each_of_its_pages() -> None:
    folder = ROOT / "docs" / "operations"
    linked = {
        target.partition("#")[0]
        for target in LINK.findall(folder.joinpath("README.md").read_text(encoding="utf-8"))
    }

    assert {file.name for file in folder.glob("*.md")} - {"README.md"} <= linked


def test_each_page_of_operations_begins_with_when_one_needs_it() -> None:
    folder = ROOT / "docs" / "operations"
    begins = re.compile(r"# [^\n]+\n\nWhen you need this: ")

    assert [
        file.name
        for file in sorted(folder.glob("*.md"))
        if file.name != "README.md" and not begins.match(file.read_text(encoding="utf-8"))
    ] == []


def test_the_look_at_pages_sees_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    text = "# A worker's disk\n\n[a](#a-workers-disk) [b](#nowhere) [c](gone.md)\n"
    file.write_text(text, encoding="utf-8")

    assert broken(file, text) == ["#nowhere", "gone.md"]
    assert paragraphs("one\ntwo\n\n| x |\n1. three\n   four\n2. five\n```\nsix\n```\n") == [
        "one two",
        "1. three four",
        "2. five",
    ]
