"""Files in a real database: their project's alone, sealed part by part, gone when it says so."""

import asyncio
import secrets
from collections import Counter

import pytest
from sqlalchemy import RowMapping, delete, select, update

from gateway.batches import KeptFile, PageOf
from gateway.errors import NotReady
from gateway.projects import Project
from gateway.secrets.content_keys import ContentDamaged
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from gateway.store.batching.files import (
    PART_BYTES,
    UNFINISHED_US,
    FileStore,
    kept_file_parts,
    kept_files,
)
from gateway.store.engine import Database


pytestmark = pytest.mark.anyio

PROJECT = Project("acme", "research", "assistant")
MARK = b"canary-in-a-file "
DAY_US = 86_400_000_000


class Hands:
    """A clock that stands where it was put."""

    now_us = 1_000_000

    def utc_us(self) -> int:
        return self.now_us

    def monotonic_s(self) -> float:
        return self.now_us / 1e6


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def files(database: Database, clock: Hands) -> FileStore:
    return FileStore(database, MasterKey(Secret(secrets.token_bytes(32))), clock)


async def kept(
    files: FileStore, content: bytes = MARK, *, project: Project = PROJECT, until_us: int = DAY_US
) -> KeptFile:
    writer = await files.begin(project, "abcdefghijkl", "batch")
    for start in range(0, len(content), 300_000):
        await writer.write(content[start : start + 300_000])
    return await writer.finish("questions.jsonl", until_us)


async def content_of(files: FileStore, file: KeptFile) -> bytes:
    return b"".join([piece async for piece in files.content(file)])


