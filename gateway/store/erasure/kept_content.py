"""Destroys content that is kept beside the log: lines of batches, files, and kept answers.

Rows are deleted; a file that also holds other people's lines is rewritten without the erased ones,
under a new key. A list outside the database says what was destroyed, so that a restored backup
loses it again when the gateway starts.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from msgspec.structs import replace
from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.audit.disk import Disk
from gateway.batches import KeptFile
from gateway.clock import Clock
from gateway.configuration.settings import Settings
from gateway.errors import NotReady, StartupRefused
from gateway.identity import Peppers
from gateway.secrets.content_keys import ContentKey, KeyClosed, opened_key
from gateway.secrets.credentials import all_peppers
from gateway.secrets.envelope import MasterKey
from gateway.store.batching.batches import BatchStore
from gateway.store.batching.file_rewriting import FileRewriter, keeps_places
from gateway.store.batching.files import FileStore, about_file, kept_files
from gateway.store.batching.kept_names import Whose
from gateway.store.batching.leads import RECEIVING
from gateway.store.batching.unsent_lines import UnsentLines
from gateway.store.batching.vendor_copies import VendorCopies
from gateway.store.engine import Database
from gateway.store.erasure.erased_kept import Erased, add, lines_gone, listed, names_of_key
from gateway.store.erasure.held_back import held_back
from gateway.store.erasure.kept_holdings import Holding, Reader, Taken
from gateway.store.erasure.line_marks import LineMarks
from gateway.store.erasure.looked_again import LookedAgain
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.held import was_set_since
from gateway.store.kept_answers import DatabaseAnswers, kept_answers
from gateway.store.schema.batches import batch_lines, batches
from gateway.store.schema.owned import owner_columns, owner_of
from gateway.telemetry import Event, logger


PREVIEW_BYTES: Final = 64 * 1024 * 1024
"""How much is read to preview an erasure; an erasure itself reads everything."""
_AT_ONCE: Final = 500
_TRIES: Final = 3
_CHANGED: Final = "a file changed while lines were taken out of it; try again"
_NOTHING: Final = (frozenset[int](), False)
_Each = TypeVar("_Each")


class KeptContent:
    """Finds and destroys what files, batches and answers of one database hold."""

    def __init__(
        self, settings: Settings, database: Database, master: MasterKey, clock: Clock
    ) -> None:
        self._settings = settings
        self._database = database
        self._master = master
        self._clock = clock
        self._folder = settings.path(settings.audit.checkpoint_directory)
        self._length_max = settings.limits.batch_line_bytes_max
        self._files = FileStore(database, master, clock)
        self._rewriter = FileRewriter(database, master, self._files)
        self._marks = LineMarks(settings, self._files)
        self._looked = LookedAgain(settings, self._folder)
        stores = (
            BatchStore(database, master, clock),
            self._files,
            DatabaseAnswers(database, master),
        )
        sink = DatabaseAuditSink(database, settings.path(settings.audit.directory))
        self._reader = Reader(database, stores, sink, self._length_max)
        self._copies = VendorCopies(database, clock, cancels=settings.batches.erasure_cancels)
        self._unsent = UnsentLines(database, clock)

    async def find(
        self, organisation: str, subject: str | None, bytes_max: int | None = PREVIEW_BYTES
    ) -> Holding:
        """What is kept of an end user; `subject` None is the complete organisation."""
        if subject is None:
            found = await self._reader.everything(organisation)
        else:
            settings = self._settings
            peppers = Peppers(all_peppers(settings), settings.secrets.pepper_version)
            whose = Whose(organisation, subject, peppers.keyed)
            found = await self._reader.read(whose, bytes_max)
        at_vendors = await self._copies.count(found.lines)
        return replace(found, numbers=replace(found.numbers, at_vendors=at_vendors))

    async def destroy(self, holding: Holding, organisation: str, case: str = "") -> None:
        """Destroy it for good, after it is on the list; repeating this is harmless.

        Vendors' copies of it are ordered to be deleted, in the name of the case.

        Raises:
            OSError: the list cannot be written; nothing was destroyed.
            NotReady: not all of it could be done, or a file has changed since it was found.
        """
        now_us = self._clock.utc_us()
        erased = [
            Erased(
                now_us,
                batch=name,
                lines=tuple(sorted(numbers)),
                organisation=organisation,
                case=case,
            )
            for name, numbers in holding.lines.items()
        ]
        fresh = {file.file_id: self._rewriter.fresh_key(file) for file, _ in holding.files}
        others = await self._of_files(holding.files, fresh, now_us)
        others += [Erased(now_us, answer=name) for _, name in holding.answers]
        erased += [replace(each, organisation=organisation, case=case) for each in others]
        await asyncio.to_thread(add, self._folder, erased, Disk())
        for file, numbers in holding.files:
            await self._take_from(file, numbers, fresh[file.file_id])
        await self._apply([each for each in erased if not each.file], is_again=False)

    async def stop(self, arriving: Sequence[str]) -> None:
        """Forget files and batches that are still arriving; their senders get an error."""
        async with self._database.writing() as connection:
            for part in _parts(arriving):
                unfinished = kept_files.c.id.in_(part) & kept_files.c.is_whole.is_(False)
                await connection.execute(delete(kept_files).where(unfinished))
                received = batches.c.id.in_(part) & (batches.c.state == RECEIVING)
                await connection.execute(delete(batches).where(received))

    async def _of_files(
        self, files: Sequence[Taken], fresh: Mapping[str, ContentKey], now_us: int
    ) -> list[Erased]:
        """The entries on the list for files, or for lines of them."""
        keys, erased = await self._keys([file.file_id for file, _ in files]), list[Erased]()
        for file, numbers in files:
            one = Erased(now_us, file=file.file_id, lines=tuple(sorted(numbers)))
            if numbers and file.file_id in keys:
                # Read after their keys were: nothing is listed of a file that changed in between.
                marks, (key, *_) = await self._marks.of(file, numbers), keys[file.file_id]
                one = replace(one, key=key, keeps_places=keeps_places(file), marks=marks)
                one = replace(one, left=fresh[file.file_id].name)
            erased.append(one)
        return erased

    async def catch_up(self) -> None:
        """At a start, before the content is used: destroy again what a backup brought back.

        Raises:
            StartupRefused: the list of what was erased cannot be read.
            NotReady: the database does not answer.
        """
        try:
            again = await self.destroy_again()
        except OSError as error:
            raise StartupRefused(f"the list of erased content: {error.strerror}") from error
        if again:
            logger().warning(Event.AUDIT_ERASED_AGAIN, count=again)

    async def destroy_again(self) -> int:
        """Destroy what is on the list but was brought back by a backup; returns how many things.

        What an unfinished erasure has listed, and a hold has forbidden since, stays.

        Raises:
            OSError: the list cannot be read.
            NotReady: the database does not answer.
        """
        erased = await asyncio.to_thread(listed, self._folder)
        kept_back = await held_back(self._database, {each.case for each in erased if each.case})
        erased = [
            each for each in erased if not was_set_since(kept_back.get(each.case), each.erased_us)
        ]
        again = await self._apply([each for each in erased if not each.file], is_again=True)
        again += await self._forget_files(
            [each.file for each in erased if each.file and not each.lines]
        )
        parts: dict[str, list[Erased]] = {}
        for each in erased:
            if each.file and each.lines:
                parts.setdefault(each.file, []).append(each)
        await self._looked.begin()
        for name, erased_of in parts.items():
            again += await self._take_again(name, erased_of)
        await self._looked.end()
        return again

    async def _take_again(self, name: str, erased: Sequence[Erased]) -> bool:
        """Take the listed lines from a file again; returns whether it had any."""
        for _ in range(_TRIES):
            names = (await self._keys([name])).get(name)
            if names is None or erased[-1].left in names:
                return False  # It is as the last of them left it.
            if self._looked.is_known(erased, names):
                return False
            file, marks = await self._file(name), {each for one in erased for each in one.marks}
            if file is None:
                return False
            if (await self._keys([name])).get(name) != names:
                continue  # Places that are of another content are other people's lines in this one.
            try:
                found, is_whole = await self._marks.found(file, marks) if marks else _NOTHING
                if found := found | lines_gone(erased, names):
                    key = self._rewriter.fresh_key(file)
                    await self._take_from(file, found, key)
                    names = (key.name, *names)
            except NotReady:
                continue  # Another process took lines out of it: what is left is elsewhere now.
            if is_whole:
                self._looked.note(erased, names)
            return bool(found)
        raise NotReady(_CHANGED)

    async def _take_from(self, file: KeptFile, numbers: frozenset[int], key: ContentKey) -> None:
        """Take some lines from a file, which goes on under this key; without numbers, all of it."""
        if not numbers:
            await self._forget_files([file.file_id])
            return
        for _ in range(_TRIES):
            if await self._rewriter.without(file, numbers, self._length_max, key):
                return
            if await self._file(file.file_id) is None:
                return
        raise NotReady(_CHANGED)

    async def _file(self, file_id: str) -> KeptFile | None:
        query = select(kept_files.c.organisation).where(kept_files.c.id == file_id)
        async with self._database.reading() as connection:
            organisation = (await connection.execute(query)).scalar_one_or_none()
        if organisation is None:
            return None
        files = await self._files.of_organisation(organisation)
        return next((file for file in files if file.file_id == file_id), None)

    async def _keys(self, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """The names on the list for each file's present key; the first is its present name."""
        found: dict[str, tuple[str, ...]] = {}
        columns = kept_files.c
        keys = select(columns.id, columns.wrapped_key, *owner_columns(kept_files))
        for part in _parts(ids):
            query = keys.where(columns.id.in_(part))
            async with self._database.reading() as connection:
                rows = (await connection.execute(query)).mappings().all()
            for row in rows:
                about = about_file(owner_of(row), row["id"])
                key: ContentKey | None = None
                with suppress(KeyClosed):
                    key = opened_key(self._master, row["wrapped_key"], *about)
                found[row["id"]] = names_of_key(bytes(row["wrapped_key"]), key)
        return found

    async def _forget_files(self, ids: Sequence[str]) -> int:
        gone = 0
        for part in _parts(ids):
            async with self._database.writing() as connection:
                where = kept_files.c.id.in_(part)
                gone += (await connection.execute(delete(kept_files).where(where))).rowcount
        return gone

    async def _apply(self, erased: Sequence[Erased], *, is_again: bool) -> int:
        """Erase lines, batches and answers; returns how many there were."""
        gone = 0
        for each in erased:
            if each.answer:
                where = kept_answers.c.id == each.answer
                async with self._database.writing() as connection:
                    gone += (await connection.execute(delete(kept_answers).where(where))).rowcount
            elif not each.lines:
                async with self._database.writing() as connection:
                    await self._unsent.hold(connection, each.batch, ())
                    await self._order_copies(connection, each)
                    if not is_again:
                        await self._unsent.note(connection, each.batch, ())
                    where = batches.c.id == each.batch
                    gone += (await connection.execute(delete(batches).where(where))).rowcount
            else:
                gone += await self._take_lines(each, is_again=is_again)
        return gone

    async def _order_copies(self, connection: AsyncConnection, erased: Erased) -> None:
        """Order the deletion of vendors' copies as well."""
        numbers = frozenset(erased.lines)
        organisation = erased.organisation
        await self._copies.order(connection, erased.case, organisation, erased.batch, numbers)

    async def _take_lines(self, erased: Erased, *, is_again: bool) -> int:
        """Take lines from one batch; the batch remembers how many, but not which."""
        gone = 0
        mine = batches.c.id == erased.batch
        async with self._database.writing() as connection:
            for part in _parts(erased.lines):
                await self._unsent.hold(connection, erased.batch, part)
            await self._order_copies(connection, erased)
            for part in _parts(erased.lines):
                if not is_again:
                    # In a restored backup, parcels do not say how far they have come.
                    await self._unsent.note(connection, erased.batch, part)
                where = (batch_lines.c.batch_id == erased.batch) & batch_lines.c.number.in_(part)
                gone += (await connection.execute(delete(batch_lines).where(where))).rowcount
            count = gone if is_again else len(erased.lines)
            if count:
                more = update(batches).where(mine).values(erased=batches.c.erased + count)
                await connection.execute(more)
        return gone


def _parts(many: Sequence[_Each]) -> Iterator[Sequence[_Each]]:
    """Split into as many at once as a statement takes."""
    for start in range(0, len(many), _AT_ONCE):
        yield many[start : start + _AT_ONCE]
