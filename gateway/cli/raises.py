"""`gatewright budgets ask`, `approve` …: larger limits; one person asks, another agrees."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import click
import msgspec

from gateway.actors import same_person
from gateway.cli.accounts import ACCOUNT, LIMIT_MICROUSD_MAX
from gateway.cli.deeds import actor, opened_log, says_it_records
from gateway.cli.opening import opened_database
from gateway.cli.options import SAID, Refused, asynchronous, config_option
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.money.budgets import WINDOWS, WindowKind
from gateway.oversight.deeds import Deeds
from gateway.oversight.homes import homes_of
from gateway.store.engine import Database
from gateway.store.identity.key_names import KeyNames
from gateway.store.money.leases import LeaseTable
from gateway.store.money.raises import BudgetRaise, BudgetRaises, RaiseWish
from gateway.store.money.recorded_raises import RecordedRaises, end_of_day_us
from gateway.store.money.spending import SpendingReader


_SAID_CHARS_MAX: Final = 1_000
_EVERYBODYS: Final = "user:"

organisation_option = click.option("--organisation", required=True)
comment_option = click.option(
    "--comment", type=SAID, required=True, help="It stands in the record."
)


class _Opened(NamedTuple):
    settings: Settings
    database: Database
    raises: BudgetRaises


@asynccontextmanager
async def _opened(config_file: Path, organisation: str) -> AsyncIterator[_Opened]:
    settings = load_settings(config_file)
    async with opened_database(settings, organisation) as database:
        yield _Opened(settings, database, BudgetRaises(database, SystemClock()))


@asynccontextmanager
async def _recorded(opened: _Opened) -> AsyncIterator[RecordedRaises]:
    async with opened_log(opened.settings) as log:
        yield RecordedRaises(opened.raises, Deeds(log, SystemClock()))


@click.command("ask")
@config_option
@organisation_option
@click.argument("account", type=ACCOUNT)
@click.argument("limit_microusd", type=click.IntRange(0, LIMIT_MICROUSD_MAX))
@click.option("--window", type=click.Choice(WINDOWS), default="month", show_default=True)
@click.option(
    "--until",
    default="",
    help="The last day of it, in the organisation's time zone, as 2026-11-30; without it for good.",
)
@click.option("--was", type=click.IntRange(0), help="The limit as you know it.")
@click.option("--reason", type=SAID, required=True, help="It stands in the record.")
@asynchronous
@says_it_records
async def ask_for_more(
    config_file: Path,
    organisation: str,
    account: str,
    limit_microusd: int,
    window: WindowKind,
    until: str,
    was: int | None,
    reason: str,
) -> None:
    """Ask for a larger limit, for good or until a day; somebody else decides.

    Prints the id of what is asked for. Nothing changes until a second person agrees, here or in the
    browser.
    """
    async with _opened(config_file, organisation) as opened:
        await _require_theirs(opened.database, organisation, account)
        seen = await _limit_of(opened.database, account, window)
        if was is not None and was != seen:
            raise Refused(f"--was: the limit is {seen} by now")
        zone = await SpendingReader(opened.database, homes_of(opened.settings.providers)).zone_of(
            organisation
        )
        until_us = end_of_day_us(until.strip(), zone, SystemClock().utc_us())
        wish = RaiseWish(account, window, limit_microusd, until_us, _said("--reason", reason))
        async with _recorded(opened) as raises:
            made = await raises.ask(organisation, wish, actor(), seen_microusd=seen)
    click.echo(
        f"a second person must agree: gatewright budgets approve --organisation {organisation}"
        " ID --comment WHY"
    )
    click.echo(made.id)


@click.command("asked")
@config_option
@organisation_option
@asynchronous
async def list_asked(config_file: Path, organisation: str) -> None:
    """Print what was asked for of an organisation's limits as JSON lines, the newest first."""
    async with _opened(config_file, organisation) as opened:
        first, after = 0, ""
        while True:
            part = await opened.raises.page(organisation, first, after=after)
            for each in part.rows:
                click.echo(msgspec.json.encode(each).decode())
            if not part.following:
                return
            first, after = part.following, part.onward


@click.command("approve")
@config_option
@organisation_option
@click.argument("raise_id", metavar="ID")
@comment_option
@asynchronous
@says_it_records
async def approve_raise(config_file: Path, organisation: str, raise_id: str, comment: str) -> None:
    """Make a limit as large as another person asked for; it holds on every worker in a second."""
    said = _said("--comment", comment)
    async with _opened(config_file, organisation) as opened:
        found = await _anothers(opened.raises, organisation, raise_id)
        async with _recorded(opened) as raises:
            done = await raises.approve(found, actor(), said)
    click.echo(f"{done.account}: {done.wanted_microusd} micro-dollars")


@click.command("decline")
@config_option
@organisation_option
@click.argument("raise_id", metavar="ID")
@comment_option
@asynchronous
@says_it_records
async def decline_raise(config_file: Path, organisation: str, raise_id: str, comment: str) -> None:
    """Leave a limit as it is."""
    said = _said("--comment", comment)
    async with _opened(config_file, organisation) as opened:
        found = await _anothers(opened.raises, organisation, raise_id)
        async with _recorded(opened) as raises:
            await raises.decline(found, actor(), said)
    click.echo("declined; the limit stays as it is")


@click.command("withdraw")
@config_option
@organisation_option
@click.argument("raise_id", metavar="ID")
@asynchronous
@says_it_records
async def withdraw_raise(config_file: Path, organisation: str, raise_id: str) -> None:
    """Take back what you asked for."""
    async with _opened(config_file, organisation) as opened:
        found = await _waiting(opened.raises, organisation, raise_id)
        if not same_person(actor(), found.asked_by):
            raise Refused("only who asked for it takes it back")
        async with _recorded(opened) as raises:
            await raises.withdraw(found, actor())
    click.echo("withdrawn; the limit stays as it is")


async def _require_theirs(database: Database, organisation: str, account: str) -> None:
    """Refuse an account that is not the organisation's, or that nobody can ask more for."""
    kind, _, path = account.partition(":")
    if account.startswith(_EVERYBODYS):
        raise Refused(f"{account}: nobody asks for more for end users")
    if kind == "key":
        theirs = bool(await KeyNames(database).facts(organisation, path))
    else:
        theirs = path.partition("/")[0] == organisation
    if not theirs:
        raise Refused(f"{account} is no account of {organisation}")


async def _limit_of(database: Database, account: str, window: WindowKind) -> int:
    for each in await LeaseTable(database, SystemClock()).budgets_of([account]):
        if each.limit.window == window:
            return each.limit.limit_microusd
    raise Refused(f"{account} has no limit of --window {window} that could be larger")


async def _anothers(raises: BudgetRaises, organisation: str, raise_id: str) -> BudgetRaise:
    found = await _waiting(raises, organisation, raise_id)
    if same_person(actor(), found.asked_by):
        raise Refused("a limit is made larger, or not, by somebody else than who asked for it")
    return found


async def _waiting(raises: BudgetRaises, organisation: str, raise_id: str) -> BudgetRaise:
    found = await raises.one(organisation, raise_id)
    if found is None:
        raise Refused(f"nothing of this id was asked for in {organisation}")
    if found.state != "waiting":
        raise Refused(f"this is {found.state}")
    return found


def _said(option: str, text: str) -> str:
    said = text.strip()
    if len(said) > _SAID_CHARS_MAX:
        raise Refused(f"{option}: at most {_SAID_CHARS_MAX:,} characters")
    return said


RAISES = (ask_for_more, list_asked, approve_raise, decline_raise, withdraw_raise)
