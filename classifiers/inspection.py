"""Inspects a whole request: what it contains, by label and count, and which data class that makes.

`inspect` is total: any decoded JSON document has a result. Whatever could not be read makes the
result incomplete, and an incomplete result has the most sensitive class. No value of the request
is kept: findings are labels and places.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from classifiers.extraction import Extraction, extract
from classifiers.pii.labels import MOST_SENSITIVE, DataClass
from classifiers.pii.scanner import PATTERNS_ONLY, Scanner
from classifiers.units import Unit
from classifiers.verdicts import CLEAN, Verdict, counted, judge


MAX_LENGTH = 4_000_000
NO_KINDS: frozenset[str] = frozenset()


class LocatedFinding(Struct, frozen=True):
    """A finding in segment `segment` of the extraction; offsets are those of the segment."""

    segment: int
    start: int
    end: int
    label: str
    score: float
    detector: str


class InspectionResult(Struct, frozen=True):
    """What a request contains. `data_class` is what a policy uses; it fails towards secrecy.

    `found_class` is the class of the findings alone, `reasons` say what made the inspection
    incomplete, `opaque_kinds` name content that is no text ("image", "audio", "document", …).
    """

    data_class: DataClass
    found_class: DataClass
    complete: bool
    counts: dict[str, int]
    findings: tuple[LocatedFinding, ...]
    reasons: tuple[str, ...]
    opaque_kinds: tuple[str, ...]


def inspect(
    document: object,
    tolerated_opaque: frozenset[str] = NO_KINDS,
    scanner: Scanner = PATTERNS_ONLY,
) -> InspectionResult:
    """Inspect a decoded JSON request.

    Args:
        document: what the JSON decoder gave.
        tolerated_opaque: kinds of opaque content that a policy lets pass unread.
        scanner: what reads the texts.
    """
    return inspect_extraction(
        extract(document), tolerated_opaque, lambda unit: judge(unit, scanner)
    )


def inspect_extraction(
    extraction: Extraction,
    tolerated_opaque: frozenset[str],
    judged: Callable[[Unit], Verdict],
) -> InspectionResult:
    """Inspect what `extract` gave; the gateway extracts once and scores complexity from it too.

    Args:
        extraction: of a whole request.
        tolerated_opaque: as for `inspect`.
        judged: the verdict on a unit, found now or kept from before.
    """
    reasons = list(extraction.reasons)
    if extraction.opaque_kinds:
        reasons += [
            f"opaque:{kind}" for kind in extraction.opaque_kinds if kind not in tolerated_opaque
        ]
    units = extraction.units()
    if sum([len(unit.text) for unit, _ in units]) > MAX_LENGTH:
        reasons.append("too-long")
        units = _first_units(units)
    verdicts = [judged(unit) for unit, _ in units]
    # Nearly every unit of nearly every request is clean, and then nothing is left to be gathered.
    noted = [verdict for verdict in verdicts if verdict is not CLEAN]
    counts: dict[str, int] = {}
    found_class = DataClass.S0
    if noted:
        reasons += sorted({reason for verdict in noted for reason in verdict.reasons})
        counts = counted(noted)
        found_class = max(verdict.found_class for verdict in noted)
    return InspectionResult(
        found_class if not reasons else MOST_SENSITIVE,
        found_class,
        not reasons,
        counts,
        tuple(_located(extraction, units, verdicts)) if counts else (),
        tuple(reasons),
        extraction.opaque_kinds,
    )


def _first_units(units: Sequence[tuple[Unit, int]]) -> list[tuple[Unit, int]]:
    """As many units from the end as may be read: the newest turn is never left out."""
    kept: list[tuple[Unit, int]] = []
    left = MAX_LENGTH
    for unit, first in reversed(units):
        if left <= 0:
            break
        kept.append((Unit(unit.text[:left], unit.lead), first))
        left -= len(unit.text)
    return kept[::-1]


def _located(
    extraction: Extraction, units: Sequence[tuple[Unit, int]], verdicts: Sequence[Verdict]
) -> Iterator[LocatedFinding]:
    """The findings of all units at their places in the segments."""
    starts = extraction.starts()
    for (_, first), verdict in zip(units, verdicts, strict=True):
        for finding in verdict.findings:
            place = starts[first] + finding.start
            segment = bisect_right(starts, place) - 1
            length = len(extraction.segments[segment].text)
            yield LocatedFinding(
                segment,
                place - starts[segment],
                min(finding.end + starts[first] - starts[segment], length),
                finding.label,
                finding.score,
                finding.detector,
            )
