"""Batches in the database: created, found by project, moved from state to state by one worker."""

import secrets
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from sqlalchemy import (
    ColumnElement,
    Delete,
    RowMapping,
    Update,
    and_,
    delete,
    not_,
    or_,
    select,
    update,
)

from gateway.batches import (
    ACTIVE,
    ID_BYTES,
    OPEN,
    Batch,
    BatchKind,
    Ending,
    Flaw,
    LineCounts,
    PageOf,
    Told,
)
from gateway.clock import Clock, UnhurriedClock
from gateway.projects import Project
from gateway.secrets.content_keys import ContentKey, KeyClosed, fresh_key, lost_key, opened_key
from gateway.secrets.envelope import MasterKey
from gateway.store.batching.leads import (
    ARRIVING_US,
    FINISHED,
    RECEIVING,
    TAKEN_IN,
    arriving,
    leading,
)
from gateway.store.batching.lines import counts_of
from gateway.store.batching.room import answers_bytes, held, held_alone
from gateway.store.engine import Database
from gateway.store.expired import delete_over
from gateway.store.held import is_held
from gateway.store.pages import opened, page_of
from gateway.store.schema.batches import batch_lines, batches
from gateway.store.schema.owned import is_of, owned_by, owner_of
from gateway.store.sealing.key_checks import is_contradicted
from gateway.telemetry import Event, logger


NAMED_MAX = 1_000
"""Damaged batches that one process logs at most; with another master key all are damaged."""
_FORGOTTEN_AT_ONCE = 1
_FREE: dict[str, Any] = {"tender": "", "tended_until_us": 0}
_FLAWS = msgspec.msgpack.Decoder(tuple[Flaw, ...])
_TOLD = msgspec.msgpack.Decoder(Told)


