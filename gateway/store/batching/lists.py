"""Lists an organisation's batches and files for its people: numbers and states, no content.

Nothing here can be opened: names of files, ids of lines and their content stay sealed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import ColumnElement, delete, func, not_, select, update

from gateway.batches import ACTIVE, OPEN
from gateway.clock import Clock
from gateway.store.batching.files import kept_files
from gateway.store.batching.leads import RECEIVING
from gateway.store.engine import Database
from gateway.store.held import is_held
from gateway.store.pages import Order, Part, part_behind
from gateway.store.schema.batches import batch_lines, batches
from gateway.store.schema.rollup import batch_costs


LISTED_MAX: Final = 1_000
LINES_MAX: Final = 200
_B = batches.c
_F = kept_files.c
_SHOWN: Final = (
    *(_B.id, _B.kind, _B.workspace, _B.project, _B.key_id, _B.endpoint, _B.state),
    *(_B.created_us, _B.expires_us, _B.keep_until_us, _B.started_us, _B.ended_us, _B.stopped),
    *(_B.input_file_id, _B.output_file_id, _B.error_file_id, _B.size_bytes, _B.erased),
    _B.is_cost_kept,
)
_COUNTED: Final = ("succeeded", "errored", "canceled", "expired")


class BatchRow(Struct, frozen=True):
    """One batch; times are 0 until they have come."""

    id: str
    kind: str
    workspace: str
    project: str
    key_id: str
    endpoint: str
    state: str
    created_us: int
    expires_us: int
    keep_until_us: int
    started_us: int
    ended_us: int
    stopped: str
    input_file_id: str
    output_file_id: str
    error_file_id: str
    size_bytes: int
    erased: int
    """Lines that were destroyed because of the end user they named."""
    is_cost_kept: bool
    """Whether the costs of its lines are summed; not for batches from before such sums existed."""
    waiting: int = 0
    running: int = 0
    parked: int = 0
    """Lines at a vendor's batch API, or about to go there."""
    succeeded: int = 0
    errored: int = 0
    canceled: int = 0
    expired: int = 0

    @property
    def failed(self) -> int:
        return self.errored + self.canceled + self.expired

    @property
    def total(self) -> int:
        return self.waiting + self.running + self.parked + self.succeeded + self.failed

    @property
    def is_open(self) -> bool:
        """Whether it can still be cancelled."""
        return self.state in OPEN


class LineRow(Struct, frozen=True):
    """One line that is kept with its batch."""

    number: int
    state: str
    failures: int


class FileRow(Struct, frozen=True):
    """One file; its name counts as content, and is not shown."""

    id: str
    workspace: str
    project: str
    key_id: str
    purpose: str
    size_bytes: int
    created_us: int
    expires_us: int
    batches: int
    """Unfinished batches that were made of it."""


_BATCHES: Final = Order((_B.created_us, _B.id), frozenset({0, 1}))
_FILES: Final = Order((_F.created_us, _F.id), frozenset({0, 1}))
_START: Final = (0, "")


