"""Counts what a search finds: the values of each field, and rows over time.

The database counts in one pass over an index, so that thousands of rows are neither sent nor held;
rows of a page that is already in memory are counted here. Both give the same counts.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    Text,
    case,
    cast,
    func,
    literal,
    null,
    select,
    union_all,
)

from gateway.oversight.homes import Homes
from gateway.store.schema.audit import audit_records
from gateway.store.schema.audit_columns import labels_of, route_in
from gateway.store.speech import DatabaseKind


COUNTED: Final = (
    *("route", "status", "error", "model", "target", "class", "pii", "project", "key"),
)
"""Fields of a filter that are counted besides a list of requests."""
_VALUES_MAX: Final = 8
_BUCKETS_MAX: Final = 60
_WIDTHS_US: Final = tuple(
    seconds * 1_000_000
    for seconds in (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10_800, 21_600, 43_200, 86_400)
)
_SPAN: Final = " span"
_TIME: Final = " time"
"""Marks rows of an answer that count times, not a field."""
_C = audit_records.c
_COLUMNS: Final[dict[str, ColumnElement[str]]] = {
    "status": _C.status,
    "error": _C.error,
    "model": _C.model_requested,
    "target": _C.target,
    "class": _C.data_class,
    "pii": _C.findings,
    "project": _C.project,
    "key": _C.key_id,
    "kind": _C.stage,
    "actor": _C.actor,
    "action": _C.action,
}


class Bucket(Struct, frozen=True):
    """Requests in a span of time that begins at `utc_us`."""

    utc_us: int
    ok: int
    others: int


class Counts(Struct, frozen=True):
    """How often each value occurs among the newest `rows` found, most frequent first."""

    rows: int
    is_all: bool
    """Whether these are all rows that the filter finds."""
    of: dict[str, tuple[tuple[str, int], ...]]
    buckets: tuple[Bucket, ...]
    width_us: int


def columns_of(fields: Sequence[str], homes: Homes) -> list[ColumnElement[Any]]:
    """The columns that `counting` needs."""
    columns = _COLUMNS | {"route": route_in(homes)}
    named = [columns[name].label(f"of_{name}") for name in fields]
    return [_C.utc_us.label("at_us"), _C.status.label("ended"), *named]


def counting(found: Select[Any], fields: Sequence[str], kind: DatabaseKind) -> Any:
    """The query that counts over rows with `columns_of` the same fields."""
    rows = found.cte("found")
    span = select(
        func.count().label("rows"),
        func.min(rows.c.at_us).label("first_us"),
        (func.max(rows.c.at_us) - func.min(rows.c.at_us)).label("long_us"),
    ).select_from(rows)
    whole = span.cte("span")
    width = select(whole, _width(whole.c.long_us).label("width_us")).cte("width")
    at = rows.c.at_us // select(width.c.width_us).scalar_subquery()
    is_ok = case((rows.c.ended == "ok", 1), else_=0)
    parts: list[Select[Any]] = [
        select(literal(_SPAN), literal(""), width.c.width_us, width.c.rows, null()),
        select(literal(_TIME), literal(""), at, func.count(), func.sum(is_ok)).group_by(at),
    ]
    return union_all(*parts, *(_values_of(rows, name, kind) for name in fields))


def counts_of(
    rows: Sequence[Any], fields: Sequence[str], limit: int, looked_back_us: int | None
) -> Counts:
    """The answer to `counting` over at most `limit` rows."""
    of: dict[str, list[tuple[str, int]]] = {name: [] for name in fields}
    buckets: dict[int, Bucket] = {}
    width_us = total = 0
    for about, value, number, count, ok in rows:
        if about == _SPAN:
            width_us, total = int(number or _WIDTHS_US[0]), int(count)
        elif about == _TIME:
            buckets[int(number)] = Bucket(0, int(ok), int(count) - int(ok))
        else:
            of[about].append((value, int(count)))
    return Counts(
        total,
        total < limit and looked_back_us is None,
        {name: _most(dict(of[name]), name) for name in fields},
        _in_order(buckets, width_us),
        width_us,
    )


def counted(
    found: Sequence[tuple[Any, ...]], fields: Sequence[str], looked_back_us: int | None
) -> Counts:
    """The same for rows in memory: each with its time, its status and a value per field."""
    times, statuses, *values = zip(*found, strict=True) if found else ((),) * (len(fields) + 2)
    long_us = max(times) - min(times) if times else 0
    days = long_us // (_BUCKETS_MAX * _WIDTHS_US[-1]) + 1
    short_enough = (each for each in _WIDTHS_US if long_us < _BUCKETS_MAX * each)
    width_us = next(short_enough, days * _WIDTHS_US[-1])
    buckets: dict[int, Bucket] = {}
    for (number, is_ok), count in Counter(
        (at_us // width_us, status == "ok") for at_us, status in zip(times, statuses, strict=True)
    ).items():
        known = buckets.get(number, Bucket(0, 0, 0))
        ok, others = (count, 0) if is_ok else (0, count)
        buckets[number] = Bucket(0, known.ok + ok, known.others + others)
    of = {name: _most(Counter(each), name) for name, each in zip(fields, values, strict=True)}
    return Counts(len(times), looked_back_us is None, of, _in_order(buckets, width_us), width_us)


def _values_of(rows: Any, field: str, kind: DatabaseKind) -> Select[Any]:
    """The most frequent values of one field; for findings all combinations, to be split."""
    value, count = rows.c[f"of_{field}"], func.count()
    query = select(value.label("value"), count.label("count")).where(value != "").group_by(value)
    if field != "pii":
        # In the order of code points, whatever the database's language.
        by_value = cast(value, Text).collate("C") if kind == "postgresql" else value
        query = query.order_by(count.desc(), by_value).limit(_VALUES_MAX)
    few = query.subquery()
    nothing = cast(null(), BigInteger)
    return select(literal(field), few.c.value, nothing, few.c.count, nothing)


def _width(long_us: Any) -> ColumnElement[int]:
    """The narrowest round width that makes few enough buckets; beyond those, whole days."""
    day = _WIDTHS_US[-1]
    days = long_us // (_BUCKETS_MAX * day) + 1
    return case(*((long_us < _BUCKETS_MAX * each, each) for each in _WIDTHS_US), else_=days * day)


def _most(values: dict[str, int], field: str) -> tuple[tuple[str, int], ...]:
    """The most frequent values of a field, without the empty one."""
    if field == "pii":
        labels: Counter[str] = Counter()
        for said, count in values.items():
            for label, _ in labels_of(said):
                labels[label] += count
        values = labels
    named = [(value, count) for value, count in values.items() if value]
    return tuple(sorted(named, key=lambda each: (-each[1], each[0]))[:_VALUES_MAX])


def _in_order(buckets: dict[int, Bucket], width_us: int) -> tuple[Bucket, ...]:
    """Every span from the first to the last, including empty ones."""
    if not buckets:
        return ()
    empty = Bucket(0, 0, 0)
    numbers = range(min(buckets), max(buckets) + 1)
    every = ((number, buckets.get(number, empty)) for number in numbers)
    return tuple(Bucket(number * width_us, each.ok, each.others) for number, each in every)
