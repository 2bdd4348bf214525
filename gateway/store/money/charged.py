"""Finds the outcomes charged to a budget: those admitted since a worker began charging it."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import (
    Column,
    ColumnElement,
    Select,
    and_,
    case,
    exists,
    false,
    func,
    not_,
    or_,
    select,
    true,
    tuple_,
)

from gateway.money.budgets import USER_PREFIX
from gateway.store.schema.audit import audit_records, audit_sequences
from gateway.store.schema.tables import late_bookings


_ARRIVED_US: Final = audit_records.c.utc_us - audit_records.c.duration_us
_BY: Final = (
    [audit_records.c[name] for name in ("organisation", "workspace", "project", "key_id")],
    [audit_records.c[name] for name in ("organisation", "subject")],
)
"""The owner of an outcome; end users separately, since there may be very many."""
_OF_USER: Final = 2
_NAMED: Final = {
    "org": ("organisation",),
    "ws": ("organisation", "workspace"),
    "proj": ("organisation", "workspace", "project"),
    "key": ("key_id",),
    USER_PREFIX.removesuffix(":"): ("organisation", "subject"),
}
"""What the name of an account says about its outcomes."""
_NAMED_MAX: Final = 500
"""The most accounts that one statement names; if more begin at once, all outcomes are read."""
_SPANS_MAX: Final = 1_000
"""The most pieces into which time is cut; if limits began at more moments, some are merged."""
_LAST_US: Final = 2**63 - 1


class Charged(Struct, frozen=True):
    """The time from which a budget is charged with what was admitted.

    Args:
        since_us: for most workers.
        by_worker: for these workers, by their own clocks.
        booked_us: for what was booked late and separately, whichever worker admitted it.
    """

    since_us: int
    by_worker: Mapping[str, int] = {}
    booked_us: int | None = None

    def outcomes(self) -> list[ColumnElement[bool]]:
        """Outcomes of requests that were admitted since then, as the ledger charges them.

        A request that arrived before and ended after may have been admitted on either side; its
        intent says which. This also holds for what a crash cut off, whose length is unknown. Only
        what was over at once and has no intent here counts by the time of its outcome.
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
        """All moments from which something is charged."""
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
    """An outcome whose own times do not tell when it was admitted."""

    names: tuple[str, ...]
    """Organisation, workspace, project, key and end user."""
    worker: str
    cost_microusd: int
    utc_us: int
    duration_us: int
    was_late: bool
    """Whether its cost was booked late and separately."""
    is_whole: bool
    """Whether it arrived in the same piece of time in which it ended."""
    intents: list[tuple[str, int]]
    """The worker and time of each."""

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


class _Piece(Struct, frozen=True):
    """A piece of time: accounts are charged from before it or after it, or are in `own`."""

    begin_us: int
    end_us: int
    own: Mapping[str, Sequence[int]] = {}
    """Accounts that workers begin to charge in this piece, with their numbers in `asked`."""

    @property
    def _outcomes(self) -> list[ColumnElement[bool]]:
        """Conditions that an index can answer; each outcome is in one piece only."""
        columns = audit_records.c
        return [
            columns.organisation.in_(select(audit_sequences.c.organisation)),
            columns.stage == "outcome",
            columns.cost_microusd != 0,
            columns.utc_us >= self.begin_us,
            columns.utc_us < self.end_us,
        ]

    @property
    def _is_whole(self) -> ColumnElement[bool]:
        """Whether its times show that a request was admitted in this piece."""
        return and_(self.begin_us <= _ARRIVED_US, audit_records.c.duration_us > 0)

    def sums(self, by: Sequence[Column[str]]) -> Select[Any]:
        """The cost of the outcomes that lie completely in this piece, by owner."""
        shown: list[Any] = [func.sum(audit_records.c.cost_microusd), *by]
        return select(*shown).where(*self._outcomes, self._is_whole).group_by(*by)

    def single(self) -> Select[Any]:
        """All other outcomes, and those of `own`, each with every intent of its request."""
        columns, begun = audit_records.c, audit_records.alias("begun")
        of_it = (begun.c.request_id == columns.request_id) & (begun.c.stage == "intent")
        was_late = exists().where(late_bookings.c.request_id == columns.request_id)
        shown: list[Any] = [
            *(columns.organisation, columns.workspace, columns.project, columns.key_id),
            *(columns.subject, columns.sequence, columns.worker, columns.cost_microusd),
            *(columns.utc_us, columns.duration_us, was_late, self._is_whole),
            *(begun.c.worker, begun.c.utc_us),
        ]
        found = select(*shown).select_from(audit_records.outerjoin(begun, of_it))
        return found.where(*self._outcomes, or_(not_(self._is_whole), _are_of(self.own)))


