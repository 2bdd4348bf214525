"""What is still arriving when an erasure is carried out is named in its certificate, and goes."""

import asyncio
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from sqlalchemy import select, update

from gateway.__main__ import commands
from gateway.audit.memory import MemoryAuditLog
from gateway.batches import Batch, Line
from gateway.cli.audit.custody import opened_custody
from gateway.errors import NotReady
from gateway.projects import Project
from gateway.secrets.credentials import master_key
from gateway.store.batching.batches import BatchStore
from gateway.store.batching.files import FileStore
from gateway.store.batching.lines import LineStore
from gateway.store.engine import Database
from gateway.store.erasure.kept_content import KeptContent
from gateway.store.erasure.late_arrivals import LateArrivals
from gateway.store.schema.custody import erasure_cases
from tests.admin.compliance.archive import converse, person
from tests.admin.compliance.test_erasures import asked, certificate, decided, opened
from tests.admin.listener import Listener


pytestmark = pytest.mark.anyio
PROJECT = Project("acme", "research", "assistant")
ANN = b'{"custom_id":"n1","body":{"user":"ann"}}\n'
BOB = b'{"custom_id":"n2","body":{"user":"bob"}}\n'


async def show(listener: Listener, one: str) -> tuple[str, int]:
    """What `audit erasure show` says of a case, and how it ends."""
    given = ["audit", "erasure", "show", one.rpartition("/")[2]]
    given += ["--config", str(listener.config_file)]
    result = await asyncio.to_thread(CliRunner().invoke, commands, given)
    return result.output, result.exit_code


async def test_an_end_users_certificate_is_not_complete_before_it_was_looked_at(
    listener: Listener,
) -> None:
    await converse(listener, ["ann"])
    settings, clock = listener.settings, listener.clock
    async with opened_custody(settings) as (_, database):
        files = FileStore(database, master_key(settings), clock)
        writer = await files.begin(PROJECT, "key1", "batch")
        async with person(listener, "cora") as cora, person(listener, "anton", "approver") as anton:
            one = await opened(cora)
            assert await asked(cora, one) == 303
            assert (await decided(anton, one))[0] == 303
            _, page = await cora.send("GET", one)
            told = msgspec.json.decode(await certificate(cora, one))
            assert told["kept_arriving"] == [writer.file.file_id]
            assert (told["complete"], told["kept_all_looked_at"]) == (False, False)
            assert told["kept"]["arriving"] == 1
            assert "1 file or batch is still arriving" in page
            assert "Erased so far: " in page
            shown, code = await show(listener, one)
            assert (code, "a file or batch is still arriving" in shown) == (1, True)
            await writer.write(ANN + BOB)
            file = await writer.finish("a.jsonl", clock.utc_us() + 10**12)
            log = MemoryAuditLog()
            await log.start()
            clock.advance(1)
            await LateArrivals(settings, database, log, clock).tend()
            _, page = await cora.send("GET", one)
            told = msgspec.json.decode(await certificate(cora, one))
        assert told["kept_arrived"] == [file.file_id]
        assert (told["complete"], told["kept_all_looked_at"]) == (True, True)
        assert (told["kept"]["arriving"], told["kept"]["file_lines"]) == (0, 1)
        assert "still arriving" not in page
        assert "Erased: " in page
        shown, code = await show(listener, one)
        assert (code, "arriving;" in shown) == (0, False)
        (left,) = await files.of_organisation("acme")
        assert b"".join([each async for each in files.content(left)]) == b"\n" + BOB


async def test_of_an_organisation_it_is_stopped(listener: Listener) -> None:
    await converse(listener, ["ann"])
    settings, clock = listener.settings, listener.clock
    async with opened_custody(settings) as (_, database):
        files = FileStore(database, master_key(settings), clock)
        writer = await files.begin(PROJECT, "key1", "batch")
        others = await files.begin(PROJECT._replace(organisation="other"), "key1", "batch")
        async with person(listener, "cora") as cora, person(listener, "anton", "approver") as anton:
            one = await opened(cora, scope="organisation", user="")
            assert await asked(cora, one) == 303
            assert (await decided(anton, one))[0] == 303
            told = msgspec.json.decode(await certificate(cora, one))
        assert (told["kept_arriving"], told["complete"]) == ([], True)
        await writer.write(ANN)
        with pytest.raises(NotReady, match="given up"):
            await writer.finish("a.jsonl", clock.utc_us() + 10**12)
        await others.finish("b.jsonl", clock.utc_us() + 10**12)


class Beside:
    """What a worker does beside an erasure."""

    def __init__(self, listener: Listener, database: Database) -> None:
        self.database, self.listener, self.clock = database, listener, listener.clock
        parts = database, master_key(listener.settings), listener.clock
        self.files, self.batches = FileStore(*parts), BatchStore(*parts)
        self.lines = LineStore(database, listener.clock)

    async def file(self, content: bytes, purpose: Any = "batch") -> str:
        writer = await self.files.begin(PROJECT, "key1", purpose)
        await writer.write(content)
        return (await writer.finish("a.jsonl", self.clock.utc_us() + 10**12)).file_id

    async def made_of(self, file_id: str) -> Batch:
        """It has read the file, and has no lines yet."""
        now_us = self.clock.utc_us()
        times = {"created_us": now_us, "expires_us": now_us, "keep_until_us": now_us + 10**12}
        fixed = ("batch_", "file", PROJECT, "key1", "/v1/x", "validating")
        return await self.batches.make(Batch(*fixed, **times, input_file_id=file_id))  # type: ignore[arg-type]

    async def take_in(self, batch: Batch) -> None:
        key = await self.batches.content_key(batch)
        assert key is not None
        lines = [Line(1, "n1", b'{"user":"ann"}'), Line(2, "n2", b'{"user":"bob"}')]
        await self.lines.add(batch.batch_id, key, lines)
        await self.batches.begin(batch.batch_id, 1)

    async def tend(self) -> None:
        log = MemoryAuditLog()
        await log.start()
        self.clock.advance(1)  # After it was agreed to.
        await LateArrivals(self.listener.settings, self.database, log, self.clock).tend()


