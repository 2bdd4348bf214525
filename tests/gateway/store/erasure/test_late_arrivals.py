"""What was arriving when somebody was erased is erased once it is there, and nothing else is."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from sqlalchemy import insert, select, update

from gateway.audit.memory import MemoryAuditLog
from gateway.batches import Batch, KeptFile
from gateway.errors import NotReady
from gateway.store.batching.files import FileStore, FileWriter, kept_files
from gateway.store.batching.leads import RECEIVING
from gateway.store.custody.orders import Custody
from gateway.store.erasure.cases import CLAIM_US, ErasureCase
from gateway.store.erasure.kept_content import KeptContent
from gateway.store.erasure.kept_holdings import Holding
from gateway.store.erasure.late_arrivals import LateArrivals
from gateway.store.erasure.reach import ErasureReach
from gateway.store.schema.custody import erasure_cases
from tests.gateway.store.erasure.kept_archive import PROJECT, Archive, line, result
from tests.gateway.store.erasure.test_made_of import asked, finish, recorded


pytestmark = pytest.mark.anyio
NONE = {"batches": 0, "lines": 0, "files": 0, "file_lines": 0}


class Late:
    """An archive in which ann was erased while things were arriving."""

    def __init__(self, archive: Archive) -> None:
        self.archive, self.log = archive, MemoryAuditLog()
        parts = archive.settings, archive.database, self.log, archive.clock
        self.arrivals = LateArrivals(*parts)

    async def began(self, content: bytes) -> FileWriter:
        writer = await self.archive.files.begin(PROJECT, "key1", "batch")
        await writer.write(content)
        return writer

    async def erased(self, *arriving: str, case_id: str = "c1", is_whole: bool = True) -> None:
        said = {"kept": NONE, "kept_all_looked_at": is_whole, "kept_arriving": arriving}
        ann = self.archive.subject("ann")
        case = ErasureCase(case_id, "acme", ann, "gdpr", "T-1", "cora", 1, 2, "done", "anton", 3)
        values = msgspec.structs.asdict(case) | {"certificate": msgspec.json.encode(said).decode()}
        del values["copies"]
        async with self.archive.database.writing() as connection:
            await connection.execute(insert(erasure_cases).values(values))

    async def said(self) -> dict[str, Any]:
        query = select(erasure_cases.c.certificate, erasure_cases.c.claimed_us)
        async with self.archive.database.reading() as connection:
            certificate, claimed_us = (await connection.execute(query)).one()
        assert claimed_us == 0
        return msgspec.json.decode(certificate, type=dict[str, Any])

    async def tended(self) -> int:
        """How many records it wrote."""
        before = len(self.log.records)
        await self.arrivals.tend()
        return len(self.log.records) - before

    async def finished(self, writer: FileWriter) -> str:
        return (await writer.finish("a.jsonl", self.archive.clock.utc_us() + 10**12)).file_id


@pytest.fixture
async def late(archive: Archive) -> Late:
    late = Late(archive)
    await late.log.start()
    return late


async def over(late: Late, file_id: str) -> Batch:
    """A batch of ann, bob and cleo that was made of a file, and is done."""
    archive = late.archive
    batch = await archive.batch("ann", "bob", "cleo", kind="file", input_file_id=file_id)
    answered = b"".join(result(batch, number) for number in (1, 2, 3))
    output = await archive.file(answered, "batch_output")
    await archive.move(batch, state="completed", output_file_id=output)
    return batch


async def test_what_arrived_is_erased_once_it_is_there_with_what_was_made_of_it(
    late: Late,
) -> None:
    archive, lines = late.archive, [line("ann", "n1"), line("bob", "n2"), line("cleo", "n3")]
    writer = await late.began(b"".join(lines))
    since = await archive.file(line("ann"))
    asked = await archive.batch("ann")
    await archive.answer("resp_1", "ann")
    await late.erased(writer.file.file_id)
    assert await late.tended() == 0
    file_id = await late.finished(writer)
    batch = await over(late, file_id)
    for state in (RECEIVING, "validating", "finalizing", "cancelling"):
        await archive.move(batch, state=state)
        assert await late.tended() == 0
    await archive.move(batch, state="completed")
    custody = Custody(archive.database, late.log, archive.clock)
    hold = await custody.set_hold("ann", "acme", archive.subject("ann"), "a lawsuit")
    assert await late.tended() == 0
    for person in ("ann", "bob"):
        await custody.release_hold(person, hold.id)
    assert (await late.said())["kept_arriving"] == [file_id]
    assert await late.tended() == 1
    left = [(batch.batch_id, 2), (batch.batch_id, 3), (asked.batch_id, 1)]
    assert await archive.numbers() == sorted(left)
    assert sorted(await archive.content()) == sorted(
        [b"\n" + lines[1] + lines[2], result(batch, 2) + result(batch, 3), line("ann")]
    )
    assert (await archive.kept.find("acme", archive.subject("ann"))).numbers.answers == 1
    assert await late.said() == {
        "kept": {"batches": 1, "lines": 1, "files": 2, "file_lines": 2},
        "kept_all_looked_at": True,
        "kept_arrived": [file_id],
    }
    record = late.log.records[-1]
    assert (record.actor, record.action) == ("gateway", "content.erased")
    assert {"case": "c1", "ticket": "T-1", "agreed_by": "anton"}.items() <= record.detail.items()
    assert (record.detail["lines"], record.detail["file_lines"]) == ("1", "2")
    assert await late.tended() == 0
    assert {file.file_id for file in await archive.files.of_organisation("acme")} > {since}


async def test_a_batch_that_was_arriving_loses_their_lines(late: Late) -> None:
    batch = await late.archive.batch("ann", "bob")
    await late.archive.move(batch, state=RECEIVING)
    await late.erased(batch.batch_id, is_whole=False)
    assert await late.tended() == 0
    await late.archive.move(batch, state="in_progress")
    assert await late.tended() == 1
    assert (await late.said())["kept_all_looked_at"] is False, "other files were not"
    assert await late.archive.numbers() == [(batch.batch_id, 2)]
    assert (await late.said())["kept"] == NONE | {"batches": 1, "lines": 1}


async def test_what_never_came_or_names_others_ends_the_wait_without_a_record(late: Late) -> None:
    given_up, bobs = await late.began(line("ann")), await late.began(line("bob"))
    damaged = await late.archive.file(line("ann"))
    await late.erased(given_up.file.file_id, bobs.file.file_id, damaged)
    await late.finished(bobs)
    await late.archive.damage(kept_files, damaged)
    assert await late.tended() == 0
    await given_up.discard()
    assert await late.tended() == 0
    said = await late.said()
    assert (said["kept"], said["kept_all_looked_at"]) == (NONE, False)
    assert len(said["kept_arrived"]) == 3


async def test_lines_that_only_the_log_knows_of_are_not_waited_for(late: Late) -> None:
    """The file went with their last line, and the results with it."""
    archive = late.archive
    batch = await archive.batch(kind="file", input_file_id="file-gone")
    await recorded(archive, batch, "ann")
    await archive.move(batch, state="completed")
    await late.erased(batch.batch_id)
    found = await archive.kept.find("acme", archive.subject("ann"))
    assert (found.lines, found.numbers.things) == ({batch.batch_id: frozenset({1})}, 0)
    assert await late.tended() == 0
    assert (await late.said())["kept_arrived"] == [batch.batch_id]


async def test_one_at_a_time_is_at_it_and_who_crashed_is_followed(late: Late) -> None:
    await late.erased(await late.archive.file(line("ann") + line("bob")))
    claimed = update(erasure_cases).values(claimed_us=late.archive.clock.utc_us())
    async with late.archive.database.writing() as connection:
        await connection.execute(claimed)
    assert await late.tended() == 0
    late.archive.clock.advance(CLAIM_US / 1_000_000)
    assert await late.tended() == 1
    assert await late.archive.content() == [b"\n" + line("bob")]


async def test_what_fails_is_tried_again(late: Late, monkeypatch: pytest.MonkeyPatch) -> None:
    file_id = await late.archive.file(line("ann") + line("bob"))
    await late.erased(file_id)

    async def fails(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as changed:
        changed.setattr(KeptContent, "destroy", fails)
        with pytest.raises(OSError, match="No space"):
            await late.arrivals.tend()
    assert [each.status for each in late.log.records] == ["ok", "failed"]
    assert (await late.said())["kept_arriving"] == [file_id]
    assert await late.tended() == 0
    late.archive.clock.advance(60)
    assert await late.tended() == 1
    assert await late.archive.content() == [b"\n" + line("bob")]


async def test_what_fails_again_and_again_rests_longer_and_holds_no_other_case_up(
    late: Late, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await late.archive.file(line("ann") + line("bob"))
    await late.erased(first)
    second = await late.archive.file(line("ann") + line("cleo"))
    await late.erased(second, case_id="c2")
    destroy = KeptContent.destroy

    async def fails(kept: KeptContent, found: Holding, organisation: str, case: str) -> None:
        if case == "c1":
            raise OSError(28, "No space left on device")
        await destroy(kept, found, organisation, case)

    monkeypatch.setattr(KeptContent, "destroy", fails)
    with pytest.raises(OSError, match="No space"):
        await late.arrivals.tend()
    assert sorted(await late.archive.content()) == [b"\n" + line("cleo"), line("ann") + line("bob")]
    tries = 1
    for _ in range(60):
        late.archive.clock.advance(60)
        try:
            await late.arrivals.tend()
        except OSError:
            tries += 1
    assert tries == 7  # After 1, 3, 7, 15, 31 and 47 minutes.
    assert len(late.log.records) == 2 * tries + 1


async def test_of_a_batch_that_was_made_of_it_meanwhile_lines_go_the_next_time(
    late: Late, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took the file's lines in before they were taken out."""
    archive = late.archive
    file_id = await archive.file(line("ann", "n1") + line("bob", "n2"))
    await late.erased(file_id)
    destroy, made = KeptContent.destroy, list[Batch]()

    async def destroys(*given: Any) -> None:
        made.append(await archive.batch("ann", "bob", kind="file", input_file_id=file_id))
        await archive.move(made[0], state="in_progress")
        await destroy(*given)

    with monkeypatch.context() as changed:
        changed.setattr(KeptContent, "destroy", destroys)
        assert await late.tended() == 1
    assert (await late.said())["kept_arriving"] == [file_id]
    assert await late.tended() == 1
    assert await archive.numbers() == [(made[0].batch_id, 2)]
    said = await late.said()
    assert said["kept_arrived"] == [file_id]
    assert said["kept"] == {"batches": 1, "lines": 1, "files": 1, "file_lines": 1}


