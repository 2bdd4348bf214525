"""`gatewright audit erase` and `audit erasure …`: one person asks, another agrees, it is gone."""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import click
import msgspec
from msgspec import structs

from gateway.cli.audit.custody import (
    kept,
    opened_custody,
    organisation_option,
    require_known,
    subject_of,
    user_option,
)
from gateway.cli.deeds import actor
from gateway.cli.groups import Commands
from gateway.cli.opening import opened_database
from gateway.cli.options import SAID, asynchronous, config_option
from gateway.cli.orderly import orderly
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.secrets.credentials import master_key
from gateway.store.batching.vendor_copies import VendorCopies
from gateway.store.erasure.cases import LAWS, ErasureCase, ErasureCaseReader
from gateway.store.erasure.certificates import certified, told_of
from gateway.store.erasure.erasing import Erasures
from gateway.store.erasure.kept_holdings import Holdings
from gateway.store.erasure.reach import ErasureReach
from gateway.store.evidence.integration import Integration


comment_option = click.option(
    "--comment", type=SAID, required=True, help="It stands in the record."
)


@asynccontextmanager
async def opened_erasures(
    settings: Settings, organisation: str | None = None
) -> AsyncIterator[Erasures]:
    """What carries out erasures, for one command; a given `organisation` must exist."""
    clock, master = SystemClock(), master_key(settings)
    async with opened_custody(settings) as (custody, database):
        if organisation is not None:
            await require_known(settings, database, organisation)
        parts = Integration(settings, database, clock, master)
        yield Erasures(settings, database, custody, parts, master, clock)


@click.command()
@config_option
@organisation_option
@user_option
@click.option("--ticket", type=SAID, required=True)
@click.option(
    "--law",
    type=click.Choice(sorted(LAWS)),
    default="gdpr",
    show_default=True,
    help="What the case rests on: it sets the clock.",
)
@click.option("--yes", is_flag=True, help="Ask for it; without this it only says what would go.")
@asynchronous
async def erase(
    config_file: Path, organisation: str, reference: str | None, ticket: str, law: str, *, yes: bool
) -> None:
    """Ask that an end user's, or an organisation's, content be destroyed for good.

    Prints the id of the case. Nothing is destroyed until a second person agrees to it, here or in
    the browser.
    """
    settings = load_settings(config_file)
    async with opened_erasures(settings, organisation) as erasures:
        subject = subject_of(settings, organisation, reference)
        await erasures.require_no_hold(organisation, subject)
        told = await erasures.consequences(organisation, subject)
        click.echo(in_words(told.kept))
        click.echo(f"{told.keys} keys would be destroyed")
        if told.unreadable:
            click.echo(_untold(told.unreadable))
        if told.elsewhere:
            click.echo(_elsewhere(told.elsewhere))
        if not yes:
            click.echo("nothing was done without --yes")
            return
        case = await erasures.cases.open(actor(), organisation, subject or "", law, ticket)
        await erasures.ask(actor(), case)
    click.echo("a second person must agree: gatewright audit erasure approve CASE --comment WHY")
    click.echo(case.id)


@click.group(cls=Commands)
def erasure() -> None:
    """Erasure cases: what somebody asked for, and a second person decides."""


@erasure.command("list")
@config_option
@organisation_option
@asynchronous
async def erasure_list(config_file: Path, organisation: str) -> None:
    """Print an organisation's cases as JSON lines, the most urgent first, without certificates."""
    settings = load_settings(config_file)
    async with kept(settings) as database:
        await require_known(settings, database, organisation)
        for each in await ErasureCaseReader(database, SystemClock()).of(organisation):
            shown = structs.replace(each, certificate="", awaited="")
            click.echo(msgspec.json.encode(shown).decode())


