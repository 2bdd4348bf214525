"""Turns a filter's terms into conditions on the projection, with those an index answers apart.

Indexes cover time, the few rows that found something, failed, name an actor or belong to no
request, and a request's id, which begins with its time.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct
from sqlalchemy import ColumnElement, Select, and_, literal_column, not_, or_, select

from gateway.oversight.homes import IN_HOUSE, MANAGED, REFUSED, Homes
from gateway.oversight.searching import (
    DEED,
    ERROR,
    NONE,
    STAGE_OF_DEEDS,
    Filter,
    Term,
    moment_us,
    number_of,
)
from gateway.store.schema.audit import audit_records, audit_rule_sets
from gateway.store.schema.audit_columns import is_home
from gateway.store.schema.tables import virtual_keys
from gateway.store.speech import DatabaseKind


_ID_HEX: Final = 12
"""Hex digits of the milliseconds that a request's id begins with."""
_ID_HEX_MIN: Final = 7
"""With this many digits the rest is 17 minutes at most."""
_ID_LATE_MS: Final = 3_600_000
"""A record is written at most this long after its request came."""
_INT32_MAX: Final = 2**31 - 1
_C = audit_records.c
_TEXTS: Final = {
    "model": _C.model_requested,
    "target": _C.target,
    "provider": _C.provider,
    "error": _C.error,
    "jurisdiction": _C.jurisdiction,
    "project": _C.project,
    "workspace": _C.workspace,
    "user": _C.subject,
    "sent": _C.sent,
    "actor": _C.actor,
    "action": _C.action,
}
_NUMBERS: Final[dict[str, Any]] = {
    "http": _C.http_status,
    "cost": _C.cost_microusd,
    "tokens": _C.input_tokens + _C.output_tokens,
    "duration": _C.duration_us,
    "ttft": _C.first_byte_us,
}
_FEW: Final = {
    "kind": "stage <> 'intent' AND stage <> 'outcome'",
    "actor": "actor <> ''",
    "error": "status <> 'ok'",
    "status": "status <> 'ok'",
    "route": "status <> 'ok'",
    "pii": "findings <> ''",
    "sent": "findings <> ''",
}
"""The condition of the partial index for each of these fields."""
Condition = ColumnElement[bool]


class Source(Struct, frozen=True):
    """Whose records: an organisation's own, or those about it in another log."""

    organisation: str
    stage: str | None = None
    about: str | None = None


class Search(Struct, frozen=True):
    """The filter and its times: `2h` is before `now_us`, a date is in `zone`."""

    source: Source
    filter: Filter
    now_us: int
    zone: str = "UTC"
    since_us: int | None = None
    until_us: int | None = None
    """Exclusive; to the microsecond, which a filter's text cannot express."""


class Conditions(NamedTuple):
    """`led` can be answered by an index; `others` must be checked row by row."""

    led: list[Condition]
    others: list[Condition]
    is_sparse: bool
    """Whether the index holds only few of all rows."""


def conditions_of(search: Search, homes: Homes, kind: DatabaseKind) -> Conditions:
    """The conditions of a search, for the projection."""
    source = search.source
    led: list[Condition] = [_C.organisation == source.organisation]
    if source.stage is not None:
        led.append(_C.stage == literal_column(f"'{source.stage}'"))
    if source.about is not None:
        led += [_written("about <> ''"), _C.about == source.about]
    if search.since_us is not None:
        led.append(_C.utc_us >= search.since_us)
    if search.until_us is not None:
        led.append(_C.utc_us < search.until_us)
    others: list[Condition] = []
    is_sparse = source.about is not None
    for term in search.filter.terms:
        found = or_(*(_one(term, value, search, homes, kind) for value in term.values))
        if term.field == "rule":
            # This does not match requests whose rules are unknown.
            others.append(_C.rules >= 0)
        is_led, leader = _leader(term, source)
        if leader is not None:
            led.append(leader)
            is_sparse = True
        (led if is_led else others).append(not_(found) if term.is_negated else found)
    return Conditions(led, others, is_sparse)


def _one(term: Term, value: str, search: Search, homes: Homes, kind: DatabaseKind) -> Condition:
    if term.field in _TEXTS:
        return _like(_TEXTS[term.field], value, kind)
    if term.field in _NUMBERS:
        return _compared(term, value)
    match term.field:
        case "key" | "rule":
            named = _key if term.field == "key" else _rule
            return named(value, search.source, kind)
        case "since" | "until":
            at_us = moment_us(value, search.now_us, search.zone)
            return _C.utc_us >= at_us if term.field == "since" else _C.utc_us < at_us
        case "status":
            return _C.status.not_in(("ok", "")) if value == ERROR else _C.status == value
        case "class" | "kind":
            is_class, stage = term.field == "class", STAGE_OF_DEEDS if value == DEED else value
            return _C.data_class == value.upper() if is_class else _C.stage == stage
    if term.field == "route":
        return _route(value, homes)
    return _id(value) if term.field == "id" else _label(value)


