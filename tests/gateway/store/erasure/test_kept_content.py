"""What is kept beside the log of somebody: found by reading, destroyed, and told where unknown."""

from pathlib import Path

import pytest
from sqlalchemy import delete, select, update

from gateway.audit.memory import MemoryAuditLog
from gateway.audit.projecting.projector import Projector
from gateway.batches import Batch, LineEnd
from gateway.dialects.resources.openai_batches import BYTE_ORDER_MARK
from gateway.secrets.content_keys import KeyClosed
from gateway.store.batching.files import PART_BYTES, kept_file_parts, kept_files
from gateway.store.batching.leads import RECEIVING
from gateway.store.custody.orders import Custody, CustodyRefused
from gateway.store.erasure import recorded_lines
from gateway.store.erasure.attempts import Attempt, most_of
from gateway.store.erasure.erasing import require_settled
from gateway.store.erasure.kept_content import PREVIEW_BYTES
from gateway.store.erasure.kept_holdings import READ_AT_ONCE, Holdings
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.kept_answers import kept_answers
from gateway.store.schema.audit import audit_records
from gateway.store.schema.batches import batches
from gateway.types import AuditRecord
from tests.gateway.audit.samples import running
from tests.gateway.store.erasure.kept_archive import PROJECT, Archive, line, result


pytestmark = pytest.mark.anyio


async def test_lines_of_a_batch_are_destroyed_by_whom_they_name(archive: Archive) -> None:
    batch = await archive.batch("ann", "bob", "", "ann")
    other = await archive.batch("bob")
    found = await archive.kept.find("acme", archive.subject("ann"))
    numbers = found.numbers
    assert (numbers.batches, numbers.lines, numbers.unnamed_lines) == (1, 2, 1)
    assert (await archive.kept.find("globex", archive.subject("ann"))).numbers.things == 0
    await archive.kept.destroy(found, "acme")
    left = [(batch.batch_id, 2), (batch.batch_id, 3), (other.batch_id, 1)]
    assert await archive.numbers() == sorted(left)
    assert (await archive.kept.find("acme", archive.subject("ann"))).numbers.things == 0
    async with archive.database.reading() as connection:
        query = select(batches.c.erased).where(batches.c.id == batch.batch_id)
        assert (await connection.execute(query)).scalar_one() == 2


async def test_an_answer_to_an_erased_line_ends_nowhere(archive: Archive) -> None:
    batch = await archive.batch("ann", "bob")
    key = await archive.batches.content_key(batch)
    assert key is not None
    claims = await archive.lines.claim(batch, key, "w0.1", 2)
    found = await archive.kept.find("acme", archive.subject("ann"))
    assert found.numbers.running == 1
    await archive.kept.destroy(found, "acme")
    end = LineEnd("succeeded", 200, "r1", b"{}")
    assert [await archive.lines.end(claim, key, end) for claim in claims] == [False, True]
    assert (await archive.lines.counts(batch.batch_id)).total == 1


async def test_a_file_goes_on_without_the_lines_under_a_new_key(archive: Archive) -> None:
    rest = line("bob", pad=PART_BYTES) + b"no json\n" + line("", "x" * 5)
    file_id = await archive.file(line("ann") + rest[: PART_BYTES + 9] + rest[PART_BYTES + 9 :])
    whole = await archive.file(line("ann"))
    found = await archive.kept.find("acme", archive.subject("ann"))
    numbers = found.numbers
    assert (numbers.files, numbers.file_lines) == (2, 2)
    assert (numbers.unnamed_files, numbers.unnamed_lines) == (1, 2)
    assert numbers.last_expiry_us > archive.clock.utc_us()
    await archive.kept.destroy(found, "acme")
    assert await archive.content() == [b"\n" + rest], "the others are at their places"
    assert await archive.files.find(PROJECT, whole) is None
    file = await archive.files.find(PROJECT, file_id)
    assert file is not None
    assert (file.name, file.size_bytes) == ("a.jsonl", 1 + len(rest))


