"""What was made of erased things meanwhile is told apart from what somebody asked since."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import delete

from gateway.audit.projecting.projector import Projector
from gateway.batches import Batch, KeptFile
from gateway.store.batching.files import FileStore
from gateway.store.erasure.made_of import MadeOf
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.schema.batches import batch_lines, batches
from gateway.types import AuditRecord
from tests.gateway.audit.samples import running
from tests.gateway.store.erasure.kept_archive import PROJECT, Archive, line, result


pytestmark = pytest.mark.anyio


async def recorded(archive: Archive, batch: Batch, *users: str) -> None:
    """The log says whose each line was when it was sent."""
    directory = archive.settings.path(archive.settings.audit.directory)
    async with running(directory) as log:
        for number, user in enumerate(users, 1):
            record = AuditRecord(
                stage="intent",
                request_id=f"r{number}",
                organisation="acme",
                utc_us=archive.clock.utc_us(),
                key_id="key1",
                subject=archive.subject(user),
                detail={"batch": batch.batch_id, "line": str(number)},
            )
            await log.append(record, None)
    await Projector(directory, DatabaseAuditSink(archive.database, directory)).catch_up()


async def asked(archive: Archive) -> tuple[str, Batch]:
    """A file of ann and bob, and a batch that was made of it."""
    file_id = await archive.file(line("ann", "n1") + line("bob", "n2"))
    batch = await archive.batch("ann", "bob", kind="file", input_file_id=file_id)
    await recorded(archive, batch, "ann", "bob")
    return file_id, batch


async def finish(archive: Archive, batch: Batch) -> str:
    """Its lines become a file."""
    answered = result(batch, 1) + result(batch, 2)
    output = await archive.file(answered, "batch_output")
    await archive.move(batch, state="completed", output_file_id=output)
    async with archive.database.writing() as connection:
        where = batch_lines.c.batch_id == batch.batch_id
        await connection.execute(delete(batch_lines).where(where))
    return output


async def test_results_of_a_line_that_was_erased_from_its_file_are_whose_the_log_says(
    archive: Archive,
) -> None:
    """The batch came to its end while the erasure took the line out."""
    _, batch = await asked(archive)
    other = await archive.batch("ann", kind="file", input_file_id=await archive.file(line("")))
    found = await archive.kept.find("acme", archive.subject("ann"))
    output = await finish(archive, batch)
    await archive.kept.destroy(found, "acme")
    left = await archive.kept.find("acme", archive.subject("ann"))
    assert [(file.file_id, lines) for file, lines in left.files] == [(output, frozenset({1}))]
    assert left.numbers.unnamed_lines == 1
    bobs = await archive.kept.find("acme", archive.subject("bob"))
    assert (bobs.numbers.file_lines, bobs.numbers.unnamed_lines) == (2, 1)
    assert await MadeOf(archive.database).since("acme", found, left) == {batch.batch_id}
    await archive.kept.destroy(left, "acme")
    assert result(batch, 2) in await archive.content()
    assert (await archive.kept.find("acme", archive.subject("ann"))).numbers.things == 0
    assert await archive.numbers() == []
    assert other.batch_id not in left.lines


async def test_results_that_outlive_their_batch_are_whose_the_log_says(archive: Archive) -> None:
    """It is forgotten so many days after it was made, and its results after they were."""
    file_id, batch = await asked(archive)
    await finish(archive, batch)
    async with archive.database.writing() as connection:
        await connection.execute(delete(batches).where(batches.c.id == batch.batch_id))
    await archive.files.forget(PROJECT, file_id)
    found = await archive.kept.find("acme", archive.subject("ann"))
    assert (found.numbers.file_lines, found.numbers.unnamed_lines) == (1, 0)
    await archive.kept.destroy(found, "acme")
    assert await archive.content() == [result(batch, 2)]
    others = await archive.kept.find("globex", archive.subject("bob"))
    assert others.numbers.file_lines == 0


async def test_a_result_of_which_nothing_tells_whose_it_is_is_counted_and_left(
    archive: Archive,
) -> None:
    batch = await archive.batch("ann", kind="file", input_file_id="file-gone")
    async with archive.database.writing() as connection:
        await connection.execute(delete(batches).where(batches.c.id == batch.batch_id))
    await archive.file(result(batch, 1) + b"\nno result\n", "batch_output")
    numbers = (await archive.kept.find("acme", archive.subject("ann"))).numbers
    assert (numbers.file_lines, numbers.unnamed_lines, numbers.unnamed_files) == (0, 2, 1)


@pytest.mark.parametrize("is_known", [True, False], ids=["its file", "its batch"])
async def test_a_batch_that_was_made_or_moved_meanwhile_is_named(
    archive: Archive, *, is_known: bool
) -> None:
    file_id, batch = await asked(archive)
    if not is_known:
        await archive.files.forget(PROJECT, file_id)
    looked = await archive.kept.find("acme", archive.subject("ann"))
    if is_known:
        batch = await archive.batch(kind="file", input_file_id=file_id)
    since = await archive.batch("ann", kind="file", input_file_id="file-since")
    for state in ("validating", "finalizing", "cancelling"):
        for each in (batch, since):
            await archive.move(each, state=state)
        left = await archive.kept.find("acme", archive.subject("ann"))
        made = MadeOf(archive.database)
        assert await made.since("acme", looked, left) == {batch.batch_id}
        assert await made.is_moving([batch.batch_id])
        assert await made.is_moving([file_id])
        assert not await made.is_moving(["file-other"])
    await archive.move(batch, state="in_progress")
    assert not await MadeOf(archive.database).is_moving([batch.batch_id])
    gone = await archive.kept.find("acme", archive.subject("nobody"))
    assert await MadeOf(archive.database).since("acme", looked, gone) == frozenset()


async def test_a_file_that_is_rewritten_while_it_is_read_is_to_be_looked_at_again(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another erasure took its lines out: places of results are others now."""
    file_id, batch = await asked(archive)
    output = await finish(archive, batch)
    bobs = await archive.kept.find("acme", archive.subject("bob"))
    content, changed = FileStore.content, list[str]()

    async def slowly(self: FileStore, file: KeptFile) -> AsyncIterator[Any]:
        if not changed:
            changed.append(file.file_id)
            monkeypatch.setattr(FileStore, "content", content)
            await archive.kept.destroy(bobs, "acme")
            monkeypatch.setattr(FileStore, "content", slowly)
        async for each in content(self, file):
            yield each

    monkeypatch.setattr(FileStore, "content", slowly)
    found = await archive.kept.find("acme", archive.subject("ann"))
    assert changed == [file_id]
    assert found.arriving == {file_id, output}
    assert not found.files
    assert (found.numbers.is_whole, found.numbers.arriving) == (True, 2)
    again = await archive.kept.find("acme", archive.subject("ann"))
    assert (again.arriving, again.numbers.file_lines) == (frozenset(), 2)
