"""Two machines on one restored database: each number is given to its own record again."""

import asyncio
import shutil
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from sqlalchemy import func, select
from structlog.testing import capture_logs

from gateway.audit.disk import Disk
from gateway.audit.proving.exported import CheckpointFiles
from gateway.oversight.homes import BY_LABEL
from gateway.pacing import rhythm
from gateway.store.engine import open_database
from gateway.store.money.spending import SpendingReader
from gateway.store.schema.audit import audit_checkpoints, audit_records
from tests.faults.restoring import Store, opened_store, types
from tests.faults.test_older_database import asks
from tests.running_gateway import RunningGateway, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]
LIMIT_MICROUSD = 20_000
Line = MutableMapping[str, Any]
Numbered = dict[tuple[str, int], tuple[str, int, int]]


@pytest.fixture
def store(sqlite_url: str, tmp_path: Path) -> Iterator[Store]:
    with opened_store("postgresql", sqlite_url, tmp_path) as store:
        yield store


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rhythm, "AWAITED_S", 0.1)


class Pair:
    """Two machines on one database: nothing of their disks is shared."""

    def __init__(self, folder: Path, store: Store, upstreams: Upstreams) -> None:
        self._folder, self.store, self._upstreams = folder, store, upstreams

    def gateway(self, worker: str) -> RunningGateway:
        folder = self._folder / worker
        parts = (folder, self.store.url, self._upstreams)
        return RunningGateway(*parts, worker=worker, more="checkpoint_period_s = 1.0")

    def share_keys(self) -> None:
        (self._folder / "two" / "var").mkdir(parents=True)
        for name in ("master.key", "pepper.key"):
            keys = [self._folder / worker / "var" / name for worker in ("one", "two")]
            shutil.copy(*keys)

    async def numbered(self) -> Numbered:
        """Which record has which number."""
        columns = audit_records.c
        place = (columns.worker, columns.segment, columns.offset_bytes)
        database = open_database(self.store.url)
        async with database.reading() as connection:
            rows = await connection.execute(select(columns.organisation, columns.sequence, *place))
            found = {(row[0], row[1]): (row[2], row[3], row[4]) for row in rows}
        await database.close()
        return found

    async def signed(self, records: int) -> None:
        """Wait until so many records of acme are numbered, and signed."""
        query = select(func.max(audit_checkpoints.c.size))
        query = query.where(audit_checkpoints.c.organisation == "acme")
        database = open_database(self.store.url)
        size = 0
        while size < records:
            async with database.reading() as connection:
                size = (await connection.execute(query)).scalar_one() or 0
        await database.close()

    async def balance(self) -> tuple[int, int]:
        """What the ledger counts as spent, and what the log's outcomes cost."""
        database = open_database(self.store.url)
        (account,) = await SpendingReader(database, BY_LABEL).differences()
        await database.close()
        return account.ledger_microusd, account.audit_microusd


async def is_put_back(pair: Pair, http: aiohttp.ClientSession, *, is_two_lost: bool) -> list[str]:
    """Two keys, of which one was revoked after the backup, when its money was spent."""
    async with pair.gateway("one") as one:
        good, stolen = await one.issue_key(), await one.issue_key()
        await one.limit("org:acme", LIMIT_MICROUSD)
        pair.share_keys()
        async with pair.gateway("two") as two:
            assert [await asks(each, http, good) for each in (one, two)] == [200, 200]
    pair.store.back_up()
    async with pair.gateway("two") as two:
        async with pair.gateway("one") as one:
            for _ in range(5):
                assert [await asks(each, http, stolen) for each in (one, two)] == [200, 200]
                await asyncio.sleep(0.2)
            types_it = one if is_two_lost else two
            await types(types_it, "keys", "revoke", stolen.split("_")[2])
            while await asks(one, http, stolen) != 401:
                pass
            await exported(one, 24)  # What the other one wrote, too.
        if not is_two_lost:
            assert await asks(two, http, good) == 200  # Of this the first knows nothing.
    return [good, stolen]


async def waits(starting: asyncio.Task[RunningGateway], lines: list[Line]) -> None:
    while not any(line["event"] == "audit:database_waits" for line in lines):
        assert not starting.done(), (lines, await starting)
        await asyncio.sleep(0.05)