@erasure.command("show")
@config_option
@click.argument("case_id")
@asynchronous
async def erasure_show(config_file: Path, case_id: str) -> None:
    """Print how far a case has come: its certificate as it stands now, as one JSON line.

    Ends with 1 while an audit folder is outstanding, or something is still arriving.
    """
    settings, clock = load_settings(config_file), SystemClock()
    async with kept(settings) as database:
        case = await ErasureCaseReader(database, clock).found(case_id)
        reach = (await ErasureReach(database, clock).of([case])).get(case.id)
    if reach is None:
        click.echo(msgspec.json.encode(case).decode())
        return
    click.echo(certified(case, reach).decode())
    for each in reach.outstanding:
        click.echo(f"outstanding: {each.said}", err=True)
    told = told_of(case, reach)
    if arriving := told.get("kept_arriving"):
        click.echo(f"outstanding: {_still(len(arriving))}", err=True)
    if not told.get("complete", reach.is_complete):
        sys.exit(1)


@erasure.command("approve")
@config_option
@click.argument("case_id")
@comment_option
@orderly
@asynchronous
async def erasure_approve(config_file: Path, case_id: str, comment: str) -> None:
    """Agree to what another person asked for: its content is destroyed now, and for good."""
    async with opened_erasures(load_settings(config_file)) as erasures:
        case = await erasures.cases.found(case_id)
        done: ErasureCase = await erasures.approve(actor(), case, comment)
        reach = (await erasures.reach.of([done]))[done.id]
    click.echo(f"{done.keys} keys destroyed")
    said = told_of(done, reach)
    if said["records_unreadable"]:
        click.echo(_untold(said["records_unreadable"]))
    for each in reach.outstanding:
        click.echo(f"outstanding: {each.said}")
    if arriving := said.get("kept_arriving"):
        click.echo(f"outstanding: {_still(len(arriving))}")
    if reach.outstanding or arriving:
        click.echo(f"`gatewright audit erasure show {done.id}` says how far it has come")
    if done.copies:
        click.echo("`gatewright audit copies` says what has become of vendors' copies")


@erasure.command("decline")
@config_option
@click.argument("case_id")
@comment_option
@asynchronous
async def erasure_decline(config_file: Path, case_id: str, comment: str) -> None:
    """Leave undone what another person asked for; the case stays open."""
    async with opened_erasures(load_settings(config_file)) as erasures:
        case = await erasures.cases.found(case_id)
        await erasures.cases.decline(actor(), case, comment)
    click.echo("declined; the case stays open")


@click.command("copies")
@config_option
@organisation_option
@asynchronous
async def vendor_copies(config_file: Path, organisation: str) -> None:
    """Print what vendors hold, or held, of erased lines as JSON lines, and what became of it."""
    settings = load_settings(config_file)
    async with opened_database(settings, organisation) as database:
        for each in await VendorCopies(database, SystemClock()).of_organisation(organisation):
            click.echo(msgspec.json.encode(each).decode())


def _still(arriving: int) -> str:
    """What waits for files and batches that are still arriving."""
    what = "a file or batch is" if arriving == 1 else f"{arriving} files or batches are"
    return f"{what} still arriving; what of it is theirs is erased once all of it is there"


def _untold(unreadable: int) -> str:
    return (
        f"{unreadable} records of these days are damaged or gone: whether these keys open their"
        " content nobody can tell"
    )


def _elsewhere(workers: Sequence[str]) -> str:
    named = ", ".join(workers)
    return (
        f"not counted: what {named} recorded, whose keys lie in other audit folders; they are"
        " destroyed there once somebody has agreed"
    )


def in_words(kept: Holdings) -> str:
    """What files, batches and kept answers hold, and how much of it nobody can attribute."""
    found = (
        f"{kept.lines} lines in {kept.batches} batches, {kept.file_lines} lines in {kept.files}"
        f" files, {kept.answers - kept.conversations} kept answers,"
        f" {kept.conversations} conversations"
    )
    if not kept.is_whole:
        found += ", or more: not every file was read for this"
    if kept.at_vendors:
        found += f"; {kept.at_vendors} batches at vendors, which are told to delete them"
    if kept.unnamed:
        found += f"; {kept.unnamed} lines and answers name no end user and stay until they expire"
    return found


ERASING = (erase, erasure, vendor_copies)
