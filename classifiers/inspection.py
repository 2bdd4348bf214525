"""Inspects a whole request: what it contains, by label and count, and the resulting data class.

`inspect` is total: any decoded JSON document has a result. If anything could not be read, the
result is incomplete, and an incomplete result has the most sensitive class. No value of the request
is kept: findings are labels and places.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise

from msgspec import Struct
from msgspec.structs import asdict

from classifiers.across import (
    WINDOWS_MAX,
    Edges,
    Window,
    edges_of,
    joined,
    labels_across,
    labels_in_blocks,
    verdict_of,
    windows,
)
from classifiers.extraction import MAX_SEGMENTS, TOO_MANY, extract, extract_parts
from classifiers.parts import Part
from classifiers.pii.labels import MOST_SENSITIVE, DataClass
from classifiers.pii.scanner import PATTERNS_ONLY, Scanner
from classifiers.segments import CODES, Extraction
from classifiers.units import LEAD_LENGTH, Unit
from classifiers.verdicts import CLEAN, Verdict, counted, judge


MAX_LENGTH = 4_000_000
NO_KINDS: frozenset[str] = frozenset()
TOO_MANY_TORN = Verdict((), (), DataClass.S0, ("too-many-candidates",))
"""The verdict if more sets of messages may share a number than are tried."""


class LocatedFinding(Struct, frozen=True):
    """A finding in segment `segment` of the extraction; offsets are those of the segment."""

    segment: int
    start: int
    end: int
    label: str
    score: float
    detector: str


class Contents(Struct, frozen=True):
    """What a request contains. Policies use `data_class`, which fails towards secrecy.

    `found_class` is the class of the findings alone, `reasons` say what made the inspection
    incomplete, `opaque_kinds` name content that is not text ("image", "audio", "document", …).
    """

    data_class: DataClass
    found_class: DataClass
    complete: bool
    counts: dict[str, int]
    reasons: tuple[str, ...]
    opaque_kinds: tuple[str, ...]


class InspectionResult(Contents, frozen=True):
    """What a request contains, and where."""

    findings: tuple[LocatedFinding, ...]
    is_torn: bool = False
    """Whether a counted finding has no place of its own: it is in several parts, or in bytes."""


class Seen(Struct, frozen=True):
    """What one part contains, without a word of it: it can be cached.

    `reasons` and `opaque_kinds` are those of the walk, `segments` is the number of texts it found
    and `length` their joined length; both are 0 for a part without text.
    """

    verdict: Verdict
    opaque_kinds: tuple[str, ...]
    reasons: tuple[str, ...]
    segments: int
    length: int
    edges: Edges | None = None
    """Digits at its beginning and end, if it is a message: other messages may hold the rest."""


def inspect(
    document: object,
    tolerated_opaque: frozenset[str] = NO_KINDS,
    scanner: Scanner = PATTERNS_ONLY,
) -> InspectionResult:
    """Inspect a decoded JSON request.

    Args:
        document: the result of a JSON decoder.
        tolerated_opaque: kinds of opaque content that a policy lets pass unread.
        scanner: reads the texts.
    """
    return inspect_extraction(
        extract(document), tolerated_opaque, lambda unit: judge(unit, scanner)
    )


def inspect_extraction(
    extraction: Extraction,
    tolerated_opaque: frozenset[str],
    judged: Callable[[Unit], Verdict],
) -> InspectionResult:
    """Inspect the result of `extract`; the gateway extracts once, and scores complexity from it.

    Args:
        extraction: of a whole request.
        tolerated_opaque: as for `inspect`.
        judged: gives the verdict on a unit, new or from a cache.
    """
    units, reasons = extraction.units(), extraction.reasons
    if sum([len(unit.text) for unit, _ in units]) > MAX_LENGTH:
        reasons = (*reasons, "too-long")
        units = _first_units(units)
    verdicts = [judged(unit) for unit, _ in units]
    noted = [verdict for verdict in verdicts if verdict is not CLEAN]
    torn = (_across(extraction, units), *_in_blocks(extraction))
    noted += [verdict for verdict in torn if verdict is not CLEAN]
    contents = _contents(reasons, extraction.opaque_kinds, tolerated_opaque, noted)
    findings = tuple(_located(extraction, units, verdicts)) if contents.counts else ()
    is_torn = any(verdict.is_torn for verdict in noted) or any(
        extraction.segments[finding.segment].kind == CODES for finding in findings
    )
    return InspectionResult(**asdict(contents), findings=findings, is_torn=is_torn)


def see(part: Part, before: Part | None, judged: Callable[[Unit], Verdict]) -> Seen:
    """What a part contains; `before` is the last part before it that has any text."""
    extraction = extract_parts((part,))
    text = extraction.joined()
    verdict = CLEAN
    if text:
        said = "" if before is None else extract_parts((before,)).joined()
        verdict = judged(Unit(text, said[-LEAD_LENGTH:], extraction.places()))
        for torn in _in_blocks(extraction) if extraction.blocks else ():
            verdict = joined(verdict, torn)
    return Seen(
        verdict,
        extraction.opaque_kinds,
        extraction.reasons,
        len(extraction.segments),
        len(text),
        edges_of(extraction.segments[0].role, extraction.said()) if text else None,
    )


def windows_of(edges: Sequence[tuple[int, Edges]]) -> list[Window] | None:
    """Sets of parts that may share a number; None if they are too many to be tried."""
    found = list(islice(windows(edges), WINDOWS_MAX + 1))
    return found if len(found) <= WINDOWS_MAX else None


def _in_blocks(extraction: Extraction) -> Iterator[Verdict]:
    """Findings split over blocks of one message, message by message."""
    for said in extraction.said_in_blocks():
        labels = labels_in_blocks(said)
        yield TOO_MANY_TORN if labels is None else verdict_of(labels)


def _across(extraction: Extraction, units: Sequence[tuple[Unit, int]]) -> Verdict:
    """Findings split over several messages."""
    edges: list[tuple[int, Edges]] = []
    firsts = [*(first for _, first in units), len(extraction.segments)]
    texts = [extraction.said(*place) for place in pairwise(firsts)]
    for at, (unit, first) in enumerate(units):
        each = edges_of(extraction.segments[first].role, texts[at]) if unit.text else None
        if each is not None:
            edges.append((at, each))
    found = windows_of(edges) if len(edges) > 1 else []
    if found is None:
        return TOO_MANY_TORN
    labels: list[str] = []
    for window in found:
        labels += labels_across([texts[at] for at in window.places])
    return verdict_of(labels)


def in_all(
    seen: Sequence[Seen],
    tolerated_opaque: frozenset[str] = NO_KINDS,
    across: Verdict = CLEAN,
) -> Contents | None:
    """What all parts of a request contain; None if they are longer than may be read at once.

    It is what `inspect` says of the request, without the places. `across` are the findings split
    over several parts.
    """
    length = segments = 0
    reasons: set[str] = set()
    kinds: set[str] = set()
    verdicts: list[Verdict] = [] if across is CLEAN else [across]
    for each in seen:
        length += each.length
        segments += each.segments
        if each.reasons or each.opaque_kinds:
            reasons.update(each.reasons)
            kinds.update(each.opaque_kinds)
        if each.verdict is not CLEAN:
            verdicts.append(each.verdict)
    if length > MAX_LENGTH:
        return None
    if segments > MAX_SEGMENTS:
        reasons.add(TOO_MANY)
    return _contents(tuple(sorted(reasons)), tuple(sorted(kinds)), tolerated_opaque, verdicts)


def _contents(
    reasons: tuple[str, ...],
    opaque_kinds: tuple[str, ...],
    tolerated_opaque: frozenset[str],
    noted: Sequence[Verdict],
) -> Contents:
    """`reasons` say why the walk was incomplete, `noted` are the verdicts that are not CLEAN.

    Nearly every unit of nearly every request is clean, and then there is nothing to gather.
    """
    if opaque_kinds:
        refused = [kind for kind in opaque_kinds if kind not in tolerated_opaque]
        reasons = (*reasons, *[f"opaque:{kind}" for kind in refused])
    counts: dict[str, int] = {}
    found_class = DataClass.S0
    if noted:
        reasons = (*reasons, *sorted({reason for verdict in noted for reason in verdict.reasons}))
        counts = counted(noted)
        found_class = max(verdict.found_class for verdict in noted)
    return Contents(
        found_class if not reasons else MOST_SENSITIVE,
        found_class,
        not reasons,
        counts,
        reasons,
        opaque_kinds,
    )


def _first_units(units: Sequence[tuple[Unit, int]]) -> list[tuple[Unit, int]]:
    """As many units, counted from the end, as may be read: the newest turn is never left out."""
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
    """The findings of all units, at their places in the segments."""
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
