"""Finds, by reading, what files, batches and kept answers hold of an end user, or of everybody.

A line belongs to the person its body names, a result to the person its line names, and an answer to
the person whom it or an earlier answer names. A conversation belongs to everybody whom one of its
turns, or its metadata, names: later turns may say what earlier ones said. Content that names nobody
is counted, and left alone.
"""

from collections.abc import AsyncIterator, Mapping, Sequence

from msgspec import Struct
from sqlalchemy import RowMapping, func, select

from gateway.batches import Batch, KeptFile
from gateway.errors import NotReady
from gateway.projects import Project
from gateway.secrets.content_keys import ContentDamaged, KeyClosed, lost_key
from gateway.store.batching.batches import BatchStore
from gateway.store.batching.files import FileStore, kept_files
from gateway.store.batching.kept_names import (
    Whose,
    cut_lines,
    line_of,
    named_by_body,
    result_of,
)
from gateway.store.batching.leads import RECEIVING
from gateway.store.conversations import users_of
from gateway.store.engine import Database
from gateway.store.erasure.kept_search import Search
from gateway.store.erasure.recorded_lines import LineRecords
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.kept_answers import DatabaseAnswers, kept_answers
from gateway.store.schema.batches import batch_lines, batches
from gateway.store.schema.owned import owner_columns, owner_of


READ_AT_ONCE = 50

Taken = tuple[KeptFile, frozenset[int]]
"""A file and some of its lines; an empty set means all of it."""


class Holdings(Struct, frozen=True):
    """What is kept outside the log, in numbers."""

    batches: int = 0
    lines: int = 0
    """Lines of batches that are kept as such: waiting, running or ended."""
    running: int = 0
    """How many of those lines are being answered now."""
    files: int = 0
    file_lines: int = 0
    answers: int = 0
    """Kept answers, conversations included."""
    conversations: int = 0
    """How many of those are conversations."""
    unnamed_files: int = 0
    """Files with lines whose end user cannot be told."""
    unnamed_lines: int = 0
    """Lines of files and batches that name no end user."""
    unnamed_answers: int = 0
    arriving: int = 0
    """Files and batches that were not looked at: they have not completely arrived, or changed."""
    busy: int = 0
    """Batches that are being accepted or finished at this moment."""
    last_expiry_us: int = 0
    """When the last of what cannot be attributed expires; 0 if there is none."""
    at_vendors: int = 0
    """Batches at vendors that hold some of these lines, or may hold some."""
    is_whole: bool = True
    """Whether everything was looked at."""

    @property
    def things(self) -> int:
        """Each file counts by the lines found in it, or as one if it did not have to be read."""
        return self.lines + max(self.file_lines, self.files) + self.answers

    @property
    def unnamed(self) -> int:
        return self.unnamed_lines + self.unnamed_answers


class Holding(Struct, frozen=True):
    """What an erasure destroys, by name."""

    lines: Mapping[str, frozenset[int]]
    """The lines of each batch, including those that are only in its files by now."""
    files: Sequence[Taken]
    answers: Sequence[tuple[Project, str]]
    numbers: Holdings
    arriving: frozenset[str] = frozenset()
    """Files and batches that have not completely arrived: an organisation's go with the rest.

    Also files from which other lines were taken while they were read.
    """


