"""Times the admin lists over very many recorded requests: server time of each page, p50, p95.

    python -m benchmarks.admin_lists [--requests N] [--database URL] [--folder FOLDER] [--rounds N]
                                     [--export]

Fills a fresh database in bulk (SQLite in a temporary folder, or the PostgreSQL database of the URL;
one that was filled before with its keys in FOLDER is measured again, as of when it was filled),
starts the real admin listener and asks for each page again and again, one at a time. The time is
that of the whole answer as its client sees it, in milliseconds. `alone` is this time without the
time that the processes (with the database's, if on this machine) waited for a core that other work
had; `cpu` is what all of them spent. `--export` reads complete exports and prints the memory of the
process before, at its peak and after.
"""

import argparse
import asyncio
import gc
import os
import secrets
import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import quote

import aiohttp
import uvicorn
from sqlalchemy import text

from admin.app import build_application
from benchmarks.admin_world import (
    BATCH_ID,
    BUSY_KEYS,
    GAP_US,
    KEYS,
    LateClock,
    fill,
    filled,
    key_id,
    request_id,
)
from gateway.cli.init import prepare
from gateway.cli.listening import tune_interpreter
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.oversight.access import Grant
from gateway.secrets.credentials import admin_token
from gateway.secrets.secret import Secret
from gateway.store.engine import Database, open_database
from gateway.store.identity.people import PeopleStore


MIB = 1024 * 1024
CONFIG = """
admin_url = "http://127.0.0.1:{port}"
[database]
url = "{url}"
[admin]
port = {port}
[providers.engine]
kind = "engine"
base_url = "http://127.0.0.1:1"
jurisdiction = "in-house"
[providers.managed]
kind = "openai"
jurisdiction = "us"
credential = {{ env = "GATEWRIGHT_ABSENT_KEY" }}
[targets.house]
provider = "engine"
model = "house"
catalogue = "in-house"
[targets.claude]
provider = "managed"
model = "gpt-6.2-sol"
"""
FILTERS = {
    "all": "",
    "far down": "",
    "last hour": "since:1h",
    "common value": "route:in-house",
    "model by glob": "model:claude*",
    "one key of forty": "key:k07",
    "one key, rare": "key:rare",
    "not answered": "status:error",
    "rare error": "error:upstream_timeout",
    "found, common": "pii:*",
    "found, rare": "pii:PRIVATE_KEY",
    "dear": "cost:>0.05",
    "several": "model:claude* pii:EMAIL status:ok cost:>0.001 since:7d",
    "nothing": "target:nowhere",
    "an id": "{id}",
    "how an id begins": "{prefix}",
}
ROOMS = {
    "audit, all": "/o/acme/audit",
    "audit, model by glob": "/o/acme/audit?q=model%3Aclaude*",
    "audit, deeds": "/o/acme/audit?q=kind%3Aadmin",
    "audit, a person": "/o/acme/audit?q=actor%3Aperson7",
    "audit, nothing": "/o/acme/audit?q=target%3Anowhere",
    "overview": "/",
    "keys": "/o/acme/keys",
    "keys, filtered": "/o/acme/keys?q=service%2077",
    "keys, far down": "/o/acme/keys?from=9000",
    "one key": "/o/acme/keys/{key}",
    "policies": "/o/acme/policies",
    "approvals": "/o/acme/approvals",
    "cost": "/o/acme/costs",
    "cost by key": "/o/acme/costs?by=key",
    "cost by policy": "/o/acme/costs?by=policy",
    "cost by app": "/o/acme/costs?by=app",
    "limits": "/o/acme/costs/limits",
    "limits, a project": "/o/acme/costs/limits?open=proj:acme/lab/p1&from=100",
    "limits, found": "/o/acme/costs/limits?q=service%2077",
    "limits, those there are": "/o/acme/costs/limits?only=limited",
    "teams": "/o/acme/teams",
    "finding a key": "/o/acme/find?q=service%2077",
    "people": "/people",
    "batches": "/o/acme/batches",
    "files": "/o/acme/files",
    "batches, over JSON": "/api/organisations/acme/batches?from=0",
    "teams, over JSON": "/api/organisations/acme/teams?from=0",
    "people, over JSON": "/api/people?from=0",
    "budgets, over JSON": "/api/organisations/acme/budgets?from=0",
    "history, over JSON": "/api/organisations/acme/policies/organisation/history?from=0",
    "a batch of 50,000 lines": f"/o/acme/batches/{BATCH_ID}",
}
EXPORTS = {
    "traffic as csv": "/o/acme/traffic/export?form=csv",
    "traffic as jsonl": "/o/acme/traffic/export?form=jsonl",
    "audit as jsonl": "/o/acme/audit/export",
    "costs by key as csv": "/o/acme/costs/export.csv?by=key",
}


def pages(requests: int, now_us: int) -> dict[str, str]:
    """The address of each page that is measured."""
    middle = requests // 2
    ident = request_id(middle, now_us - (requests - middle) * GAP_US)
    deep = f"{now_us - requests // 20 * GAP_US}.0"
    found = {}
    for name, words in FILTERS.items():
        query = words.format(id=ident, prefix=ident[:12])
        before = f"&before={deep}" if name == "far down" else ""
        found[f"traffic, {name}"] = f"/o/acme/traffic?q={quote(query)}{before}"
    return found | {name: path.format(key=key_id(7)) for name, path in ROOMS.items()}


