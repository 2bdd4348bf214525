"""Finds identifiers, contacts and secrets in one text: view, gate, rules, overlaps.

The gate reads the text once and names the rules that can match; only those run. Nothing here keeps,
logs or shows the text: a finding is a label and a place.
"""

import re
from collections.abc import Iterator
from enum import Enum
from functools import cache
from string import ascii_letters, digits
from typing import Any

import re2
from msgspec import Struct, structs

from classifiers.pii.credentials.own_forms import without_own_forms
from classifiers.pii.credentials.passwords import PASSWORDS
from classifiers.pii.credentials.pins import PINS
from classifiers.pii.credentials.secrets import PRIVATE_KEY_HEAD, SECRETS
from classifiers.pii.disguises import DISGUISES, ROUNDS_MAX, Disguise
from classifiers.pii.findings import Finding, without_overlaps
from classifiers.pii.gate import Gate, options, trigger_of
from classifiers.pii.numerals import numbers, validators
from classifiers.pii.patterns import PATTERNS
from classifiers.pii.readings import readings
from classifiers.pii.rules import Rule
from classifiers.pii.views.decoded import Decoded
from classifiers.pii.views.normalise import View, normalise


MIN_SCORE = 0.5
MAX_CANDIDATES = 10_000
# All decoded views together may be this many times as long as the text.
MAX_DECODED_FACTOR = 6
_CONTEXT_LENGTH = 60
_CONTEXT_BONUS = 0.1
_VETO_LENGTH = 40
_KEY_END = "-----END"
_KEY_LENGTH = 16_384
_WORD_LENGTH = 12
_GLUED_SCORE = 0.8
_LONG_RUN = 13
_WORD_CHARS = frozenset(ascii_letters + digits)

_RULES: tuple[Rule, ...] = (*PATTERNS, *SECRETS, *PASSWORDS, *PINS)
# The rules that the gate's hits stand for, set by set.
_NUMBERS, _KEYS = "numbers", "private keys"
Source = Rule | Disguise | str


def _trigger(source: Source) -> str:
    if isinstance(source, Rule):
        return trigger_of(source)
    if isinstance(source, Disguise):
        return source.trigger
    return numbers.RUN_GATE if source == _NUMBERS else PRIVATE_KEY_HEAD


# Triggers that count characters of a run have many states: they are kept apart.
_COUNTS = re.compile(r"\]\{(?:[7-9]|[1-9][0-9])")
_WITH_DIGITS: tuple[Source, ...] = (_NUMBERS, *PINS, *(d for d in DISGUISES if d.needs_digits))
_IN_TOKENS: tuple[Source, ...] = tuple(d for d in DISGUISES if d.needs_token)
_ANYWHERE: tuple[Source, ...] = (_KEYS, *_RULES, *(d for d in DISGUISES if d.is_anywhere))
_IN_RUNS = tuple(source for source in _ANYWHERE if _COUNTS.search(_trigger(source)))
_SETS: tuple[tuple[str, tuple[Source, ...]], ...] = (
    ("", tuple(source for source in _ANYWHERE if source not in (*_IN_RUNS, *PINS))),
    (r"[A-Za-z0-9_\-+/=.~$!@#%^&*<]{9}", _IN_RUNS),
    (r"[!-~]{15}", _IN_TOKENS),
    (r"(?s)[0-9].{0,8}[0-9]", _WITH_DIGITS),
)
_SOURCES = tuple(source for _, group in _SETS for source in group)
_IN_SCRIPTS = tuple(
    (at, source.occurs)
    for at, source in enumerate(_SOURCES)
    if isinstance(source, Disguise) and source.occurs is not None
)
_GATE = Gate(tuple((condition, tuple(map(_trigger, group))) for condition, group in _SETS))
_RUN = re2.compile(numbers.RUN.encode(), options())
_DIGITS = re2.compile(rb"[0-9]+", options())
_KEY_HEAD = re2.compile(PRIVATE_KEY_HEAD.encode(), options())
# The rest of a line, lines that no prose has, and what may stand on the last two.
_KEY_BODY = re2.compile(
    rb"[A-Za-z0-9+/=]*(?:(?:\s|\\[nr])+[A-Za-z0-9+/=]{24,})*(?:(?:\s|\\[nr])+[A-Za-z0-9+/=]*){0,3}",
    options(),
)


class Scan(Struct, frozen=True):
    """Findings in the order of their places; `complete` is False if candidates were too many.

    `late` says that time ran out before everything was read.
    """

    findings: tuple[Finding, ...] = ()
    complete: bool = True
    late: bool = False


class Look(Struct, frozen=True):
    """The findings of patterns, overlaps included, and decoded views in which words may hide."""

    findings: list[Finding]
    complete: bool
    views: tuple[Decoded, ...] = ()


_EMPTY = Look([], complete=True)


