"""Lists of recorded requests and deeds: pages of what a filter finds, newest first, and counts.

Read from the projection's columns alone. The time of a question is bounded: conditions that no
index answers are looked for among the newest rows that an index gives, and the answer says how far
back that went. What is found is counted among the newest, and the answer says that, too.
"""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import ColumnElement, Select, and_, case, or_, select

from gateway.store.conditions import IN_HOUSE, Search, conditions_of
from gateway.store.engine import Database
from gateway.store.tables import audit_records


PAGE_ROWS: Final = 50
COUNTED_ROWS: Final = 10_000
"""Among so many of the newest rows values are counted."""
LOOKED_AT_RECORDS: Final = 200_000
"""So many are looked at for one page, where no index leads to the ones that are wanted."""
_SPARSE: Final = 2
"""As many times more where an index holds few of them."""
_READ_ROWS: Final = 1_000
_VALUES_MAX: Final = 8
_NAMES: Final = {
    "model": "model_requested",
    "class": "data_class",
    "pii": "findings",
    "key": "key_id",
    "kind": "stage",
}
"""The columns of fields that are called otherwise."""
_BUCKETS_MAX: Final = 60
_WIDTHS_US: Final = tuple(
    seconds * 1_000_000
    for seconds in (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10_800, 21_600, 43_200, 86_400)
)
_C = audit_records.c
_ROUTE = case(
    (_C.status == "refused", "refused"),
    (_C.jurisdiction == IN_HOUSE, IN_HOUSE),
    (_C.target != "", "managed"),
    else_="",
)
_SHOWN = (
    *("utc_us", "sequence", "organisation", "stage", "request_id", "workspace", "project"),
    *("key_id", "actor", "action", "about", "model_requested", "target", "provider"),
    *("jurisdiction", "data_class", "findings", "status", "http_status", "error"),
    *("cost_microusd", "input_tokens", "output_tokens", "duration_us", "first_byte_us"),
)
COUNTED: Final = ("route", "status", "model", "target", "class", "pii", "project", "key")
"""Fields of a filter that are counted beside a list of requests."""
_COUNTED: Final[dict[str, ColumnElement[str]]] = {
    "route": _ROUTE,
    "status": _C.status,
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


class Row(Struct, frozen=True):
    """One record as a list shows it; never its content."""

    utc_us: int
    sequence: int
    organisation: str
    stage: str
    request_id: str
    workspace: str
    project: str
    key_id: str
    actor: str
    action: str
    about: str
    model_requested: str
    target: str
    provider: str
    jurisdiction: str
    data_class: str
    findings: tuple[tuple[str, int], ...]
    status: str
    http_status: int
    error: str
    cost_microusd: int
    input_tokens: int
    output_tokens: int
    duration_us: int
    first_byte_us: int

    @property
    def route(self) -> str:
        return route_of(self.status, self.jurisdiction, self.target)


class Place(Struct, frozen=True):
    """After which row a page goes on, in its order: later and higher numbers first."""

    utc_us: int
    sequence: int


class Page(Struct, frozen=True):
    """Rows, newest first."""

    rows: tuple[Row, ...]
    is_more: bool
    """Whether further ones follow directly."""
    looked_back_us: int | None = None
    """Where the looking ended, if that was not at the end; older ones may still match."""


class Bucket(Struct, frozen=True):
    """Requests of a span of time that begins at `utc_us`."""

    utc_us: int
    ok: int
    others: int


class Counts(Struct, frozen=True):
    """How often each value occurs among the newest `rows` that were found, most often first."""

    rows: int
    is_all: bool
    """Whether that is everything that the filter finds."""
    of: dict[str, tuple[tuple[str, int], ...]]
    buckets: tuple[Bucket, ...]
    width_us: int


def route_of(status: str, jurisdiction: str, target: str) -> str:
    """`in-house`, `managed` or `refused`; empty where nothing was reached."""
    if status == "refused":
        return "refused"
    if jurisdiction == IN_HOUSE:
        return IN_HOUSE
    return "managed" if target else ""


class TrafficReader:
    """Searches one database."""

    def __init__(self, database: Database, looked_at: int = LOOKED_AT_RECORDS) -> None:
        self._database = database
        self._looked_at = looked_at

    async def page(
        self, search: Search, before: Place | None = None, limit: int = PAGE_ROWS
    ) -> Page:
        """The newest rows, or those that come after one.

        Raises:
            NotReady: the database does not answer.
        """
        found, looked_back_us = await self._rows(
            search, tuple(_C[name] for name in _SHOWN), before, limit + 1
        )
        rows = tuple(_row(each) for each in found[:limit])
        is_more = len(found) > limit
        return Page(rows, is_more, None if is_more else looked_back_us)

    async def rows(self, search: Search) -> AsyncIterator[Row]:
        """Everything that is found, however far back; neither memory nor a transaction is held.

        Raises:
            NotReady: the database does not answer.
        """
        before: Place | None = None
        while True:
            page = await self.page(search, before, _READ_ROWS)
            for row in page.rows:
                yield row
            if page.is_more:
                before = Place(page.rows[-1].utc_us, page.rows[-1].sequence)
            elif page.looked_back_us is not None:
                before = Place(page.looked_back_us, 0)
            else:
                return

    async def counts(
        self, search: Search, fields: Sequence[str] = COUNTED, page: Page | None = None
    ) -> Counts:
        """Counts of the values of some fields, and of rows over time.

        With the search's first `page`, where that holds everything, nothing is looked for again.
        """
        found: Sequence[Any]
        if page is not None and not page.is_more:
            found = [_values(row, fields) for row in page.rows]
            looked_back_us = page.looked_back_us
        else:
            columns = (_C.utc_us, _C.status, *(_COUNTED[name] for name in fields))
            found, looked_back_us = await self._rows(search, columns, None, COUNTED_ROWS + 1)
        is_all = len(found) <= COUNTED_ROWS and looked_back_us is None
        times, statuses, *values = (
            zip(*found[:COUNTED_ROWS], strict=True) if found else ((),) * (len(fields) + 2)
        )
        of = {name: _counted(name, column) for name, column in zip(fields, values, strict=True)}
        buckets, width_us = _buckets(times, statuses)
        return Counts(len(times), is_all, of, buckets, width_us)

    async def _rows(
        self, search: Search, columns: Sequence[Any], before: Place | None, limit: int
    ) -> tuple[Sequence[Any], int | None]:
        """At most `limit` rows, and where the looking ended if it did not go to the end."""
        led, others, is_sparse = conditions_of(search, self._database.kind)
        if before is not None:
            led.append(
                or_(
                    _C.utc_us < before.utc_us,
                    and_(_C.utc_us == before.utc_us, _C.sequence < before.sequence),
                )
            )
            led.append(_C.utc_us <= before.utc_us)
        async with self._database.reading() as connection:
            bound: int | None = None
            if others:
                depth = self._looked_at * (_SPARSE if is_sparse else 1)
                newest: Select[Any] = select(_C.sequence).where(*led)
                newest = newest.order_by(_C.utc_us.desc()).limit(1)
                # Numbers are dense: this finds the end without walking there.
                end = select(_C.utc_us).where(
                    _C.organisation == search.source.organisation,
                    _C.sequence == newest.scalar_subquery() - depth,
                )
                bound = (await connection.execute(end)).scalar_one_or_none()
                if bound is not None:
                    others.append(_C.utc_us >= bound)
            query: Select[Any] = select(*columns).where(*led, *others).limit(limit)
            query = query.order_by(_C.utc_us.desc())
            if limit <= _READ_ROWS + 1:
                # Only a page must be in one order to the last; for counts it would cost a sort.
                query = query.order_by(_C.sequence.desc())
            return (await connection.execute(query)).all(), bound


def _row(found: Any) -> Row:
    values = dict(zip(_SHOWN, found, strict=True))
    return Row(**values | {"findings": tuple(_labels_of(values["findings"]))})


def _labels_of(said: str) -> list[tuple[str, int]]:
    found = []
    for each in said.split():
        label, _, count = each.rpartition(":")
        if label and count.isdecimal():
            found.append((label, int(count)))
    return found


def _values(row: Row, fields: Sequence[str]) -> tuple[Any, ...]:
    """A row of a page as the query of counts gives it."""
    own = {"route": row.route, "findings": "".join(f" {name}:{n}" for name, n in row.findings)}
    names = (_NAMES.get(field, field) for field in fields)
    return (
        row.utc_us,
        row.status,
        *(own[name] if name in own else getattr(row, name) for name in names),
    )


def _counted(field: str, values: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """The most frequent values of a field, without the empty one."""
    counter = Counter(values)
    if field == "pii":
        labels: Counter[str] = Counter()
        for said, count in counter.items():
            for label, _ in _labels_of(said):
                labels[label] += count
        counter = labels
    named = [(value, count) for value, count in counter.items() if value]
    return tuple(sorted(named, key=lambda each: (-each[1], each[0]))[:_VALUES_MAX])


def _buckets(times: Sequence[int], statuses: Sequence[str]) -> tuple[tuple[Bucket, ...], int]:
    """Equal spans of a round width over all times, empty ones too, oldest first."""
    if not times:
        return (), _WIDTHS_US[0]
    first_us, last_us = min(times), max(times)
    long_enough = (width for width in _WIDTHS_US if (last_us - first_us) / width < _BUCKETS_MAX)
    days = -(-(last_us - first_us + 1) // (_BUCKETS_MAX * _WIDTHS_US[-1]))
    width = next(long_enough, days * _WIDTHS_US[-1])
    start = first_us // width
    ok, others = ([0] * (last_us // width - start + 1) for _ in range(2))
    for at_us, status in zip(times, statuses, strict=True):
        (ok if status == "ok" else others)[at_us // width - start] += 1
    numbers = range(len(ok))
    return tuple(Bucket((start + i) * width, ok[i], others[i]) for i in numbers), width