async def test_the_first_line_of_a_file_with_a_mark_before_it_is_found_too(
    archive: Archive,
) -> None:
    """A batch is made of such a file: whom its first line names is no less in it."""
    await archive.file(BYTE_ORDER_MARK + line("ann") + line("bob"))
    found = await archive.kept.find("acme", archive.subject("ann"))
    assert (found.numbers.file_lines, found.numbers.unnamed_lines) == (1, 0)
    await archive.kept.destroy(found, "acme")
    assert await archive.content() == [b"\n" + line("bob")]


async def test_results_follow_the_lines_that_they_answer(archive: Archive) -> None:
    asked = await archive.file(line("ann", "n1") + line("bob", "n2") + line("", "n3"))
    batch = await archive.batch(kind="file", input_file_id=asked)
    answered = b"".join(result(batch, number) for number in (1, 2, 3))
    output = await archive.file(answered, "batch_output")
    await archive.move(batch, state="completed", output_file_id=output)
    found = await archive.kept.find("acme", archive.subject("ann"))
    assert (found.numbers.files, found.numbers.file_lines) == (2, 2)
    assert found.numbers.unnamed_lines == 2  # A line without a name, and its result.
    await archive.kept.destroy(found, "acme")
    assert sorted(await archive.content()) == sorted(
        [b"\n" + line("bob", "n2") + line("", "n3"), result(batch, 2) + result(batch, 3)]
    )


async def test_results_follow_their_lines_after_others_went_before_them(archive: Archive) -> None:
    """Results say where a line stood: were it elsewhere now, another's would go in its stead."""
    bob, dan = line("bob", "n2"), line("dan", "n5")
    asked = await archive.file(line("ann", "n1") + bob + b"\n" + line("cleo", "n4") + dan)
    batch = await archive.batch(kind="file", input_file_id=asked)
    answered = b"".join(result(batch, number) for number in (1, 2, 4, 5))
    output = await archive.file(answered, "batch_output")
    await archive.move(batch, state="completed", output_file_id=output)
    for user in ("ann", "cleo"):
        found = await archive.kept.find("acme", archive.subject(user))
        assert found.numbers.file_lines == 2
        assert found.lines == {batch.batch_id: {1 if user == "ann" else 4}}
        await archive.kept.destroy(found, "acme")
    assert sorted(await archive.content()) == sorted(
        [b"\n" + bob + b"\n\n" + dan, result(batch, 2) + result(batch, 5)]
    )


async def test_of_a_file_whose_lines_moved_up_results_and_rows_say_themselves_whose_they_are(
    archive: Archive,
) -> None:
    """An earlier version took out ann's first line, and left the others at other places."""
    asked = await archive.file(line("bob", "n2") + line("cleo", "n3"))
    over = await archive.batch(kind="file", input_file_id=asked)
    answered = result(over, 2) + result(over, 3)
    output = await archive.file(answered, "batch_output")
    await archive.move(over, state="completed", output_file_id=output)
    runs = await archive.batch("cleo", "bob", kind="file", input_file_id=asked)
    found = await archive.kept.find("acme", archive.subject("bob"))
    assert (found.numbers.file_lines, found.numbers.lines) == (2, 1)
    assert found.lines[runs.batch_id] == {2}
    await archive.kept.destroy(found, "acme")
    assert await archive.numbers() == [(runs.batch_id, 1)]
    assert sorted(await archive.content()) == sorted([b"\n" + line("cleo", "n3"), result(over, 3)])


async def results_without_lines(archive: Archive) -> tuple[Batch, Path]:
    """Of ann, bob and somebody unknown, whose lines are gone; and the log that says so."""
    batch = await archive.batch(kind="file", input_file_id="file-gone")
    now_us = archive.clock.utc_us()
    answered = b"".join(result(batch, number) for number in (1, 2, 3))
    output = await archive.file(answered, "batch_output")
    await archive.move(batch, state="completed", output_file_id=output, ended_us=now_us)
    directory = archive.settings.path(archive.settings.audit.directory)
    async with running(directory) as log:
        # Beside, the key asks for something else; bob's line was sent where a clock is ahead.
        for number, user, ahead_us in ((0, "ann", 0), (1, "ann", 0), (2, "bob", 9)):
            record = AuditRecord(
                stage="intent",
                request_id=f"r{number}",
                organisation="acme",
                utc_us=now_us + ahead_us,
                key_id="key1",
                subject=archive.subject(user),
                detail={"batch": batch.batch_id, "line": str(number)} if number else {},
            )
            await log.append(record, None)
    await Projector(directory, DatabaseAuditSink(archive.database, directory)).catch_up()
    return batch, directory