def find(text: str) -> tuple[Finding, ...]:
    """The findings of one text, in order, without overlaps."""
    return scan(text).findings


def scan(text: str) -> Scan:
    """Like `find`, but also says whether every candidate was judged."""
    seen = look(text)
    return Scan(tuple(without_overlaps(seen.findings)), seen.complete)


class _Budget:
    """How much may still be judged and decoded, for a text and all of its views together."""

    __slots__ = ("candidates", "characters")

    def __init__(self, length: int) -> None:
        self.candidates = MAX_CANDIDATES
        self.characters = MAX_DECODED_FACTOR * length + 4096

    def is_spent(self) -> bool:
        return self.candidates <= 0 or self.characters <= 0


def look(text: str) -> Look:
    """Run the rules over a text, and over its decoded disguises."""
    budget = _Budget(len(text))
    seen = _look(text, budget, ROUNDS_MAX)
    if seen.findings:
        seen = structs.replace(seen, findings=without_own_forms(text, seen.findings))
    return seen if not budget.is_spent() else Look(seen.findings, complete=False, views=seen.views)


def _look(text: str, budget: _Budget, rounds: int) -> Look:
    view = normalise(text)
    data = view.text.encode("ascii")
    hits = _GATE.hits(data)
    if not text.isascii():
        hits += [at for at, occurs in _IN_SCRIPTS if occurs(text)]
    if not hits:
        return _EMPTY
    found: list[Finding] = []
    views: list[Decoded] = []
    for hit in sorted(set(hits)):
        source = _SOURCES[hit]
        if isinstance(source, Disguise):
            # Inside a decoded view only encodings are decoded again, and digits put together.
            is_first = rounds == ROUNDS_MAX
            if not source.is_only_inside if is_first else rounds and source.is_read_inside:
                more = _look_behind(source, text, view, budget, rounds - 1)
                found += more.findings
                views += more.views
            continue
        for candidate in _candidates(source, data, view, text):
            budget.candidates -= 1
            if candidate is not None and candidate.score >= MIN_SCORE:
                found.append(_at_origin(candidate, view))
            if budget.candidates <= 0:
                break
    return Look(found, complete=True, views=tuple(views))


def _look_behind(disguise: Disguise, text: str, view: View, budget: _Budget, rounds: int) -> Look:
    """The findings that only the decoded text shows, at their places in the text itself."""
    if budget.is_spent():
        return _EMPTY
    found: list[Finding] = []
    views: list[Decoded] = []
    for decoded in readings(disguise, text, view):
        if not budget.is_spent():
            more = _look_at(decoded, disguise, view, budget, rounds)
            found += more.findings
            views += more.views
    return Look(found, complete=True, views=tuple(views)) if found or views else _EMPTY


def _look_at(
    decoded: Decoded, disguise: Disguise, view: View, budget: _Budget, rounds: int
) -> Look:
    budget.characters -= len(decoded.text)
    if budget.is_spent():
        return _EMPTY
    inner = _look(decoded.text, budget, rounds if disguise.hides_words else 0)
    found = []
    also = [f for f in disguise.also(decoded) if not any(_overlap(f, g) for g in inner.findings)]
    for finding in (*inner.findings, *also):
        if not decoded.touches(finding.start, finding.end) or finding.score < disguise.least:
            continue
        start, end = decoded.origin(finding.start, finding.end)
        if rounds < ROUNDS_MAX - 1 and decoded.is_behind(finding.start):
            # With its escape: what that was decoded from is where another one was hiding.
            start, _ = decoded.origin(finding.start - 1, finding.end)
        if disguise.on_ascii:
            start, end = view.origin(start), view.origin_end(end)
        name = f"{finding.detector}+{disguise.name}"
        found.append(Finding(start, end, finding.label, finding.score, name))
    return Look(found, complete=True, views=(decoded,) if disguise.hides_words else ())


def _overlap(one: Finding, other: Finding) -> bool:
    return one.start < other.end and other.start < one.end


@cache
def _compiled(rule: Rule) -> Any:
    """Compiled on first use: RE2 takes a millisecond for a rule, and most texts trigger none."""
    return re2.compile(rule.regex.encode(), options())


@cache
def _reader(rule: Rule) -> re.Pattern[str] | None:
    return re.compile(rule.whole) if rule.whole else None


def warm() -> None:
    """Compile every rule now."""
    for rule in _RULES:
        _compiled(rule)
        _reader(rule)


def _candidates(source: Rule | str, data: bytes, view: View, text: str) -> Iterator[Finding | None]:
    if isinstance(source, Rule):
        return _matches(source, data, view, text)
    return _numbers(data, view, text) if source == _NUMBERS else _private_keys(data, view)


