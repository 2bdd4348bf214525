"""Inspects a whole request: what it contains, by label and count, and which data class that makes.

`inspect` is total: any decoded JSON document has a result. Whatever could not be read makes the
result incomplete, and an incomplete result has the most sensitive class. No value of the request
is kept: findings are labels and places.
"""

from bisect import bisect_right
from collections import Counter

from msgspec import Struct

from classifiers.extraction import Extraction, extract
from classifiers.pii.detect import scan
from classifiers.pii.labels import MOST_SENSITIVE, DataClass, data_class_of


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


def inspect(document: object, tolerated_opaque: frozenset[str] = NO_KINDS) -> InspectionResult:
    """Inspect a decoded JSON request.

    Args:
        document: what the JSON decoder gave.
        tolerated_opaque: kinds of opaque content that a policy lets pass unread.
    """
    return inspect_extraction(extract(document), tolerated_opaque)


def inspect_extraction(
    extraction: Extraction, tolerated_opaque: frozenset[str] = NO_KINDS
) -> InspectionResult:
    """Inspect what `extract` gave; the gateway extracts once and scores complexity from it too."""
    reasons = list(extraction.reasons)
    reasons += [
        f"opaque:{kind}" for kind in extraction.opaque_kinds if kind not in tolerated_opaque
    ]
    joined = extraction.joined()
    if len(joined) > MAX_LENGTH:
        reasons.append("too-long")
        joined = joined[:MAX_LENGTH]
    scanned = scan(joined)
    if not scanned.complete:
        reasons.append("too-many-candidates")
    counts: dict[str, int] = {}
    findings: tuple[LocatedFinding, ...] = ()
    found_class = DataClass.S0
    if scanned.findings:
        starts = extraction.starts()
        findings = tuple(
            LocatedFinding(
                (segment := bisect_right(starts, finding.start) - 1),
                finding.start - starts[segment],
                min(finding.end - starts[segment], len(extraction.segments[segment].text)),
                finding.label,
                finding.score,
                finding.detector,
            )
            for finding in scanned.findings
        )
        counts = dict(sorted(Counter(finding.label for finding in findings).items()))
        found_class = max(map(data_class_of, counts))
    return InspectionResult(
        found_class if not reasons else MOST_SENSITIVE,
        found_class,
        not reasons,
        counts,
        findings,
        tuple(reasons),
        extraction.opaque_kinds,
    )
