"""What a file becomes: lines, or all that is wrong with it; and what lines become in the end."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest
from msgspec import structs
from sqlalchemy import Table, select, update

from gateway.batches import DAMAGED, Batch, Ending, LineCounts, LineEnd, Told
from gateway.batching import chores
from gateway.batching.chores import BatchChores, split_lines
from gateway.configuration.settings import Limits
from gateway.dialects.resources.anthropic_batches import LOST, NOT_SENT, message_result_line
from gateway.dialects.resources.openai_batches import result_line
from gateway.errors import Exhausted
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from gateway.store.batching.files import kept_file_parts, kept_files
from gateway.store.engine import Database, open_database
from gateway.store.schema.batches import batch_lines, batches
from gateway.store.schema.custody import audit_holds
from gateway.store.schema.tables import organisations, projects, workspaces
from tests.gateway.batching.test_leads import DAY_US, ENDPOINT, PROJECT, Hands, Worker
from tests.gateway.store.rows import filled


pytestmark = [pytest.mark.anyio, pytest.mark.either]
LIMITS = Limits(batch_lines_max=4, batch_line_bytes_max=200)
KEEP_US = 3 * DAY_US


@pytest.fixture
async def worker(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Worker]:
    """One that reads two lines at once."""
    monkeypatch.setattr(chores, "GROUP_LINES", 2)
    database = open_database(database_url)
    worker = Worker("w0", database, MasterKey(Secret(secrets.token_bytes(32))), Hands())
    stores = (worker.batches, worker.lines, worker.files, worker.clock)
    worker.chores = BatchChores(*stores, LIMITS, KEEP_US)
    yield worker
    await database.close()


def wire(custom_id: str, **body: object) -> bytes:
    named = {"custom_id": custom_id, "method": "POST", "url": ENDPOINT, "body": body}
    return msgspec.json.encode(named)


async def made(
    worker: Worker, lines: Sequence[bytes], kind: str = "file", keep_s: int = 0
) -> Batch:
    writer = await worker.files.begin(PROJECT, "key1", "batch")
    await writer.write(b"\n".join(lines))
    file = await writer.finish("a.jsonl", 9 * DAY_US)
    batch = Batch(
        *("batch_", "file", PROJECT, "key1", ENDPOINT, "validating"),
        created_us=worker.clock.utc_us(),
        expires_us=9 * DAY_US,
        keep_until_us=9 * DAY_US,
        input_file_id=file.file_id,
        told=Told(output_keep_s=keep_s),
    )
    return await worker.batches.make(structs.replace(batch, kind=kind))


async def kept(worker: Worker, batch: Batch) -> list[tuple[int, str, bytes]]:
    """Lines of a batch, opened."""
    key = await worker.batches.content_key(batch)
    assert key is not None
    columns = batch_lines.c
    query = select(columns.number, columns.sealed_id, columns.sealed_body).order_by(columns.number)
    database: Database = worker.lines._database
    async with database.reading() as connection:
        rows = (await connection.execute(query)).all()
    return [
        (
            row.number,
            key.open(row.sealed_id, "id", row.number).decode(),
            key.open(row.sealed_body, "body", row.number),
        )
        for row in rows
    ]


async def seen(worker: Worker, batch: Batch) -> Batch:
    found = await worker.batches.find(PROJECT, batch.batch_id, batch.kind)
    assert found is not None
    return found


async def test_lines_keep_their_numbers_and_bodies_and_may_be_taken_in_again(
    worker: Worker,
) -> None:
    lines = [wire("a", n=1), b"", wire("b", n=2), b"  ", wire("c", n=3), wire("d", n=4), b""]
    batch = await made(worker, lines)
    led = await worker.lead(batch)
    key = await worker.batches.content_key(batch)
    assert key is not None
    await worker.chores.check(led, worker.holder)
    expected = [(1, "a", b'{"n":1}'), (3, "b", b'{"n":2}'), (5, "c", b'{"n":3}')]
    expected.append((6, "d", b'{"n":4}'))
    assert await kept(worker, batch) == expected
    found = await seen(worker, batch)
    assert (found.state, found.started_us) == ("in_progress", worker.clock.utc_us())
    assert found.counts == LineCounts(waiting=4)
    length = len(b"\n".join(lines))
    assert await worker.batches.held(PROJECT) == (length, 1)
    await worker.batches._move(batch.batch_id, ("in_progress",), state="validating")
    await worker.check(batch)
    assert await kept(worker, batch) == expected


async def test_batches_that_are_made_at_once_are_counted_one_after_the_other(
    worker: Worker,
) -> None:
    """By whichever worker: what a project holds is asked where its batch is written."""
    batch, seen_so_far = await made(worker, [wire("a")]), []
    database: Database = worker.lines._database
    organisation, workspace, project = PROJECT
    its = {"organisation": organisation}
    async with database.writing() as connection:
        await connection.execute(filled(organisations, name=organisation))
        await connection.execute(filled(workspaces, **its, name=workspace))
        await connection.execute(filled(projects, **its, workspace=workspace, name=project))

    def check(held_bytes: int, open_count: int) -> None:
        seen_so_far.append((held_bytes, open_count))
        if open_count >= 3:
            raise Exhausted("too many", retry_after_s=60.0)

    new = structs.replace(batch, batch_id="batch_")
    tries = [worker.batches.make(new, size_bytes=10, check=check) for _ in range(6)]
    found = await asyncio.gather(*tries, return_exceptions=True)
    assert [isinstance(each, Exhausted) for each in found].count(True) == 4
    assert sorted(seen_so_far) == [(0, 1), (10, 2), *[(20, 3)] * 4]


async def test_what_only_a_hold_keeps_takes_no_room_of_its_project(worker: Worker) -> None:
    batch = await made(worker, [wire("a")], kind="messages")
    await worker.check(batch)
    assert await worker.batches.wind_up(batch.batch_id, "expired")
    await worker.finish(batch)
    length_bytes, _ = await worker.batches.held(PROJECT)
    assert length_bytes == len(wire("a"))
    database: Database = worker.lines._database
    said = dict.fromkeys(("id", "subject", "reason", "set_by", "release_by", "released_by"), "")
    row = said | {"organisation": PROJECT[0], "set_us": 0}
    async with database.writing() as connection:
        await connection.execute(audit_holds.insert(), row)
    assert await worker.batches.forget(PROJECT, batch.batch_id, "messages")
    assert len(await kept(worker, batch)) == 1
    assert await worker.batches.held(PROJECT) == (0, 0)


MARK = b"\xef\xbb\xbf"
LONG = wire("long", text="x" * 200)
BAD = [
    ([], [("empty_file", None)]),
    ([b"", b" "], [("empty_file", None)]),
    ([MARK + b"\r", b"\r"], [("empty_file", None)]),
    ([MARK, wire("a"), MARK], [("invalid_json_line", 3)]),
    ([wire("a"), wire("b"), wire("a")], [("duplicate_custom_id", 3)]),
    ([wire("a"), wire("a"), wire("b"), wire("b")], [*(("duplicate_custom_id", n) for n in (2, 4))]),
    ([wire("a"), LONG], [("line_too_long", 2)]),
    ([LONG, wire("b"), wire("c"), wire("b")], [("line_too_long", 1), ("duplicate_custom_id", 4)]),
    ([wire(f"n{n}") for n in range(5)], [("too_many_lines", 5)]),
    ([wire(f"n{n}") for n in range(9)], [("too_many_lines", 5)]),
    ([b""] * 20, [("too_many_lines", 9)]),
    ([b"{", *[b" "] * 20], [("invalid_json_line", 1), ("too_many_lines", 9)]),
    ([b"{", b"[]", wire("c"), b"7"], [("invalid_json_line", n) for n in (1, 2, 4)]),
]


@pytest.mark.parametrize(("lines", "flaws"), BAD)
async def test_all_that_is_wrong_is_said_in_its_order_and_no_line_is_kept(
    worker: Worker, lines: list[bytes], flaws: list[tuple[str, int | None]]
) -> None:
    batch = await made(worker, lines)
    await worker.check(batch)
    found = await seen(worker, batch)
    assert [(flaw.code, flaw.line) for flaw in found.flaws] == flaws
    assert (found.state, await kept(worker, batch)) == ("failed", [])


async def test_each_line_of_a_whole_batch_may_have_an_empty_one_beside_it(worker: Worker) -> None:
    lines = [each for n in range(4) for each in (b"\r", wire(f"n{n}"))]
    batch = await made(worker, lines)
    await worker.check(batch)
    assert (await seen(worker, batch)).state == "in_progress"
    assert [number for number, *_ in await kept(worker, batch)] == [2, 4, 6, 8]


@pytest.mark.parametrize("count", [2, 3])
async def test_only_so_many_flaws_are_told_and_looked_for(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(chores, "FLAWS_MAX", count)
    batch = await made(worker, [b"{", b"{", b"{", LONG])
    await worker.check(batch)
    found = await seen(worker, batch)
    assert [flaw.line for flaw in found.flaws] == list(range(1, count + 1))


async def test_a_file_that_was_deleted_meanwhile_is_named(worker: Worker) -> None:
    batch = await made(worker, [wire("a")])
    assert await worker.files.forget(PROJECT, batch.input_file_id)
    await worker.check(batch)
    (flaw,) = (await seen(worker, batch)).flaws
    assert (flaw.code, flaw.line, flaw.parameter) == ("file_not_found", None, "input_file_id")


async def changed(worker: Worker, table: Table, name: str, **values: bytes) -> None:
    database: Database = worker.lines._database
    async with database.writing() as connection:
        is_it = update(table).where(table.c.id == name)
        assert (await connection.execute(is_it.values(values))).rowcount == 1


@pytest.mark.parametrize("is_lost", ["key", "part"])
async def test_a_file_that_lost_its_key_or_a_part_fails_its_batch(
    worker: Worker, is_lost: str
) -> None:
    batch = await made(worker, [wire("a")])
    if is_lost == "key":
        await changed(worker, kept_files, batch.input_file_id, wrapped_key=b"damaged")
    else:
        database: Database = worker.lines._database
        async with database.writing() as connection:
            await connection.execute(kept_file_parts.delete())
    await worker.check(batch)
    found = await seen(worker, batch)
    assert (found.state, [flaw.code for flaw in found.flaws]) == ("failed", ["file_damaged"])


async def test_a_batch_that_lost_what_its_maker_said_is_not_taken_in(worker: Worker) -> None:
    batch = await made(worker, [wire("a")])
    await changed(worker, batches, batch.batch_id, sealed_told=b"damaged")
    await worker.check(batch)
    found = await seen(worker, batch)
    assert (found.state, found.is_damaged, await kept(worker, batch)) == ("failed", True, [])
    assert (found.told, found.flaws) == (Told(), ())
    await changed(worker, batches, batch.batch_id, sealed_flaws=b"damaged")
    assert (await seen(worker, batch)).flaws == ()


async def test_results_say_of_lines_that_were_not_sent_that_their_batch_was_damaged(
    worker: Worker,
) -> None:
    batch = await made(worker, [wire("a")], kind="messages")
    await worker.check(batch)
    assert await worker.batches.wind_up(batch.batch_id, "completed", DAMAGED)
    await worker.finish(batch)
    found, key = await seen(worker, batch), await worker.batches.content_key(batch)
    assert key is not None
    (group,) = [group async for group in worker.lines.ended(found, key)]
    told = msgspec.json.decode(message_result_line(found, group[0]))
    assert told["result"]["error"]["error"] == {
        "type": "api_error",
        "message": f"{LOST}; {NOT_SENT}",
    }


ENDINGS: list[tuple[Ending, str, str]] = [
    ("completed", "errored", "stopped_so"),
    ("expired", "expired", "batch_expired"),
    ("cancelled", "canceled", "batch_cancelled"),
]


@pytest.mark.parametrize(("ending", "state", "code"), ENDINGS)
async def test_answers_go_into_one_file_and_what_failed_or_was_not_sent_into_another(
    worker: Worker, ending: Ending, state: str, code: str
) -> None:
    batch = await made(worker, [wire(name) for name in "abcd"], keep_s=5)
    await worker.check(batch)
    key = await worker.batches.content_key(batch)
    assert key is not None
    for claim in await worker.lines.claim(batch, key, worker.holder, 3):
        is_good = claim.line.number != 2
        end = LineEnd("succeeded" if is_good else "errored", 200 if is_good else 400, "r", b"{}")
        assert await worker.lines.end(claim, key, end)
    values = {"state": "finalizing", "ending": ending, "stopped": "stopped_so"}
    await worker.batches._move(batch.batch_id, ("in_progress",), **values)
    await worker.finish(batch)
    found = await seen(worker, batch)
    assert (found.state, found.ended_us) == (ending, worker.clock.utc_us())
    counts = LineCounts(succeeded=2, errored=1)
    counts = structs.replace(counts, **{state: getattr(counts, state) + 1})
    assert found.counts == counts
    files = []
    for file_id, what in ((found.output_file_id, "output"), (found.error_file_id, "error")):
        file = await worker.files.find(PROJECT, file_id)
        assert file is not None
        assert file.name == f"{batch.batch_id}_{what}.jsonl"
        assert file.expires_us == worker.clock.utc_us() + 5_000_000
        content = b"".join([piece async for piece in worker.files.content(file)])
        files.append([msgspec.json.decode(line) for line in content.splitlines()])
    assert await worker.batches.held(PROJECT) == (0, 0), "its files take room, and it none"
    assert [line["custom_id"] for line in files[0]] == ["a", "c"]
    assert [line["custom_id"] for line in files[1]] == ["b", "d"]
    assert files[1][0]["response"]["status_code"] == 400
    assert files[1][1]["error"]["code"] == code
    assert files[1][1]["error"]["message"].endswith("; the line was not sent.")
    assert await kept(worker, batch) == []


@pytest.mark.parametrize("kind", ["file", "messages"])
async def test_of_a_line_that_was_tried_nothing_says_that_it_was_not_sent(
    worker: Worker, kind: str
) -> None:
    batch = await made(worker, [wire("a")], kind=kind)
    await worker.check(batch)
    key = await worker.batches.content_key(batch)
    assert key is not None
    (claim,) = await worker.lines.claim(batch, key, worker.holder, 1)
    await worker.lines.put_back(claim, worker.clock.utc_us(), failures=1)
    assert await worker.batches.wind_up(batch.batch_id, "completed", "unauthenticated")
    found = await seen(worker, batch)
    await worker.lines.give_up(batch.batch_id, "errored")
    (group,) = [group async for group in worker.lines.ended(found, key)]
    told = (message_result_line if kind == "messages" else result_line)(found, group[0]).decode()
    assert "is not valid any more; the " in told
    assert "had been tried, a vendor may have had it, and no answer came." in told
    assert "not sent" not in told


@pytest.mark.parametrize(("keep_s", "kept_us"), [(0, KEEP_US), (10**9, KEEP_US), (60, 60_000_000)])
async def test_results_are_kept_as_long_as_may_be_or_is_wanted(
    worker: Worker, keep_s: int, kept_us: int
) -> None:
    batch = await made(worker, [wire("a")], keep_s=keep_s)
    await worker.check(batch)
    key = await worker.batches.content_key(batch)
    assert key is not None
    (claim,) = await worker.lines.claim(batch, key, worker.holder, 1)
    assert await worker.lines.end(claim, key, LineEnd("succeeded", 200, "r", b"{}"))
    assert await worker.batches.wind_up(batch.batch_id, "completed")
    await worker.finish(batch)
    found = await seen(worker, batch)
    file = await worker.files.find(PROJECT, found.output_file_id)
    assert file is not None
    assert file.expires_us == worker.clock.utc_us() + kept_us
    assert found.error_file_id == ""
    assert len(await worker.files.of_organisation("acme")) == 2, "no file without a line is kept"


async def test_a_batch_of_messages_keeps_its_lines_and_makes_no_file(worker: Worker) -> None:
    batch = await made(worker, [wire("a"), wire("b")], kind="messages")
    await worker.check(batch)
    assert await worker.batches.wind_up(batch.batch_id, "expired")
    await worker.finish(batch)
    found = await seen(worker, batch)
    assert (found.state, found.output_file_id, found.error_file_id) == ("expired", "", "")
    assert found.counts == LineCounts(expired=2)
    assert [number for number, *_ in await kept(worker, batch)] == [1, 2]


@pytest.mark.parametrize("length", range(9, 16))
async def test_a_line_is_too_long_by_one_letter_wherever_it_is_cut(length: int) -> None:
    for cut in range(1, length):

        async def pieces(cut: int = cut) -> AsyncIterator[bytes]:
            yield b"x" * cut
            yield b"x" * (length - cut) + b"\n" + b"y" * length

        whole = b"x" * length if length <= 12 else None
        last = b"y" * length if length <= 12 else None
        assert [each async for each in split_lines(pieces(), 12)] == [(1, whole), (2, last)]


async def test_others_have_their_turns_while_a_file_of_empty_lines_is_cut() -> None:
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def pieces() -> AsyncIterator[bytes]:
        yield b"\n" * 10 * chores.CUT_AT_ONCE

    other = asyncio.create_task(take_turns())
    count = [number async for number, _ in split_lines(pieces(), 12)][-1]
    other.cancel()
    assert (count, turns) == (10 * chores.CUT_AT_ONCE, 10)
