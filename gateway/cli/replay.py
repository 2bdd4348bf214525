"""`gatewright policy replay`: what a draft would have done to recorded traffic."""

import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import click

from gateway.cli.options import Refused, asynchronous, config_option
from gateway.cli.rollout import load_file
from gateway.clock import SystemClock
from gateway.routing import decision_digest
from gateway.settings import load_settings
from gateway.store.archive import DecisionArchive
from gateway.store.audit_sink import DatabaseAuditSink
from gateway.store.engine import open_database
from gateway.store.leases import LeaseTable
from gateway.store.policies import PolicyStore
from gateway.store.schema import require_newest_schema
from policies.render import render_impact
from policies.replay import Recorded, impact, reproduce


_SINCE = re.compile(r"(\d{1,5})([smhd])")
_UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
REQUESTS_MAX = 2_000_000


@click.command()
@click.argument("draft", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@config_option
@click.option("--since", default="7d", show_default=True, help="How far back: 90m, 24h, 7d.")
@asynchronous
async def replay(draft: Path, config_file: Path, since: str) -> None:
    """Decide recorded requests again: first as recorded, then under the draft."""
    document = load_file(draft)
    settings, clock = load_settings(config_file), SystemClock()
    database = open_database(settings.database_url)
    try:
        await require_newest_schema(database)
        store = PolicyStore(database, clock)
        sink = DatabaseAuditSink(database, settings.path(settings.audit.directory))
        archive = DecisionArchive(sink, store)
        since_us = clock.utc_us() - seconds(since) * 1_000_000
        recorded = [each async for each in _bounded(archive.recorded(since_us))]
        known = {
            digest: await store.document(digest)
            for digest in {each.document_digest for each in recorded}
        }
        budgets = await LeaseTable(database, clock).budgets()
    finally:
        await database.close()
    limits: dict[str, int] = {}
    for each in budgets:
        # Several windows of one account: what is replayed is held against the narrowest.
        account, limit = each.limit.account, each.limit.limit_microusd
        limits[account] = min(limits.get(account, limit), limit)
    again = reproduce(recorded, known.get, decision_digest)
    began_s = time.process_time()
    found = impact(document, recorded, limits)
    took_s = max(time.process_time() - began_s, 1e-9)
    click.echo(render_impact(found, again))
    click.echo(f"{found.requests / took_s:,.0f} decisions a second")


async def _bounded(recorded: AsyncIterator[Recorded]) -> AsyncIterator[Recorded]:
    count = 0
    async for each in recorded:
        count += 1
        if count > REQUESTS_MAX:
            raise Refused(f"more than {REQUESTS_MAX} requests; choose a shorter --since")
        yield each


def seconds(since: str) -> int:
    """Seconds of a duration such as `7d`."""
    parsed = _SINCE.fullmatch(since)
    if parsed is None:
        raise Refused("--since is a number with s, m, h or d, such as 7d")
    return int(parsed[1]) * _UNIT_S[parsed[2]]
