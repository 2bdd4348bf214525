"""The database as a projection of the audit log: stored by the projector, searched by people.

Only the segments are evidence; the projection can be thrown away and rebuilt from them. PostgreSQL
keeps each record's bytes beside the columns that exist to be searched. SQLite lies beside the
segments, so it only says where they are: a copy would cost more than all the rest.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from msgspec import Struct, structs
from sqlalchemy import ColumnElement, RowMapping, Select, func, literal_column, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.audit.projecting.projection import Position, ProjectedRecord, SequencedRecord
from gateway.audit.reckoning import OpenIntent
from gateway.audit.second import SECOND_SUFFIX
from gateway.audit.segments import Place, read_entries
from gateway.passage import NATIVE
from gateway.store.engine import Database, asked, driver_of, in_one_turn, together
from gateway.store.evidence.awaited import ANYTHING, recalled
from gateway.store.evidence.numbering import Before, TakenError, move, take_numbers
from gateway.store.evidence.repeats import repeats
from gateway.store.evidence.rows import (
    AGAIN,
    COLUMNS,
    RulesOf,
    insertions_of,
    organisations_of,
    rows_of,
)
from gateway.store.evidence.rule_sets import RuleSets
from gateway.store.evidence.second_rows import ANY, numbered, taken
from gateway.store.evidence.tree import grow, saving
from gateway.store.evidence.upstream_names import names_in, write_names
from gateway.store.schema.audit import audit_positions, audit_records, audit_sequences
from gateway.store.sqlite_driver import Asked
from gateway.types import AuditRecord


_KNOWN = attrgetter("known_record")
_P = ParamSpec("_P")
_T = TypeVar("_T")
_PAGE = 500
_LAST: Final = 2**63 - 1
"""No record has a higher number."""
_FEW = 64
"""This many records become rows and leaves in less than a millisecond."""
_UNREAD = AuditRecord("intent", "", "", 0)
"""Stands for a record whose bytes are damaged, or gone with their segment."""
Also = Callable[[AsyncConnection], Awaitable[None]]
_STORED = (
    audit_records.c.sequence,
    audit_records.c.organisation,
    audit_records.c.worker,
    audit_records.c.segment,
    audit_records.c.offset_bytes,
    audit_records.c.raw,
    audit_records.c.stage,
)


class AuditQuery(Struct, frozen=True):
    """Selects records; every field that is not None must match."""

    organisation: str | None = None
    stage: str | None = None
    request_id: str | None = None
    workspace: str | None = None
    project: str | None = None
    key_id: str | None = None
    actor: str | None = None
    action: str | None = None
    target: str | None = None
    data_class: str | None = None
    status: str | None = None
    about: str | None = None
    batch: str | None = None
    since_us: int | None = None
    until_us: int | None = None
    """Exclusive."""


class CopiesError(Exception):
    """Both devices have the records at `places` of this batch; the batch is not stored."""

    def __init__(self, places: frozenset[int]) -> None:
        super().__init__(f"{len(places)} records are there already")
        self.places = places


class DatabaseAuditSink:
    """See `projecting.projector.AuditSink`; any number of processes may store at once."""

    def __init__(self, database: Database, directory: Path | None = None) -> None:
        """With the audit `directory`, SQLite keeps no copy of records, but reads them there."""
        self._database = database
        self._directory = directory
        self._keeps_bytes = directory is None or database.kind == "postgresql"
        self._sets = RuleSets(database.kind)

    async def positions(self) -> Mapping[str, Position]:
        async with self._database.reading() as connection:
            rows = (await connection.execute(select(audit_positions))).all()
        return {worker: (segment, offset) for worker, segment, offset in rows}

    async def store(
        self,
        batch: list[ProjectedRecord],
        worker: str,
        from_position: Position,
        to_position: Position,
        *,
        also: Also | None = None,
        unless_numbered: bool = False,
    ) -> bool:
        """See the protocol; records that the second device took already are left out.

        `also` is what the second device stores with its own records.

        Raises:
            CopiesError: `unless_numbered`, and the log has the first device's copies already.
        """
        if None in map(_KNOWN, batch):
            # Before the transaction, so that no other writes wait for the decoding.
            batch = await asyncio.to_thread(_decoded, batch)
        rules = self._sets.of_batch()
        try:
            async with self._database.writing() as connection:
                kind, step = self._database.kind, (worker, from_position, to_position)
                awaited = await move(connection, kind, *step, and_ask=ANYTHING)
                numbers = await recalled(connection, batch, awaited)
                new = _without(batch, numbers) if numbers else batch
                before, some = await take_numbers(connection, kind, new, and_ask=ANY)
                # As late as possible: others that store records of these organisations wait for
                # their numbers.
                if also is None:
                    copies = await taken(connection, batch, some)
                elif unless_numbered:
                    copies = await numbered(connection, batch, worker.removesuffix(SECOND_SUFFIX))
                else:
                    copies = frozenset()
                if copies:
                    raise CopiesError(copies)
                if also is not None:
                    await also(connection)
                await self._insert(connection, batch, before, numbers, rules)
                await write_names(connection, kind, names_in(batch))
                await self._sets.write(connection, self._sets.new_of(rules.new))
        except TakenError:
            return False
        except CopiesError as error:
            if also is not None:
                raise
            left = _without(batch, error.places)
            return await self.store(left, worker, from_position, to_position)
        self._sets.keep(rules.new)
        return True

    async def records(
        self, query: AuditQuery, after: int = 0, *, strict: bool = False
    ) -> AsyncIterator[SequencedRecord]:
        """Matching records by organisation and number; with one organisation, those past `after`.

        Read page by page, so that an export of any length holds neither memory nor a transaction.
        `strict` is for callers that would act on missing records: a segment that cannot be read at
        this moment then raises OSError instead of giving records without their bytes.
        """
        is_timed, last = query.since_us is not None or query.until_us is not None, _LAST
        if is_timed and query.organisation is None:
            # Times lead to numbers only inside one log.
            for name in await self._logs():
                of_log = structs.replace(query, organisation=name)
                async for record in self.records(of_log, strict=strict):
                    yield record
            return
        if is_timed and query.organisation is not None:
            # Otherwise each page would search for its beginning among all records of that time.
            span = await self.span(query.organisation, query.since_us, query.until_us)
            first, last = span or (last, 0)
            after = max(after, first - 1)
        place: tuple[str, int] = (query.organisation or "", after)
        while True:
            page = _matching(query).where(*_after(query, place, last)).limit(_PAGE)
            page = page.order_by(audit_records.c.organisation, audit_records.c.sequence)
            rows = await self._rows(page)
            for record in await self._records_of(rows, strict=strict):
                yield record
            if len(rows) < _PAGE:
                return
            place = (rows[-1]["organisation"], rows[-1]["sequence"])

    async def _logs(self) -> list[str]:
        """Names of the organisations that have logs, in the order of records."""
        name = audit_sequences.c.organisation
        async with self._database.reading() as connection:
            return [*(await connection.execute(select(name).order_by(name))).scalars()]

    async def at(self, place: Place) -> SequencedRecord | None:
        """The record that a receipt names."""
        columns = audit_records.c
        query = select(*_STORED).where(
            tuple_(columns.worker, columns.segment, columns.offset_bytes) == place
        )
        rows = await self._rows(query)
        return (await self._records_of(rows))[0] if rows else None

    async def named_at(self, place: Place) -> tuple[str, int, str] | None:
        """Organisation, number and request of the record at a place; its bytes are not read."""
        columns = audit_records.c
        query = select(columns.organisation, columns.sequence, columns.request_id).where(
            tuple_(columns.worker, columns.segment, columns.offset_bytes) == place
        )
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).first()
        return (row.organisation, int(row.sequence), row.request_id) if row else None

    async def numbered(
        self, organisation: str, sequences: Sequence[int], *, strict: bool = False
    ) -> list[SequencedRecord]:
        """Records of one organisation by their numbers, in any order; missing ones are left out.

        `strict` as for `records`.
        """
        columns = audit_records.c
        query = select(*_STORED).where(
            columns.organisation == organisation, columns.sequence.in_(sequences)
        )
        return await self._records_of(await self._rows(query), strict=strict)

    async def span(
        self, organisation: str, since_us: int | None, until_us: int | None
    ) -> tuple[int, int] | None:
        """First and last number of an organisation's records in a period; None without any."""
        # For the minimum of a bare column PostgreSQL searches from the beginning of the log.
        number = audit_records.c.sequence + 0
        query = _matching(
            AuditQuery(organisation=organisation, since_us=since_us, until_us=until_us)
        ).with_only_columns(func.min(number), func.max(number))
        async with self._database.reading() as connection:
            first, last = (await connection.execute(query)).one()
        return None if first is None else (first, last)

    async def policy_digests(self, organisation: str, first: int, last: int) -> set[str]:
        """Digests of the policy documents that are named by records in a part of a log."""
        columns = audit_records.c
        query = (
            select(columns.policy_digest)
            .where(
                columns.organisation == organisation,
                columns.sequence.between(first, last),
                columns.policy_digest != "",
            )
            .distinct()
        )
        async with self._database.reading() as connection:
            return set((await connection.execute(query)).scalars())

    async def began_us(self, organisation: str) -> int:
        """When an organisation's first record was written; 0 if there is none."""
        columns = audit_records.c
        query = (
            select(columns.utc_us)
            .where(columns.organisation == organisation)
            .order_by(columns.sequence)
            .limit(1)
        )
        async with self._database.reading() as connection:
            return int((await connection.execute(query)).scalar_one_or_none() or 0)

    async def newest(self, query: AuditQuery, limit: int = 100) -> list[SequencedRecord]:
        """The last matching records, newest first, without damaged ones; for an admin page."""
        columns = audit_records.c
        page = _matching(query).order_by(
            columns.utc_us.desc(), columns.organisation, columns.sequence.desc()
        )
        found = await self._records_of(await self._rows(page.limit(limit)))
        return [row for row in found if row.projected.raw_json]

    async def outcome(self, organisation: str, request_id: str) -> AuditRecord | None:
        """The first outcome of a request; None if it is not here, or not yet."""
        query = AuditQuery(organisation=organisation, stage="outcome", request_id=request_id)
        found = await self.newest(query, 1)
        return found[0].projected.record if found else None

    async def parked(self, organisation: str, batch: str, line: int) -> OpenIntent | None:
        """The newest intent of a batch's line that waits for a vendor; None without one.

        All of the batch's intents are read: no index finds lines by their number.
        """
        found: OpenIntent | None = None
        query = AuditQuery(organisation=organisation, stage="intent", batch=batch)
        async for row in self.records(query):
            record = row.projected.record if row.projected.raw_json else _UNREAD
            if record.detail.get("line") == str(line) and record.detail.get("path") == NATIVE:
                found = OpenIntent(record, row.projected.leaf_hash)
        return found

    async def _rows(self, query: Select[Any]) -> Sequence[RowMapping]:
        async with self._database.reading() as connection:
            rows: Sequence[RowMapping] = (await connection.execute(query)).mappings().all()
        return rows

    async def _records_of(
        self, rows: Sequence[RowMapping], *, strict: bool = False
    ) -> list[SequencedRecord]:
        """Records that are damaged or no longer in their segment come without their bytes."""
        lacking = [row for row in rows if row["raw"] is None]
        entries: dict[Place, bytes] = {}
        if lacking and self._directory is not None:
            places = [(row["worker"], row["segment"], row["offset_bytes"]) for row in lacking]
            entries = await asyncio.to_thread(read_entries, self._directory, places, strict=strict)
        return [_record_of(row, entries) for row in rows]

    async def _insert(
        self,
        connection: AsyncConnection,
        batch: list[ProjectedRecord],
        before: Before,
        numbers: Mapping[int, int],
        rules: RulesOf,
    ) -> None:
        if not batch:
            return
        again = await repeats(connection, batch)
        new = _without(batch, numbers) if numbers else batch
        names = organisations_of(new)
        # For few records, waking a thread twice would take longer.
        apart = _at_once if len(batch) <= _FEW else asyncio.to_thread
        grown = saving(await apart(grow, new, names, before))
        following = {name: size + 1 for name, (size, _) in before.items()}
        driver = await driver_of(connection)
        # Bypassing SQLAlchemy, whose inserts take twice (SQLite) and four times (COPY) as long.
        if self._database.kind == "postgresql":
            await together(connection, grown)
            rows = rows_of(batch, following, rules, again, numbers)
            await driver.copy_records_to_table(audit_records.name, columns=COLUMNS, records=rows)
            return
        insertions = await apart(
            insertions_of, batch, following, rules, again, numbers, with_bytes=self._keeps_bytes
        )
        grows = [asked(*each) for each in grown]
        inserted = [Asked(*each, is_many=True) for each in insertions]
        await in_one_turn(driver, grows + inserted)


