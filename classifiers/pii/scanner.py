"""Runs both stages over one text: patterns first, then the tagger where words may name a person.

A finding proved by a check digit outranks one suggested by a context word, and that outranks a
learned one.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Final

from msgspec import structs

from classifiers.pii.credentials.media import apart_from_media
from classifiers.pii.credentials.own_forms import without_own_forms
from classifiers.pii.detect import Look, Scan, look
from classifiers.pii.detect import warm as warm_rules
from classifiers.pii.findings import Finding, without_overlaps
from classifiers.pii.names.everyday import named_part
from classifiers.pii.names.follow_up import followed, lines_of
from classifiers.pii.names.german import nouns_part
from classifiers.pii.names.honorifics import named
from classifiers.pii.names.places import is_of_costs, is_told
from classifiers.pii.names.soft import soft_findings
from classifiers.pii.names.tagger import OutOfTimeError, Tagger, never
from classifiers.pii.names.tagger import load as load_tagger
from classifiers.pii.names.witnesses import OF_PERSONS, may_be_of_person, speaks_for
from classifiers.pii.names.writing import may_name
from classifiers.pii.views.decoded import Decoded
from classifiers.pii.views.normalise import readable
from classifiers.pii.views.normalise import warm as warm_tables


# A name needs a capital, another script, digits, or a word that introduces it; an address in small
# letters may have no more than a house's number and a kind of street.
_WORTH_READING = re.compile(
    r"[A-Z][a-z]|[A-Z]{2} ?[A-Z]|[0-9]{3}|[^\x00-\x7f]|\b(?:name|naam|dear|user|login|address|"
    r"liv(?:es|ing) (?:at|in)|road|street|mr|mrs|ms|dr|patient|customer|client|colleague|employee|"
    r"signed|contact|call|ask|tell|meet|invite|born)\b"
    r"|\b[0-9]{1,3}[a-z]?,? (?:[a-z'.]+ ){1,3}(?:avenue|close|court|crescent|drive|gardens|grove"
    r"|lane|mews|place|row|square|terrace|way)(?=[,.;:)\"'\n]|\Z)"
)
_SURE: Final = 0.7
_LEAST_LENGTH: Final = 3
# What a house number or a postal code is easily taken for.
_NUMBER_LABELS = frozenset({"PHONE", "BANK_ACCOUNT", "US_SSN", "NATIONAL_ID", "PASSPORT"})
_NEAR_LENGTH: Final = 60
_PLACES = frozenset({"ADDRESS", "LOCATION"})
_end_of = attrgetter("end")
_ADDRESSES: Final = frozenset({"ADDRESS"})
_PERSONS: Final = frozenset({"PERSON"})
# A word for a code or a house, then at most two more words; or a name of four letters and more.
_NUMBERED = re.compile(
    r"(?:\b(?i:zip|pin|plz|cap|cep|post\w*|c[o\u00f3]d\w*|building|house|flat|apartment|apt|suite|street)"
    r"\b\W{0,3}(?:\w+\W{1,3}){0,2}|\b(?-i:[A-Z\u00c0-\u00de\u0160\u017d])\w{3,} )\Z"
)
_NAME: Final = re.compile(r"[^\W\d_]\S*[^\W\d_](?: [^\W\d_]\S*[^\W\d_])+")
_LONGEST_NAME: Final = 4
_CODE_LENGTH: Final = 10  # The longest postal code: five digits, a dash, four.


class Scanner:
    """Text → findings. Without a tagger only patterns are used, and the scan is partial."""

    def __init__(self, tagger: Tagger | None, *, soft: bool = False) -> None:
        """With `soft`, labels that never keep a text in-house are looked for too."""
        self._tagger = tagger
        self._soft = soft

    def scan(self, text: str, expired: Callable[[], bool] = never) -> Scan:
        """The findings of one text, in order, without overlaps.

        `expired` is called between the stages and before every thousand words.
        """
        seen = look(text)
        late = False
        tagged: list[Finding] = []
        if self._tagger is not None:
            try:
                tagged = self._tagged(text, seen, expired)
            except OutOfTimeError:
                late = True
        patterns = without_overlaps(seen.findings)
        tagged = with_named(text, tagged)
        found = patterns
        if tagged:
            found = followed(text, without_own_forms(text, merged(patterns, tagged)))
        found = apart_from_media(text, found, in_files)
        if self._soft:
            found = with_soft(found, text)
        return Scan(tuple(found), seen.complete and not late, late)

    @staticmethod
    def warm() -> None:
        """Build now what the first texts would otherwise wait for: about a tenth of a second."""
        warm_tables()
        warm_rules()

    def _tagged(self, text: str, seen: Look, expired: Callable[[], bool]) -> list[Finding]:
        found = self._words(text, expired) if _WORTH_READING.search(text) is not None else []
        for view in seen.views:
            found += self._behind(view, expired)
        return found

    def _words(self, text: str, expired: Callable[[], bool]) -> list[Finding]:
        assert self._tagger is not None
        view = readable(text)
        found = []
        for tagged in self._tagger.find(view.text, expired):
            start, end = tagged.start, tagged.end
            label = _believed(tagged.label, view.text, start, end)
            if label is None:
                continue
            if label == "PERSON" or (label == "LOCATION" and view.text[start:end].islower()):
                part = named_part(view.text, start, end)
                if part is None or (
                    label == "PERSON" and (part := nouns_part(view.text, *part)) is None
                ):
                    continue
                start, end = part
                if view.text[start:end].islower() and not may_name(view.text, start, end):
                    continue
            places: tuple[tuple[int, int], ...] = ((start, end),)
            if label == "ADDRESS":
                places = lines_of(view.text, start, end)
            for a, b in places:
                if sum(map(str.isalnum, view.text[a:b])) > 1:  # One letter names nobody.
                    place = view.origin(a), view.origin_end(b)
                    found.append(Finding(*place, label, tagged.score, "tagger"))
        return [*_said(found, text)]

    def _behind(self, view: Decoded, expired: Callable[[], bool]) -> list[Finding]:
        found = []
        for finding in self._words(view.text, expired):
            if view.touches(finding.start, finding.end):
                start, end = view.origin(finding.start, finding.end)
                found.append(Finding(start, end, finding.label, finding.score, "tagger+decoded"))
        return found


PATTERNS_ONLY: Final = Scanner(None)


def with_named(text: str, tagged: list[Finding]) -> list[Finding]:
    """The tagger's findings, with persons that have a title or label replacing its own there."""
    persons = without_overlaps(list(named(text)))
    if not persons:
        return tagged
    kept = [f for f in tagged if not any(f.start < p.end and p.start < f.end for p in persons)]
    return [*kept, *persons]