async def test_two_workers_bring_back_what_was_numbered_spent_and_revoked(
    tmp_path: Path, store: Store, own_upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    pair = Pair(tmp_path, store, own_upstreams)
    good, stolen = await is_put_back(pair, http, is_two_lost=False)
    before = await pair.numbered()
    store.restore()
    one, two = pair.gateway("one"), pair.gateway("two")
    await types(one, "audit", "export", "--organisation", "acme")
    with capture_logs() as lines:
        starting = asyncio.create_task(one.__aenter__())
        await waits(starting, lines)
        assert not starting.done()
        async with two:
            await starting
            assert [await asks(each, http, stolen) for each in (one, two)] == [401, 401]
            while await asks(one, http, good) == 200:
                pass
            assert await asks(one, http, good) == 429
            await one.__aexit__()
    after = await pair.numbered()
    assert before.items() <= after.items()
    ledger, audit = await pair.balance()
    assert ledger == audit <= LIMIT_MICROUSD
    (line,) = [line for line in lines if line["event"] == "audit:database_older"]
    assert "1 keys were revoked again" in str(line["reason"])
    with capture_logs() as lines:
        async with pair.gateway("one"):
            pass
    assert "audit:database_older" not in {line["event"] for line in lines}


@pytest.mark.long
async def test_what_lay_on_a_lost_disk_keeps_its_numbers_for_good(
    tmp_path: Path, store: Store, own_upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    pair = Pair(tmp_path, store, own_upstreams)
    good, stolen = await is_put_back(pair, http, is_two_lost=True)
    before = await pair.numbered()
    store.restore()
    with capture_logs() as lines:
        one = pair.gateway("one")
        starting = asyncio.create_task(one.__aenter__())
        await waits(starting, lines)
        said = await types(one, "audit", "lost", "--reason", "its disk burnt", "--yes")
        assert "10 records of acme" in said
        await starting
        assert [await asks(one, http, key) for key in (stolen, good)] == [401, 200]
        await one.__aexit__()
    after = await pair.numbered()
    assert {before[number][0] for number in before.keys() - after.keys()} == {"two"}
    assert before.items() & after.items() == {
        (number, place) for number, place in before.items() if number in after
    }
    (line,) = [line for line in lines if line["event"] == "audit:database_older"]
    assert "records that are lost: 10 of acme" in str(line["reason"])


async def says(gateway: RunningGateway, http: aiohttp.ClientSession) -> str:
    async with http.get(f"{gateway.url}/health/ready") as answer:
        return "" if answer.ok else await answer.text()


async def exported(gateway: RunningGateway, records: int) -> None:
    """Wait until a machine has a checkpoint of so many outside of the database, whoever signed it.

    Until then nothing there shows that what is lost was signed.
    """
    settings = gateway.settings
    files = CheckpointFiles(settings.path(settings.audit.checkpoint_directory), Disk())
    while (known := files.newest_of_all().get("acme")) is None or known.size < records:
        await asyncio.sleep(0.05)


@pytest.mark.long
@pytest.mark.parametrize("knows", ["both", "first"])
async def test_a_failover_that_lost_what_was_signed_is_noticed_by_everybody_who_runs(
    tmp_path: Path,
    store: Store,
    own_upstreams: Upstreams,
    http: aiohttp.ClientSession,
    knows: str,
) -> None:
    """The first wrote nothing that is lost, so that only the other one has a record to miss.

    Where that one has not exported yet what was signed, it numbers all of it again.
    """
    pair = Pair(tmp_path, store, own_upstreams)
    async with pair.gateway("one") as one:
        key = await one.issue_key()
        assert await asks(one, http, key) == 200
    pair.share_keys()
    store.back_up()
    async with pair.gateway("two") as two, pair.gateway("one") as one:
        assert [await asks(two, http, key) for _ in range(5)] == [200] * 5
        await pair.signed(12)
        for each in (two, one):
            await exported(each, 12)
        before = await pair.numbered()
        if knows == "first":
            for path in two.settings.path(two.settings.audit.checkpoint_directory).glob("*.jsonl"):
                path.unlink()
        store.restore()
        for each in (two, one):
            while "was put back" not in await says(each, http):
                await asks(two, http, key)
    one, two = pair.gateway("one"), pair.gateway("two")
    starting = asyncio.create_task(one.__aenter__())
    async with two:
        await starting
        assert [await says(each, http) for each in (one, two)] == ["", ""]
        assert [await asks(each, http, key) for each in (one, two)] == [200, 200]
        await one.__aexit__()
    assert before.items() <= (await pair.numbered()).items()
