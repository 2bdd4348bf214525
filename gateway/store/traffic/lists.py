"""Lists of recorded requests and deeds: pages of what a filter finds, newest first, and counts.

Only the projection's columns are read. The time of a query is bounded: conditions that no index
answers are checked on the newest rows that an index gives, and the answer says how far back that
went. Counts cover the newest rows found, and the answer says that, too.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import (
    ColumnElement,
    Select,
    and_,
    func,
    or_,
    select,
    text,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.oversight.homes import Homes
from gateway.oversight.searching import Filter
from gateway.routing.decided_rules import NO_RULE
from gateway.store.engine import Database
from gateway.store.evidence.rule_sets import names_in
from gateway.store.schema.audit import audit_records
from gateway.store.schema.audit_columns import IS_UNRULED, labels_of
from gateway.store.traffic.conditions import Search, conditions_of, sets_with
from gateway.store.traffic.facets import (
    COUNTED,
    Counts,
    columns_of,
    counted,
    counting,
    counts_of,
)


PAGE_ROWS: Final = 50
COUNTED_ROWS: Final = 10_000
"""Values are counted among this many of the newest rows."""
LOOKED_AT_RECORDS: Final = 200_000
"""At most this many are read for one page, if no index leads to the rows in question."""
_SPARSE: Final = 2
"""This many times more if an index holds few of them."""
_READ_ROWS: Final = 1_000
_SETS_MAX: Final = 32
"""If more sets of rules than this match, rows are searched like any others."""
_NAMES: Final = {
    "model": "model_requested",
    "class": "data_class",
    "pii": "findings",
    "key": "key_id",
    "kind": "stage",
}
"""The columns of fields with another name."""
_C = audit_records.c
_SHOWN = (
    *("utc_us", "sequence", "organisation", "stage", "request_id", "workspace", "project"),
    *("key_id", "actor", "action", "about", "model_requested", "target", "provider"),
    *("jurisdiction", "data_class", "findings", "status", "http_status", "error"),
    *("cost_microusd", "input_tokens", "output_tokens", "duration_us", "first_byte_us", "rules"),
)
# PostgreSQL's planner does not know that the newest are wanted first and the limit is soon reached:
# it would rather read the complete table, on several cores, and compile the query first.
_ALONG_INDEXES: Final = text(
    "SELECT set_config('jit', 'off', true), set_config('enable_seqscan', 'off', true), "
    "set_config('enable_bitmapscan', 'off', true), "
    "set_config('max_parallel_workers_per_gather', '0', true)"
)


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
    route: str
    """`in-house`, `managed` or `refused`; empty if no target was reached."""
    rules: tuple[str, ...] | None = None
    """The rules that applied to a request that ended; None if nobody knows, yet or any more."""


class Place(Struct, frozen=True):
    """The row after which a page goes on, in its order: later and higher numbers first."""

    utc_us: int
    sequence: int


class Page(Struct, frozen=True):
    """Rows, newest first."""

    rows: tuple[Row, ...]
    is_more: bool
    """Whether more rows follow directly."""
    looked_back_us: int | None = None
    """Where the search stopped, if not at the end; older rows may still match."""

    @property
    def goes_on_at(self) -> Place | None:
        """The start of the next page; None at the end."""
        if self.is_more:
            return Place(self.rows[-1].utc_us, self.rows[-1].sequence)
        return None if self.looked_back_us is None else Place(self.looked_back_us, 0)


class TrafficReader:
    """Searches one database."""

    def __init__(
        self, database: Database, homes: Homes, looked_at: int = LOOKED_AT_RECORDS
    ) -> None:
        self._database = database
        self._homes = homes
        self._looked_at = looked_at

    async def page(
        self, search: Search, before: Place | None = None, limit: int = PAGE_ROWS
    ) -> Page:
        """The newest rows, or those after a place.

        Raises:
            NotReady: the database does not answer.
        """
        async with self._reading() as connection:
            newest, looked_back_us = await self._newest(connection, search, before, limit + 1)
            # An index finds which rows they are; only these are read.
            places = newest.with_only_columns(_C.utc_us, _C.sequence).subquery()
            query = (
                select(*(_C[name] for name in _SHOWN))
                .join(places, _C.sequence == places.c.sequence)
                .where(_C.organisation == search.source.organisation)
                .order_by(places.c.utc_us.desc(), places.c.sequence.desc())
            )
            found = (await connection.execute(query)).all()
            numbers = {each.rules for each in found if each.rules}
            rules = await names_in(connection, search.source.organisation, numbers)
        rows = tuple(_row(each, self._homes, rules) for each in found[:limit])
        is_more = len(found) > limit
        return Page(rows, is_more, None if is_more else looked_back_us)

    async def rows(self, search: Search) -> AsyncIterator[Row]:
        """All rows that match, however far back; holds neither memory nor a transaction.

        Raises:
            NotReady: the database does not answer.
        """
        before: Place | None = None
        while True:
            page = await self.page(search, before, _READ_ROWS)
            for row in page.rows:
                yield row
            before = page.goes_on_at
            if before is None:
                return

    async def counts(
        self, search: Search, fields: Sequence[str] = COUNTED, page: Page | None = None
    ) -> Counts:
        """Counts of the values of some fields, and of rows over time.

        If the search's first `page` is given and holds everything, nothing is searched again.
        """
        if page is not None and not page.is_more:
            return counted([_values(row, fields) for row in page.rows], fields, page.looked_back_us)
        async with self._reading() as connection:
            newest, looked_back_us = await self._newest(connection, search, None, COUNTED_ROWS)
            found = newest.with_only_columns(*columns_of(fields, self._homes))
            rows = (await connection.execute(counting(found, fields, self._database.kind))).all()
        return counts_of(rows, fields, COUNTED_ROWS, looked_back_us)

    async def unruled_us(self, organisation: str) -> int | None:
        """When the newest request ended whose rules were not looked up yet; None without any.

        Raises:
            NotReady: the database does not answer.
        """
        query = select(func.max(_C.utc_us)).where(_C.organisation == organisation, IS_UNRULED)
        async with self._database.reading() as connection:
            found: int | None = (await connection.execute(query)).scalar()
        return found

    async def _sets_of(
        self, connection: AsyncConnection, search: Search
    ) -> tuple[list[int] | None, Search]:
        """The sets of rules that match a search, and the rest of the search.

        None if the search names no rule, or a pattern that very many sets match: then rows are
        searched like any others.
        """
        terms = search.filter.terms
        term = next((each for each in terms if each.field == "rule" and not each.is_negated), None)
        if term is None:
            return None, search
        numbers = sets_with(search.source.organisation, term.values, self._database.kind)
        query = numbers.distinct().order_by("number").limit(_SETS_MAX + 1)
        found: list[int] = list((await connection.execute(query)).scalars())
        if len(found) > _SETS_MAX:
            return None, search
        others = Filter(tuple(each for each in terms if each is not term))
        return found, replace(search, filter=others)

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[AsyncConnection]:
        async with self._database.reading() as connection:
            if self._database.kind == "postgresql":
                await connection.execute(_ALONG_INDEXES)
            yield connection

    async def _newest(
        self, connection: AsyncConnection, search: Search, before: Place | None, limit: int
    ) -> tuple[Select[Any], int | None]:
        """At most `limit` rows, and where the search stops if not at the end."""
        sets, search = await self._sets_of(connection, search)
        led, others, is_sparse = conditions_of(search, self._homes, self._database.kind)
        if before is not None:
            led.append(
                or_(
                    _C.utc_us < before.utc_us,
                    and_(_C.utc_us == before.utc_us, _C.sequence < before.sequence),
                )
            )
            led.append(_C.utc_us <= before.utc_us)
        bound: int | None = None
        if others:
            depth = self._looked_at * (_SPARSE if is_sparse else 1)
            first: Select[Any] = select(_C.sequence).where(*led)
            first = first.order_by(_C.utc_us.desc()).limit(1)
            # Numbers are dense: this finds the end without reading all rows up to it.
            end = select(_C.utc_us).where(
                _C.organisation == search.source.organisation,
                _C.sequence == first.scalar_subquery() - depth,
            )
            bound = (await connection.execute(end)).scalar_one_or_none()
            if bound is not None:
                others.append(_C.utc_us >= bound)
        if sets is not None:
            return _newest_of(sets, search.source.organisation, [*led, *others], limit), bound
        query: Select[Any] = select(_C.sequence).where(*led, *others).limit(limit)
        return query.order_by(_C.utc_us.desc(), _C.sequence.desc()), bound


def _newest_of(
    sets: Sequence[int], organisation: str, conditions: Sequence[ColumnElement[bool]], limit: int
) -> Select[Any]:
    """The newest rows of some sets of rules: `limit` of each, read in order from its index."""
    newest = (_C.utc_us.desc(), _C.sequence.desc())
    legs = [
        select(_C.utc_us, _C.sequence)
        .where(*conditions, _C.rules == number)
        .order_by(*newest)
        .limit(limit)
        .subquery()
        for number in sets or (NO_RULE,)
    ]
    every = union_all(*(select(leg.c.utc_us, leg.c.sequence) for leg in legs)).subquery()
    order = (every.c.utc_us.desc(), every.c.sequence.desc())
    few = select(every.c.utc_us, every.c.sequence).order_by(*order).limit(limit).subquery()
    is_it = and_(_C.organisation == organisation, _C.sequence == few.c.sequence)
    found = select(_C.sequence).select_from(few.join(audit_records, is_it))
    return found.order_by(few.c.utc_us.desc(), few.c.sequence.desc())


def _row(found: Any, homes: Homes, rules: Mapping[int, tuple[str, ...]]) -> Row:
    values = dict(zip(_SHOWN, found, strict=True))
    values["rules"] = rules.get(values["rules"])
    route = homes.route_of(values["status"], values["jurisdiction"], values["provider"])
    return Row(**values | {"findings": tuple(labels_of(values["findings"])), "route": route})


def _values(row: Row, fields: Sequence[str]) -> tuple[Any, ...]:
    """A row of a page in the form of the query of counts."""
    own = {"findings": "".join(f" {name}:{n}" for name, n in row.findings)}
    names = (_NAMES.get(field, field) for field in fields)
    return (
        row.utc_us,
        row.status,
        *(own[name] if name in own else getattr(row, name) for name in names),
    )