async def test_the_log_says_whose_results_are_where_the_lines_are_gone(archive: Archive) -> None:
    batch, _ = await results_without_lines(archive)
    found = await archive.kept.find("acme", archive.subject("ann"))
    assert (found.numbers.file_lines, found.numbers.unnamed_lines) == (1, 1)
    await archive.kept.destroy(found, "acme")
    assert await archive.content() == [result(batch, 2) + result(batch, 3)]


async def test_the_log_says_whose_results_are_where_the_lines_are_damaged(archive: Archive) -> None:
    """Also of those behind the lines that could still be read."""
    batch, _ = await results_without_lines(archive)
    pad = PART_BYTES * 2 // 3
    asked = await archive.file(line("ann", "n1", pad) + line("bob", "n2", pad))
    await archive.move(batch, input_file_id=asked)
    async with archive.database.writing() as connection:
        columns = kept_file_parts.c
        last = (columns.file_id == asked) & (columns.number == 1)
        await connection.execute(update(kept_file_parts).where(last).values(sealed=b"damaged"))
    for user, lines in (("ann", 2), ("bob", 1)):
        found = (await archive.kept.find("acme", archive.subject(user), None)).numbers
        assert (found.file_lines, found.is_whole) == (lines, False)
    await archive.damage(kept_files, asked)
    found = (await archive.kept.find("acme", archive.subject("bob"), None)).numbers
    assert (found.file_lines, found.is_whole) == (1, False)