@pytest.mark.parametrize("scope", ["user", "organisation"])
async def test_a_batch_that_was_made_of_a_file_before_its_lines_went_is_not_kept(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, scope: str
) -> None:
    """It has read the file, and writes its lines once they are erased everywhere else."""
    await converse(listener, ["ann"])
    destroy, made = KeptContent.destroy, list[Batch]()
    async with opened_custody(listener.settings) as (_, database):
        beside = Beside(listener, database)
        file_id = await beside.file(ANN + BOB)

        async def destroys(*given: Any) -> None:
            made.append(await beside.made_of(file_id))
            await destroy(*given)

        async with person(listener, "cora") as cora, person(listener, "anton", "approver") as anton:
            given = {"scope": scope} | ({"user": ""} if scope == "organisation" else {})
            one = await opened(cora, **given)
            assert await asked(cora, one) == 303
            with monkeypatch.context() as changed:
                changed.setattr(KeptContent, "destroy", destroys)
                assert (await decided(anton, one))[0] == 303
            for _ in range(2):
                told = msgspec.json.decode(await certificate(cora, one))
                assert (told["kept_arriving"], told["complete"]) == ([made[0].batch_id], False)
                assert told["kept_left"] == 0
                await beside.tend()
            await beside.take_in(made[0])
            await beside.tend()
            told = msgspec.json.decode(await certificate(cora, one))
        gone = 2 if scope == "organisation" else 1
        assert (told["kept_arrived"], told["complete"]) == ([made[0].batch_id], True)
        assert (told["kept"]["lines"], told["kept_left"]) == (gone, 0)
        left = await beside.batches.led(made[0].batch_id)
        assert (left is None) == (scope == "organisation")
        assert (await beside.lines.counts(made[0].batch_id)).total == 2 - gone


async def test_what_was_there_before_it_could_be_stopped_goes_with_its_organisation(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file came to its end, and so did a batch: of what is gone its results are."""
    await converse(listener, ["ann"])
    destroy, done, until_us = KeptContent.destroy, list[str](), listener.clock.utc_us() + 10**12
    async with opened_custody(listener.settings) as (_, database):
        beside = Beside(listener, database)
        files = beside.files
        writer = await files.begin(PROJECT, "key1", "batch")
        stopped = await files.begin(PROJECT, "key1", "batch")

        async def destroys(*given: Any) -> None:
            done.append((await writer.finish("a.jsonl", until_us)).file_id)
            done.append(await beside.file(ANN, "batch_output"))
            await destroy(*given)

        async with person(listener, "cora") as cora, person(listener, "anton", "approver") as anton:
            one = await opened(cora, scope="organisation", user="")
            assert await asked(cora, one) == 303
            with monkeypatch.context() as changed:
                changed.setattr(KeptContent, "destroy", destroys)
                assert (await decided(anton, one))[0] == 303
            told = msgspec.json.decode(await certificate(cora, one))
            assert (told["kept_arriving"], told["complete"]) == (sorted(done), False)
            since = await beside.file(BOB)
            await beside.tend()
            told = msgspec.json.decode(await certificate(cora, one))
        assert (told["kept_arrived"], told["complete"]) == (sorted(done), True)
        assert (told["kept"]["files"], told["kept_left"]) == (2, 0)
        with pytest.raises(NotReady, match="given up"):
            await stopped.finish("c.jsonl", until_us)
        assert [each.file_id for each in await files.of_organisation("acme")] == [since]


async def test_a_certificate_from_before_does_not_say_that_no_conversation_went(
    listener: Listener,
) -> None:
    """It has one figure for answers and conversations together."""
    await converse(listener, ["ann"])
    async with (
        opened_custody(listener.settings) as (_, database),
        person(listener, "cora") as cora,
        person(listener, "anton", "approver") as anton,
    ):
        one = await opened(cora)
        assert await asked(cora, one) == 303
        assert (await decided(anton, one))[0] == 303
        _, page = await cora.send("GET", one)
        assert "<dt>Conversations</dt><dd>0</dd>" in page
        async with database.writing() as connection:
            text = (await connection.execute(select(erasure_cases.c.certificate))).scalar_one()
            told = msgspec.json.decode(text)
            told["kept"].pop("conversations")
            told["kept"]["answers"] = 7
            before = msgspec.json.encode(told).decode()
            await connection.execute(update(erasure_cases).values(certificate=before))
        _, page = await cora.send("GET", one)
    assert "<dt>Kept answers and conversations</dt><dd>7</dd>" in page
    assert "<dt>Conversations</dt>" not in page
