"""What is still arriving when an erasure is carried out is named in its certificate, and goes."""

import asyncio

import msgspec
import pytest
from click.testing import CliRunner

from gateway.__main__ import commands
from gateway.audit.memory import MemoryAuditLog
from gateway.cli.custody import opened_custody
from gateway.errors import NotReady
from gateway.secrets.credentials import master_key
from gateway.store.batching.files import FileStore
from gateway.store.custody.late_arrivals import LateArrivals
from tests.admin.compliance.archive import converse, person
from tests.admin.compliance.test_erasures import asked, certificate, decided, opened
from tests.admin.listener import Listener


pytestmark = pytest.mark.anyio
PROJECT = ("acme", "research", "assistant")
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
        others = await files.begin(("other", *PROJECT[1:]), "key1", "batch")
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