def _matches(rule: Rule, data: bytes, view: View, text: str) -> Iterator[Finding | None]:
    pattern, reader = _compiled(rule), _reader(rule)
    group = min(1, pattern.groups)
    position = 0
    while (match := pattern.search(data, position)) is not None:
        start, end = match.span(group)
        if reader is not None:
            whole = reader.match(view.text, start)
            end = start if whole is None else whole.end()
        value = view.text[start:end]
        if rule.name == "iban":
            value = _trimmed_iban(value)
            end = start + len(value)
        if not value or (rule.accepts is not None and not rule.accepts(value)):
            # Text that was read without a finding can hold the beginning of a true match.
            position = start + 1
            yield None
            continue
        position = max(end, start + 1)
        score = _with_context(rule, start, end, view, text)
        yield Finding(start, end, rule.label, score, f"{rule.label.lower()}/{rule.name}")


def _trimmed_iban(text: str) -> str:
    """The part that is an IBAN of its country's length; the pattern may have read too far."""
    compact = [index for index, char in enumerate(text) if char.isalnum()]
    length = validators.IBAN_LENGTH.get(text[:2].upper(), 0)
    if not length or len(compact) < length:
        return ""
    candidate = text[: compact[length - 1] + 1]
    if candidate[2:] != candidate[2:].upper() and candidate != candidate.lower():
        return ""  # It has read on into a sentence; one in 97 of those fits by chance.
    return candidate if validators.iban("".join(filter(str.isalnum, candidate))) else ""


def _with_context(rule: Rule, start: int, end: int, view: View, text: str) -> float:
    if rule.veto:
        before = view.text[max(0, start - _VETO_LENGTH) : start].lower()
        if any(word in before for word in rule.veto):
            return 0.0
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
        # Digits inside a word are a hash or an id, unless the word is like that in "card4111".
        is_long = sum(stop - first for first, stop in groups) >= _LONG_RUN
        glued = (
            _glue_before(plain, start, is_long=is_long),
            _glue_after(plain, end, is_long=is_long),
        )
        if groups and glued[1] is _Glue.TORN:
            groups.pop()
        if groups and glued[0] is _Glue.TORN:
            groups.pop(0)
        if not groups:
            continue
        first = start + groups[0][0]
        before = plain[max(0, first - numbers.CONTEXT_BEFORE_LENGTH) : first]
        before = numbers.in_words(before, plain[end : end + 1])
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
    """What is directly next to a run of digits."""

    FREE = "nothing that belongs to it"
    WORD = "a word written together with it"
    TORN = "the rest of a hash, an id or a longer number"


def _glue_before(plain: str, start: int, *, is_long: bool) -> _Glue:
    if not start or plain[start - 1] not in _WORD_CHARS or plain[start] in "+(":
        return _Glue.FREE
    piece = plain[max(0, start - _WORD_LENGTH) : start]
    letters = piece[len(piece.rstrip(ascii_letters)) :]
    return _word_or_torn(letters, piece[: -len(letters)][-1:], is_long=is_long)


def _glue_after(plain: str, end: int, *, is_long: bool) -> _Glue:
    """What follows a run; the extension of a telephone number ("x27") is not glue."""
    if plain[end : end + 1] not in _WORD_CHARS:
        return _Glue.FREE
    if plain[end] in "xX" and plain[end + 1 : end + 2].isdigit():
        return _Glue.FREE
    piece = plain[end : end + _WORD_LENGTH]
    letters = piece[: len(piece) - len(piece.lstrip(ascii_letters))]
    return _word_or_torn(letters, piece[len(letters) :][:1], is_long=is_long)


def _word_or_torn(letters: str, beyond: str, *, is_long: bool) -> _Glue:
    """Three letters that are not all hexadecimal make a word.

    So do any letters directly beside a long number with nothing beyond them ("CC4111…").
    """
    word = len(letters) > 2 and bool(letters.strip("abcdefABCDEF"))  # noqa: PLR2004 - see above.
    return _Glue.WORD if word or (is_long and not beyond.isdigit()) else _Glue.TORN


def _private_keys(data: bytes, view: View) -> Iterator[Finding | None]:
    """Each block reaches to its end or, if that is missing, at most to the head of the next."""
    heads = _KEY_HEAD.finditer(data)
    match = next(heads, None)
    while match is not None:
        following = next(heads, None)
        limit = len(data) if following is None else following.start()
        end = _key_end(data, view.text, match.end(), limit)
        yield Finding(match.start(), end, "PRIVATE_KEY", 0.99, "private_key")
        match = following


def _key_end(data: bytes, text: str, start: int, limit: int) -> int:
    reached = min(limit, start + _KEY_LENGTH)
    stop = text.find(_KEY_END, start, reached)
    if stop < 0:  # A torn block, or a very long one: everything that can still belong to the key.
        reached += int(_KEY_BODY.match(data[reached:limit]).end())
        if not text.startswith(_KEY_END, reached, limit):
            return reached
        stop = reached
    line_end = text.find("-----", stop + len(_KEY_END), min(limit, stop + 80))
    return line_end + 5 if line_end >= 0 else stop


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
