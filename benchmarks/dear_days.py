"""Cost of finding unusually expensive days among many rows: milliseconds of processor time.

    python -m benchmarks.dear_days [--database URL]

Fills the sums of 84 days with 10,000 keys, six in ten of which ask on any day, in a fresh database
(SQLite in a temporary folder, or an empty PostgreSQL database at the URL), and finds the expensive
days of today and yesterday, and of a month: for the first time, and again. Medians of three
readers.
"""

import argparse
import asyncio
import random
import statistics
import tempfile
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from zoneinfo import ZoneInfo

from sqlalchemy import Table, insert, text

from admin.costs.unusual import UnusualReader
from benchmarks.admin_lists import served_by, worked_ms
from gateway.clock import SystemClock
from gateway.store.engine import Database, open_database
from gateway.store.identity.key_names import KeyNames
from gateway.store.migrate import migrate
from gateway.store.schema.rollup import (
    COUNTERS,
    traffic_day_totals,
    traffic_days,
    traffic_key_days,
)
from gateway.store.traffic.figures import TrafficFigures


DAYS: Final = 84
KEYS: Final = 10_000
ASKING: Final = 5_950
READERS: Final = 3
BATCH: Final = 5_000
TODAY: Final = date(2026, 11, 22)
ASKED: Final = {"today and yesterday": 2, "a month": 30}


def rows() -> Iterator[dict[str, Any]]:
    """The sums of each day and key; one in a hundred is unusually dear."""
    draw = random.Random(5)
    for back in range(DAYS):
        day = str(TODAY - timedelta(days=back))
        for key in draw.sample(range(KEYS), ASKING):
            is_dear = draw.random() < 0.01
            cost = draw.randrange(3_000_000, 40_000_000) if is_dear else draw.randrange(3_000_000)
            place = {"workspace": f"team{key % 20}", "project": f"p{key % 12}", "key_id": f"k{key}"}
            served = {"target": draw.choice(["house", "claude"]), "provider": "engine"}
            yield {
                "organisation": "acme",
                "day": day,
                **place,
                **served,
                "jurisdiction": "us",
                "policy_digest": "",
                **dict.fromkeys(COUNTERS, 5),
                "cost_microusd": cost,
                "last_us": back,
            }


def together(table: Table, every: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same rows, grouped as a table groups them."""
    names = [column.name for column in table.primary_key]
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in every:
        group = tuple(row[name] for name in names)
        known = found.get(group)
        if known is None:
            found[group] = {name: row[name] for name in (*names, *COUNTERS, "last_us")}
            continue
        for name in COUNTERS:
            known[name] += row[name]
        known["last_us"] = max(known["last_us"], row["last_us"])
    return [*found.values()]


async def fill(database: Database) -> None:
    """All three tables of days, with the statistics that a running installation has."""
    every = [*rows()]
    for table in (traffic_days, traffic_day_totals, traffic_key_days):
        own = together(table, every)
        print(f"{table.name}: {len(own):,} rows")
        for first in range(0, len(own), BATCH):
            async with database.writing() as connection:
                await connection.execute(insert(table), own[first : first + BATCH])
    async with database.engine.connect() as connection:
        apart = await connection.execution_options(isolation_level="AUTOCOMMIT")
        await apart.execute(text("ANALYZE"))


async def measured(database: Database) -> dict[str, list[float]]:
    """Processor milliseconds of each query, for each reader."""
    services: Any = SimpleNamespace(
        clock=SystemClock(), figures=TrafficFigures(database), key_names=KeyNames(database)
    )
    found: dict[str, list[float]] = {}
    for _ in range(READERS):
        reader = UnusualReader(services)
        for name, days in ASKED.items():
            for time in ("first", "again"):
                pids = await served_by(database)
                before, _ = worked_ms(pids)
                since = TODAY - timedelta(days=days - 1)
                await reader.found("acme", since, TODAY, ZoneInfo("UTC"))
                found.setdefault(f"{name}, {time}", []).append(worked_ms(pids)[0] - before)
    return found


async def main(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = options.database or f"sqlite+aiosqlite:///{Path(folder)}/days.db"
        await migrate(url)
        database = open_database(url)
        await fill(database)
        for name, times in (await measured(database)).items():
            print(f"{database.kind} {name:30} {statistics.median(times):5.0f} ms")
        await database.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", default="")
    asyncio.run(main(parser.parse_args()))