async def test_a_case_that_waits_for_something_counts_as_outstanding(late: Late) -> None:
    """Though every audit folder has done its part."""
    reach = ErasureReach(late.archive.database, late.archive.clock)
    assert await reach.note_reached() == 0
    writer = await late.began(line("ann"))
    await late.erased(writer.file.file_id)
    assert [await reach.note_reached() for _ in range(2)] == [3, 3]
    await writer.discard()
    await late.tended()
    assert await reach.note_reached() == 0


@pytest.mark.parametrize(
    ("named", "changing"),
    [
        ("file", "batch_output"),
        ("batch", "batch_output"),
        ("batch", "batch"),
        ("results", "batch"),
    ],
)
async def test_what_could_not_be_read_to_its_end_is_looked_at_once_more(
    late: Late, monkeypatch: pytest.MonkeyPatch, named: str, changing: str
) -> None:
    """Another erasure rewrote it, or the database was away: it held ann's result for good."""
    archive, content = late.archive, FileStore.content
    file_id, batch = await asked(archive)
    output = await finish(archive, batch)
    await late.erased({"file": file_id, "batch": batch.batch_id, "results": output}[named])

    async def changes(store: FileStore, file: KeptFile) -> AsyncIterator[bytes]:
        if file.purpose == changing:
            raise NotReady("the file was deleted while it was read, or written anew")
        async for each in content(store, file):
            yield each

    with monkeypatch.context() as patched:
        patched.setattr(FileStore, "content", changes)
        await late.tended()
    assert result(batch, 1) in b"".join(await archive.content())
    assert "kept_arrived" not in await late.said()
    assert await late.tended() == 1
    assert "kept_arrived" in await late.said()
    assert result(batch, 1) not in b"".join(await archive.content())
