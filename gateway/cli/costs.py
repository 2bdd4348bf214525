"""`gatewright costs …`: what was spent and by whom, what routing saved, and a forecast."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import click

from gateway.cli.groups import Commands
from gateway.cli.opening import opened_database
from gateway.cli.options import Refused, asynchronous, config_option
from gateway.clock import SECOND_US, SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.errors import RequestInvalid
from gateway.money import costs as arithmetic
from gateway.oversight.homes import homes_of
from gateway.store.money.dimensions import DIMENSIONS, read_only
from gateway.store.money.price_files import PriceFiles
from gateway.store.money.spending import Period, SpendingReader
from gateway.worker.pricing import configured_targets


_LAST_DAY = date.max - timedelta(days=1)
"""Its next day has to be a date in every zone; people write 9999-12-31 for no end."""
organisation_option = click.option("--organisation", default=None, help="Of one organisation only.")
since_option = click.option(
    "--since", type=click.DateTime(["%Y-%m-%d"]), help="First day; default the first of the month."
)
until_option = click.option(
    "--until", type=click.DateTime(["%Y-%m-%d"]), help="Last day; default today."
)
currency_option = click.option("--currency", default="USD", help="One of `currencies`, or USD.")
by_option = click.option(
    "--by", multiple=True, type=click.Choice(DIMENSIONS), help="A dimension; repeatable."
)
only_option = click.option(
    "--only", multiple=True, help="DIMENSION=VALUE that has to hold; repeatable."
)


@asynccontextmanager
async def opened_spending(
    config_file: Path, organisation: str | None
) -> AsyncIterator[tuple[Settings, SpendingReader]]:
    """The recorded spending of one organisation or all, for the length of one command."""
    settings = load_settings(config_file)
    async with opened_database(settings, organisation) as database:
        yield settings, SpendingReader(database, homes_of(settings.providers))


@click.group(cls=Commands)
def costs() -> None:
    """Costs, from the recorded outcomes; days are those of the organisation's time zone."""


@costs.command()
@config_option
@by_option
@only_option
@organisation_option
@since_option
@until_option
@currency_option
@asynchronous
async def report(
    config_file: Path,
    by: tuple[str, ...],
    only: tuple[str, ...],
    organisation: str | None,
    since: datetime | None,
    until: datetime | None,
    currency: str,
) -> None:
    """Requests, tokens and cost per group as JSON lines, dearest first."""
    by = by or ("organisation",)
    async with opened_spending(config_file, organisation) as (settings, reader):
        _shown(0, currency, settings)  # A misspelt one is refused even if nothing was spent.
        days = await _days(reader, organisation, since, until)
        rows = await reader.totals(_period(days, organisation), by, read_only(only))
        costs = [row.cost_microusd for row in rows]
        said = arithmetic.shown_together(costs, currency, settings.currencies)
        for row, cost in zip(rows, said, strict=True):
            line = dict(zip(by, row.group, strict=True)) | {
                "requests": row.requests,
                "input_tokens": row.input_tokens,
                "output_tokens": row.output_tokens,
                "cost_microusd": row.cost_microusd,
                "cost": cost,
                "since": str(days.since),
                "until": str(days.until),
                "time_zone": days.time_zone,
            }
            click.echo(json.dumps(line))


@costs.command()
@config_option
@by_option
@only_option
@organisation_option
@since_option
@until_option
@currency_option
@asynchronous
async def export(
    config_file: Path,
    by: tuple[str, ...],
    only: tuple[str, ...],
    organisation: str | None,
    since: datetime | None,
    until: datetime | None,
    currency: str,
) -> None:
    """Chargeback as CSV: a line per project, or per group of `--by`."""
    by = by or ("organisation", "workspace", "project")
    async with opened_spending(config_file, organisation) as (settings, reader):
        _shown(0, currency, settings)
        days = await _days(reader, organisation, since, until)
        rows = await reader.totals(_period(days, organisation), by, read_only(only))
        text = arithmetic.chargeback(rows, by, currency, settings.currencies, days)
        sys.stdout.write(text)


