"""Machines on one database, each with an audit folder, and the effect of an erasure on each."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from gateway.audit.content_keys.erasure import matching_keys
from gateway.audit.projecting.export import export_records
from gateway.cli.audit.custody import folder_erasures as erasures_here
from gateway.cli.audit.erasing import opened_erasures
from gateway.cli.deeds import opened_log
from gateway.clock import SystemClock
from gateway.secrets.credentials import master_key
from gateway.store.engine import open_database
from gateway.store.erasure.cases import ErasureCase, ErasureCaseReader
from gateway.store.erasure.certificates import certified
from gateway.store.erasure.folder_erasures import FolderErasures
from gateway.store.erasure.outstanding import Reach
from gateway.store.erasure.reach import ErasureReach
from gateway.store.evidence.second_rows import SecondContents
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from tests.faults.envelopes import Caller, ask
from tests.faults.restoring import types
from tests.running_gateway import CLAUDE_TARGET, RunningGateway, Upstreams


WORDS = {"ann": "the heron nests behind the mill", "bob": "the otter sleeps under the bridge"}
GONE = "the content's key was destroyed"


class Machines:
    """By the names of their workers: nothing of their disks is shared but two secrets."""

    def __init__(self, folder: Path, database_url: str, upstreams: Upstreams) -> None:
        self._folder, self._url, self._upstreams = folder, database_url, upstreams

    def __call__(self, worker: str, *, more: str = "") -> RunningGateway:
        """One that has not been started."""
        folder = self._folder / worker
        (folder / "var").mkdir(parents=True, exist_ok=True)
        for name in ("master.key", "pepper.key"):
            first = self._folder / "one" / "var" / name
            if worker != "one" and first.exists():
                shutil.copy(first, folder / "var" / name)
        return RunningGateway(folder, self._url, self._upstreams, worker=worker, more=more)


async def talk(gateway: RunningGateway, http: aiohttp.ClientSession) -> None:
    caller = Caller(gateway, http, await gateway.issue_key())
    for user, words in WORDS.items():
        messages = [{"role": "user", "content": words}]
        body = ask("openai", model=CLAUDE_TARGET, messages=messages, user=user)
        assert (await caller.post("openai", body)).status == 200


def keys_of(gateway: RunningGateway) -> int:
    return len(matching_keys(gateway.audit_folder, "acme", None))


async def said(gateway: RunningGateway) -> list[str]:
    """All content that a listener beside this machine shows, and why it shows no more."""
    database = open_database(gateway.settings.database_url, pooled=False)
    try:
        sink = DatabaseAuditSink(database, gateway.audit_folder)
        lines = export_records(
            sink.records(AuditQuery(organisation="acme", stage="intent")),
            directory=gateway.audit_folder,
            keys=master_key(gateway.settings),
            second=SecondContents(database),
        )
        return [str(each.get("content", each.get("content_error", ""))) async for each in lines]
    finally:
        await database.close()


def counted(lines: list[str], words: str) -> int:
    return sum(words in line for line in lines)


async def agreed(gateway: RunningGateway, *arguments: str) -> str:
    """A case that two people agreed on beside one machine; its id."""
    more = ("--organisation", "acme", "--ticket", "T-7", "--yes", *arguments)
    case_id = (await types(gateway, "audit", "erase", *more)).split()[-1]
    async with opened_erasures(gateway.settings) as erasures:
        case = await erasures.cases.found(case_id)
        await erasures.approve("os:anton", case, "as the ticket says")
    return case_id


async def stands(gateway: RunningGateway, case_id: str) -> tuple[ErasureCase, Reach]:
    database, clock = open_database(gateway.settings.database_url, pooled=False), SystemClock()
    try:
        case = await ErasureCaseReader(database, clock).found(case_id)
        return case, (await ErasureReach(database, clock).of([case]))[case_id]
    finally:
        await database.close()


async def completed(gateway: RunningGateway, case_id: str) -> dict[str, Any]:
    """The certificate, once nobody is waited for."""
    while True:
        case, reach = await stands(gateway, case_id)
        if reach.is_complete and case.reached_us:
            said: dict[str, Any] = json.loads(certified(case, reach))
            return said
        await asyncio.sleep(0.1)


async def machine_tends(gateway: RunningGateway) -> None:
    async with tending(gateway) as erasures:
        await erasures.tend()


@asynccontextmanager
async def tending(gateway: RunningGateway) -> AsyncIterator[FolderErasures]:
    """What does it on a machine, without its worker."""
    database = open_database(gateway.settings.database_url, pooled=False)
    try:
        async with opened_log(gateway.settings) as log:
            yield erasures_here(gateway.settings, database, log)
    finally:
        await database.close()
