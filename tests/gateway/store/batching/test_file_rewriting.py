"""A file goes on without some of its lines, whole or not at all."""

import secrets
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import func, select, update

from gateway.batches import FilePurpose, KeptFile
from gateway.errors import NotReady
from gateway.secrets.content_keys import ContentDamaged
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from gateway.store.batching.file_rewriting import FileRewriter
from gateway.store.batching.files import (
    PART_BYTES,
    UNFINISHED_US,
    FileStore,
    FileWriter,
    kept_file_parts,
    kept_files,
)
from gateway.store.engine import Database, open_database
from tests.gateway.store.batching.test_files import DAY_US, PROJECT, Hands


pytestmark = pytest.mark.anyio
LENGTH_MAX = PART_BYTES // 2
LINES = [bytes([65 + at]) * (PART_BYTES // 3) + b"\n" for at in range(7)]
"""Over three parts, so that most parts hold pieces of several."""


class Shelf:
    def __init__(self, database: Database) -> None:
        self.database, self.clock = database, Hands()
        master = MasterKey(Secret(secrets.token_bytes(32)))
        self.files = FileStore(database, master, self.clock)
        self.rewriter = FileRewriter(database, master, self.files)

    async def without(self, file: KeptFile, gone: set[int]) -> bool:
        key = self.rewriter.fresh_key(file)
        return await self.rewriter.without(file, gone, LENGTH_MAX, key)

    async def kept(self, content: bytes, purpose: FilePurpose = "batch_output") -> KeptFile:
        writer = await self.files.begin(PROJECT, "k1", purpose)
        await writer.write(content)
        return await writer.finish("a.jsonl", DAY_US)

    async def content(self, file_id: str) -> bytes:
        file = await self.files.find(PROJECT, file_id)
        assert file is not None
        assert (file.name, file.expires_us) == ("a.jsonl", DAY_US)
        content = b"".join([each async for each in self.files.content(file)])
        assert len(content) == file.size_bytes
        return content

    async def rows(self) -> tuple[int, int]:
        """Files and parts that there are, also unfinished ones."""
        async with self.database.reading() as connection:
            counts = [
                select(func.count()).select_from(each) for each in (kept_files, kept_file_parts)
            ]
            files, parts = [(await connection.execute(each)).scalar_one() for each in counts]
        return files, parts


@pytest.fixture
async def shelf(database_url: str) -> AsyncIterator[Shelf]:
    database = open_database(database_url)
    yield Shelf(database)
    await database.close()


@pytest.mark.parametrize("gone", [{1}, {7}, {2, 3, 4}, {1, 3, 5, 7}, {99}])
async def test_every_other_line_stays_as_it_was(shelf: Shelf, gone: set[int]) -> None:
    file = await shelf.kept(b"".join(LINES))
    assert await shelf.without(file, gone)
    left = b"".join(each for number, each in enumerate(LINES, 1) if number not in gone)
    assert await shelf.content(file.file_id) == left
    assert await shelf.rows() == (1, -(-len(left) // PART_BYTES))


@pytest.mark.parametrize("gone", [{1}, {4}, {2, 3}, {1, 2, 3, 4}])
async def test_lines_that_a_batch_was_made_of_stay_in_their_places(
    shelf: Shelf, gone: set[int]
) -> None:
    lines = [b"a\n", b"b" * (2 * PART_BYTES) + b"\n", b"\n", b"d\n", b"e"]
    file = await shelf.kept(b"".join(lines), "batch")
    assert await shelf.without(file, gone)
    left = [b"\n" if number in gone else each for number, each in enumerate(lines, 1)]
    assert await shelf.content(file.file_id) == b"".join(left)
    again = await shelf.files.find(PROJECT, file.file_id)
    assert again is not None
    assert await shelf.without(again, {5})
    if gone == {1, 2, 3, 4}:
        assert await shelf.rows() == (0, 0), "nothing stands in it any more"
    else:
        assert await shelf.content(file.file_id) == b"".join(left[:-1])


async def test_who_reads_it_meanwhile_is_not_told_that_it_is_damaged(shelf: Shelf) -> None:
    """A batch that is just made of it would fail for good."""
    file = await shelf.kept(b"".join(LINES))
    reading = shelf.files.content(file)
    await anext(reading)
    assert await shelf.without(file, {7})
    with pytest.raises(NotReady, match="written anew") as told:
        await anext(reading)
    assert type(told.value) is NotReady
    with pytest.raises(NotReady, match="written anew"):
        await anext(shelf.files.content(file))


async def test_a_line_that_is_longer_than_any_goes_or_stays_as_a_whole(shelf: Shelf) -> None:
    long = b"x" * (2 * PART_BYTES) + b"\n"
    file = await shelf.kept(b"a\n" + long + b"b")
    assert await shelf.without(file, {1})
    assert await shelf.content(file.file_id) == long + b"b"
    again = await shelf.files.find(PROJECT, file.file_id)
    assert again is not None
    assert await shelf.without(again, {1})
    assert await shelf.content(file.file_id) == b"b"


async def test_a_damaged_file_loses_lines_too_and_stays_damaged(shelf: Shelf) -> None:
    """Who is erased would wait for as long as it is kept, with all that they have elsewhere."""
    file = await shelf.kept(b"".join(LINES))
    last = (kept_file_parts.c.file_id == file.file_id) & (kept_file_parts.c.number == 1)
    async with shelf.database.writing() as connection:
        await connection.execute(update(kept_file_parts).where(last).values(sealed=b"damaged"))
    assert await shelf.without(file, {1})
    again = await shelf.files.find(PROJECT, file.file_id)
    assert again is not None
    assert again.size_bytes == file.size_bytes - len(LINES[0])
    reading = shelf.files.content(again)
    assert await anext(reading) == LINES[1]
    with pytest.raises(ContentDamaged):
        await anext(reading)
    assert await shelf.without(again, {1})
    assert await shelf.rows() == (0, 0), "nobody can read anything of it"


async def test_a_file_of_which_nothing_is_left_is_deleted(shelf: Shelf) -> None:
    file = await shelf.kept(b"a\nb\n")
    assert await shelf.without(file, {1, 2})
    assert await shelf.rows() == (0, 0)


async def test_a_file_that_is_gone_is_not_brought_back(shelf: Shelf) -> None:
    file = await shelf.kept(b"a\nb\n")
    assert await shelf.files.forget(PROJECT, file.file_id)
    assert not await shelf.without(file, {1})
    assert await shelf.rows() == (0, 0)


@pytest.mark.parametrize("also", [{2}, {1, 2}, {1, 2, 3}])
async def test_what_somebody_else_took_out_meanwhile_stays_out(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, also: set[int]
) -> None:
    file = await shelf.kept(b"a\nb\nc\n")
    other = FileRewriter(shelf.database, shelf.rewriter._master, shelf.files)
    flush = FileWriter.flush

    async def flushes(writer: FileWriter) -> None:
        monkeypatch.setattr(FileWriter, "flush", flush)
        assert await other.without(file, also, LENGTH_MAX, other.fresh_key(file))
        await flush(writer)

    monkeypatch.setattr(FileWriter, "flush", flushes)
    assert not await shelf.without(file, {1})
    left = {frozenset({2}): b"a\nc\n", frozenset({1, 2}): b"c\n"}.get(frozenset(also))
    if left is None:
        assert await shelf.rows() == (0, 0)
    else:
        assert await shelf.content(file.file_id) == left
        assert await shelf.rows() == (1, 1)


async def test_a_crash_before_the_last_step_changes_nothing_and_leaves_nothing_for_long(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = await shelf.kept(b"".join(LINES))

    async def crashes(_: FileWriter) -> None:
        raise NotReady("ended on purpose")

    monkeypatch.setattr(FileWriter, "flush", crashes)
    with pytest.raises(NotReady):
        await shelf.without(file, {1})
    assert await shelf.rows() == (1, 3)
    monkeypatch.setattr(FileWriter, "discard", crashes)  # A process that is not there any more.
    with pytest.raises(NotReady):
        await shelf.without(file, {1})
    assert await shelf.content(file.file_id) == b"".join(LINES)
    assert (await shelf.rows())[0] == 2
    assert await shelf.files.forget_expired() == 0
    shelf.clock.now_us += UNFINISHED_US
    assert await shelf.files.forget_expired() == 1
    assert await shelf.rows() == (1, 3)
