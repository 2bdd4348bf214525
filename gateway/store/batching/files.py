"""Files of projects: found by project and id, kept in sealed parts and read one part at a time."""

import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

from msgspec import structs
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    RowMapping,
    String,
    Table,
    and_,
    delete,
    func,
    not_,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.batches import ID_BYTES, FilePurpose, KeptFile, PageOf
from gateway.clock import Clock, UnhurriedClock
from gateway.errors import BodyTooLarge, NotReady
from gateway.projects import Project
from gateway.secrets.content_keys import (
    ContentDamaged,
    ContentKey,
    KeyClosed,
    fresh_key,
    opened_key,
)
from gateway.secrets.envelope import MasterKey
from gateway.store.batching.leads import Check
from gateway.store.batching.room import held_alone
from gateway.store.engine import Database
from gateway.store.expired import delete_over
from gateway.store.held import is_held
from gateway.store.pages import opened, page_of
from gateway.store.schema.owned import OWNER, is_of, owned_by, owner_of
from gateway.store.schema.tables import metadata


FULL = "Files and batches of this project hold {} bytes: delete some first."
PART_BYTES = 1024 * 1024
UNFINISHED_US = 3_600_000_000
"""When a file is given up whose rest never came."""
_FORGOTTEN_AT_ONCE = 1
_GIVEN_UP = "the file took too long to arrive and was given up"

