"""Computes the verdict on one unit of a request, usually one message: pure, so it can be cached.

A conversation repeats its history with every turn. Equal units have equal verdicts, so with a cache
each message is paid for once. A verdict holds nothing of the text.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from msgspec import Struct, structs

from classifiers.adjoining import torn_values
from classifiers.pii.columns import open_heading
from classifiers.pii.credentials.media import apart_from_media
from classifiers.pii.detect import Scan
from classifiers.pii.disguises import SIBLINGS
from classifiers.pii.findings import Finding
from classifiers.pii.html_tables import open_row
from classifiers.pii.labels import DataClass, data_class_of
from classifiers.pii.names.tagger import never
from classifiers.pii.scanner import Scanner, in_files
from classifiers.pii.views.normalise import normalise
from classifiers.units import SEAM, Unit


CHUNK_LENGTH = 16_384
CHUNK_OVERLAP = 512
OVERLAP_MAX = 8_192
KEY_CHUNK_LENGTH = 65_536
_KEY = "PRIVATE_KEY"
_OF_SIBLINGS = f"+{SIBLINGS}"


class Verdict(Struct, frozen=True):
    """What one unit contains: places, counts by label, and the class of the findings."""

    findings: tuple[Finding, ...]
    counts: tuple[tuple[str, int], ...]
    found_class: DataClass
    reasons: tuple[str, ...]
    is_torn: bool = False
    """Whether a counted finding is split over several parts, and has no place of its own."""


CLEAN = Verdict((), (), DataClass.S0, ())


def judge(unit: Unit, scanner: Scanner, expired: Callable[[], bool] = never) -> Verdict:
    """The verdict on a unit. `expired` is checked between chunks; an unfinished verdict says so."""
    text = unit.lead + SEAM + unit.text if unit.lead else unit.text
    offset = len(text) - len(unit.text)
    if len(text) <= CHUNK_LENGTH:
        scanned = scanner.scan(text, expired)
    else:
        scanned = _in_chunks(text, scanner, expired)
    found = scanned.findings
    reasons = () if scanned.complete or scanned.late else ("too-many-candidates",)
    if scanned.late:
        reasons = (*reasons, "deadline")
    if not found and not reasons and not unit.chains:
        return CLEAN
    findings = tuple(
        Finding(max(0, f.start - offset), f.end - offset, f.label, f.score, f.detector)
        for f in found
        if f.end > offset
    )
    torn = [label for chain in unit.chains for label in torn_values(unit.text, chain, findings)]
    if not findings and not reasons and not torn:
        return CLEAN
    labels = [*(finding.label for finding in findings), *torn]
    counts = tuple(sorted(Counter(labels).items()))
    found_class = max((data_class_of(label) for label, _ in counts), default=DataClass.S0)
    is_torn = bool(torn) or any(_OF_SIBLINGS in finding.detector for finding in findings)
    return Verdict(findings, counts, found_class, reasons, is_torn)


def _in_chunks(text: str, scanner: Scanner, expired: Callable[[], bool]) -> Scan:
    """Scan a long text in overlapping pieces: nothing is lost at a cut, and time is checked.

    A private key is longer than the overlap: one that is open at a cut is read again from its head.
    The headings of a table that goes on are read again before its next rows. A picture is
    recognised by its end, which is seldom in the piece that it begins in.
    """
    found: list[Finding] = []
    complete = True
    heading = ""
    start, length, end = 0, CHUNK_LENGTH, 0
    while end < len(text):
        if expired():
            return Scan(tuple(found), complete=False, late=True)
        end = start + length
        piece = heading + text[start:end]
        scanned = scanner.scan(piece, expired)
        shift = start - len(heading)
        for f in scanned.findings:
            if shift + f.end > start:
                place = max(start, shift + f.start), shift + f.end
                _add(found, Finding(*place, f.label, f.score, f.detector))
        if scanned.late:
            return Scan(tuple(found), complete=False, late=True)
        complete = complete and scanned.complete
        overlap = _overlap(text, end) if end < len(text) else 0
        complete = complete and overlap < OVERLAP_MAX
        heading = _heading(normalise(piece).text) if end < len(text) else ""
        last = found[-1] if found else None
        is_open = last is not None and last.label == _KEY and last.end == end
        if last is not None and is_open and (last.start > start or length == CHUNK_LENGTH):
            start, length = last.start, KEY_CHUNK_LENGTH
        else:
            start, length = end - overlap, CHUNK_LENGTH
    return Scan(tuple(apart_from_media(text, found, in_files)), complete)


def _heading(piece: str) -> str:
    return open_heading(piece) or open_row(piece)


def _overlap(text: str, end: int) -> int:
    """How much before a cut is read again: a fixed number of visible characters.

    If hardly any are visible, it is the largest overlap allowed, and a finding may be lost there.
    """
    tail = text[end - CHUNK_OVERLAP : end]
    if tail.isascii() or not normalise(tail).kept_before:
        return CHUNK_OVERLAP
    view = normalise(text[end - OVERLAP_MAX : end])
    seen = len(view.text) - CHUNK_OVERLAP
    return OVERLAP_MAX - view.origin(seen) if seen > 0 else OVERLAP_MAX


def _add(found: list[Finding], new: Finding) -> None:
    """Add a finding of the next piece; it replaces or extends one that the cut shortened."""
    at = len(found)
    while at and found[at - 1].end > new.start:
        at -= 1
    if at == len(found) or found[at].start >= new.end:
        found.insert(at, new)
        return
    if new.end <= found[-1].end:
        return
    cut = found[at]
    del found[at:]
    if cut.start < new.start and cut.label == new.label:
        new = structs.replace(new, start=cut.start)
    elif cut.start < new.start:
        found.append(structs.replace(cut, end=new.start))
    found.append(new)


def counted(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """Counts by label over all verdicts."""
    total: Counter[str] = Counter()
    for verdict in verdicts:
        for label, count in verdict.counts:
            total[label] += count
    return dict(sorted(total.items()))
