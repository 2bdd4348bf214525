"""Findings with their places, and which one stays when several claim the same place."""

from operator import attrgetter

from msgspec import Struct

from classifiers.pii.labels import DataClass, data_class_of


class Finding(Struct, frozen=True, order=True):
    """A place in a text (offsets in code points, end exclusive) and what stands there."""

    start: int
    end: int
    label: str
    score: float
    detector: str


def without_overlaps(found: list[Finding]) -> list[Finding]:
    """One finding of each place: a restricted one first, then the more believable, the longer."""
    if not found:
        return found
    found.sort(key=_precedence)
    taken = bytearray(max(map(attrgetter("end"), found)))
    kept = []
    for finding in found:
        # Any overlap with a kept finding covers an end of this one or lies inside it.
        if taken.find(1, finding.start, finding.end) < 0:
            taken[finding.start : finding.end] = b"\x01" * (finding.end - finding.start)
            kept.append(finding)
    kept.sort()
    return kept


# A random-looking run is only a secret when nobody can read it as something else.
_GUESSES = frozenset({"secret/random", "secret/unlisted-prefix"})


def _precedence(finding: Finding) -> tuple[int, float, int, int]:
    """What must stay home may not hide behind a telephone number that is a hair likelier."""
    harmless = data_class_of(finding.label) < DataClass.S3
    is_guess = finding.detector.partition("+")[0] in _GUESSES
    rank = 2 if is_guess else int(harmless)
    return rank, -finding.score, finding.start - finding.end, finding.start
