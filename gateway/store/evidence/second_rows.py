"""Rows of records that the database took itself while a worker's disk could not be written.

They lie beside the projection's rows and hold the sealed content and the data key that opens it
(wrapped). Request id and stage identify a copy that the disk may have written after all when it
came back.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import Select, delete, exists, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.audit.content_keys.keys import WrappedKey
from gateway.audit.projecting.export import SealedContent
from gateway.audit.projecting.projection import ProjectedRecord
from gateway.audit.second import SECOND_SUFFIX
from gateway.store.engine import Database
from gateway.store.schema.audit import audit_records, audit_second_keys, audit_second_records


_AT_ONCE = 500
ANY = select(audit_second_records.c.worker).limit(1)


class SecondRecord(Struct, frozen=True):
    """One record of the second device."""

    worker: str
    segment: int
    offset_bytes: int
    request_id: str
    stage: str
    key: str
    """Id of the data key; empty without content."""
    sealed: bytes
    """Nonce, ciphertext and tag; empty without content."""


async def insert_second(
    connection: AsyncConnection, records: Sequence[SecondRecord], keys: Sequence[WrappedKey]
) -> None:
    """Insert them in the transaction that numbers the records."""
    rows = [msgspec.structs.asdict(record) for record in records]
    await connection.execute(insert(audit_second_records), rows)
    if keys:
        await connection.execute(insert(audit_second_keys), [line_of(key) for key in keys])


def line_of(key: WrappedKey) -> dict[str, str]:
    """A row of `audit_second_keys`."""
    return {
        "key": key.key,
        "organisation": key.organisation,
        "subject": key.subject,
        "line": msgspec.json.encode(key).decode(),
        "master_key_id": key.master,
    }


async def taken(
    connection: AsyncConnection, batch: list[ProjectedRecord], some: Sequence[Sequence[Any]]
) -> frozenset[int]:
    """Places, in a batch of a segment, of records that the database took itself.

    `some` is what the database answers to `ANY`.

    A disk that hung writes what it was given when it recovers, long after the caller went
    elsewhere.
    """
    columns = audit_second_records.c
    if not some:
        return frozenset()
    return await _known(connection, batch, select(columns.request_id, columns.stage))


async def numbered(
    connection: AsyncConnection, batch: list[ProjectedRecord], worker: str
) -> frozenset[int]:
    """Places, in a group of the second device, of records that the disk wrote after all."""
    columns = audit_records.c
    query = select(columns.request_id, columns.stage).where(columns.worker == worker)
    return await _known(connection, batch, query)


async def _known(
    connection: AsyncConnection, batch: list[ProjectedRecord], query: Select[Any]
) -> frozenset[int]:
    """Places of records whose request and stage a query selects."""
    each = [(projected.known_record or projected.record) for projected in batch]
    keys = [(record.request_id, record.stage) for record in each]
    ids, request_id = sorted({request for request, _ in keys}), query.selected_columns[0]
    known: set[tuple[str, str]] = set()
    for start in range(0, len(ids), _AT_ONCE):
        some = query.where(request_id.in_(ids[start : start + _AT_ONCE]))
        known |= {(request, stage) for request, stage in (await connection.execute(some)).all()}
    return frozenset(place for place, key in enumerate(keys) if key in known)


class SecondContents:
    """The contents sealed into the database, and their keys."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def open_requests(self, worker: str) -> list[str]:
        """Requests whose intent the database took for a worker, and that have no outcome in it."""
        columns, every = audit_second_records.c, audit_records.c
        has_ended = exists().where(every.request_id == columns.request_id, every.stage == "outcome")
        query = select(columns.request_id).where(
            columns.worker == worker + SECOND_SUFFIX, columns.stage == "intent", ~has_ended
        )
        async with self._database.reading() as connection:
            return list((await connection.execute(query)).scalars())

    async def has_intent(self, request_id: str) -> bool:
        """Whether the database took the intent of a request."""
        columns = audit_second_records.c
        query = select(columns.worker).where(
            columns.request_id == request_id, columns.stage == "intent"
        )
        async with self._database.reading() as connection:
            return (await connection.execute(query.limit(1))).first() is not None

    async def sealed(self, place: tuple[str, int, int]) -> SealedContent | None:
        """A record's content and its key's line; the line is None once the key was destroyed."""
        columns, keys = audit_second_records.c, audit_second_keys.c
        query = (
            select(columns.sealed, keys.line)
            .outerjoin_from(audit_second_records, audit_second_keys, keys.key == columns.key)
            .where(
                columns.worker == place[0],
                columns.segment == place[1],
                columns.offset_bytes == place[2],
            )
        )
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).one_or_none()
        if row is None:
            return None
        line = msgspec.json.decode(row[1], type=WrappedKey) if row[1] is not None else None
        return SealedContent(bytes(row[0]), line)

    async def organisations(self) -> frozenset[str]:
        """Organisations whose content keys are kept here."""
        query = select(audit_second_keys.c.organisation).distinct()
        async with self._database.reading() as connection:
            return frozenset((await connection.execute(query)).scalars())

    async def matching_keys(self, organisation: str, subject: str | None) -> list[WrappedKey]:
        """All content keys of a subject, or of a complete organisation, that are kept here."""
        columns = audit_second_keys.c
        query = select(columns.line).where(columns.organisation == organisation)
        if subject is not None:
            query = query.where(columns.subject == subject)
        async with self._database.reading() as connection:
            lines = (await connection.execute(query)).scalars().all()
        return [msgspec.json.decode(line, type=WrappedKey) for line in lines]

    async def keys(self, ids: Sequence[str]) -> list[WrappedKey]:
        """Those of these content keys that are kept here."""
        found, columns = list[WrappedKey](), audit_second_keys.c
        async with self._database.reading() as connection:
            for start in range(0, len(ids), _AT_ONCE):
                query = select(columns.line).where(columns.key.in_(ids[start : start + _AT_ONCE]))
                lines = (await connection.execute(query)).scalars().all()
                found += [msgspec.json.decode(line, type=WrappedKey) for line in lines]
        return found

    async def destroy(self, ids: Sequence[str]) -> int:
        """Destroy these keys; returns how many of them were here."""
        destroyed = 0
        wanted = sorted(ids)
        async with self._database.writing() as connection:
            for start in range(0, len(wanted), _AT_ONCE):
                part = wanted[start : start + _AT_ONCE]
                gone = delete(audit_second_keys).where(audit_second_keys.c.key.in_(part))
                destroyed += (await connection.execute(gone)).rowcount
        return destroyed