kept_files = Table(
    "kept_files",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("organisation", String(63), nullable=False),
    Column("workspace", String(63), nullable=False),
    Column("project", String(63), nullable=False),
    Column("key_id", String(12), nullable=False),
    Column("purpose", String(16), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("expires_us", BigInteger, nullable=False),
    Column("is_whole", Boolean, nullable=False),
    Column("wrapped_key", LargeBinary, nullable=False),
    Column("sealed_name", LargeBinary, nullable=False),
    Column("master_key_id", String(32), nullable=False, server_default="", index=True),
    Index(None, *OWNER, "created_us"),
    Index(None, "expires_us"),
)
"""A file is visible once it is complete; until then it belongs to no project."""

kept_file_parts = Table(
    "kept_file_parts",
    metadata,
    Column("file_id", ForeignKey("kept_files.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("sealed", LargeBinary, nullable=False),
)


class FileWriter:
    """Writes one file part by part; nobody sees it before `finish`."""

    def __init__(self, database: Database, file: KeptFile, key: ContentKey) -> None:
        self._database = database
        self._key = key
        self._buffer = bytearray()
        self._parts = 0
        self.file = file
        self.size_bytes = 0

    async def write(self, data: bytes) -> None:
        """Add content; raises NotReady if the database does not answer."""
        self._buffer += data
        self.size_bytes += len(data)
        while len(self._buffer) >= PART_BYTES:
            piece = bytes(self._buffer[:PART_BYTES])
            del self._buffer[:PART_BYTES]
            await self._write_part(piece)

    async def finish(self, name: str, expires_us: int, check: Check | None = None) -> KeptFile:
        """Make the complete file its project's, unless `check` raises in that transaction."""
        await self.flush()
        self.file = structs.replace(
            self.file, name=name, size_bytes=self.size_bytes, expires_us=expires_us
        )
        changed = (
            update(kept_files)
            .where(self._is_mine)
            .values(**self.as_written(name), expires_us=expires_us, is_whole=True)
        )
        async with self._database.writing() as connection:
            if check is not None:
                await check(connection)
            if not (await connection.execute(changed)).rowcount:
                raise NotReady(_GIVEN_UP)
        return self.file

    async def flush(self) -> None:
        """Write the rest of the content."""
        if self._buffer:
            await self._write_part(bytes(self._buffer))
            self._buffer.clear()

    def as_written(self, name: str) -> dict[str, Any]:
        """The columns of a file's row that describe its content."""
        return {
            "size_bytes": self.size_bytes,
            "wrapped_key": self._key.kept_as,
            "master_key_id": self._key.sealed_by,
            "sealed_name": self._key.seal(name.encode(), "name"),
        }

    async def discard(self) -> None:
        """Forget what was written."""
        async with self._database.writing() as connection:
            await connection.execute(delete(kept_files).where(self._is_mine))

    @property
    def _is_mine(self) -> ColumnElement[bool]:
        """Condition for our draft: a file that was begun again has another key."""
        return and_(
            kept_files.c.id == self.file.file_id, kept_files.c.wrapped_key == self._key.kept_as
        )

    async def _write_part(self, piece: bytes) -> None:
        row = {
            "file_id": self.file.file_id,
            "number": self._parts,
            "sealed": self._key.seal(piece, "part", self._parts),
        }
        mine = select(kept_files.c.id).where(self._is_mine).with_for_update(read=True)
        async with self._database.writing() as connection:
            if (await connection.execute(mine)).first() is None:
                raise NotReady(_GIVEN_UP)
            await connection.execute(kept_file_parts.insert(), row)
        self._parts += 1


class FileStore:
    """Files of one database."""

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

    def new_id(self) -> str:
        return f"file-{self._random_hex(ID_BYTES)}"

    def unfinished_us(self) -> int:
        """When a file begun now is given up."""
        return self._clock.utc_us() + UNFINISHED_US

    async def of_organisation(self, organisation: str) -> list[KeptFile]:
        """Every complete file of an organisation, including those its projects no longer see."""
        query = select(kept_files).where(
            kept_files.c.organisation == organisation, kept_files.c.is_whole
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return await opened(rows, self._file_of)

    async def begin(
        self,
        project: Project,
        key_id: str,
        purpose: FilePurpose,
        file_id: str = "",
        check: Check | None = None,
    ) -> FileWriter:
        """Begin a new file, or `file_id` again: what was written of it before is dropped.

        Unless `check` raises, in the same transaction.
        """
        now_us = self._clock.utc_us()
        file_id = file_id or self.new_id()
        file = KeptFile(file_id, project, key_id, purpose, "", 0, now_us, now_us + UNFINISHED_US)
        key = fresh_key(self._master, *about_file(project, file_id))
        async with self._database.writing() as connection:
            if check is not None:
                await check(connection)
            await connection.execute(delete(kept_files).where(kept_files.c.id == file_id))
            await connection.execute(kept_files.insert(), row_of_file(file, key))
        return FileWriter(self._database, file, key)

    async def find(self, project: Project, file_id: str) -> KeptFile | None:
        """A file of this project; None if it does not exist, or no longer does."""
        query = select(kept_files).where(kept_files.c.id == file_id, *self._seen_by(project))
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).mappings().one_or_none()
        return self._file_of(row) if row is not None else None

    async def page(
        self, project: Project, page: PageOf, purpose: str = ""
    ) -> tuple[list[KeptFile], bool]:
        """Files of a project, and whether there are more."""
        seen = self._seen_by(project)
        if purpose:
            seen.append(kept_files.c.purpose == purpose)
        async with self._database.reading() as connection:
            rows, has_more = await page_of(connection, kept_files, seen, page)
        return await opened(rows, self._file_of), has_more

    async def content(self, file: KeptFile) -> AsyncIterator[bytes]:
        """The content, part by part.

        Raises:
            NotReady: it was deleted, or rewritten, since it was found.
            ContentDamaged: a part of it is lost, or can no longer be opened.
        """
        wrapped = await self._wrapped_key(file)
        read_bytes = number = 0
        while wrapped is not None and read_bytes < file.size_bytes:
            try:
                piece = await self._part(file, wrapped, number)
            except ContentDamaged:
                if await self._wrapped_key(file) == wrapped:
                    raise
                break
            read_bytes += len(piece)
            number += 1
            yield piece
        if read_bytes < file.size_bytes:
            raise NotReady("the file was deleted while it was read, or written anew")

    async def _wrapped_key(self, file: KeptFile) -> bytes | None:
        """The key of a file, if the file has not changed since it was found."""
        columns = kept_files.c
        query = select(columns.wrapped_key).where(
            columns.id == file.file_id, columns.size_bytes == file.size_bytes
        )
        async with self._database.reading() as connection:
            found = (await connection.execute(query)).scalar_one_or_none()
        return bytes(found) if found is not None else None

    async def _part(self, file: KeptFile, wrapped: bytes, number: int) -> bytes:
        part = select(kept_file_parts.c.sealed).where(
            kept_file_parts.c.file_id == file.file_id, kept_file_parts.c.number == number
        )
        async with self._database.reading() as connection:
            sealed = (await connection.execute(part)).scalar_one_or_none()
        if sealed is None:
            raise ContentDamaged("a part of a kept file is lost")
        key = opened_key(self._master, wrapped, *about_file(file.project, file.file_id))
        return key.open(sealed, "part", number)

    async def forget(self, project: Project, file_id: str) -> bool:
        """Delete a file; returns whether it existed. Under a hold it is only hidden."""
        there = (kept_files.c.id == file_id, *self._seen_by(project))
        hidden = update(kept_files).where(*there, is_held(kept_files))
        async with self._database.writing() as connection:
            kept = await connection.execute(hidden.values(expires_us=self._clock.utc_us()))
            gone = await connection.execute(
                delete(kept_files).where(*there, not_(is_held(kept_files)))
            )
            return bool(kept.rowcount + gone.rowcount)

    async def forget_expired(self) -> int:
        """Forget expired and incomplete files; returns how many."""
        is_over = and_(
            kept_files.c.expires_us <= self._unhurried.utc_us(),
            not_(and_(kept_files.c.is_whole, is_held(kept_files))),
        )
        return await delete_over(self._database, kept_files, is_over, _FORGOTTEN_AT_ONCE)

    async def stored_bytes(self, project: Project) -> int:
        """The total length of a project's files."""
        async with self._database.reading() as connection:
            return await self._stored_bytes(connection, project)

    def room(self, project: Project, more_bytes: int, bytes_max: int) -> Check:
        """A check that a project may hold this much more; raises BodyTooLarge if it may not."""

        async def check(connection: AsyncConnection) -> None:
            held_bytes, _ = await held_alone(connection, project, self._clock.utc_us())
            held_bytes += await self._stored_bytes(connection, project)
            if held_bytes + more_bytes > bytes_max:
                raise BodyTooLarge(FULL.format(held_bytes))

        return check

    async def _stored_bytes(self, connection: AsyncConnection, project: Project) -> int:
        query = select(func.coalesce(func.sum(kept_files.c.size_bytes), 0))
        total = await connection.execute(query.where(*self._seen_by(project)))
        return int(total.scalar_one())

    def _seen_by(self, project: Project) -> list[ColumnElement[bool]]:
        return [
            *is_of(kept_files, project),
            kept_files.c.is_whole,
            kept_files.c.expires_us > self._clock.utc_us(),
        ]

    def _file_of(self, row: RowMapping) -> KeptFile:
        project = owner_of(row)
        try:
            key = opened_key(self._master, row["wrapped_key"], *about_file(project, row["id"]))
            name = key.opened(row["sealed_name"], "name")
        except KeyClosed:
            name = None
        return KeptFile(
            file_id=row["id"],
            project=project,
            key_id=row["key_id"],
            purpose=row["purpose"],
            name=(name or b"").decode(),
            size_bytes=row["size_bytes"],
            created_us=row["created_us"],
            expires_us=row["expires_us"],
            is_damaged=name is None,
        )


def about_file(project: Project, file_id: str) -> tuple[str, ...]:
    """The context that the key of a file is bound to."""
    return ("kept file", *project, file_id)


def row_of_file(file: KeptFile, key: ContentKey) -> dict[str, Any]:
    """The row of a file that has just begun: incomplete, and not visible."""
    return {
        "id": file.file_id,
        **owned_by(file.project),
        "key_id": file.key_id,
        "purpose": file.purpose,
        "size_bytes": 0,
        "created_us": file.created_us,
        "expires_us": file.expires_us,
        "is_whole": False,
        "wrapped_key": key.kept_as,
        "master_key_id": key.sealed_by,
        "sealed_name": b"",
    }