class BatchStore:
    """Batches of one database."""

    def __init__(
        self,
        database: Database,
        master: MasterKey,
        clock: Clock,
        random_hex: Callable[[int], str] = secrets.token_hex,
    ) -> None:
        self._database = database
        self._master = master
        self._clock, self._unhurried = clock, UnhurriedClock(clock)
        self._random_hex = random_hex
        self._named: set[str] = set()
        self._log: Any = logger()

    async def make(
        self,
        batch: Batch,
        *,
        size_bytes: int = 0,
        is_receiving: bool = False,
        check: Callable[[int, int], None] | None = None,
    ) -> Batch:
        """Store a new batch; its id is the given prefix with a random part added.

        `check` gets what the project `held` and may raise; nobody adds to that meanwhile.
        """
        batch = msgspec.structs.replace(
            batch, batch_id=f"{batch.batch_id}{self._random_hex(ID_BYTES)}"
        )
        key = fresh_key(self._master, *about_batch(batch.project, batch.batch_id))
        row = _row_of(batch, key) | {"size_bytes": size_bytes, "is_cost_kept": True}
        if is_receiving:
            row |= {"state": RECEIVING, "keep_until_us": self._clock.utc_us() + ARRIVING_US}
        async with self._database.writing() as connection:
            if check is not None:
                check(*await held_alone(connection, batch.project, self._clock.utc_us()))
            await connection.execute(batches.insert(), row)
        return batch

    async def find(self, project: Project, batch_id: str, kind: BatchKind) -> Batch | None:
        """A batch of this project; None if it does not exist, or no longer does.

        A batch with a damaged row is found as well, here and in lists: see `Batch.is_damaged`.
        """
        seen = [batches.c.id == batch_id, *self._seen_by(project, kind)]
        return await self._one(seen)

    async def led(self, batch_id: str) -> Batch | None:
        """A batch by its id alone, without counting its lines: for the worker that leads it."""
        return await self._one([batches.c.id == batch_id], counted=False)

    async def page(
        self, project: Project, kind: BatchKind, page: PageOf
    ) -> tuple[list[Batch], bool]:
        """Batches of a project, and whether there are more."""
        async with self._database.reading() as connection:
            seen = self._seen_by(project, kind)
            rows, has_more = await page_of(connection, batches, seen, page)
            active = [row["id"] for row in rows if row["state"] in ACTIVE]
            counts = await counts_of(connection, active)
        return await opened(rows, lambda row: self._batch_of(row, counts.get(row["id"]))), has_more

    async def content_key(self, batch: Batch) -> ContentKey | None:
        """The key that opens the lines of a batch; None if the batch is gone.

        Raises:
            KeyClosed: the key is lost. Not for a cancelled batch: nobody waits for its lines, and
                each of them is given as damaged. But if the master key is not the database's own,
                nothing is lost, so it is raised for cancelled batches too.
        """
        columns = select(batches.c.wrapped_key, batches.c.master_key_id)
        about = about_batch(batch.project, batch.batch_id)
        async with self._database.reading() as connection:
            query = columns.where(batches.c.id == batch.batch_id)
            row = (await connection.execute(query)).one_or_none()
            if row is None:
                return None
            try:
                return opened_key(self._master, row.wrapped_key, *about)
            except KeyClosed:
                is_cancelled = batch.ending == "cancelled"
                master, sealed_by = self._master, row.master_key_id
                if not is_cancelled or await is_contradicted(connection, master, sealed_by):
                    raise
                return lost_key(row.wrapped_key, *about)

    async def cancel(self, batch: Batch) -> bool:
        """Cancel a batch, so that no more of its lines begin; returns whether that was possible."""
        return await self._move(
            batch.batch_id,
            (*OPEN, "finalizing") if batch.is_damaged else OPEN,
            state="cancelling",
            ending="cancelled",
            cancelling_us=self._clock.utc_us(),
            **_FREE,
        )

    async def begin(
        self, batch_id: str, size_bytes: int, keep_us: int = 0, holder: str = ""
    ) -> None:
        """Start a batch with all lines there. Raises LeadOver; `keep_us` is for received ones."""
        now_us = self._clock.utc_us()
        more = {"keep_until_us": now_us + keep_us} if keep_us else {}
        values = {"state": "in_progress", "started_us": now_us, "size_bytes": size_bytes, **_FREE}
        check = arriving(batch_id, now_us) if keep_us else leading(batch_id, holder, TAKEN_IN)
        async with self._database.writing() as connection:
            await check(connection)
            await connection.execute(_named(batch_id).values(values | more))

    async def drop(self, batch_id: str) -> None:
        """Forget a batch of which some lines never arrived."""
        gone = delete(batches).where(batches.c.id == batch_id, batches.c.state == RECEIVING)
        async with self._database.writing() as connection:
            await connection.execute(gone)

    async def fail(self, batch: Batch, flaws: Sequence[Flaw], holder: str = "") -> None:
        """Mark a batch as invalid and forget its lines. Raises LeadOver."""
        key = await self.content_key(batch)
        if key is None:
            return
        sealed = key.seal(msgspec.msgpack.encode(tuple(flaws)), "flaws")
        values = {
            "state": "failed",
            "ended_us": self._clock.utc_us(),
            "sealed_flaws": sealed,
            "size_bytes": 0,
        }
        async with self._database.writing() as connection:
            await leading(batch.batch_id, holder, ("validating",))(connection)
            await connection.execute(_named(batch.batch_id).values(values))
            await connection.execute(_lines_of(batch.batch_id))

    async def wind_up(self, batch_id: str, ending: Ending, stopped: str = "") -> bool:
        """Let no more lines begin: those that wait are not sent."""
        return await self._move(
            batch_id,
            ("in_progress",),
            state="finalizing",
            ending=ending,
            stopped=stopped,
            finalizing_us=self._clock.utc_us(),
        )

    async def name_files(
        self, batch_id: str, output_file_id: str, error_file_id: str, holder: str = ""
    ) -> None:
        """Note the ids of the result files in advance, so that each is written once.

        Raises:
            LeadOver
        """
        names = {"output_file_id": output_file_id, "error_file_id": error_file_id}
        async with self._database.writing() as connection:
            await leading(batch_id, holder, FINISHED)(connection)
            await connection.execute(_named(batch_id).values(names))

    async def end(
        self,
        batch: Batch,
        counts: LineCounts,
        *,
        keeps_lines: bool,
        holder: str = "",
        key: ContentKey | None = None,
    ) -> None:
        """Mark a batch as over; lines whose results are in files are forgotten. Raises LeadOver.

        With its `key`, `batch.told` is written again, unless that was lost.

        Lines that are kept take up room with their answers, as files do.
        """
        ended: dict[str, Any] = {
            "state": batch.ending,
            "ended_us": self._clock.utc_us(),
            "succeeded": counts.succeeded,
            "errored": counts.errored,
            "canceled": counts.canceled,
            "expired": counts.expired,
            "output_file_id": batch.output_file_id,
            "error_file_id": batch.error_file_id,
            "tender": "",
        }
        if key is not None and not batch.is_damaged:
            ended["sealed_told"] = key.seal(msgspec.msgpack.encode(batch.told), "told")
        async with self._database.writing() as connection:
            await leading(batch.batch_id, holder, FINISHED)(connection)
            if keeps_lines:
                ended["size_bytes"] = batches.c.size_bytes + answers_bytes(batch.batch_id)
            else:
                ended["size_bytes"] = 0
                await connection.execute(_lines_of(batch.batch_id))
            await connection.execute(_named(batch.batch_id).values(ended))

    async def forget(self, project: Project, batch_id: str, kind: BatchKind) -> bool:
        """Forget a finished batch; returns whether it existed. Under a hold it is only hidden."""
        seen = [batches.c.id == batch_id, *self._seen_by(project, kind)]
        seen.append(batches.c.state.not_in(ACTIVE))
        hidden = update(batches).where(*seen, is_held(batches))
        async with self._database.writing() as connection:
            kept = await connection.execute(hidden.values(keep_until_us=self._clock.utc_us()))
            gone = await connection.execute(delete(batches).where(*seen, not_(is_held(batches))))
            return bool(kept.rowcount + gone.rowcount)

    async def forget_expired(self) -> int:
        """Forget expired batches, and those whose lines did not all arrive; returns how many."""
        is_over = and_(
            batches.c.keep_until_us <= self._unhurried.utc_us(),
            batches.c.state.not_in(ACTIVE),
            or_(batches.c.state == RECEIVING, not_(is_held(batches))),
        )
        return await delete_over(self._database, batches, is_over, _FORGOTTEN_AT_ONCE)

    async def held(self, project: Project) -> tuple[int, int]:
        """See `room.held`."""
        async with self._database.reading() as connection:
            return await held(connection, project, self._clock.utc_us())

    async def _move(self, batch_id: str, states: Sequence[str], **values: Any) -> bool:
        is_there = and_(batches.c.id == batch_id, batches.c.state.in_(states))
        async with self._database.writing() as connection:
            result = await connection.execute(update(batches).where(is_there).values(**values))
            return bool(result.rowcount)

    async def _one(
        self, seen: Sequence[ColumnElement[bool]], *, counted: bool = True
    ) -> Batch | None:
        async with self._database.reading() as connection:
            row = (await connection.execute(select(batches).where(*seen))).mappings().one_or_none()
            if row is None:
                return None
            is_counted = counted and row["state"] in ACTIVE
            counts = await counts_of(connection, [row["id"]] if is_counted else [])
        return self._batch_of(row, counts.get(row["id"]))

    def _seen_by(self, project: Project, kind: BatchKind) -> list[ColumnElement[bool]]:
        return [
            *is_of(batches, project),
            batches.c.kind == kind,
            batches.c.state != RECEIVING,
            batches.c.keep_until_us > self._clock.utc_us(),
        ]

    def _batch_of(self, row: RowMapping, counts: LineCounts | None) -> Batch:
        same = {name: row[name] for name in _SAME}
        if counts is None:
            counts = LineCounts(
                succeeded=row["succeeded"],
                errored=row["errored"],
                canceled=row["canceled"],
                expired=row["expired"],
            )
        project = owner_of(row)
        told, flaws = self._said_in(row, project)
        batch = Batch(
            batch_id=row["id"],
            project=project,
            counts=counts,
            told=told or Told(),
            flaws=flaws or (),
            is_damaged=told is None or flaws is None,
            **same,
        )
        if batch.is_damaged:
            self._name(batch)
        return batch

    def _said_in(
        self, row: RowMapping, project: Project
    ) -> tuple[Told | None, tuple[Flaw, ...] | None]:
        """The sealed parts of a row; None for a part that can no longer be opened."""
        try:
            key = opened_key(self._master, row["wrapped_key"], *about_batch(project, row["id"]))
        except KeyClosed:
            return None, None
        told = key.opened(row["sealed_told"], "told")
        flaws = key.opened(row["sealed_flaws"], "flaws") if row["sealed_flaws"] else b"\x90"
        return (
            _TOLD.decode(told) if told is not None else None,
            _FLAWS.decode(flaws) if flaws is not None else None,
        )

    def _name(self, batch: Batch) -> None:
        """Log a damaged batch once, not each time that somebody looks at it."""
        if batch.batch_id not in self._named and len(self._named) < NAMED_MAX:
            self._named.add(batch.batch_id)
            error = "BatchUnreadable"
            self._log.error(Event.BATCH_FAILED, batch=batch.batch_id, error_class=error)


