"""Results of inspection on technical texts that name people, by label.

`python -m benchmarks.technical`. The texts were written before anything was trained for them. Half
of them (`--part read`) may be read to find errors, the other half (`--part kept`) only shows how
well that went. A place counts as found if a finding of at least its class touches it; a finding
that touches no place is a false alarm.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from classifiers.pii.findings import Finding
from classifiers.pii.labels import SOFT, data_class_of
from classifiers.pii.scanner import Scanner, load


TEXTS_FILE = Path(__file__).parent / "technical_texts.txt"
PARTS = ("read", "kept")
_MARKED = re.compile(r"⟦([A-Z_]+)\|([^⟧]*)⟧")
_AROUND = 30


class Place(NamedTuple):
    """A place to be found: offsets in the text without marks."""

    start: int
    end: int
    label: str


class Marked(NamedTuple):
    """A text, its kind, and the places to be found in it."""

    kind: str
    text: str
    places: tuple[Place, ...]


class Counts(NamedTuple):
    """Places by label, those found, and false alarms by label."""

    all: Counter[str]
    found: Counter[str]
    needless: Counter[str]


def read(part: str = "") -> list[Marked]:
    """The texts, all or every other one."""
    blocks = re.split(r"^=== ", TEXTS_FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    marked = [_marked(*block.split("\n", 1)) for block in blocks]
    return marked[PARTS.index(part) :: len(PARTS)] if part else marked


def _marked(kind: str, block: str) -> Marked:
    text = ""
    places = []
    reached = 0
    for match in _MARKED.finditer(block):
        text += block[reached : match.start()]
        places.append(Place(len(text), len(text) + len(match[2]), match[1]))
        text += match[2]
        reached = match.end()
    return Marked(kind, text + block[reached:], tuple(places))


def counted(scanner: Scanner, texts: list[Marked], *, show: bool) -> Counts:
    counts = Counts(Counter(), Counter(), Counter())
    for marked in texts:
        findings = [f for f in scanner.scan(marked.text).findings if f.label not in SOFT]
        missed = [place for place in marked.places if not _is_found(place, findings)]
        needless = [f for f in findings if not any(_touch(f, p) for p in marked.places)]
        counts.all.update(place.label for place in marked.places)
        counts.found.update(p.label for p in marked.places if p not in missed)
        counts.needless.update(f.label for f in needless)
        for line in _said(marked, missed, needless) if show else ():
            print(line)
    return counts


def _is_found(place: Place, findings: list[Finding]) -> bool:
    least = data_class_of(place.label)
    return any(_touch(f, place) and data_class_of(f.label) >= least for f in findings)


def _touch(finding: Finding, place: Place) -> bool:
    return finding.start < place.end and place.start < finding.end


def _said(marked: Marked, missed: list[Place], needless: list[Finding]) -> Iterator[str]:
    for word, places in (("missed", missed), ("needless", needless)):
        for each in places:
            around = marked.text[max(0, each.start - _AROUND) : each.end + _AROUND]
            said = marked.text[each.start : each.end]
            yield f"  {word} {each.label} in {marked.kind}: {said!r} of {around!r}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, default="", help="one half of the texts")
    parser.add_argument("--show", action="store_true", help="what was missed or needless")
    options = parser.parse_args()
    counts = counted(load(), read(options.part), show=options.show)
    for label, count in sorted(counts.all.items()):
        print(f"{label:<16} {counts.found[label]} of {count}")
    total = counts.all.total()
    print(f"{'all':<16} {counts.found.total()} of {total}, {counts.needless.total()} needless")


if __name__ == "__main__":
    main()