class BatchLists(Struct, frozen=True):
    """Reads batches and files of one database, and does what people order about them."""

    database: Database
    clock: Clock

    async def batches(self, organisation: str, state: str = "") -> list[BatchRow]:
        """The newest batches, newest first, without those still arriving; of one state if given."""
        return [*(await self.page(organisation, state, 0, LISTED_MAX)).rows]

    async def page(
        self, organisation: str, state: str, first: int, limit: int, after: str = ""
    ) -> Part[BatchRow]:
        """A page of them in the same order; `after` is the key of the last one before it."""
        mine = [_B.organisation == organisation, *([_B.state == state] if state else [])]
        return await self._batches(mine, (first, after), limit)

    async def batch(self, organisation: str, batch_id: str) -> BatchRow | None:
        found = await self._batches([_B.organisation == organisation, _B.id == batch_id], _START, 1)
        return found.rows[0] if found.rows else None

    async def states(self, organisation: str) -> dict[str, int]:
        """How many batches are kept, by state, without those still arriving."""
        query = (
            select(_B.state, func.count())
            .where(
                _B.organisation == organisation,
                _B.state != RECEIVING,
                _B.keep_until_us > self.clock.utc_us(),
            )
            .group_by(_B.state)
            .order_by(_B.state)
        )
        async with self.database.reading() as connection:
            return {state: int(count) for state, count in await connection.execute(query)}

    async def costs(self, organisation: str, batch_ids: Sequence[str]) -> dict[str, int]:
        """Each batch's cost in micro-dollars; batches without ended lines are left out."""
        columns = batch_costs.c
        query = select(columns.batch_id, columns.cost_microusd).where(
            columns.organisation == organisation, columns.batch_id.in_(batch_ids)
        )
        async with self.database.reading() as connection:
            return {name: int(cost) for name, cost in await connection.execute(query)}

    async def _batches(
        self, which: Sequence[ColumnElement[bool]], place: tuple[int, str], limit: int
    ) -> Part[BatchRow]:
        query = select(*_SHOWN, *(_B[name] for name in _COUNTED)).where(
            *which, _B.state != RECEIVING, _B.keep_until_us > self.clock.utc_us()
        )
        async with self.database.reading() as connection:
            part = await part_behind(connection, query, _BATCHES, place, limit, dict)
            active = [row["id"] for row in part.rows if row["state"] in ACTIVE]
            lines = (
                select(batch_lines.c.batch_id, batch_lines.c.state, func.count())
                .where(batch_lines.c.batch_id.in_(active))
                .group_by(batch_lines.c.batch_id, batch_lines.c.state)
            )
            counted = (await connection.execute(lines)).all() if active else ()
        counts: dict[str, dict[str, int]] = {}
        for batch_id, state, count in counted:
            counts.setdefault(batch_id, {})[state] = count
        return part.of(_batch(row, counts.get(row["id"])) for row in part.rows)

    async def lines(self, batch_id: str) -> list[LineRow]:
        """The first of its lines, while they are kept with it."""
        columns = batch_lines.c
        query = (
            select(columns.number, columns.state, columns.failures)
            .where(columns.batch_id == batch_id)
            .order_by(columns.number)
            .limit(LINES_MAX)
        )
        async with self.database.reading() as connection:
            return [LineRow(*row) for row in (await connection.execute(query)).all()]

    async def files(self, organisation: str) -> list[FileRow]:
        """The newest files, newest first."""
        return [*(await self.files_page(organisation, 0, LISTED_MAX)).rows]

    async def files_page(
        self, organisation: str, first: int, limit: int, after: str = ""
    ) -> Part[FileRow]:
        """A page of them in the same order; `after` is the key of the last one before it."""
        return await self._files([_F.organisation == organisation], (first, after), limit)

    async def file(self, organisation: str, file_id: str) -> FileRow | None:
        found = await self._files([_F.organisation == organisation, _F.id == file_id], _START, 1)
        return found.rows[0] if found.rows else None

    async def kept(self, organisation: str) -> tuple[int, int]:
        """How many files are kept, and their total length in bytes."""
        query = select(func.count(), func.coalesce(func.sum(_F.size_bytes), 0)).where(
            _F.organisation == organisation, _F.is_whole, _F.expires_us > self.clock.utc_us()
        )
        async with self.database.reading() as connection:
            count, length_bytes = (await connection.execute(query)).one()
        return int(count), int(length_bytes)

    async def _files(
        self, which: Sequence[ColumnElement[bool]], place: tuple[int, str], limit: int
    ) -> Part[FileRow]:
        query = select(
            _F.id,
            _F.workspace,
            _F.project,
            _F.key_id,
            _F.purpose,
            _F.size_bytes,
            _F.created_us,
            _F.expires_us,
        ).where(*which, _F.is_whole, _F.expires_us > self.clock.utc_us())
        # Once for all of them: asked for each file, it would read all batches each time.
        used = select(_B.input_file_id, func.count().label("batches")).where(_B.state.in_(ACTIVE))
        async with self.database.reading() as connection:
            part = await part_behind(connection, query, _FILES, place, limit, dict)
            found = await connection.execute(used.group_by(_B.input_file_id))
            batches_of = {row.input_file_id: row.batches for row in found}
        return part.of(FileRow(**row, batches=batches_of.get(row["id"], 0)) for row in part.rows)

    async def cancel(self, organisation: str, batch_id: str) -> bool:
        """Cancel a batch, so that no more of its lines begin; returns whether that was possible."""
        changed = (
            update(batches)
            .where(_B.id == batch_id, _B.organisation == organisation, _B.state.in_(OPEN))
            .values(
                state="cancelling",
                ending="cancelled",
                cancelling_us=self.clock.utc_us(),
                tender="",
                tended_until_us=0,
            )
        )
        async with self.database.writing() as connection:
            return bool((await connection.execute(changed)).rowcount)

    async def forget_file(self, organisation: str, file_id: str) -> bool:
        """Delete a file; returns whether it existed. Under a hold it is only hidden."""
        now_us = self.clock.utc_us()
        mine = (_F.id == file_id, _F.organisation == organisation)
        there = (*mine, _F.is_whole, _F.expires_us > now_us)
        hidden = update(kept_files).where(*there, is_held(kept_files))
        async with self.database.writing() as connection:
            kept = await connection.execute(hidden.values(expires_us=now_us))
            free = delete(kept_files).where(*there, not_(is_held(kept_files)))
            gone = await connection.execute(free)
            return bool(kept.rowcount + gone.rowcount)


def _batch(row: Mapping[str, Any], counts: dict[str, int] | None) -> BatchRow:
    values = dict(row)
    if counts is not None:
        values |= dict.fromkeys(_COUNTED, 0) | counts
    return BatchRow(**values)