async def _at_once(work: Callable[_P, _T], /, *given: _P.args, **named: _P.kwargs) -> _T:
    """Like `asyncio.to_thread`, but in this thread."""
    return work(*given, **named)


def _matching(query: AuditQuery) -> Select[Any]:
    conditions: list[ColumnElement[bool]] = []
    for name in query.__struct_fields__:
        value = getattr(query, name)
        if value is None:
            continue
        if name == "since_us":
            conditions.append(audit_records.c.utc_us >= value)
        elif name == "until_us":
            conditions.append(audit_records.c.utc_us < value)
        else:
            conditions.append(audit_records.c[name] == value)
    # Written out, because a partial index is used only if the query repeats its condition.
    few = (name for name in ("action", "batch", "about") if getattr(query, name))
    conditions += [literal_column(f"({name} <> '')") for name in few]
    return select(*_STORED).where(*conditions)


def _after(query: AuditQuery, place: tuple[str, int], last: int) -> list[ColumnElement[bool]]:
    """The beginning of a page, as a condition that the index of the records can answer.

    Inside one log it is only numbers: SQLite searches two columns together only in an index on
    both.
    """
    columns = audit_records.c
    if query.organisation is None:
        return [tuple_(columns.organisation, columns.sequence) > place]
    return [columns.sequence.between(place[1] + 1, last)]


def _record_of(row: RowMapping, entries: Mapping[Place, bytes]) -> SequencedRecord:
    place = (row["worker"], row["segment"], row["offset_bytes"])
    raw = entries.get(place, b"") if row["raw"] is None else bytes(row["raw"])
    return SequencedRecord(row["sequence"], ProjectedRecord(*place, raw), row["stage"] == AGAIN)


def _without(batch: list[ProjectedRecord], places: Container[int]) -> list[ProjectedRecord]:
    return [each for place, each in enumerate(batch) if place not in places]


def _decoded(batch: list[ProjectedRecord]) -> list[ProjectedRecord]:
    """Raises msgspec.MsgspecError when a record is not our JSON."""
    return [structs.replace(projected, known_record=projected.record) for projected in batch]
