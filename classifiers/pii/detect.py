"""Finds identifiers, contacts and secrets in one text: view, gate, rules, overlaps.

The gate reads the text once and names the rules that can match; only those run. Nothing here
keeps, logs or shows the text: a finding is a label and a place.
"""

from collections.abc import Iterator
from enum import Enum
from operator import attrgetter
from string import ascii_letters, digits

import re2
from msgspec import Struct

from classifiers.pii import numbers, validators
from classifiers.pii.gate import Gate, options, trigger_of
from classifiers.pii.labels import DataClass, data_class_of
from classifiers.pii.normalise import View, normalise
from classifiers.pii.patterns import PATTERNS
from classifiers.pii.rules import Rule
from classifiers.pii.secrets import PRIVATE_KEY_HEAD, SECRETS


MIN_SCORE = 0.5
MAX_CANDIDATES = 20_000
_CONTEXT_LENGTH = 60
_CONTEXT_BONUS = 0.1
_KEY_END = "-----END"
_KEY_LENGTH = 16_384
_WORD_LENGTH = 12
_GLUED_SCORE = 0.8
_LETTERS = ascii_letters
_WORD_CHARS = frozenset(ascii_letters + digits)

_RULES: tuple[Rule, ...] = (*PATTERNS, *SECRETS)
_FIRST_RULE = 2
_GATE = Gate((numbers.RUN_GATE, PRIVATE_KEY_HEAD, *map(trigger_of, _RULES)))
_COMPILED = tuple(re2.compile(rule.regex.encode(), options()) for rule in _RULES)
_GROUP = tuple(min(1, pattern.groups) for pattern in _COMPILED)
_RUN = re2.compile(numbers.RUN.encode(), options())
_DIGITS = re2.compile(rb"[0-9]+", options())
_KEY_HEAD = re2.compile(PRIVATE_KEY_HEAD.encode(), options())


class Finding(Struct, frozen=True, order=True):
    """A place in a text (offsets in code points, end exclusive) and what stands there."""

    start: int
    end: int
    label: str
    score: float
    detector: str


class Scan(Struct, frozen=True):
    """Findings in order of place; `complete` is False when there were too many candidates."""

    findings: tuple[Finding, ...] = ()
    complete: bool = True


_NOTHING = Scan()


def find(text: str) -> tuple[Finding, ...]:
    """The findings of one text, in order, without overlaps."""
    return scan(text).findings


def scan(text: str) -> Scan:
    """Like `find`, and says whether every candidate was judged."""
    view = normalise(text)
    data = view.text.encode("ascii")
    hits = _GATE.hits(data)
    if not hits:
        return _NOTHING
    found: list[Finding] = []
    budget = MAX_CANDIDATES
    for hit in sorted(hits):
        source = _candidates(hit, data, view, text)
        for candidate in source:
            budget -= 1
            if candidate is not None and candidate.score >= MIN_SCORE:
                found.append(candidate)
            if budget <= 0:
                break
    placed = (_at_origin(finding, view) for finding in _without_overlaps(found))
    return Scan(tuple(placed), complete=budget > 0)


def _candidates(hit: int, data: bytes, view: View, text: str) -> Iterator[Finding | None]:
    if hit == 0:
        return _numbers(data, view, text)
    if hit == 1:
        return _private_keys(data, view)
    return _matches(hit - _FIRST_RULE, data, view, text)


def _matches(index: int, data: bytes, view: View, text: str) -> Iterator[Finding | None]:
    rule = _RULES[index]
    group = _GROUP[index]
    pattern = _COMPILED[index]
    position = 0
    while (match := pattern.search(data, position)) is not None:
        start, end = match.span(group)
        value = view.text[start:end]
        if rule.name == "iban":
            value = _trimmed_iban(value)
            end = start + len(value)
        if not value or (rule.accepts is not None and not rule.accepts(value)):
            # What was read in vain can hold the beginning of a true match.
            position = start + 1
            yield None
            continue
        position = max(end, start + 1)
        score = _with_context(rule, start, end, view, text)
        yield Finding(start, end, rule.label, score, f"{rule.label.lower()}/{rule.name}")


def _trimmed_iban(text: str) -> str:
    """The part that is an IBAN of its country's length; the pattern may have read on."""
    compact = [index for index, char in enumerate(text) if char.isalnum()]
    length = validators.IBAN_LENGTH.get(text[:2].upper(), 0)
    if not length or len(compact) < length:
        return ""
    candidate = text[: compact[length - 1] + 1]
    if candidate != candidate.upper() and candidate != candidate.lower():
        return ""  # It has read on into a sentence; one in 97 of those fits by chance.
    return candidate if validators.iban("".join(filter(str.isalnum, candidate))) else ""


