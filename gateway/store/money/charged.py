"""Which outcomes a budget has to account for: what was let through since a worker charged it."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import Column, ColumnElement, and_, case, exists, func, not_, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.money.budgets import USER_PREFIX
from gateway.store.schema.audit import audit_records
from gateway.store.schema.tables import late_bookings


_ARRIVED_US: Final = audit_records.c.utc_us - audit_records.c.duration_us
_BY: Final = (
    [audit_records.c[name] for name in ("organisation", "workspace", "project", "key_id")],
    [audit_records.c[name] for name in ("organisation", "subject")],
)
"""Whose an outcome is; end users apart, who may be very many."""
_OF_USER: Final = 2
_SPANS_MAX: Final = 100
"""A statement with more conditions is refused by SQLite sooner or later."""


class Charged(Struct, frozen=True):
    """From when on a budget is charged with what was let through.

    Args:
        since_us: with what most workers let through.
        by_worker: with what these did, by their own clocks.
        booked_us: with what was booked late and by itself, whoever let it through.
    """

    since_us: int
    by_worker: Mapping[str, int] = {}
    booked_us: int | None = None

    def outcomes(self) -> list[ColumnElement[bool]]:
        """Outcomes of requests that were let through since then, as the ledger charges them.

        What arrived before and ended after may have been let through on either side: its intent
        says. So it does of what a crash cut off, of whose length nothing is known. Only what was
        over at once and has no intent here is of the moment of its outcome.
        """
        columns, begun = audit_records.c, audit_records.alias("begun").c
        of_it = (begun.request_id == columns.request_id, begun.stage == "intent")
        was_let_through = exists().where(*of_it, begun.utc_us >= self._since(begun))
        arrived_us = columns.utc_us - columns.duration_us
        every_us = self.every_us
        is_sure = and_(arrived_us >= max(every_us), columns.duration_us > 0)
        is_alone = and_(arrived_us >= self._since(columns), not_(exists().where(*of_it)))
        return [columns.utc_us >= min(every_us), or_(is_sure, was_let_through, is_alone)]

    @property
    def every_us(self) -> list[int]:
        """All moments from which on something is charged."""
        booked = [] if self.booked_us is None else [self.booked_us]
        return [self.since_us, *self.by_worker.values(), *booked]

    def _by(self, worker: Column[str]) -> Any:
        if not self.by_worker:
            return self.since_us
        return case(self.by_worker, value=worker, else_=self.since_us)

    def _since(self, record: Any) -> Any:
        if self.booked_us is None:
            return self._by(record.worker)
        was_late = exists().where(late_bookings.c.request_id == record.request_id)
        return case((was_late, self.booked_us), else_=self._by(record.worker))


class _Outcome(Struct, frozen=True):
    """One of whom its own moments do not say when it was let through."""

    names: tuple[str, ...]
    """Organisation, workspace, project, key and end user."""
    worker: str
    cost_microusd: int
    utc_us: int
    duration_us: int
    was_late: bool
    """Whether its cost was booked late and by itself."""
    intents: list[tuple[str, int]]
    """By whom, and when."""

    def is_of(self, charged: Charged) -> bool:
        """Whether it is one of `charged.outcomes()`."""
        arrived_us, every_us = self.utc_us - self.duration_us, charged.every_us
        if self.utc_us < min(every_us):
            return False
        if self.duration_us > 0 and arrived_us >= max(every_us):
            return True
        let_through = self.intents or [(self.worker, arrived_us)]
        if self.was_late and charged.booked_us is not None:
            return any(at_us >= charged.booked_us for _, at_us in let_through)
        heard = charged.by_worker
        return any(at_us >= heard.get(by, charged.since_us) for by, at_us in let_through)


class _Reading(Struct, frozen=True):
    """What accounts are charged with is looked for in one reading, however many they are.

    Before and after each span nothing is unsure: an outcome is wholly one of those that the
    accounts of the span are charged with, or is none of them.
    """

    asked: Sequence[tuple[str, Charged]]
    spans: Sequence[tuple[int, int]]

    @property
    def is_unsure(self) -> ColumnElement[bool]:
        """Outcomes of whom their own moments do not say when they were let through."""
        columns = audit_records.c
        over = [and_(columns.utc_us >= begin, end > _ARRIVED_US) for begin, end in self.spans]
        return or_(columns.duration_us <= 0, *over)

    @property
    def outcomes(self) -> list[ColumnElement[bool]]:
        columns = audit_records.c
        return [
            columns.stage == "outcome",
            columns.cost_microusd != 0,
            columns.utc_us >= self.spans[0][0],
        ]

    @property
    def spans_before(self) -> ColumnElement[int]:
        """How many spans were over when a request arrived."""
        over = [(end <= _ARRIVED_US, number) for number, (_, end) in enumerate(self.spans, 1)]
        return case(*reversed(over), else_=0)

    def span_of(self, charged: Charged) -> int:
        """The number of an account's span."""
        return bisect_right([begin for begin, _ in self.spans], min(charged.every_us))