def in_files(text: str) -> list[Finding]:
    """The findings of patterns in the text of a picture, a font or another file."""
    return without_overlaps(look(text).findings)


def merged(patterns: list[Finding], tagged: list[Finding]) -> list[Finding]:
    """The findings of patterns, and those of the tagger around them; no two overlap.

    An address absorbs weakly supported numbers inside it: they are its house number or postal code.
    It must say more than they do, and they may not be longer than a code: what a rule took for an
    identity number is never weakened by a guess of the tagger.
    """
    ends = [finding.end for finding in patterns]
    dropped: set[int] = set()
    added: list[Finding] = []
    reached = 0
    for finding in sorted(tagged, key=lambda f: (f.start, -f.end)):
        if finding.start < reached:
            continue
        low = high = bisect_right(ends, finding.start)
        while high < len(patterns) and patterns[high].start < finding.end:
            high += 1
        inside = [patterns[at] for at in range(low, high) if at not in dropped]
        if finding.label == "ADDRESS" and all(_is_part(f, finding) for f in inside):
            dropped.update(range(low, high))
            inside = []
        rest = _largest_rest(finding, inside) if inside else finding
        if rest is not None:
            added.append(rest)
            reached = finding.end
    kept = [finding for at, finding in enumerate(patterns) if at not in dropped]
    return sorted(kept + added)


def _believed(label: str, text: str, start: int, end: int) -> str | None:
    """The label that a finding of the tagger gets; None for none.

    A username without a word for it may still be a person's name, and a number in groups may
    belong to a person who is named beside it.
    """
    if speaks_for(text, label, start, end):
        return label
    if may_be_of_person(text, label, start, end):
        return label
    return "PERSON" if label == "USERNAME" and text[start:end].isalpha() else None