def _with_context(rule: Rule, start: int, end: int, view: View, text: str) -> float:
    if not rule.context:
        return rule.score
    around = view.text[max(0, start - _CONTEXT_LENGTH) : end + _CONTEXT_LENGTH].lower()
    if not text.isascii():
        origin = view.origin(start)
        around += text[max(0, origin - _CONTEXT_LENGTH) : origin + _CONTEXT_LENGTH].lower()
    if any(word in around for word in rule.context):
        return min(0.99, rule.score + _CONTEXT_BONUS)
    return 0.0 if rule.needs_context else rule.score


def _numbers(data: bytes, view: View, text: str) -> Iterator[Finding | None]:
    plain = view.text
    other_script = not text.isascii()
    position = 0
    while (match := _RUN.search(data, position)) is not None:
        start, end = match.span()
        groups = numbers.groups_of(plain[start:end])
        position = end
        yield None
        if plain[end : end + 1].isdigit():
            # The run goes on: leave the torn group out, and look again at what it may belong to.
            position = start + numbers.overlap_start(groups)
            if position == end:
                position = _DIGITS.search(data, end).end()
        # Digits inside a word are a hash or an id, unless it is a word like that of "card4111".
        glued = _glue_before(plain, start), _glue_after(plain, end)
        if groups and glued[1] is _Glue.TORN:
            groups.pop()
        if groups and glued[0] is _Glue.TORN:
            groups.pop(0)
        if not groups:
            continue
        first = start + groups[0][0]
        before = plain[max(0, first - numbers.CONTEXT_BEFORE_LENGTH) : first].lower()
        if other_script:
            origin = view.origin(first)
            before = text[max(0, origin - numbers.CONTEXT_BEFORE_LENGTH) : origin].lower() + before
        after = plain[end : end + numbers.CONTEXT_AFTER_LENGTH].lower()
        least = _GLUED_SCORE if _Glue.WORD in glued else MIN_SCORE
        for number in numbers.judge(plain[start:end], groups, before, after):
            if number is None or number.score < least:
                yield None
                continue
            place = start + number.start
            yield Finding(place, start + number.end, number.label, number.score, "number")


class _Glue(Enum):
    """What stands right beside a run of digits."""

    FREE = "nothing that belongs to it"
    WORD = "a word written together with it"
    TORN = "the rest of a hash, an id or a longer number"


def _glue_before(plain: str, start: int) -> _Glue:
    if not start or plain[start - 1] not in _WORD_CHARS or plain[start] in "+(":
        return _Glue.FREE
    piece = plain[max(0, start - _WORD_LENGTH) : start]
    return _word_or_torn(piece[len(piece.rstrip(_LETTERS)) :])


def _glue_after(plain: str, end: int) -> _Glue:
    """The extension of a telephone number ("x27") is no glue."""
    if plain[end : end + 1] not in _WORD_CHARS:
        return _Glue.FREE
    if plain[end] in "xX" and plain[end + 1 : end + 2].isdigit():
        return _Glue.FREE
    piece = plain[end : end + _WORD_LENGTH]
    return _word_or_torn(piece[: len(piece) - len(piece.lstrip(_LETTERS))])


def _word_or_torn(letters: str) -> _Glue:
    """Three letters that are not all hexadecimal make a word."""
    word = len(letters) > 2 and bool(letters.strip("abcdefABCDEF"))  # noqa: PLR2004 - see above.
    return _Glue.WORD if word else _Glue.TORN


def _private_keys(data: bytes, view: View) -> Iterator[Finding | None]:
    reached = 0
    for match in _KEY_HEAD.finditer(data):
        start, end = match.span()
        if start < reached:
            yield None
            continue
        stop = view.text.find(_KEY_END, end, end + _KEY_LENGTH)
        line_end = view.text.find("-----", stop + len(_KEY_END), stop + 80) if stop >= 0 else -1
        if line_end >= 0:
            reached = line_end + 5
        else:  # A torn block: everything that can still belong to the key.
            reached = min(len(data), end + _KEY_LENGTH) if stop < 0 else stop
        yield Finding(start, reached, "PRIVATE_KEY", 0.99, "private_key")


def _without_overlaps(found: list[Finding]) -> list[Finding]:
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


def _precedence(finding: Finding) -> tuple[bool, float, int, int]:
    """What must stay home may not hide behind a telephone number that is a hair likelier."""
    is_harmless = data_class_of(finding.label) < DataClass.S3
    return is_harmless, -finding.score, finding.start - finding.end, finding.start


def _at_origin(finding: Finding, view: View) -> Finding:
    if not view.kept_before:
        return finding
    return Finding(
        view.origin(finding.start),
        view.origin_end(finding.end),
        finding.label,
        finding.score,
        finding.detector,
    )