async def test_a_file_of_several_parts_is_read_as_it_was_written(files: FileStore) -> None:
    content = MARK * (3 * PART_BYTES // len(MARK))
    file = await kept(files, content)

    assert file.size_bytes == len(content)
    assert await files.find(PROJECT, file.file_id) == file
    assert await content_of(files, file) == content


async def test_a_file_of_another_organisation_workspace_or_project_is_not_there(
    files: FileStore,
) -> None:
    file = await kept(files)
    for index in range(3):
        other = [*PROJECT]
        other[index] = "other"
        place = Project(*other)
        assert await files.find(place, file.file_id) is None
        assert not await files.forget(place, file.file_id)
        assert await files.page(place, PageOf(10)) == ([], False)
        assert await files.stored_bytes(place) == 0
    assert await files.find(PROJECT, file.file_id) is not None


async def test_nothing_of_a_file_can_be_read_in_the_database(
    files: FileStore, database: Database
) -> None:
    await kept(files)
    async with database.reading() as connection:
        rows = [
            *(await connection.execute(select(kept_files))).all(),
            *(await connection.execute(select(kept_file_parts))).all(),
        ]
    held = b"".join(bytes(cell) for row in rows for cell in row if isinstance(cell, bytes))

    assert held
    assert MARK not in held
    assert b"questions" not in held


async def test_a_part_that_was_swapped_or_changed_does_not_open(
    files: FileStore, database: Database
) -> None:
    file = await kept(files, MARK * (2 * PART_BYTES // len(MARK)))
    async with database.writing() as connection:
        second = select(kept_file_parts.c.sealed).where(kept_file_parts.c.number == 1)
        sealed = (await connection.execute(second)).scalar_one()
        swap = update(kept_file_parts).where(kept_file_parts.c.number == 0)
        await connection.execute(swap.values(sealed=sealed))

    with pytest.raises(NotReady, match="changed or moved"):
        await content_of(files, file)


async def test_a_part_that_is_lost_is_damage_and_no_deletion(
    files: FileStore, database: Database
) -> None:
    """What is told to come again would be read for ever."""
    file = await kept(files, MARK * (2 * PART_BYTES // len(MARK)))
    async with database.writing() as connection:
        await connection.execute(delete(kept_file_parts).where(kept_file_parts.c.number == 1))
    with pytest.raises(ContentDamaged):
        await content_of(files, file)


async def test_a_file_is_not_seen_before_it_is_whole_and_is_given_up_after_an_hour(
    files: FileStore, clock: Hands
) -> None:
    writer = await files.begin(PROJECT, "abcdefghijkl", "batch")
    await writer.write(b"x" * PART_BYTES)

    assert await files.find(PROJECT, writer.file.file_id) is None
    assert await files.page(PROJECT, PageOf(10)) == ([], False)
    assert await files.forget_expired() == 0
    clock.now_us += UNFINISHED_US
    assert await files.forget_expired() == 1
    with pytest.raises(NotReady, match="given up"):
        await writer.finish("late.jsonl", DAY_US)


async def test_whoever_began_a_file_before_it_was_begun_anew_changes_nothing_of_it(
    files: FileStore,
) -> None:
    away = await files.begin(PROJECT, "abcdefghijkl", "batch_output", "file-results")
    await away.write(b"x" * PART_BYTES)
    again = await files.begin(PROJECT, "abcdefghijkl", "batch_output", "file-results")
    await again.write(MARK * (2 * PART_BYTES // len(MARK)))
    with pytest.raises(NotReady, match="given up"):
        await away.write(b"x" * 2 * PART_BYTES)
    file = await again.finish("results.jsonl", DAY_US)

    with pytest.raises(NotReady, match="given up"):
        await away.finish("away.jsonl", DAY_US)
    await away.discard()
    assert await files.find(PROJECT, "file-results") == file
    assert await content_of(files, file) == MARK * (2 * PART_BYTES // len(MARK))


async def test_an_empty_ending_of_an_earlier_writer_does_not_make_a_file_whole(
    files: FileStore,
) -> None:
    away = await files.begin(PROJECT, "abcdefghijkl", "batch_output", "file-results")
    await files.begin(PROJECT, "abcdefghijkl", "batch_output", "file-results")
    with pytest.raises(NotReady, match="given up"):
        await away.finish("away.jsonl", DAY_US)
    assert await files.find(PROJECT, "file-results") is None


async def test_what_has_expired_is_gone_with_its_parts(
    files: FileStore, clock: Hands, database: Database
) -> None:
    file = await kept(files, until_us=clock.now_us + 5)
    await kept(files, until_us=clock.now_us + 5)
    stays = await kept(files)
    clock.now_us += 5

    assert await files.find(PROJECT, file.file_id) is None
    assert await files.forget_expired() == 2
    async with database.reading() as connection:
        left = (await connection.execute(select(kept_file_parts.c.file_id))).scalars().all()
    assert left == [stays.file_id]


async def test_a_file_that_is_deleted_while_it_is_read_does_not_end_as_if_it_were_whole(
    files: FileStore,
) -> None:
    file = await kept(files, MARK * (2 * PART_BYTES // len(MARK)))
    reading = files.content(file)
    await anext(reading)
    assert await files.forget(PROJECT, file.file_id)

    with pytest.raises(NotReady, match="deleted while it was read"):
        await anext(reading)


@pytest.mark.parametrize("oldest_first", [False, True])
async def test_pages_lead_through_all_files_both_ways(
    files: FileStore, clock: Hands, *, oldest_first: bool
) -> None:
    ids = []
    for at in range(7):
        clock.now_us += at % 2  # Some are made in the same microsecond.
        ids.append((clock.now_us, (await kept(files)).file_id))
    order = [file_id for _, file_id in sorted(ids, reverse=not oldest_first)]

    seen: list[str] = []
    after, has_more = "", True
    while has_more:
        page, has_more = await files.page(PROJECT, PageOf(3, after, oldest_first=oldest_first))
        seen += [file.file_id for file in page]
        after = seen[-1]
    assert seen == order
    page, has_more = await files.page(
        PROJECT, PageOf(3, before=order[5], oldest_first=oldest_first)
    )
    assert ([file.file_id for file in page], has_more) == (order[2:5], True)
    assert await files.page(PROJECT, PageOf(3, after="file-unknown")) == ([], False)


async def test_others_have_their_turns_while_a_long_list_is_opened(
    files: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list is ten thousand files long where nobody asks for a shorter one."""
    monkeypatch.setattr("gateway.store.pages.AT_ONCE", 2)
    turns, opened_in = 0, Counter[int]()
    open_row = FileStore._file_of

    def noting(store: FileStore, row: RowMapping) -> KeptFile:
        opened_in[turns] += 1
        return open_row(store, row)

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(FileStore, "_file_of", noting)
    ids = {(await kept(files)).file_id for _ in range(7)}
    other = asyncio.create_task(take_turns())
    page, _ = await files.page(PROJECT, PageOf(7))
    whole = await files.of_organisation(PROJECT.organisation)
    other.cancel()
    assert {each.file_id for each in page} == {each.file_id for each in whole} == ids
    assert (sum(opened_in.values()), max(opened_in.values())) == (14, 2)
