"""Parses search terms for lists: `model:claude* cost:>0.05 status:error`. Pure.

A filter is a list of terms that must all hold; a term is a field with values of which any may hold.
A `-` before a term negates it, and a word without a field is the beginning of a request's id. What
cannot be parsed is refused with its position, so that a page can show it where it was typed.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Final, Literal
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import replace

from classifiers.pii.labels import LABELS
from gateway.errors import RequestInvalid


FILTER_CHARS_MAX: Final = 1000
_SPAN: Final = ("since", "until")
_SPAN_CHARS: Final = len(' since:"2026-11-30T14:05:00Z" until:"2026-11-30T14:05:00Z"')
TERMS_MAX: Final = 20
"""Besides a span of time: a filter with so many terms can still get a start and an end."""
VALUES_MAX: Final = 20
VALUE_CHARS_MAX: Final = 200
NONE: Final = "NONE"
"""As a label: nothing was found."""
ERROR: Final = "error"
"""As a status: every one except `ok`."""
Operator = Literal["=", "<", "<=", ">", ">="]
Kind = Literal["text", "label", "choice", "digest", "money", "count", "duration", "moment"]
ROUTES: Final = ("in-house", "managed", "refused")
STATUSES: Final = ("ok", "refused", "failed", "incomplete", "cancelled", ERROR)
SENT: Final = ("surrogates", "blackened")
CLASSES: Final = ("s0", "s1", "s2", "s3", "s4")
DEED: Final = "deed"
STAGES: Final = ("intent", "outcome", DEED)
STAGE_OF_DEEDS: Final = "admin"
"""The stage's name in records; filters may use it, too."""


class Field(Struct, frozen=True):
    """A searchable field; only a choice has `choices`."""

    name: str
    kind: Kind
    title: str
    choices: tuple[str, ...] = ()


FIELDS: Final = {
    field.name: field
    for field in (
        Field("id", "text", "how the request's id begins"),
        Field("model", "text", "the model that was asked for"),
        Field("target", "text", "what served it"),
        Field("provider", "text", "whose target that is"),
        Field("jurisdiction", "text", "where that is"),
        Field("route", "choice", "in-house, managed or refused", ROUTES),
        Field("status", "choice", "how it ended", STATUSES),
        Field("error", "text", "the code of what went wrong"),
        Field("http", "count", "the HTTP status"),
        Field("pii", "label", "what the text held"),
        Field("sent", "choice", "what it held left changed, as surrogates or blackened", SENT),
        Field("class", "choice", "the class of the data", CLASSES),
        Field("rule", "text", "a rule of policy that held for it, by its name"),
        Field("key", "text", "the key's name or id"),
        Field("user", "digest", "the end user, by the digest that stands for the name"),
        Field("project", "text", "the project"),
        Field("workspace", "text", "the workspace"),
        Field("cost", "money", "US dollars"),
        Field("tokens", "count", "tokens in and out"),
        Field("duration", "duration", "from the first byte in to the last out"),
        Field("ttft", "duration", "the time to the first byte, of a stream to its first content"),
        Field("since", "moment", "not before"),
        Field("until", "moment", "before"),
        Field("kind", "choice", "the kind of record", STAGES),
        Field("actor", "text", "who did it"),
        Field("action", "text", "what they did"),
    )
}
_COMPARED: Final = ("money", "count", "duration")
_UNITS_US: Final = {"us": 1, "ms": 10**3, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6}
_AGO_US: Final = _UNITS_US | {"d": 86_400 * 10**6, "w": 7 * 86_400 * 10**6}
_SHAPES: Final = {
    "digest": re.compile(r"[0-9a-f]{6,32}\*?"),
    "money": re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?"),
    "count": re.compile(r"[0-9]{1,15}"),
    "duration": re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(us|ms|s|m|h)"),
}
_EXAMPLES: Final = {
    "digest": "a digest of 32 hexadecimal digits, or its first ones and *; never a name",
    "money": "an amount in dollars such as 0.05",
    "count": "a whole number",
    "duration": "a number with us, ms, s, m or h, such as 800ms",
    "moment": "24h, 7d, today, yesterday, 2026-11-21 or 2026-11-21T14:00",
}
_AGO: Final = re.compile(r"([0-9]{1,6})(s|m|h|d|w)")
_DAYS_BACK: Final = {"today": 0, "yesterday": 1}
_AT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}(:[0-9]{2})?Z?)?")
_OPERATOR: Final = re.compile(r"(<=|>=|<|>|=)?")
_NAME: Final = re.compile(r"[a-z]+(?=:)")
_BARE_END: Final = re.compile(r'[\s,"]')


class FilterInvalid(RequestInvalid):
    """A filter that cannot be read; the error is at `text[at:at + length]`."""

    def __init__(self, message: str, at: int, length: int) -> None:
        super().__init__(message, parameter="q")
        self.at = at
        self.length = length


