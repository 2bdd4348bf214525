"""An operator rotates a provider's credential while requests are running: none of them notices."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from gateway.clock import SystemClock
from gateway.secrets.credentials import master_key
from gateway.secrets.secret import Secret
from gateway.store.engine import open_database
from gateway.store.sealing.sealed_secrets import DatabasePlace, SealedSecretTable
from tests.faults.envelopes import Caller, ask
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio
ROTATIONS = 12


async def sealed(gateway: RunningGateway, value: str) -> None:
    database = open_database(gateway.settings.database_url)
    table = SealedSecretTable(database, master_key(gateway.settings), SystemClock())
    await table.seal("claude", Secret(value), "a test")
    await database.close()


async def test_requests_go_on_through_rotations_each_with_one_good_credential(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    gateway = RunningGateway(tmp_path, sqlite_url, upstreams, more="[secrets]\nrefresh_s = 0.05\n")
    text = gateway.config_file.read_text()
    gateway.config_file.write_text(
        text.replace(
            'credential = { file = "var/upstream.key" }', 'credential = { db = "claude" }', 1
        )
    )
    async with gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        before = await caller.post("openai", ask("openai", model=CLAUDE_TARGET))
        assert before.status == 503  # There is no such secret yet.
        await sealed(gateway, "value-0")
        while "claude-opus-5-5" in gateway.plane.snapshots.current().board.unavailable:
            await asyncio.sleep(0.01)
        hold = asyncio.Event()
        upstreams.anthropic.answer_once(Answer(hold=hold))
        in_flight = asyncio.create_task(
            caller.post("openai", ask("openai", model=CLAUDE_TARGET, stream=True))
        )
        while not upstreams.anthropic.calls:
            await asyncio.sleep(0.01)

        statuses = []
        for number in range(1, ROTATIONS + 1):
            await sealed(gateway, f"value-{number}")
            body = ask("openai", model=CLAUDE_TARGET)
            while True:
                statuses.append((await caller.post("openai", body)).status)
                if (
                    upstreams.anthropic.calls[-1].headers["authorization"]
                    == f"Bearer value-{number}"
                ):
                    break
        hold.set()

        assert (await in_flight).status == 200
        assert set(statuses) == {200}
        used = [call.headers["authorization"] for call in upstreams.anthropic.calls]
        assert set(used) == {f"Bearer value-{number}" for number in range(ROTATIONS + 1)}


async def test_a_key_file_that_was_written_anew_is_used_without_a_restart(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    gateway = RunningGateway(tmp_path, sqlite_url, upstreams, more="[secrets]\nrefresh_s = 0.05\n")
    async with gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        tmp_path.joinpath("var", "upstream.key").write_text("another-value")
        while True:
            reply = await caller.post("openai", ask("openai", model=GPT_TARGET))
            assert reply.status == 200
            if upstreams.openai.calls[-1].headers["authorization"] == "Bearer another-value":
                break


async def test_a_place_of_secrets_that_hangs_holds_back_no_revocation(
    tmp_path: Path,
    sqlite_url: str,
    upstreams: Upstreams,
    http: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[asyncio.Event] = []

    async def hang(_: DatabasePlace) -> Secret[str]:
        asked.append(asyncio.Event())
        await asked[-1].wait()
        raise AssertionError

    gateway = RunningGateway(tmp_path, sqlite_url, upstreams)
    text = gateway.config_file.read_text()
    file, db = 'credential = { file = "var/upstream.key" }', 'credential = { db = "claude" }'
    gateway.config_file.write_text(text.replace(file, db, 1))
    async with gateway:
        keys = [await gateway.issue_key(), await gateway.issue_key()]
        monkeypatch.setattr(DatabasePlace, "read", hang)
        for key in keys:
            await gateway.revoke_key(key)
            caller, tries = Caller(gateway, http, key), 0
            while (await caller.post("openai", ask("openai"))).status != 401 or not asked:
                tries += 1
                assert tries < 400, "a revoked key is still good"
                await asyncio.sleep(0.05)


POOL = """
[secrets]
refresh_s = 0.05
[providers.replica]
kind = "engine"
base_url = "{url}"
jurisdiction = "in-house"
credential = {{ file = "var/replica.key" }}
[providers.house]
kind = "pool"
members = ["replica"]
jurisdiction = "in-house"
[targets.pooled]
provider = "house"
model = "fake-model"
catalogue = "in-house"
"""


async def test_a_member_of_a_pool_is_called_with_its_new_credential(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    more = POOL.format(url=upstreams.engine.url)
    gateway = RunningGateway(tmp_path, sqlite_url, upstreams, more=more)
    kept = tmp_path.joinpath("var", "replica.key")
    kept.write_text("value-0")
    kept.chmod(0o600)
    async with gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        for value in ("value-0", "value-1"):
            kept.write_text(value)
            while True:
                assert (await caller.post("openai", ask("openai", model="pooled"))).status == 200
                if upstreams.engine.calls[-1].headers["authorization"] == f"Bearer {value}":
                    break
        assert set(gateway.plane._hosts) == {"engine", "house"}, "a member is not asked by itself"
