"""Findings with their places, and which one stays when several claim the same place."""

from operator import attrgetter

from msgspec import Struct

from classifiers.pii.labels import DataClass, data_class_of


class Finding(Struct, frozen=True, order=True):
    """A place in a text (offsets in code points, end exclusive) and the label found there."""

    start: int
    end: int
    label: str
    score: float
    detector: str


def without_overlaps(found: list[Finding]) -> list[Finding]:
    """One finding per place: restricted ones win, then the more believable, then the longer."""
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


# A random-looking run is only a secret if it cannot be read as something else.
_GUESSES = frozenset({"secret/random", "secret/unlisted-prefix"})


def _precedence(finding: Finding) -> tuple[int, float, int, int]:
    """Restricted findings come first, or a slightly likelier telephone number would hide them."""
    harmless = data_class_of(finding.label) < DataClass.S3
    is_guess = finding.detector.partition("+")[0] in _GUESSES
    rank = 2 if is_guess else int(harmless)
    return rank, -finding.score, finding.start - finding.end, finding.start