@costs.command()
@config_option
@click.option("--baseline", default=None, help="A target; default the dearest frontier target.")
@organisation_option
@since_option
@until_option
@asynchronous
async def savings(
    config_file: Path,
    baseline: str | None,
    organisation: str | None,
    since: datetime | None,
    until: datetime | None,
) -> None:
    """What routing saved against sending everything to one target, with the method."""
    settings = load_settings(config_file)
    async with opened_database(settings, organisation) as database:
        reader = SpendingReader(database, homes_of(settings.providers))
        prices = await PriceFiles(database, SystemClock()).in_force(settings)
        targets = {target.name: target for target in configured_targets(settings, prices)}
        if baseline is not None and baseline not in targets:
            raise Refused(f"there is no target {baseline!r}")
        against = targets[baseline] if baseline else arithmetic.dearest(targets.values())
        days = await _days(reader, organisation, since, until)
        period = _period(days, organisation)
        found = arithmetic.savings(
            await reader.totals(period, ["target"]), targets.values(), against
        )
    line = {
        "cost_microusd": found.cost_microusd,
        "baseline_microusd": found.baseline_microusd,
        "saved_microusd": found.saved_microusd,
        "saved_percent": round(found.saved_percent, 2),
        "method": found.method,
    }
    click.echo(json.dumps(line))


@costs.command()
@config_option
@organisation_option
@currency_option
@asynchronous
async def forecast(config_file: Path, organisation: str | None, currency: str) -> None:
    """What this month will have cost at its end, with the method."""
    async with opened_spending(config_file, organisation) as (settings, reader):
        zone = ZoneInfo(await reader.zone_of(organisation))
        today = _today(zone)
        first = today - timedelta(days=62)
        days = await reader.by_day(
            Period(_midnight(first, zone), _midnight(today + timedelta(days=1), zone), organisation)
        )
    found = arithmetic.forecast(days, today)
    line = {
        "spent_microusd": found.spent_microusd,
        "expected_microusd": found.expected_microusd,
        "expected": _shown(found.expected_microusd, currency, settings),
        "days_left": found.days_left,
        "method": found.method,
    }
    click.echo(json.dumps(line))


@costs.command()
@config_option
@click.option("--end-users", is_flag=True, help="Those of single end users too.")
@asynchronous
async def reconcile(config_file: Path, end_users: bool) -> None:
    """Compare each budget with the outcomes charged to it; ends with 1 where they differ.

    While workers run, what they hold explains a difference; a crashed worker's slice counts as
    spent although no outcome says so. What was let through before its worker heard of a limit is
    not held against it: each writes down when it did, and one that did not has a minute.
    """
    differs = False
    async with opened_spending(config_file, None) as (_, reader):
        for each in await reader.differences(end_users=end_users):
            differs |= not each.is_explained
            line = {
                "account": each.account,
                "window": each.window,
                "ledger_microusd": each.ledger_microusd,
                "audit_microusd": each.audit_microusd,
                "leased_microusd": each.leased_microusd,
                "unheard_microusd": each.unheard_microusd,
                "difference_microusd": each.difference_microusd,
            }
            click.echo(json.dumps(line))
    if differs:
        sys.exit(1)


def _shown(microusd: int, currency: str, settings: Settings) -> str:
    try:
        return arithmetic.shown(microusd, currency, settings.currencies)
    except RequestInvalid as error:
        raise Refused(f"{currency}: {error.message}") from error


async def _days(
    reader: SpendingReader,
    organisation: str | None,
    since: datetime | None,
    until: datetime | None,
) -> arithmetic.Days:
    zone = ZoneInfo(await reader.zone_of(organisation))
    last = min(until.date() if until else _today(zone), _LAST_DAY)
    first = since.date() if since else _today(zone).replace(day=1)
    if first > last:
        raise Refused(f"--since: {first} is after {last}, the last day")
    return arithmetic.Days(first, last, str(zone))


def _period(days: arithmetic.Days, organisation: str | None) -> Period:
    zone = ZoneInfo(days.time_zone)
    after = days.until + timedelta(days=1)
    return Period(_midnight(days.since, zone), _midnight(after, zone), organisation)


def _today(zone: ZoneInfo) -> date:
    moment = datetime.fromtimestamp(SystemClock().utc_us() // SECOND_US, UTC)
    return moment.astimezone(zone).date()


def _midnight(day: date, zone: ZoneInfo) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=zone).timestamp()) * SECOND_US
