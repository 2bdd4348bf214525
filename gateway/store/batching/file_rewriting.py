"""Removes lines from a kept file: writes a new copy beside the old one, then swaps it in.

The new content has a key of its own, and the old key is destroyed with the old content. Until the
last step the file is unchanged, so a crash in between loses nothing of anybody.
"""

from collections.abc import Collection

from msgspec import structs
from sqlalchemy import delete, select, update

from gateway.batches import KeptFile
from gateway.secrets.content_keys import ContentDamaged, ContentKey, fresh_key
from gateway.secrets.envelope import MasterKey
from gateway.store.batching.files import (
    FileStore,
    FileWriter,
    about_file,
    kept_file_parts,
    kept_files,
    row_of_file,
)
from gateway.store.batching.kept_names import cut_lines
from gateway.store.engine import Database


class FileRewriter:
    """Removes lines from files of one database."""

    def __init__(self, database: Database, master: MasterKey, files: FileStore) -> None:
        self._database = database
        self._master = master
        self._files = files

    def fresh_key(self, file: KeptFile) -> ContentKey:
        """A key under which a file may go on."""
        return fresh_key(self._master, *about_file(file.project, file.file_id))

    async def without(
        self, file: KeptFile, numbers: Collection[int], length_max: int, key: ContentKey
    ) -> bool:
        """Rewrite a file without these lines, under this key; delete it if nothing is left.

        A batch's input keeps an empty line in place of each: results, the batch and its parcels at
        vendors refer to the others by their places. Lines of results name their own places. A
        damaged file stays damaged: nothing behind what does not open is kept.

        False if somebody changed or deleted it meanwhile.

        Raises:
            NotReady: it went away while it was read.
        """
        old = await self._wrapped_key(file.file_id)
        if old is None:
            return False
        draft = structs.replace(file, file_id=self._files.new_id())
        row = row_of_file(draft, key) | {"expires_us": self._files.unfinished_us()}
        async with self._database.writing() as connection:
            await connection.execute(kept_files.insert(), row)
        writer = FileWriter(self._database, draft, key)
        try:
            is_any_left = await self._copy(file, numbers, length_max, writer)
            await writer.flush()
            return await self._put(file, writer if is_any_left else None, old)
        finally:
            await writer.discard()

    async def _copy(
        self, file: KeptFile, numbers: Collection[int], length_max: int, writer: FileWriter
    ) -> bool:
        """Copy the lines that stay; returns whether anything but empty lines is left."""
        is_any_left, read_bytes = False, 0
        try:
            async for number, raw, _ in cut_lines(self._files.content(file), length_max):
                read_bytes += len(raw)
                if number not in numbers:
                    await writer.write(raw)
                    is_any_left |= bool(raw.strip())
                elif keeps_places(file) and raw.endswith(b"\n"):
                    await writer.write(b"\n")
        except ContentDamaged:
            # As long as if it were complete: readers notice that a part of it is lost.
            writer.size_bytes += file.size_bytes - read_bytes
        return is_any_left

    async def _wrapped_key(self, file_id: str) -> bytes | None:
        query = select(kept_files.c.wrapped_key).where(kept_files.c.id == file_id)
        async with self._database.reading() as connection:
            found = (await connection.execute(query)).scalar_one_or_none()
        return bytes(found) if found is not None else None

    async def _put(self, file: KeptFile, writer: FileWriter | None, old: bytes) -> bool:
        """Replace the file's parts by the draft's in one transaction; without one, delete it."""
        is_same = (kept_files.c.id == file.file_id) & (kept_files.c.wrapped_key == old)
        parts = kept_file_parts.c.file_id
        async with self._database.writing() as connection:
            if writer is None:
                return bool((await connection.execute(delete(kept_files).where(is_same))).rowcount)
            changed = update(kept_files).where(is_same).values(**writer.as_written(file.name))
            if not (await connection.execute(changed)).rowcount:
                return False
            await connection.execute(delete(kept_file_parts).where(parts == file.file_id))
            moved = update(kept_file_parts).where(parts == writer.file.file_id)
            await connection.execute(moved.values(file_id=file.file_id))
        return True


def keeps_places(file: KeptFile) -> bool:
    """Whether lines of a file stay in their places when others are removed."""
    return file.purpose == "batch"