class Term(Struct, frozen=True):
    """One condition; with an operator other than `=` there is one value."""

    field: str
    values: tuple[str, ...]
    operator: Operator = "="
    is_negated: bool = False


class Filter(Struct, frozen=True):
    """Terms that must all hold."""

    terms: tuple[Term, ...] = ()

    def value_of(self, field: str) -> str:
        """The value that is asked for, if there is one."""
        return next((each.values[0] for each in self.terms if each.field == field), "")

    def has(self, field: str, value: str) -> bool:
        """Whether this value is asked for, alone or among others."""
        return any(_is_plain(each, field) and value in each.values for each in self.terms)

    def without(self, *fields: str) -> "Filter":
        return Filter(tuple(each for each in self.terms if each.field not in fields))

    def toggled(self, field: str, value: str) -> "Filter":
        """Asks for this value instead of others of its field; no longer asks for it if it did."""
        others = tuple(each for each in self.terms if not _is_plain(each, field))
        if self.has(field, value):
            return Filter(others)
        return Filter((*others, Term(field, (value,))))


def _is_plain(term: Term, field: str) -> bool:
    return term.field == field and term.operator == "=" and not term.is_negated


def parse(text: str) -> Filter:
    """The terms of a filter.

    Raises:
        FilterInvalid: it cannot be read; nothing else.
    """
    if len(text) > FILTER_CHARS_MAX:
        raise FilterInvalid(
            f"a filter has at most {FILTER_CHARS_MAX} characters", FILTER_CHARS_MAX, 0
        )
    terms: list[Term] = []
    reader = _Reader(text)
    left = TERMS_MAX
    while reader.skip_space():
        at = reader.at
        terms.append(reader.term())
        is_span = terms[-1].field in _SPAN and terms[-1].field not in [e.field for e in terms[:-1]]
        left -= not is_span
        if left < 0:
            raise FilterInvalid(f"a filter has at most {TERMS_MAX} terms", at, 1)
    return Filter(tuple(terms))


def render(found: Filter) -> str:
    """The text of a filter; `parse` gives the same filter back."""
    return " ".join(_term_text(term) for term in found.terms)


def _term_text(term: Term) -> str:
    operator = "" if term.operator == "=" else term.operator
    values = ",".join(_quoted(value) for value in term.values)
    return f"{'-' if term.is_negated else ''}{term.field}:{operator}{values}"


