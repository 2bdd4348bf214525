"""Yesterday's database beside today's log: no money spent and no key revoked comes back."""

from pathlib import Path

import aiohttp
import pytest
from structlog.testing import capture_logs

from gateway.oversight.homes import BY_LABEL
from gateway.store.engine import open_database
from gateway.store.money.spending import SpendingReader
from tests.faults.envelopes import Caller, ask
from tests.faults.restoring import Store, types
from tests.running_gateway import GPT_TARGET, RunningGateway, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]
LIMIT_MICROUSD = 20_000


async def asks(
    gateway: RunningGateway, http: aiohttp.ClientSession, key: str, **of_whom: object
) -> int:
    body = ask("openai", stream=False, model=GPT_TARGET, **of_whom)
    return (await Caller(gateway, http, key).post("openai", body)).status


@pytest.mark.parametrize("is_read_first", [False, True])
async def test_what_was_spent_and_revoked_since_a_backup_stays_so(
    tmp_path: Path,
    store: Store,
    own_upstreams: Upstreams,
    http: aiohttp.ClientSession,
    is_read_first: bool,
) -> None:
    def gateway() -> RunningGateway:
        return RunningGateway(tmp_path, store.url, own_upstreams)

    async with gateway() as running:
        good, stolen = await running.issue_key(), await running.issue_key()
        await running.limit("org:acme", LIMIT_MICROUSD)
        assert await asks(running, http, good) == 200
    store.back_up()
    async with gateway() as running:
        assert [await asks(running, http, stolen) for _ in range(20)] == [200] * 20
        await types(running, "keys", "revoke", stolen.split("_")[2])
        while await asks(running, http, stolen) != 401:
            pass
    store.restore()
    if is_read_first:
        # A command that looks at the log first brings the records back, and signs.
        await types(running, "audit", "pack", str(tmp_path / "pack.zip"), *OF_ALL_TIME)
    with capture_logs() as lines:
        async with gateway() as running:
            assert await asks(running, http, stolen) == 401
            while await asks(running, http, good) == 200:
                pass
            assert await asks(running, http, good) == 429
    (line,) = [line for line in lines if line["event"] == "audit:database_older"]
    assert "1 keys were revoked again; deeds since: 1 key.revoked" in str(line["reason"])
    assert line["count"] == 1
    database = open_database(store.url)
    (account,) = await SpendingReader(database, BY_LABEL).differences()
    await database.close()
    assert account.ledger_microusd == account.audit_microusd <= LIMIT_MICROUSD


@pytest.mark.long
async def test_what_end_users_spent_since_a_backup_stays_spent(
    tmp_path: Path, store: Store, own_upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    """Also of those who are not in the backup at all."""

    async def spends_all(running: RunningGateway, name: str) -> None:
        while await asks(running, http, key, user=name) == 200:
            pass

    async with RunningGateway(tmp_path, store.url, own_upstreams) as running:
        key = await running.issue_key()
        await running.limit("user:acme/*", LIMIT_MICROUSD)
        assert await asks(running, http, key, user="ann") == 200
        # The running worker has heard of it where it refuses somebody.
        await spends_all(running, "zoe")
    store.back_up()
    async with RunningGateway(tmp_path, store.url, own_upstreams) as running:
        for name in ("ann", "bob"):
            await spends_all(running, name)
    store.restore()
    async with RunningGateway(tmp_path, store.url, own_upstreams) as running:
        for name in ("ann", "bob", "zoe"):
            assert await asks(running, http, key, user=name) == 429, name
        assert await asks(running, http, key, user="carl") == 200
    database = open_database(store.url)
    found = await SpendingReader(database, BY_LABEL).differences(end_users=True)
    await database.close()
    assert len(found) == 4
    assert all(each.is_explained for each in found), found


OF_ALL_TIME = ("--organisation", "acme", "--since", "2020-01-01", "--until", "2100-01-01")


async def test_a_database_that_is_as_new_as_its_log_is_not_called_old(
    tmp_path: Path, store: Store, own_upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    with capture_logs() as lines:
        for _ in range(2):
            async with RunningGateway(tmp_path, store.url, own_upstreams) as running:
                assert await asks(running, http, await running.issue_key()) == 200
    assert [line for line in lines if line["event"] == "audit:database_older"] == []
    assert "snapshot:published" in {line["event"] for line in lines}