def _key(value: str, source: Source, kind: DatabaseKind) -> Condition:
    """A key by its id or its present name: lists show a key by its name."""
    keys = virtual_keys.c
    named = select(keys.id).where(
        keys.organisation == (source.about or source.organisation), _like(keys.name, value, kind)
    )
    return or_(_like(_C.key_id, value, kind), _C.key_id.in_(named))


def _rule(value: str, source: Source, kind: DatabaseKind) -> Condition:
    return _C.rules.in_(sets_with(source.organisation, (value,), kind))


def sets_with(organisation: str, rules: Sequence[str], kind: DatabaseKind) -> Select[Any]:
    """The numbers of the sets that contain any of these rules."""
    names = audit_rule_sets.c
    is_named = or_(*(_like(names.rule, rule, kind) for rule in rules))
    return select(names.number).where(names.organisation == organisation, is_named)


def _like(column: ColumnElement[str], value: str, kind: DatabaseKind) -> Condition:
    if "*" not in value:
        return column == value
    # SQLite's LIKE ignores case by itself.
    like = column.like if kind == "sqlite" else column.ilike
    return like(_pattern(value), escape="\\")


def _leader(term: Term, source: Source) -> tuple[bool, Condition | None]:
    """Whether an index finds a term's rows, and the condition that makes the database use it."""
    if term.is_negated:
        return False, None
    values, is_outcome = {*term.values}, source.stage == "outcome"
    few = {
        "kind": not {"intent", "outcome"} & values,
        "actor": True,
        "error": is_outcome,
        "status": is_outcome and "ok" not in values,
        "route": is_outcome and not {IN_HOUSE, MANAGED} & values,
        "pii": is_outcome and NONE not in values,
        "sent": is_outcome,
    }
    leader = _written(_FEW[term.field]) if few.get(term.field) else None
    match term.field:
        case "since" | "until":
            return True, None
        case "id":
            return all(_milliseconds(value) is not None for value in term.values), None
        case "kind":
            return leader is not None, leader
        case "actor":
            return len(term.values) == 1 and "*" not in term.values[0], leader
    return False, leader


def _written(condition: str) -> Condition:
    """Written out, because a partial index is used only if the query repeats its condition."""
    return literal_column(f"({condition})")


def _compared(term: Term, value: str) -> Condition:
    column, number = _NUMBERS[term.field], number_of(term.field, value)
    if term.field == "http":
        number = min(number, _INT32_MAX)
    match term.operator:
        case "<":
            return column < number  # type: ignore[no-any-return]
        case "<=":
            return column <= number  # type: ignore[no-any-return]
        case ">":
            return column > number  # type: ignore[no-any-return]
        case ">=":
            return column >= number  # type: ignore[no-any-return]
    return column == number  # type: ignore[no-any-return]


def _id(value: str) -> Condition:
    begins = _C.request_id.like(_pattern(value) + "%", escape="\\")
    span = _milliseconds(value)
    if span is None:
        return begins
    first_us, last_us = span[0] * 1000, (span[1] + _ID_LATE_MS) * 1000
    return and_(_C.utc_us >= first_us, _C.utc_us <= last_us, begins)


def _milliseconds(value: str) -> tuple[int, int] | None:
    """The milliseconds in which ids with this prefix were made, if an index helps there."""
    digits = value.removeprefix("req_")[:_ID_HEX]
    if digits == value or len(digits) < _ID_HEX_MIN:
        return None
    try:
        first = int(digits.ljust(_ID_HEX, "0"), 16)
        return first, int(digits.ljust(_ID_HEX, "f"), 16)
    except ValueError:
        return None


def _route(value: str, homes: Homes) -> Condition:
    if value == REFUSED:
        return _C.status == REFUSED
    found = is_home(homes, _C)
    if value == MANAGED:
        found = and_(not_(found), _C.jurisdiction != "")
    return and_(_C.status != REFUSED, found)


def _label(value: str) -> Condition:
    if value == NONE:
        return _C.findings == ""
    return _C.findings.like(f"% {_pattern(value)}:%", escape="\\")


def _pattern(value: str) -> str:
    for special in "\\%_":
        value = value.replace(special, f"\\{special}")
    return value.replace("*", "%")