def _quoted(value: str) -> str:
    if value and not _BARE_END.search(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


class _Reader:
    """Reads the text of a filter from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.at = 0

    def skip_space(self) -> bool:
        """Whether anything follows."""
        while self.at < len(self._text) and self._text[self.at].isspace():
            self.at += 1
        return self.at < len(self._text)

    def term(self) -> Term:
        is_negated = self._takes("-")
        start = self.at
        named = _NAME.match(self._text, self.at)
        if named is None:
            return Term("id", (self._value(FIELDS["id"]),), is_negated=is_negated)
        field = FIELDS.get(named[0])
        if field is None:
            known = ", ".join(FIELDS)
            raise FilterInvalid(f"there is no field “{named[0]}”; {known}", start, len(named[0]))
        self.at = named.end() + 1
        operator: Operator = "="
        if field.kind in _COMPARED:
            said = _OPERATOR.match(self._text, self.at)
            assert said is not None  # It also matches an empty text.
            self.at = said.end()
            operator = said[0] or "="  # type: ignore[assignment]
        values = [self._value(field)]
        while self._takes(","):
            if operator != "=" or field.kind == "moment" or len(values) == VALUES_MAX:
                raise FilterInvalid(f"“{field.name}” takes fewer values here", self.at - 1, 1)
            values.append(self._value(field))
        return Term(field.name, tuple(values), operator, is_negated)

    def _takes(self, character: str) -> bool:
        is_there = self._text.startswith(character, self.at)
        self.at += is_there
        return is_there

    def _value(self, field: Field) -> str:
        start = self.at
        value = self._quoted() if self._takes('"') else self._bare()
        length = max(self.at - start, 1)
        if not value:
            raise FilterInvalid(f"a value of “{field.name}” is missing", start, length)
        if len(value) > VALUE_CHARS_MAX or not value.isprintable():
            reason = f"a value has at most {VALUE_CHARS_MAX} characters, all of them printable"
            raise FilterInvalid(reason, start, length)
        try:
            return _READERS[field.kind](field, value)
        except ValueError as error:
            raise FilterInvalid(str(error), start, length) from None

    def _bare(self) -> str:
        end = _BARE_END.search(self._text, self.at)
        start, self.at = self.at, end.start() if end else len(self._text)
        return self._text[start : self.at]

    def _quoted(self) -> str:
        start = self.at - 1
        characters: list[str] = []
        while self.at < len(self._text):
            character = self._text[self.at]
            self.at += 1
            if character == '"':
                return "".join(characters)
            if character == "\\" and self.at < len(self._text):
                character = self._text[self.at]
                self.at += 1
            characters.append(character)
        raise FilterInvalid("the quotation mark is not closed", start, self.at - start)


def _as_text(_: Field, value: str) -> str:
    return value


def _as_label(_: Field, value: str) -> str:
    # Only if the result is stable: labels never contain other letters than ASCII.
    return value.upper() if value.isascii() else value


def _as_choice(field: Field, value: str) -> str:
    known = value.lower()
    if field.name == "kind" and known == STAGE_OF_DEEDS:
        return DEED
    if known not in field.choices:
        raise ValueError(f"“{field.name}” is one of {', '.join(field.choices)}")
    return known


def _as_shape(field: Field, value: str) -> str:
    if _SHAPES[field.kind].fullmatch(value) is None:
        raise ValueError(f"“{field.name}” is {_EXAMPLES[field.kind]}")
    return value


def _as_moment(field: Field, value: str) -> str:
    try:
        moment_us(value, 0, "UTC")
    except ValueError:
        raise ValueError(f"“{field.name}” is {_EXAMPLES['moment']}") from None
    return value


_READERS: Final[dict[Kind, Callable[[Field, str], str]]] = {
    "text": _as_text,
    "label": _as_label,
    "choice": _as_choice,
    "digest": _as_shape,
    "money": _as_shape,
    "count": _as_shape,
    "duration": _as_shape,
    "moment": _as_moment,
}


def moment_us(value: str, now_us: int, zone: str) -> int:
    """Microseconds UTC of a moment: so long before now, or a date (or `today`) and time in a zone.

    Raises:
        ValueError: it is neither.
    """
    if ago := _AGO.fullmatch(value):
        return now_us - int(ago[1]) * _AGO_US[ago[2]]
    if value in _DAYS_BACK:
        today = datetime.fromtimestamp(now_us / 10**6, ZoneInfo(zone)).date()
        value = str(today - timedelta(_DAYS_BACK[value]))
    if _AT.fullmatch(value) is None:
        raise ValueError(value)
    at = datetime.fromisoformat(value)
    if at.tzinfo is None:
        at = at.replace(tzinfo=ZoneInfo(zone))
    try:
        return (
            round((at.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * 10**6
        )
    except OverflowError:
        if zone == "UTC":
            raise ValueError(value) from None
        # At an end of the calendar the zone leads out of it: there the time was read in UTC.
        return moment_us(value, now_us, "UTC")


def number_of(field: str, value: str) -> int:
    """A compared value in the unit of its column: micro-dollars, microseconds, or a count."""
    kind = FIELDS[field].kind
    if kind == "money":
        return int(Decimal(value) * 10**6)
    if kind == "duration":
        found = _SHAPES["duration"].fullmatch(value)
        assert found is not None
        return int(Decimal(found[1]) * _UNITS_US[found[2]])
    return int(value)


def timeless(text: str) -> Filter:
    """A filter for uses with a time of their own: without times, and short enough to add them.

    Its result is signed for or reported even if empty, so impossible labels are refused.

    Raises:
        FilterInvalid: it cannot be read, is too long to add times, or has an impossible label.
    """
    found = parse(text).without(*_SPAN)
    for value in (*unfindable_in(found), *left_out_in_vain(found))[:1]:
        known = ", ".join(sorted(LABELS))
        reason = f"nothing is found as “{value}”, but as {known}; -pii:{NONE} is any of them"
        raise FilterInvalid(reason, max(text.upper().find(value), 0), len(value))
    most = FILTER_CHARS_MAX - _SPAN_CHARS
    if len(render(found)) > most:
        reason = f"a filter has at most {most} characters beside its time"
        raise FilterInvalid(reason, most, 0)
    return found


def unfindable_in(found: Filter) -> list[str]:
    """The labels that a filter asks for and no finding has: their absence says nothing."""
    return _had_by_nothing(found, is_negated=False)


def left_out_in_vain(found: Filter) -> list[str]:
    """The labels that a filter excludes and no finding has: they exclude nothing."""
    return _had_by_nothing(found, is_negated=True)


def _had_by_nothing(found: Filter, *, is_negated: bool) -> list[str]:
    terms = (each for each in found.terms if each.field == "pii" and each.is_negated is is_negated)
    return [
        value
        for term in terms
        for value in term.values
        if value != NONE and not any(fnmatchcase(label, value) for label in LABELS)
    ]


def between(found: Filter, since: str, until: str) -> Filter:
    """The same filter for another span of time."""
    others = found.without("since", "until").terms
    return replace(found, terms=(*others, Term("since", (since,)), Term("until", (until,))))
