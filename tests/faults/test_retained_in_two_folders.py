"""Two machines on one database, each with an audit folder: retention reaches both by itself."""

import asyncio
import shutil
from pathlib import Path

import aiohttp
import pytest

from gateway.audit.content_keys.erasure import matching_keys
from gateway.audit.device import AuditLimits
from gateway.audit.disk import Disk
from gateway.audit.folder_mark import folder_mark
from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import DAY_US, StoppedClock, SystemClock
from gateway.secrets.credentials import master_key
from gateway.store.engine import open_database
from gateway.store.evidence.tree import DatabaseAuditTrees
from gateway.store.retention.reports import RetentionReports
from gateway.types import AuditRecord
from tests.faults.envelopes import Caller, ask
from tests.faults.restoring import types
from tests.running_gateway import CLAUDE_TARGET, RunningGateway, Upstreams
from tests.signed_days import sign_on


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(300)]
DAILY = '[retention]\nrun = "daily"\ndefault = "brief"\nclasses = { brief = 30 }\n'


class Machines:
    """By their workers' names; nothing of a disk is shared but two secrets."""

    def __init__(self, folder: Path, url: str, upstreams: Upstreams) -> None:
        self._folder, self._url, self._upstreams = folder, url, upstreams

    def made(self, worker: str, more: str = DAILY) -> RunningGateway:
        folder = self._folder / worker
        (folder / "var").mkdir(parents=True, exist_ok=True)
        for name in ("master.key", "pepper.key"):
            first = self._folder / "one" / "var" / name
            if worker != "one" and first.exists():
                shutil.copy(first, folder / "var" / name)
        return RunningGateway(folder, self._url, self._upstreams, worker=worker, more=more)


@pytest.fixture
def machines(database_url: str, tmp_path: Path, own_upstreams: Upstreams) -> Machines:
    return Machines(tmp_path, database_url, own_upstreams)


async def talk(gateway: RunningGateway, http: aiohttp.ClientSession) -> None:
    """Content of today."""
    caller = Caller(gateway, http, await gateway.issue_key())
    messages = [{"role": "user", "content": "the heron nests behind the mill"}]
    body = ask("openai", model=CLAUDE_TARGET, messages=messages, user="ann")
    assert (await caller.post("openai", body)).status == 200


async def said_long_ago(gateway: RunningGateway, who: str = "", subject: str = "ann") -> None:
    """Content of forty days ago, by a worker of the same folder that is gone."""
    clock = StoppedClock(SystemClock().utc_us() - 40 * DAY_US)
    name = f"{gateway.settings.audit.worker}{who}-old"
    keys, limits = master_key(gateway.settings), AuditLimits(free_floor_bytes=1)
    log = SegmentedAuditLog(gateway.audit_folder, name, keys=keys, clock=clock, limits=limits)
    await log.start()
    record = AuditRecord("intent", f"req_{name}", "acme", clock.utc_us(), subject=subject)
    await log.append(record, f"what {who or 'ann'} said long ago".encode())
    await log.close()


async def signed_lately(gateway: RunningGateway) -> None:
    """Let workers have signed the organisation's log on the days before this one."""
    database = open_database(gateway.settings.database_url, pooled=False)
    await sign_on(database, "acme", SystemClock().utc_us(), (1, 2, 3))
    await database.close()


def ages(gateway: RunningGateway) -> list[int]:
    today = SystemClock().utc_us() // DAY_US
    return sorted(today - key.day for key in matching_keys(gateway.audit_folder, "acme", None))


async def retired(gateway: RunningGateway) -> list[tuple[str, str, str]]:
    """Who destroyed how many keys, in which folder."""
    return [
        (each.actor, each.detail["keys"], each.detail["folder"])
        for each in await gateway.records()
        if each.action == "content.retired"
    ]


async def signed(gateway: RunningGateway) -> None:
    """Until all of the organisation's records are signed: what was said long ago, too."""
    database = open_database(gateway.settings.database_url, pooled=False)
    while True:
        newest = await DatabaseAuditTrees(database).newest("acme")
        mine = [each for each in await gateway.records() if each.organisation == "acme"]
        if newest and newest.size >= len(mine):
            break
        await asyncio.sleep(0.1)
    await database.close()


async def looked(gateway: RunningGateway) -> None:
    """Until the worker has said how retention stands in its folder."""
    database = open_database(gateway.settings.database_url, pooled=False)
    mark, reports = folder_mark(gateway.audit_folder, Disk()), RetentionReports(database)
    while mark not in [each.report.folder for each in await reports.of("acme", 30)]:
        await asyncio.sleep(0.05)
    await database.close()


async def test_each_worker_destroys_what_is_past_its_time_in_its_own_folder(
    machines: Machines, http: aiohttp.ClientSession
) -> None:
    for name in ("one", "two"):
        async with machines.made(name, "") as new:
            await talk(new, http)
            await said_long_ago(new)
            assert ages(new) == [0, 40]
            await signed(new)
            if name == "two":
                await signed_lately(new)
    async with machines.made("one") as one, machines.made("two") as two:
        for each in (one, two):
            await looked(each)
            assert ages(each) == [0]
            ((actor, keys, folder),) = await retired(each)
            assert (actor, keys) == ("gateway", "1")
            assert folder == folder_mark(each.audit_folder, Disk())
            await talk(each, http)
        assert await types(one, "audit", "verify")
        again = await types(two, "audit", "retain", "--yes")
        assert '"keys": 0' in again


async def test_a_new_version_destroys_nothing_by_itself(
    machines: Machines, http: aiohttp.ClientSession
) -> None:
    classes = DAILY.replace('run = "daily"\n', "")
    async with machines.made("one", "") as one:
        await talk(one, http)
        await said_long_ago(one)
        await signed(one)
        await signed_lately(one)
    async with machines.made("one", classes) as one:
        await looked(one)
        assert (ages(one), await retired(one)) == ([0, 40], [])
        async with http.get(f"{one.url}/metrics") as answer:
            said = await answer.text()
        (line,) = [each for each in said.splitlines() if each.startswith("gatewright_retention_o")]
        assert float(line.split()[1]) > 8 * 86_400
        await types(one, "audit", "retain", "--yes")
        assert ages(one) == [0]