def worked_ms(pids: list[int]) -> tuple[float, float]:
    """Milliseconds that this process and the database's spent on a core, and waited for one."""
    ran = waited = 0
    for task in (*Path("/proc/self/task").iterdir(), *(Path(f"/proc/{pid}") for pid in pids)):
        try:
            on, off, _ = (task / "schedstat").read_text().split()
        except OSError:
            continue  # A thread that ended, or a database on another machine.
        ran, waited = ran + int(on), waited + int(off)
    return ran / 1e6, waited / 1e6


async def served_by(database: Database) -> list[int]:
    """Processes of the database that serve the listener."""
    if database.kind == "sqlite":
        return []
    query = text("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
    async with database.reading() as connection:
        return [int(pid) for (pid,) in await connection.execute(query)]


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


async def measured(
    session: aiohttp.ClientSession, url: str, rounds: int, database: Database
) -> str:
    """A line of figures; the first round, which warms caches, is reported apart."""
    times, spent, alone, body = [], [], [], b""
    pids = await served_by(database)
    for number in range(rounds + 1):
        if number == 1:
            pids = await served_by(database)  # The first round may have connected.
        before, begun = worked_ms(pids), time.perf_counter()
        async with session.get(url) as answer:
            body = await answer.read()
            assert answer.status == 200, (url, answer.status, body[:300])
        took, (ran, waited) = (time.perf_counter() - begun) * 1000, worked_ms(pids)
        times.append(took)
        spent.append(ran - before[0])
        alone.append(max(took - (waited - before[1]), 0.0))
    first, *times = times
    return (
        f"first {first:5.0f}   best {min(times):5.0f}   p50 {statistics.median(times):5.0f}   "
        f"p95 {p95_of(times):5.0f}   alone p95 {p95_of(alone[1:]):5.0f}   "
        f"cpu {statistics.median(spent[1:]):5.0f}   {len(body) / 1000:4.0f} kB"
    )


def p95_of(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.95)]


async def exported(session: aiohttp.ClientSession, url: str) -> str:
    """Read a complete export, and discard it as it comes."""
    gc.collect()
    before = peak = resident_mib()
    begun, size = time.perf_counter(), 0
    async with session.get(url, timeout=aiohttp.ClientTimeout(total=None)) as answer:
        assert answer.status == 200, (url, answer.status)
        async for piece in answer.content.iter_chunked(MIB):
            size += len(piece)
            peak = max(peak, resident_mib())
    took_s = time.perf_counter() - begun
    gc.collect()
    return (
        f"{size / MIB:6.0f} MiB in {took_s:4.0f} s   resident MiB: before {before:.0f}, "
        f"at its peak {peak:.0f}, after {resident_mib():.0f}"
    )


async def ask_all(
    settings: Settings, database: Database, asked: dict[str, str], rounds: int
) -> None:
    """Sign in and print one line per page; with no rounds, per export."""
    jar, base = aiohttp.CookieJar(unsafe=True), f"http://127.0.0.1:{settings.admin.port}"
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        headers = {"origin": base, "sec-fetch-site": "same-origin"}
        form = {"token": admin_token(settings).reveal()}
        if not rounds:
            form = await auditor(database)  # Who runs the platform does not export the log.
        async with session.post(f"{base}/sign-in", data=form, headers=headers) as answer:
            assert answer.status < 400, answer.status
        for name, path in asked.items():
            url = f"{base}{path}"
            line = await (
                measured(session, url, rounds, database) if rounds else exported(session, url)
            )
            print(f"{name:28} {line}", flush=True)


async def auditor(database: Database) -> dict[str, str]:
    """An auditor, who may export everything, signed in."""
    name, password = f"auditor-{secrets.token_hex(4)}", secrets.token_urlsafe(24)
    people = PeopleStore(database, SystemClock())
    await people.add(name, password=Secret(password))
    await people.grant(name, Grant("compliance", "*"))
    return {"name": name, "password": password}


def started(server: uvicorn.Server) -> threading.Thread:
    """The thread in which the server runs, once it has started."""
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    return thread


async def main(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place, url = Path(options.folder or folder), options.database
        url = url or f"sqlite+aiosqlite:///{place}/lists.db"
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            port = bound.getsockname()[1]
        (place / "gatewright.toml").write_text(CONFIG.format(url=url, port=port))
        await prepare(place)
        settings = load_settings(place / "gatewright.toml")
        database = open_database(settings.database_url, pooled=False)
        if not await filled(database):
            begun = time.perf_counter()
            await fill(database, settings, options.requests)
            print(f"filled in {time.perf_counter() - begun:.0f} s")
        newest_us = await filled(database)
        print(f"{database.kind}: {options.requests:,} requests, {KEYS:,} keys, {BUSY_KEYS} busy")
        server = uvicorn.Server(
            uvicorn.Config(
                build_application(settings, LateClock(newest_us)),
                port=port,
                log_config=None,
                access_log=False,
            )
        )
        tune_interpreter()  # As `gatewright admin serve` does.
        thread = started(server)
        asked = EXPORTS if options.export else pages(options.requests, newest_us)
        if options.only:
            asked = {name: path for name, path in asked.items() if options.only in name}
        try:
            await ask_all(settings, database, asked, 0 if options.export else options.rounds)
        finally:
            server.should_exit = True
            thread.join()
            await database.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--database", default="")
    parser.add_argument("--folder", default="", help="where configuration and keys stay")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--only", default="", help="pages whose name holds this")
    parser.add_argument("--export", action="store_true")
    asyncio.run(main(parser.parse_args()))
