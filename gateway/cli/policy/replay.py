"""`gatewright policy replay`: what a draft would have done to recorded traffic."""

import re
from pathlib import Path

import click

from gateway.assembly.configured_policy import load_policy
from gateway.cli.opening import opened_database
from gateway.cli.options import LEVEL, Refused, asynchronous, config_option
from gateway.cli.policy.rollout import load_file
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.errors import RequestInvalid
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.traffic.rehearsal import Rehearser
from policies.render import render_impact


_SINCE = re.compile(r"(\d{1,5})([smhd])")
_UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


@click.command()
@click.argument("draft", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@config_option
@click.option("--since", default="7d", show_default=True, help="How far back: 90m, 24h, 7d.")
@click.option(
    "--level",
    type=LEVEL,
    help="Only what this level governs, with the draft in its place among the other levels.",
)
@asynchronous
async def replay(draft: Path, config_file: Path, since: str, level: str | None) -> None:
    """Decide recorded requests again: first as recorded, then under the draft."""
    document = load_file(draft)
    settings, clock = load_settings(config_file), SystemClock()
    try:
        async with opened_database(settings) as database:
            sink = DatabaseAuditSink(database, settings.path(settings.audit.directory))
            rehearser = Rehearser(database, sink, clock, load_policy(settings))
            since_us = clock.utc_us() - seconds(since) * 1_000_000
            found = await rehearser.rehearse(document, since_us, level=level)
    except RequestInvalid as error:
        raise Refused(error.message) from error
    click.echo(render_impact(found.impact, found.again))
    click.echo(f"{found.decisions_per_s:,.0f} decisions a second")


def seconds(since: str) -> int:
    """Seconds of a duration such as `7d`."""
    parsed = _SINCE.fullmatch(since)
    if parsed is None:
        raise Refused("--since is up to five digits and s, m, h or d, such as 7d")
    return int(parsed[1]) * _UNIT_S[parsed[2]]