async def test_an_erasure_reads_every_record_of_a_batch_and_a_preview_says_where_it_stops(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    await results_without_lines(archive)
    told = {}
    for most in (1, 2):
        monkeypatch.setattr(recorded_lines, "RECORDS_MAX", most)
        for bytes_max in (None, PREVIEW_BYTES):
            found = await archive.kept.find("acme", archive.subject("bob"), bytes_max)
            told[most, bytes_max] = (found.numbers.file_lines, found.numbers.is_whole)
    assert told == {
        (1, None): (1, True),
        (1, PREVIEW_BYTES): (0, False),
        (2, None): (1, True),
        (2, PREVIEW_BYTES): (1, True),
    }


async def test_records_of_before_they_named_a_batch_are_looked_for_among_those_of_its_key(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, _ = await results_without_lines(archive)
    await archive.move(batch, is_cost_kept=False)
    async with archive.database.writing() as connection:
        await connection.execute(update(audit_records).values(batch=""))
    found = await archive.kept.find("acme", archive.subject("ann"), None)
    assert (found.numbers.file_lines, found.numbers.is_whole) == (1, True)
    monkeypatch.setattr(recorded_lines, "RECORDS_MAX", 1)
    found = await archive.kept.find("acme", archive.subject("ann"), None)
    assert (found.numbers.file_lines, found.numbers.is_whole) == (0, False)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_log_that_cannot_be_read_says_of_nobody_that_nothing_is_theirs(
    archive: Archive,
) -> None:
    """Where the records' bytes are in segments alone: one that is away now, and one for good."""
    _, directory = await results_without_lines(archive)
    whose = archive.subject("ann")
    (segment,) = directory.glob("w0/*.log")
    aside = segment.rename(segment.with_name("aside"))
    segment.mkdir()
    with pytest.raises(IsADirectoryError):
        await archive.kept.find("acme", whose)
    segment.rmdir()
    lost = await archive.kept.find("acme", whose)
    assert (lost.numbers.file_lines, lost.numbers.unnamed_lines) == (0, 3)
    assert not lost.numbers.is_whole
    aside.rename(segment)
    found = await archive.kept.find("acme", whose)
    assert (found.numbers.file_lines, found.numbers.unnamed_lines) == (1, 1)
    assert found.numbers.is_whole


async def test_answers_go_with_those_that_continue_them(archive: Archive) -> None:
    for name, user, previous in (
        ("resp_1", "ann", ""),
        ("resp_2", "", "resp_1"),
        ("resp_3", "", ""),
        ("resp_4", "bob", ""),
    ):
        archive.clock.advance(1)
        await archive.answer(name, user, previous)
    found = await archive.kept.find("acme", archive.subject("ann"))
    assert (found.numbers.answers, found.numbers.unnamed_answers) == (2, 1)
    await archive.kept.destroy(found, "acme")
    left = [await archive.answers.find(PROJECT, f"resp_{n}", 0) is not None for n in (1, 2, 3, 4)]
    assert left == [False, False, True, True]


async def test_answers_go_with_those_that_continue_them_whatever_a_workers_clock_says(
    archive: Archive,
) -> None:
    """The second was kept where a clock is behind, the third cannot be opened any more."""
    await archive.answer("resp_1", "ann")
    archive.clock.jump(-5)
    await archive.answer("resp_2", "", "resp_1")
    await archive.answer("resp_3", "bob", "resp_2")
    await archive.answer("resp_4", "", "resp_3")
    await archive.answer("resp_5", "", "gone")
    await archive.damage(kept_answers, "resp_3")
    found = await archive.kept.find("acme", archive.subject("ann"))
    assert (found.numbers.answers, found.numbers.unnamed_answers) == (4, 1)
    assert not found.numbers.is_whole
    await archive.kept.destroy(found, "acme")
    left = (await archive.kept.find("acme", None)).answers
    assert [name for _, name in left] == ["resp_5"]


async def test_everything_of_an_organisation_goes_at_once(archive: Archive) -> None:
    await archive.batch("ann", "bob", "")
    await archive.file(line("ann"))
    await archive.answer("resp_1", "")
    found = await archive.kept.find("acme", None)
    assert (found.numbers.lines, found.numbers.files, found.numbers.answers) == (3, 1, 1)
    assert found.numbers.things == 5
    await archive.kept.destroy(found, "acme")
    assert (await archive.numbers(), await archive.content()) == ([], [])
    assert (await archive.kept.find("acme", None)).numbers.things == 0


def test_what_was_kept_is_what_the_attempt_found_that_found_the_most() -> None:
    """A file of an organisation is a thing, too: nobody reads how many lines stand in it."""
    kept = Holdings(files=5), Holdings(answers=1), Holdings(files=1, file_lines=4)
    attempts = [Attempt("ann", 1, (), each) for each in kept]
    assert [each.things for each in kept] == [5, 1, 4]
    assert most_of(attempts) == kept[0]
    assert most_of(attempts[1:]) == kept[2]


async def test_nothing_is_destroyed_while_lines_are_on_their_way(archive: Archive) -> None:
    batch = await archive.batch("ann")
    await archive.move(batch, state="finalizing")
    for whose in (archive.subject("ann"), None):
        numbers = (await archive.kept.find("acme", whose)).numbers
        with pytest.raises(CustodyRefused, match=r"a batch is being .* try again later"):
            require_settled(numbers)
    await archive.move(batch, state="completed")
    other = await archive.batch("ann")
    await archive.move(other, state=RECEIVING)
    await archive.files.begin(PROJECT, "key1", "batch")
    for whose in (archive.subject("ann"), None):
        numbers = (await archive.kept.find("acme", whose)).numbers
        require_settled(numbers)
        assert (numbers.batches, numbers.arriving, numbers.files) == (1, 2, 0)


async def test_what_lost_its_key_keeps_nobody_elses_from_being_found(archive: Archive) -> None:
    """Of whom that is nobody can say, and the numbers say so."""
    await archive.batch("ann")
    lost = await archive.batch("ann", "bob")
    told = await archive.batch("ann", "bob")
    file, _ = await archive.file(line("ann")), await archive.file(line("ann"))
    for name in ("first", "second"):
        await archive.answer(name, "ann")
    await archive.move(lost, wrapped_key=b"damaged")
    await archive.move(told, sealed_told=b"damaged")
    await archive.damage(kept_files, file)
    await archive.damage(kept_answers, "first")
    found = (await archive.kept.find("acme", archive.subject("ann"))).numbers
    assert (found.lines, found.file_lines, found.answers) == (2, 1, 1)
    assert (found.unnamed_lines, found.unnamed_answers, found.is_whole) == (2, 1, False)
    everything = await archive.kept.find("acme", None)
    await archive.kept.destroy(everything, "acme")
    assert (await archive.kept.find("acme", None)).numbers == Holdings()


async def test_nothing_passes_for_looked_at_under_another_master_key(archive: Archive) -> None:
    """Also of files, batches or answers alone: whoever erases is told before anything goes."""
    batch = await archive.batch("ann")
    await archive.damage(batches, batch.batch_id)
    with pytest.raises(KeyClosed):
        await archive.kept.find("acme", archive.subject("ann"))
    async with archive.database.writing() as connection:
        await connection.execute(delete(batches))
    lost = await archive.file(line("ann"))
    await archive.damage(kept_files, lost)
    with pytest.raises(KeyClosed):
        await archive.kept.find("acme", archive.subject("ann"))
    await archive.answer("one", "ann")
    assert (await archive.kept.find("acme", archive.subject("ann"))).numbers.answers == 1
    await archive.damage(kept_answers, "one")
    with pytest.raises(KeyClosed):
        await archive.kept.find("acme", archive.subject("ann"))


async def test_a_preview_says_that_it_did_not_look_at_everything(archive: Archive) -> None:
    await archive.file(line("ann"))
    await archive.file(line("ann"))
    found = await archive.kept.find("acme", archive.subject("ann"), bytes_max=1)
    assert (found.numbers.file_lines, found.numbers.is_whole) == (1, False)
    await archive.batch(*["ann"] * (READ_AT_ONCE + 1))
    await archive.answer("resp_1", "ann")
    found = await archive.kept.find("acme", archive.subject("ann"), bytes_max=1)
    numbers = found.numbers
    assert (numbers.lines, numbers.file_lines, numbers.answers) == (READ_AT_ONCE, 0, 0)
    assert not numbers.is_whole
    found = await archive.kept.find("acme", archive.subject("ann"), bytes_max=None)
    numbers = found.numbers
    assert (numbers.lines, numbers.file_lines, numbers.answers) == (READ_AT_ONCE + 1, 2, 1)
    assert numbers.is_whole


async def test_what_is_held_neither_expires_nor_is_deleted(archive: Archive) -> None:
    log = MemoryAuditLog()
    await log.start()
    custody = Custody(archive.database, log, archive.clock)
    hold = await custody.set_hold("ann", "acme", archive.subject("bob"), "a lawsuit")
    file_id = await archive.file(line("ann"))
    batch = await archive.batch("ann")
    await archive.move(batch, state="completed")
    await archive.answer("resp_1", "ann")
    assert await archive.files.forget(PROJECT, file_id)
    assert await archive.batches.forget(PROJECT, batch.batch_id, "messages")
    assert await archive.answers.forget(PROJECT, "resp_1")
    assert await archive.files.find(PROJECT, file_id) is None
    archive.clock.advance(10**7)
    now_us = archive.clock.utc_us()

    async def forget() -> list[int]:
        answers = await archive.answers.forget_expired(now_us)
        return [
            await archive.files.forget_expired(),
            await archive.batches.forget_expired(),
            answers,
        ]

    assert await forget() == [0, 0, 0]
    assert await archive.answers.forget_beyond(PROJECT, 1) == 0
    numbers = (await archive.kept.find("acme", archive.subject("ann"))).numbers
    assert (numbers.file_lines, numbers.lines, numbers.answers) == (1, 1, 1)
    await custody.release_hold("ann", hold.id)
    await custody.release_hold("bob", hold.id)
    assert await forget() == [1, 1, 1]