async def spent_of(connection: Any, asked: Sequence[tuple[str, Charged]]) -> Sequence[int]:
    """The cost that each account is charged with; each outcome is read once for all of them.

    Accounts are charged from different moments on, around which only an outcome's intent says
    whether it is included. So time is cut at these moments, and what lies completely in a piece is
    added up; outcomes that reach over a cut, or belong to accounts that begin there, are read one
    by one.
    """
    if not asked:
        return []
    places: dict[str, list[int]] = defaultdict(list)
    for number, (account, _) in enumerate(asked):
        places[account].append(number)
    spent, sure_us = [0] * len(asked), [max(charged.every_us) for _, charged in asked]
    users = any(account.startswith(USER_PREFIX) for account in places)
    for piece in _pieces(asked):
        for columns in _BY[: 1 + users]:
            for cost, *names in await connection.execute(piece.sums(columns)):
                for number in _numbers(names, places):
                    is_charged = sure_us[number] <= piece.begin_us
                    spent[number] += int(cost) if is_charged else 0
        for outcome in await _singly(connection, piece):
            charged = piece.own if outcome.is_whole else places
            for names in (outcome.names[:4], outcome.names[::4]):
                for number in _numbers(names, charged):
                    is_charged = outcome.is_of(asked[number][1])
                    spent[number] += outcome.cost_microusd if is_charged else 0
    return spent


def _numbers(names: Sequence[str], places: Mapping[str, Sequence[int]]) -> Iterator[int]:
    """Numbers of the given accounts that are charged with what has these names."""
    if len(names) == _OF_USER:
        accounts = [f"{USER_PREFIX}{'/'.join(names)}"]
    else:
        organisation, workspace, project, key = names
        accounts = [f"org:{organisation}", f"ws:{organisation}/{workspace}", f"key:{key}"]
        accounts.append(f"proj:{organisation}/{workspace}/{project}")
    return chain.from_iterable(places.get(account, ()) for account in accounts)


def _are_of(accounts: Collection[str]) -> ColumnElement[bool]:
    """Whether an outcome is charged to one of these accounts."""
    if len(accounts) > _NAMED_MAX:
        return true()
    columns = audit_records.c
    named: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for account in accounts:
        kind, _, rest = account.partition(":")
        named[kind].append(tuple(rest.split("/", len(_NAMED[kind]) - 1)))
    return or_(
        false(),
        *(
            tuple_(*(columns[name] for name in _NAMED[kind])).in_(all_of)
            for kind, all_of in named.items()
        ),
    )


async def _singly(connection: Any, piece: _Piece) -> Collection[_Outcome]:
    found: dict[tuple[str, int], _Outcome] = {}
    rows = await connection.execute(piece.single())
    for *names, sequence, worker, cost, utc_us, lasted_us, late, is_whole, by, at_us in rows:
        place = (names[0], sequence)
        if place not in found:
            own = (worker, cost, utc_us, lasted_us, bool(late), bool(is_whole))
            found[place] = _Outcome(tuple(names), *own, [])
        if by is not None:
            found[place].intents.append((by, at_us))
    return found.values()


def _pieces(asked: Sequence[tuple[str, Charged]]) -> Iterator[_Piece]:
    """All of the time since the first moment from which something is charged, in pieces."""
    spans = _spans([charged.every_us for _, charged in asked])
    begins = [begin for begin, _ in spans]
    own: list[dict[str, list[int]]] = [defaultdict(list) for _ in spans]
    for number, (account, charged) in enumerate(asked):
        at = bisect_right(begins, min(charged.every_us)) - 1
        if max(charged.every_us) > begins[at]:
            own[at][account].append(number)
    for (begin, end), following, accounts in zip(spans, [*begins[1:], _LAST_US], own, strict=True):
        if begin < end:
            yield _Piece(begin, end, accounts)
        yield _Piece(end, following)


def _spans(moments: Iterable[Collection[int]]) -> Sequence[tuple[int, int]]:
    """From first to last of each; spans are merged if they overlap or are too many."""
    found: list[tuple[int, int]] = []
    for span in sorted({(min(some), max(some)) for some in moments}):
        if found and span[0] <= found[-1][1]:
            begin, end = found.pop()
            found.append((begin, max(end, span[1])))
        else:
            found.append(span)
    together = -(-len(found) // _SPANS_MAX)
    groups = [found[first : first + together] for first in range(0, len(found), together)]
    return [(group[0][0], group[-1][1]) for group in groups]