async def spent_of(
    connection: AsyncConnection, asked: Sequence[tuple[str, Charged]]
) -> Sequence[int]:
    """What the outcomes cost that each account is charged with."""
    if not asked:
        return []
    reading = _Reading(asked, _spans([charged.every_us for _, charged in asked]))
    places: dict[str, list[int]] = defaultdict(list)
    for number, (account, _) in enumerate(asked):
        places[account].append(number)
    spent = [0] * len(asked)
    spans = [reading.span_of(charged) for _, charged in asked]
    users = any(account.startswith(USER_PREFIX) for account in places)
    for columns in _BY[: 1 + users]:
        before = reading.spans_before.label("before")
        query = select(func.sum(audit_records.c.cost_microusd), before, *columns)
        query = query.where(*reading.outcomes, not_(reading.is_unsure)).group_by(before, *columns)
        for cost, over, *names in await connection.execute(query):
            for number in _numbers(names, places):
                spent[number] += int(cost) if over >= spans[number] else 0
    for outcome in await _unsure(connection, reading):
        for place in (outcome.names[:4], outcome.names[::4]):
            for number in _numbers(place, places):
                charged = asked[number][1]
                spent[number] += outcome.cost_microusd if outcome.is_of(charged) else 0
    return spent


def _numbers(names: Sequence[str], places: Mapping[str, Sequence[int]]) -> Iterator[int]:
    """Who of those asked for are charged with what has these names."""
    if len(names) == _OF_USER:
        accounts = [f"{USER_PREFIX}{'/'.join(names)}"]
    else:
        organisation, workspace, project, key = names
        accounts = [f"org:{organisation}", f"ws:{organisation}/{workspace}", f"key:{key}"]
        accounts.append(f"proj:{organisation}/{workspace}/{project}")
    return chain.from_iterable(places.get(account, ()) for account in accounts)


async def _unsure(connection: AsyncConnection, reading: _Reading) -> Collection[_Outcome]:
    """Those of whom their intents say it, where there are such."""
    columns, begun = audit_records.c, audit_records.alias("begun")
    of_it = (begun.c.request_id == columns.request_id) & (begun.c.stage == "intent")
    was_late = exists().where(late_bookings.c.request_id == columns.request_id)
    query = (
        select(
            *(columns.organisation, columns.workspace, columns.project, columns.key_id),
            *(columns.subject, columns.sequence, columns.worker, columns.cost_microusd),
            *(columns.utc_us, columns.duration_us, was_late, begun.c.worker, begun.c.utc_us),
        )
        .select_from(audit_records.outerjoin(begun, of_it))
        .where(*reading.outcomes, reading.is_unsure)
    )
    found: dict[tuple[str, int], _Outcome] = {}
    for *names, sequence, worker, cost, utc_us, lasted_us, late, by, at_us in (
        await connection.execute(query)
    ).all():
        place = (names[0], sequence)
        if place not in found:
            found[place] = _Outcome(tuple(names), worker, cost, utc_us, lasted_us, bool(late), [])
        if by is not None:
            found[place].intents.append((by, at_us))
    return found.values()


def _spans(moments: Iterable[Collection[int]]) -> Sequence[tuple[int, int]]:
    """From the first to the last of each; those that overlap are one, or of many the nearest."""
    found: list[tuple[int, int]] = []
    for span in sorted({(min(some), max(some)) for some in moments}):
        if found and span[0] <= found[-1][1]:
            begin, end = found.pop()
            found.append((begin, max(end, span[1])))
        else:
            found.append(span)
    gaps = sorted(range(1, len(found)), key=lambda at: found[at - 1][1] - found[at][0])
    cuts = [0, *sorted(gaps[: _SPANS_MAX - 1]), len(found)]
    return [(found[first][0], found[after - 1][1]) for first, after in pairwise(cuts)]
