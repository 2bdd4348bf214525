"""What the admin lists cost beside very many recorded requests: server time of each page, p50, p95.

    python -m benchmarks.admin_lists [--requests N] [--database URL]

Fills a fresh database in bulk with generated outcomes and intents (SQLite in a temporary folder, or
the empty PostgreSQL database of the URL), starts the real admin listener and asks for each page
again and again, one at a time. The time is that of the whole answer as its client sees it.
"""

import argparse
import asyncio
import random
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import uvicorn
from sqlalchemy import text

from admin.app import build_application
from gateway.cli.init import prepare
from gateway.clock import SystemClock
from gateway.credentials import admin_token, pepper
from gateway.identity import Peppers
from gateway.settings import Settings, load_settings
from gateway.store.audit_rows import COLUMNS
from gateway.store.engine import Database, open_database
from gateway.store.keys import KeyStore, NewKey, Place


ROUNDS = 25
BATCH = 20_000
GAP_US = 400_000
MODELS = ("auto", "claude-sonnet-5", "claude-haiku-5", "gpt-6.2-sol", "house", "gpt-6.2-mini")
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
[targets.house]
provider = "engine"
model = "house"
catalogue = "in-house"
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


def rows(requests: int, now_us: int) -> Iterator[tuple[Any, ...]]:
    """An intent and an outcome of each request, in the columns' order, oldest first."""
    draw = random.Random(1)
    for number in range(requests):
        utc_us = now_us - (requests - number) * GAP_US
        home = draw.random() < 0.6
        end = draw.random()
        status = "ok" if end < 0.96 else "refused" if end < 0.98 else "failed"
        found = draw.random()
        findings = " PRIVATE_KEY:1" if found < 0.00005 else " EMAIL:2" if found < 0.08 else ""
        error = "" if status == "ok" else "upstream_timeout" if end > 0.9999 else "policy_refused"
        said = {
            "organisation": "acme",
            "request_id": f"req_{utc_us // 1000:012x}{number:016x}",
            "workspace": "lab",
            "project": f"p{number % 12}",
            "key_id": "rare" if draw.random() < 0.00005 else f"k{draw.randrange(40):02}",
            "target": "" if status == "refused" else "house" if home else "gpt-6.2-sol",
            "provider": "engine" if home else "managed",
            "jurisdiction": "in-house" if home else "us",
            "data_class": f"S{draw.randrange(4)}",
            "model_requested": draw.choice(MODELS),
            "findings": findings,
            "worker": "w0",
            "segment": 1,
            "offset_bytes": number,
        }
        spent = {
            "cost_microusd": draw.randrange(60_000) if draw.random() < 0.99 else 90_000,
            "input_tokens": draw.randrange(4000),
            "output_tokens": draw.randrange(900),
            "duration_us": draw.randrange(4_000_000),
            "first_byte_us": draw.randrange(900_000),
        }
        intent = said | {"stage": "intent", "utc_us": utc_us, "sequence": 2 * number + 1}
        outcome = said | spent | {"stage": "outcome", "utc_us": utc_us + 900_000}
        outcome |= {"status": status, "error": error, "sequence": 2 * number + 2}
        outcome["http_status"] = 200 if status == "ok" else 403
        for each in (intent, outcome):
            yield tuple(each.get(name, _EMPTY[name]) for name in COLUMNS)


_NUMBERS = {"http_status", "utc_us", "cost_microusd", "duration_us", "first_byte_us"}
_NUMBERS |= {"input_tokens", "output_tokens", "segment", "offset_bytes", "sequence"}
_EMPTY: dict[str, Any] = {name: 0 if name in _NUMBERS else "" for name in COLUMNS}
_EMPTY["raw"] = None


async def fill(database: Database, requests: int, now_us: int) -> None:
    """Rows in bulk, then the statistics that a running database has."""
    async with database.writing() as connection:
        driver: Any = (await connection.get_raw_connection()).driver_connection
        source, marks = rows(requests, now_us), ", ".join("?" * len(COLUMNS))
        insert = f"INSERT INTO audit_records ({', '.join(COLUMNS)}) VALUES ({marks})"  # noqa: S608
        while batch := [row for row, _ in zip(source, range(BATCH), strict=False)]:
            if database.kind == "postgresql":
                await driver.copy_records_to_table("audit_records", columns=COLUMNS, records=batch)
            else:
                await driver.executemany(insert, batch)
    async with database.writing() as connection:
        await connection.execute(text("ANALYZE"))


async def measured(session: aiohttp.ClientSession, url: str) -> list[float]:
    """Milliseconds of each round; the first, which warms caches, is not among them."""
    times = []
    for _ in range(ROUNDS + 1):
        begun = time.perf_counter()
        async with session.get(url) as answer:
            body = await answer.read()
            assert answer.status == 200, (url, answer.status, body[:300])
        times.append((time.perf_counter() - begun) * 1000)
    return times[1:]


async def ask_all(settings: Settings, base: str, requests: int, now_us: int) -> None:
    """Sign in and print one line per page."""
    middle = now_us - requests // 2 * GAP_US
    ident = f"req_{middle // 1000:012x}{requests // 2:016x}"
    deep = f"{now_us - requests // 20 * GAP_US}.0"
    pages = {}
    for name, words in FILTERS.items():
        query = words.format(id=ident, prefix=ident[:12])
        before = f"&before={deep}" if name == "far down" else ""
        pages[f"traffic, {name}"] = f"/o/acme/traffic?q={quote(query)}{before}"
    for name in ("all", "model by glob", "nothing"):
        pages[f"audit, {name}"] = f"/o/acme/audit?q={quote(FILTERS[name])}"
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        headers = {"origin": base, "sec-fetch-site": "same-origin"}
        form = {"token": admin_token(settings).reveal()}
        async with session.post(f"{base}/sign-in", data=form, headers=headers) as answer:
            assert answer.status < 400, answer.status
        for name, path in pages.items():
            times = sorted(await measured(session, f"{base}{path}"))
            p95 = times[int(len(times) * 0.95)]
            figures = f"best {times[0]:6.1f}   p50 {statistics.median(times):6.1f}   p95 {p95:6.1f}"
            print(f"{name:28} {figures}  ms")


def started(server: uvicorn.Server) -> threading.Thread:
    """The thread in which it serves by now."""
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    return thread


async def main(requests: int, url: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        url = url or f"sqlite+aiosqlite:///{place}/lists.db"
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            port = bound.getsockname()[1]
        (place / "gatewright.toml").write_text(CONFIG.format(url=url, port=port))
        await prepare(place)
        settings, clock = load_settings(place / "gatewright.toml"), SystemClock()
        now_us = clock.utc_us()
        database = open_database(settings.database_url, pooled=False)
        keys = KeyStore(database, Peppers({1: pepper(settings)}), clock)
        await keys.issue(NewKey(Place("acme", "lab", "bot"), "bench", "a benchmark"))
        begun = time.perf_counter()
        await fill(database, requests, now_us)
        print(f"{database.kind}: {requests:,} requests in {time.perf_counter() - begun:.0f} s")
        await database.close()
        listener = build_application(settings, clock)
        config = uvicorn.Config(listener, port=port, log_config=None, access_log=False)
        server = uvicorn.Server(config)
        thread = started(server)
        try:
            await ask_all(settings, f"http://127.0.0.1:{port}", requests, now_us)
        finally:
            server.should_exit = True
            thread.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--database", default="")
    options = parser.parse_args()
    asyncio.run(main(options.requests, options.database))