class Reader:
    """Reads what is kept of one organisation, up to a number of bytes."""

    def __init__(
        self,
        database: Database,
        stores: tuple[BatchStore, FileStore, DatabaseAnswers],
        sink: DatabaseAuditSink,
        length_max: int,
    ) -> None:
        self._database = database
        self._batches, self._files, self._answers = stores
        self._records = LineRecords(database, sink)
        self._length_max = length_max

    async def read(self, whose: Whose, bytes_max: int | None = None) -> Holding:
        """What is kept of one end user.

        Raises:
            KeyClosed: nothing of all that is kept opens, so the master key is the wrong one.
        """
        search = Search(whose, bytes_max)
        known = await self._batches_of(whose.organisation)
        for batch in known:
            await self._read_lines(search, batch)
        files = await self._files.of_organisation(whose.organisation)
        asked = [file for file in files if file.purpose == "batch"]
        for file in asked:
            await self._read_file(search, file)
        there = {file.file_id for file in asked} - search.damaged
        for batch in known:
            search.inherit(batch.batch_id, batch.input_file_id)
            if batch.is_over and batch.kind == "file" and batch.input_file_id not in there:
                await self._ask_log(search, batch)
        for file in (each for each in files if each.purpose != "batch"):
            await self._read_results(search, file)
        await self._read_answers(search)
        if search.closed and not search.opened:
            raise KeyClosed("nothing that is kept can be opened with this master key")
        return await self._holding(search, files)

    async def everything(self, organisation: str) -> Holding:
        """What is kept of everybody; needs no reading of contents."""
        files = await self._files.of_organisation(organisation)
        counted, arriving = await self._states(organisation), await self._arriving(organisation)
        lines = {each.batch_id: frozenset[int]() for each in await self._batches_of(organisation)}
        where = kept_answers.c.organisation == organisation
        async with self._database.reading() as connection:
            rows = (await connection.execute(select(kept_answers).where(where))).mappings().all()
        numbers = Holdings(
            batches=len(lines),
            lines=sum(counted.values()),
            running=counted.get("running", 0),
            files=len(files),
            answers=len(rows),
            conversations=sum(row["revision"] > 0 for row in rows),
            arriving=len(arriving),
            busy=await self._busy(organisation),
        )
        answers = [(owner_of(row), row["id"]) for row in rows]
        whole = [(file, frozenset[int]()) for file in files]
        return Holding(lines, whole, answers, numbers, arriving)

    async def _batches_of(self, organisation: str) -> list[Batch]:
        query = select(batches.c.id).where(
            batches.c.organisation == organisation, batches.c.state != RECEIVING
        )
        async with self._database.reading() as connection:
            ids = (await connection.execute(query)).scalars().all()
        found = [await self._batches.led(each) for each in ids]
        return [each for each in found if each is not None]

    async def _read_lines(self, search: Search, batch: Batch) -> None:
        try:
            key = await self._batches.content_key(batch)
            search.opened += key is not None
        except KeyClosed:
            search.close(is_key=True)
            key = lost_key(b"")
        columns, last = batch_lines.c, 0
        while key is not None and search.takes(0):
            query = (
                select(columns.number, columns.state, columns.sealed_body)
                .where(columns.batch_id == batch.batch_id, columns.number > last)
                .order_by(columns.number)
                .limit(READ_AT_ONCE)
            )
            async with self._database.reading() as connection:
                rows = (await connection.execute(query)).all()
            if not rows:
                return
            last = rows[-1].number
            for row in rows:
                # If it cannot be opened, its end user cannot be told, as if it named none.
                body = key.opened(row.sealed_body, "body", row.number) or b""
                search.takes(len(body))
                search.line(batch, row.number, row.state, named_by_body(body))

    async def _read_file(self, search: Search, file: KeptFile) -> None:
        unnamed = 0
        async for number, raw, is_whole in self._lines_of(search, file):
            if not raw.strip():
                search.saw_nothing(file.file_id, number)
                continue
            called, named = line_of(raw) if is_whole else ("", "")
            if named:
                is_theirs = search.whose.is_named(named)
                search.saw(file.file_id, number, is_theirs=is_theirs, called=called)
            unnamed += not named
        search.leave(file, unnamed)

    async def _read_results(self, search: Search, file: KeptFile) -> None:
        unnamed, untold = 0, list[tuple[int, str, int]]()
        async for number, raw, is_whole in self._lines_of(search, file):
            if not raw.strip():
                continue
            result = result_of(raw) if is_whole else None
            batch_id, line, called, named = result or ("", 0, "", "")
            is_theirs = search.is_result_theirs(batch_id, line, called)
            if is_theirs or search.whose.is_named(named):
                search.saw(file.file_id, number, is_theirs=True)
            elif named or line in search.others.get(batch_id, ()):
                continue
            elif batch_id and search.is_untold(batch_id, line):
                untold.append((number, batch_id, line))
            else:
                unnamed += 1
        if file.file_id not in search.in_vain:
            unnamed += await self._tell(search, file, untold)
        search.leave(file, unnamed)

    async def _tell(
        self, search: Search, file: KeptFile, untold: Sequence[tuple[int, str, int]]
    ) -> int:
        """Ask the log whose results are that nothing else tells; returns how many stay unknown."""
        subjects: dict[tuple[str, int], str] = {}
        for batch_id in sorted({each for _, each, _ in untold}):
            organisation, every = search.whose.organisation, search.reads_all
            found = await self._records.named(organisation, batch_id, all_of_them=every)
            search.is_whole &= found.is_whole
            subjects |= {(batch_id, line): whose for line, whose in found.subjects}
        unnamed = 0
        for number, batch_id, line in untold:
            whose = subjects.get((batch_id, line))
            unnamed += whose is None
            if whose == search.whose.subject:
                search.saw(file.file_id, number, is_theirs=True)
        return unnamed

    async def _lines_of(
        self, search: Search, file: KeptFile
    ) -> AsyncIterator[tuple[int, bytes, bool]]:
        if not search.takes(file.size_bytes):
            return
        try:
            async for number, raw, is_whole in cut_lines(
                self._files.content(file), self._length_max
            ):
                search.opened += 1
                yield number, raw, is_whole
        except (KeyClosed, ContentDamaged) as error:
            search.close(is_key=isinstance(error, KeyClosed))
            search.damaged.add(file.file_id)
        except NotReady:
            # It was deleted or rewritten while it was read: it has to be looked at again.
            search.forget(file.file_id)

    async def _ask_log(self, search: Search, batch: Batch) -> None:
        """Ask the records of a batch, of which only results are left, whose lines they were."""
        found = await self._records.of(batch, all_of_them=search.reads_all)
        search.is_whole &= found.is_whole
        for number, subject in found.subjects:
            search.saw(batch.batch_id, number, is_theirs=subject == search.whose.subject)

    async def _read_answers(self, search: Search) -> None:
        columns = kept_answers.c
        places = (*owner_columns(kept_answers), columns.id)
        query = select(*places, columns.previous_id, columns.expires_us, columns.revision).where(
            columns.organisation == search.whose.organisation
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        others: list[tuple[RowMapping, bool]] = []
        for row in rows:
            project, named = owner_of(row), frozenset[str]()
            try:
                kept = await self._answers.content(project, row["id"])
            except (KeyClosed, ContentDamaged) as error:
                search.close(is_key=isinstance(error, KeyClosed))
            else:
                search.opened += 1
                if kept is None or not search.takes(len(kept[2])):
                    continue
                named = _named_by_kept(*kept)
            if any(map(search.whose.is_named, named)):
                search.answers[row["id"]] = project
                search.conversations += row["revision"] > 0
            else:
                others.append((row, bool(named)))
        search.follow([row for row, _ in others])
        for row, is_named in others:
            if not is_named and row["id"] not in search.answers:
                search.unnamed_answers += 1
                search.last_expiry_us = max(search.last_expiry_us, row["expires_us"])

    async def _holding(self, search: Search, files: Sequence[KeptFile]) -> Holding:
        found = [
            (file, frozenset(search.theirs[file.file_id]))
            for file in files
            if file.file_id in search.theirs
        ]
        arriving = await self._arriving(search.whose.organisation) | search.in_vain
        numbers = Holdings(
            batches=len(search.kept),
            lines=sum(search.kept.values()),
            running=search.running,
            files=len(found),
            file_lines=sum(len(numbers) for _, numbers in found),
            answers=len(search.answers),
            conversations=search.conversations,
            unnamed_files=search.unnamed_files,
            unnamed_lines=search.unnamed_lines,
            unnamed_answers=search.unnamed_answers,
            last_expiry_us=search.last_expiry_us,
            arriving=len(arriving),
            busy=await self._busy(search.whose.organisation),
            is_whole=search.is_whole,
        )
        ids = {file.file_id for file in files}
        lines = {name: frozenset(each) for name, each in search.theirs.items() if name not in ids}
        answers = [(project, name) for name, project in search.answers.items()]
        return Holding(lines, found, answers, numbers, arriving)

    async def _states(self, organisation: str) -> dict[str, int]:
        query = (
            select(batch_lines.c.state, func.count())
            .join(batches, batches.c.id == batch_lines.c.batch_id)
            .where(batches.c.organisation == organisation)
            .group_by(batch_lines.c.state)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return {row[0]: row[1] for row in rows}

    async def _arriving(self, organisation: str) -> frozenset[str]:
        files = select(kept_files.c.id).where(
            kept_files.c.organisation == organisation, kept_files.c.is_whole.is_(False)
        )
        receiving = select(batches.c.id).where(
            batches.c.organisation == organisation, batches.c.state == RECEIVING
        )
        async with self._database.reading() as connection:
            found = [
                (await connection.execute(each)).scalars().all() for each in (files, receiving)
            ]
        return frozenset([each for ids in found for each in ids])

    async def _busy(self, organisation: str) -> int:
        """Batches that are being accepted or finished right now."""
        is_busy = batches.c.state.in_(("validating", "finalizing", "cancelling"))
        counted = select(func.count()).where(batches.c.organisation == organisation, is_busy)
        async with self._database.reading() as connection:
            return int((await connection.execute(counted)).scalar_one())


def _named_by_kept(revision: int, _: bytes, told: bytes) -> frozenset[str]:
    """The end users named by an answer, or in a conversation's turns or metadata."""
    users = users_of(told) if revision else ()
    return frozenset([*users, named_by_body(told)]) - {""}