def _said(found: list[Finding], text: str) -> Iterator[Finding]:
    """The findings that have some support.

    Words alone are an address beside one with a number, or after a word that announces it; else
    they may be somebody's name.
    """
    numbered: list[Finding] | None = None
    for finding in found:
        start, end = finding.start, finding.end
        if finding.label != "ADDRESS" or any(map(str.isdigit, text[start:end])):
            if _is_said(finding, found, text):
                yield finding
            continue
        if numbered is None:
            places = [each for each in found if each.label == "ADDRESS"]
            numbered = [f for f in places if any(map(str.isdigit, text[f.start : f.end]))]
        if is_told(text, start, end) or _is_near(finding, numbered, _ADDRESSES):
            yield finding
        elif _may_be_name(text[start:end]):
            yield structs.replace(finding, label="PERSON")


def _may_be_name(said: str) -> bool:
    """Two to four words, the first and the last with a capital."""
    words = said.split()
    if _NAME.fullmatch(said) is None or len(words) > _LONGEST_NAME:
        return False
    return all(word != word.lower() for word in (words[0], words[-1]))


def _is_said(finding: Finding, found: list[Finding], text: str) -> bool:
    """Whether a finding has support: a number alone ("It is 42.") is not an address.

    An address is supported by a place name near it, a word for a code, or a name before it; a
    telephone number or a day by a word for it, or a person near it.
    """
    if finding.label in OF_PERSONS:
        place = finding.start, finding.end
        return speaks_for(text, finding.label, *place) or _is_near(finding, found, _PERSONS)
    if finding.label != "ADDRESS" or any(map(str.isalpha, text[finding.start : finding.end])):
        return True
    if is_of_costs(text, finding.start):
        return False
    before = text[max(finding.start - _NEAR_LENGTH, 0) : finding.start]
    return _NUMBERED.search(before) is not None or _is_near(finding, found, _PLACES)


def _is_near(finding: Finding, found: list[Finding], labels: frozenset[str]) -> bool:
    """Whether another finding with such a label is near; `found` are in order, none overlap."""
    first, last = finding.start - _NEAR_LENGTH, finding.end + _NEAR_LENGTH
    for at in range(bisect_right(found, first, key=_end_of), len(found)):
        other = found[at]
        if other.start >= last:
            return False
        if other.label in labels and other is not finding:
            return True
    return False


def _is_part(inner: Finding, outer: Finding) -> bool:
    weak = inner.score < _SURE and inner.label in _NUMBER_LABELS
    length = inner.end - inner.start
    within = outer.start <= inner.start and inner.end <= outer.end
    return weak and within and length <= _CODE_LENGTH and length < outer.end - outer.start


def _largest_rest(finding: Finding, inside: list[Finding]) -> Finding | None:
    """The longest stretch of a learned finding that no pattern claims, if it says anything."""
    edges = [finding.start, *sorted(e for f in inside for e in (f.start, f.end)), finding.end]
    pieces = [(b - a, a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]
    if not pieces or finding.label not in {"PERSON", "ADDRESS"}:
        return None
    length, start, end = max(pieces)
    if length <= _LEAST_LENGTH:
        return None
    return Finding(start, end, finding.label, finding.score, finding.detector)


def with_soft(found: list[Finding], text: str) -> list[Finding]:
    """Findings, and soft ones where there is no other."""
    taken = bytearray(len(text))
    kept = [*found]
    for finding in found:
        taken[finding.start : finding.end] = b"\x01" * (finding.end - finding.start)
    for finding in soft_findings(text):
        if taken.find(1, finding.start, finding.end) < 0:
            taken[finding.start : finding.end] = b"\x01" * (finding.end - finding.start)
            kept.append(finding)
    return sorted(kept)


def load(*, soft: bool = False) -> Scanner:
    """The scanner with the tagger that ships with this code.

    Raises:
        ArtefactError: the tagger's artefact is not the one that its digest names.
    """
    return Scanner(load_tagger(), soft=soft)