_SAME = (
    *("kind", "key_id", "endpoint", "state", "ending", "stopped"),
    *("input_file_id", "output_file_id", "error_file_id"),
    *("created_us", "expires_us", "keep_until_us", "started_us"),
    *("finalizing_us", "cancelling_us", "ended_us"),
)


def _row_of(batch: Batch, key: ContentKey) -> dict[str, Any]:
    return {
        **{field: getattr(batch, field) for field in _SAME},
        "id": batch.batch_id,
        **owned_by(batch.project),
        "size_bytes": 0,
        **dict.fromkeys(("succeeded", "errored", "canceled", "expired"), 0),
        **dict.fromkeys(("due_us", "stalls", "served_us", "tended_until_us"), 0),
        "tender": "",
        "wrapped_key": key.kept_as,
        "master_key_id": key.sealed_by,
        "sealed_told": key.seal(msgspec.msgpack.encode(batch.told), "told"),
        "sealed_flaws": b"",
    }


def _named(batch_id: str) -> Update:
    return update(batches).where(batches.c.id == batch_id)


def _lines_of(batch_id: str) -> Delete:
    return delete(batch_lines).where(batch_lines.c.batch_id == batch_id)


def about_batch(project: Project, batch_id: str) -> tuple[str, ...]:
    """The context that the key of a batch is bound to."""
    return ("batch", *project, batch_id)
