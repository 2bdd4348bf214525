"""The database as the second audit device: it takes records directly while the disk cannot.

A group is one transaction that numbers the records, grows their trees and keeps their bytes, as the
projection of a segment does; so they are proved, exported and erased like all others.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Iterable
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import structs
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.audit.content_keys.keys import NONCE_BYTES, KeyWrapper, WrappedKey
from gateway.audit.device import AuditLimits
from gateway.audit.entries import (
    ContentReference,
    content_aad,
    content_digest,
    encode_record,
    encode_reference,
    entry_bytes,
)
from gateway.audit.projecting.projection import RETIRED, START, Position, ProjectedRecord
from gateway.audit.second import SECOND_SEGMENT, SECOND_SUFFIX
from gateway.clock import DAY_US, Clock
from gateway.errors import AuditUnavailable, NotReady
from gateway.store.engine import Database
from gateway.store.evidence.second_rows import SecondRecord, insert_second
from gateway.store.evidence.second_writing import SecondWriter
from gateway.store.evidence.sink import CopiesError, DatabaseAuditSink
from gateway.types import AuditRecord, Receipt


_GROUP_RECORDS = 500
_GROUP_BYTES = 8 * 1024 * 1024
_KEY_BYTES = 32
_TRIES = 3
_REFUSAL = "The audit log cannot be written, so nothing was done."
_FAILURES = (NotReady, TimeoutError, OSError)


class _Waiting(NamedTuple):
    future: asyncio.Future[Receipt]
    record: AuditRecord
    record_json: bytes
    content: bytes | None
    may_be_written: bool


class _Group(NamedTuple):
    """The records of one transaction, with their places."""

    projected: list[ProjectedRecord]
    rows: list[SecondRecord]
    keys: list[WrappedKey]
    may_be_written: bool
    """Whether the first device was given any of it before, and may still write it."""

    @property
    def needs_look(self) -> bool:
        """Whether the database may have any of it already: a copy, or another outcome of a line."""
        ends = (each.record for each in self.projected if each.record.stage == "outcome")
        return self.may_be_written or any("batch" in record.detail for record in ends)


class DatabaseDevice:
    """See `gateway.audit.second.SecondDevice`; belongs to one event loop."""

    def __init__(
        self, database: Database, worker: str, keys: KeyWrapper, clock: Clock, limits: AuditLimits
    ) -> None:
        self._database = database
        self._sink = DatabaseAuditSink(database)
        self._writer = SecondWriter(database) if database.kind == "postgresql" else None
        self._worker = worker + SECOND_SUFFIX
        self._keys = keys
        self._clock = clock
        self._limits = limits
        self._waiting: deque[_Waiting] = deque()
        self._position: Position | None = None
        self._flushing: asyncio.Task[None] | None = None
        self.healthy = False

    async def append(
        self, record: AuditRecord, content: bytes | None = None, *, may_be_written: bool = False
    ) -> Receipt:
        if len(self._waiting) >= self._limits.queue_max_records:
            raise AuditUnavailable(_REFUSAL)
        kept, record_json = encode_record(record)
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(future, kept, record_json, content, may_be_written))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush(), name="second audit device")
        # A cancelled caller leaves its future behind: the record is written all the same.
        return await future

    async def probe(self) -> None:
        """Try a write that changes nothing, since a read-only database answers every question."""
        try:
            async with asyncio.timeout(self._limits.deadline_s), self._database.writing() as writer:
                await writer.execute(text("DELETE FROM audit_positions WHERE worker = ''"))
        except _FAILURES:
            self.healthy = False
        else:
            self.healthy = True

    async def rest(self) -> None:
        """Release its connection, which is not needed now, unless a write is under way."""
        if self._writer is not None and self._flushing is None:
            await self._writer.let_go()

    async def _flush(self) -> None:
        """Write one group after the other until nobody waits."""
        taken: list[_Waiting] = []
        try:
            while self._waiting:
                taken = self._take()
                receipts = await self._try_to_store(taken)
                for waiting, receipt in zip(taken, receipts, strict=False):
                    if not waiting.future.done():
                        waiting.future.set_result(receipt)
                _refuse(taken)
        finally:
            # Whatever happened, nobody must wait for an answer that will not come.
            _refuse(taken)
            _refuse(self._waiting)
            self._waiting.clear()
            self._flushing = None

    async def _try_to_store(self, taken: list[_Waiting]) -> list[Receipt]:
        """Receipts of all records, or none at all."""
        try:
            async with asyncio.timeout(self._limits.deadline_s):
                receipts = await self._store(taken)
        except _FAILURES:
            self.healthy, self._position = False, None
            return []
        self.healthy = True
        return receipts

    def _take(self) -> list[_Waiting]:
        taken: list[_Waiting] = []
        length = 0
        while self._waiting and len(taken) < _GROUP_RECORDS and length < _GROUP_BYTES:
            waiting = self._waiting.popleft()
            taken.append(waiting)
            length += len(waiting.record_json) + len(waiting.content or b"")
        return taken

    async def _store(self, taken: list[_Waiting]) -> list[Receipt]:
        """Store the records; removes from `taken`, and refuses, what the first device wrote."""
        for _ in range(_TRIES):
            if self._position is None:
                self._position = (await self._sink.positions()).get(self._worker, START)
            here = self._position
            if here == RETIRED:
                raise NotReady("this worker's name was retired")
            group = self._prepare(taken, here[1])
            there = (SECOND_SEGMENT, here[1] + len(taken))
            try:
                is_stored = await self._write(group, here, there)
            except CopiesError as error:
                _refuse(taken[place] for place in error.places)
                taken[:] = [each for at, each in enumerate(taken) if at not in error.places]
                if not taken:
                    return []
                continue
            if is_stored:
                self._position = there
                return [
                    Receipt(self._worker, SECOND_SEGMENT, each.offset_bytes, each.leaf_hash)
                    for each in group.projected
                ]
            self._position = None
        raise NotReady("another process moved this worker's place")

    async def _write(self, group: _Group, here: Position, there: Position) -> bool:
        """Write the short way, unless something has to be looked up first.

        For the very first group, nothing says yet what its place is.
        """
        if self._writer is not None and here != START and not group.needs_look:
            beside = (group.rows, group.keys)
            return await self._writer.store(self._worker, here, there, group.projected, beside)
        also, is_unsure = partial(self._beside, group), group.may_be_written
        return await self._sink.store(
            group.projected, self._worker, here, there, also=also, unless_numbered=is_unsure
        )

    async def _beside(self, group: _Group, connection: AsyncConnection) -> None:
        if self._database.kind == "postgresql":
            # An acknowledged record must survive whatever durability the server has by default.
            await connection.execute(text("SET LOCAL synchronous_commit = on"))
        await insert_second(connection, group.rows, group.keys)

    def _prepare(self, taken: list[_Waiting], start: int) -> _Group:
        """Seal contents under keys of this group only, and give each record its place."""
        group = _Group([], [], [], any(each.may_be_written for each in taken))
        ciphers: dict[tuple[str, str], tuple[str, AESGCM]] = {}
        for place, waiting in enumerate(taken, start):
            record, key, sealed, reference = waiting.record, "", b"", b""
            if waiting.content is not None:
                owner = (record.organisation, record.subject)
                if owner not in ciphers:
                    ciphers[owner] = self._new_key(group, *owner)
                key, sealed, reference = self._seal(ciphers[owner], record, waiting.content)
            raw = entry_bytes(waiting.record_json, reference)
            leaf = sha256(b"\x00" + raw).hexdigest()
            group.projected.append(
                ProjectedRecord(self._worker, SECOND_SEGMENT, place, raw, record, leaf)
            )
            group.rows.append(
                SecondRecord(
                    self._worker,
                    SECOND_SEGMENT,
                    place,
                    record.request_id,
                    record.stage,
                    key,
                    sealed,
                )
            )
        return group

    def _seal(
        self, cipher: tuple[str, AESGCM], record: AuditRecord, content: bytes
    ) -> tuple[str, bytes, bytes]:
        limit = self._limits.content_max_bytes
        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed = nonce + cipher[1].encrypt(nonce, content[:limit], content_aad(record))
        reference = ContentReference(
            key=cipher[0],
            length_bytes=len(sealed),
            cut_bytes=max(0, len(content) - limit),
            blake2b=content_digest(sealed),
        )
        return cipher[0], sealed, encode_reference(reference)

    def _new_key(self, group: _Group, organisation: str, subject: str) -> tuple[str, AESGCM]:
        key = secrets.token_bytes(_KEY_BYTES)
        now_us = self._clock.utc_us()
        draft = WrappedKey(
            key=secrets.token_hex(8),
            organisation=organisation,
            day=now_us // DAY_US,
            master=self._keys.key_id,
            wrapped=b"",
            created_us=now_us,
            subject=subject,
        )
        group.keys.append(structs.replace(draft, wrapped=self._keys.wrap(key, draft.aad())))
        return draft.key, AESGCM(key)


def _refuse(group: Iterable[_Waiting]) -> None:
    for waiting in group:
        if not waiting.future.done():
            waiting.future.set_exception(AuditUnavailable(_REFUSAL))
