"""`gatewright audit …`: legal holds and reveals, which need a second person."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import click
import msgspec

from gateway.audit.projecting.export import export_records
from gateway.audit.projecting.projector import ProjectionBroken
from gateway.cli.brief_log import BriefLog
from gateway.cli.damage import catch_up, end_if_damaged
from gateway.cli.deeds import actor, opened_log
from gateway.cli.groups import Commands
from gateway.cli.known import require_organisation
from gateway.cli.opening import opened_database
from gateway.cli.options import SAID, Refused, asynchronous, config_option
from gateway.clock import WEEK_US, SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.identity import Peppers
from gateway.money.budgets import end_user_subject
from gateway.oversight.deeds import OPERATORS
from gateway.secrets.credentials import all_peppers, master_key
from gateway.store.custody.orders import (
    Custody,
    CustodyChanged,
    CustodyReader,
    CustodyRefused,
    is_known,
)
from gateway.store.engine import Database
from gateway.store.erasure.folder_erasures import FolderErasures
from gateway.store.evidence.integration import Integration
from gateway.store.evidence.recovery import projector_for
from gateway.store.evidence.second_rows import SecondContents
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink


SHOWN_AT_ONCE = 50

organisation_option = click.option("--organisation", required=True)


@asynccontextmanager
async def opened_custody(settings: Settings) -> AsyncIterator[tuple[Custody, Database]]:
    """Custody with the command line's own segments, for the length of one command."""
    async with kept(settings) as database, opened_log(settings) as log:
        yield Custody(database, log, SystemClock()), database


@asynccontextmanager
async def kept(settings: Settings) -> AsyncIterator[Database]:
    """The database alone: reading it needs no key, and writes no log."""
    try:
        async with opened_database(settings) as database:
            yield database
    except CustodyRefused as error:
        raise Refused(str(error)) from error


def subject_of(settings: Settings, organisation: str, reference: str | None) -> str | None:
    if reference is None:
        return None
    peppers = Peppers(all_peppers(settings), settings.secrets.pepper_version)
    return end_user_subject(organisation, reference, peppers.keyed)


async def require_known(settings: Settings, database: Database, organisation: str) -> None:
    """Refuse an unknown name, even if its first records are not numbered yet."""
    if organisation != OPERATORS and not await is_known(database, organisation):
        directory = settings.path(settings.audit.directory)
        with suppress(ProjectionBroken, OSError):
            sink = DatabaseAuditSink(database, directory)
            await projector_for(settings, database, sink, SystemClock()).catch_up()
        await require_organisation(database, organisation)


def folder_erasures(settings: Settings, database: Database, log: BriefLog) -> FolderErasures:
    """Carries out here, for one command, what was approved anywhere."""
    clock, keys = SystemClock(), master_key(settings)
    parts = Integration(settings, database, clock, keys)
    return FolderErasures(settings, parts, keys, log, clock, worker=log.worker)


user_option = click.option(
    "--user", "reference", help="The end user, as requests name it; default: the organisation."
)


@click.group(cls=Commands)
def hold() -> None:
    """Legal holds: content that must not be erased."""


@hold.command("set")
@config_option
@organisation_option
@user_option
@click.option("--reason", type=SAID, required=True)
@asynchronous
async def hold_set(
    config_file: Path, organisation: str, reference: str | None, reason: str
) -> None:
    """Forbid the erasure of an organisation's or an end user's content."""
    settings = load_settings(config_file)
    async with opened_custody(settings) as (custody, database):
        await require_known(settings, database, organisation)
        subject = subject_of(settings, organisation, reference) or ""
        click.echo((await custody.set_hold(actor(), organisation, subject, reason)).id)


@hold.command("release")
@config_option
@click.argument("hold_id")
@click.option("--asked-by", default="", help="Agree with this person, who asked for it.")
@asynchronous
async def hold_release(config_file: Path, hold_id: str, asked_by: str) -> None:
    """Ask for the release of a hold, or agree with who asked: then it is released.

    Of two who each only want to ask, the second does not release it: whoever agrees says with whom.
    """
    async with opened_custody(load_settings(config_file)) as (custody, _):
        try:
            is_released = await custody.release_hold(actor(), hold_id, asked_by)
        except CustodyChanged as error:
            said = "look at `gatewright audit hold list`, and agree with --asked-by WHO"
            raise Refused(f"{error}: {said}") from error
    click.echo("released" if is_released else "a second person must release it too")


@hold.command("list")
@config_option
@asynchronous
async def hold_list(config_file: Path) -> None:
    """Print the holds in force as JSON lines."""
    async with kept(load_settings(config_file)) as database:
        found = await CustodyReader(database).holds()
    for each in found:
        click.echo(msgspec.json.encode(each).decode())


@click.group(cls=Commands)
def reveal() -> None:
    """Break-glass access to content: asked for by one person, approved by another, for a while."""


@reveal.command("ask")
@config_option
@organisation_option
@click.option("--request-id", default="", help="Only this request.")
@click.option("--reason", type=SAID, required=True)
@click.option("--ticket", type=SAID, required=True)
@click.option("--minutes", type=int, default=30, show_default=True)
@asynchronous
async def reveal_ask(
    config_file: Path, organisation: str, request_id: str, reason: str, ticket: str, minutes: int
) -> None:
    """Ask to read content; prints the id that the second person approves."""
    settings = load_settings(config_file)
    async with opened_custody(settings) as (custody, database):
        await require_known(settings, database, organisation)
        if request_id.strip():
            await _require_request(settings, database, organisation, request_id.strip())
        asked = await custody.ask_reveal(
            actor(), organisation, request_id, reason=reason, ticket=ticket, minutes=minutes
        )
    click.echo(asked.id)


async def _require_request(
    settings: Settings, database: Database, organisation: str, request_id: str
) -> None:
    """Refuse an id without a record in the organisation: it would be approved and show nothing.

    A damaged log may have had such a record.
    """
    sink = DatabaseAuditSink(database, settings.path(settings.audit.directory))
    query = AuditQuery(organisation=organisation, request_id=request_id)
    if await sink.newest(query, 1):
        return
    damage = await catch_up(projector_for(settings, database, sink, SystemClock()))
    if not damage and not await sink.newest(query, 1):
        raise Refused(f"there is no request {request_id} of {organisation}")


@reveal.command("approve")
@config_option
@click.argument("reveal_id")
@asynchronous
async def reveal_approve(config_file: Path, reveal_id: str) -> None:
    """Approve what another person asked for; its time begins now."""
    async with opened_custody(load_settings(config_file)) as (custody, _):
        approved = await custody.approve_reveal(actor(), reveal_id)
    click.echo(f"open for {approved.minutes} minutes")


@reveal.command("show")
@config_option
@click.argument("reveal_id")
@asynchronous
async def reveal_show(config_file: Path, reveal_id: str) -> None:
    """Print the records of an approved reveal with their content, as JSON lines."""
    settings = load_settings(config_file)
    directory = settings.path(settings.audit.directory)
    async with kept(settings) as database:
        # The log is released before anything is printed, so that other commands need not wait for a
        # slow reader.
        async with opened_log(settings) as log:
            custody = Custody(database, log, SystemClock())
            used = await custody.use_reveal(actor(), reveal_id)
            await folder_erasures(settings, database, log).require_done(used.organisation)
        sink = DatabaseAuditSink(database, directory)
        damage = await catch_up(projector_for(settings, database, sink, SystemClock()))
        query = AuditQuery(organisation=used.organisation, request_id=used.request_id or None)
        lines = export_records(
            sink.records(query),
            directory=directory,
            keys=master_key(settings),
            second=SecondContents(database),
        )
        shown = 0
        async for line in lines:
            shown += 1
            if not shown % SHOWN_AT_ONCE:
                # It may have been ended, or have expired, since the first line.
                await custody.require_open(actor(), reveal_id)
            damage = "not all records could be read" if "record_error" in line else damage
            click.echo(json.dumps(line, ensure_ascii=True))
    end_if_damaged(damage)


@reveal.command("report")
@config_option
@asynchronous
async def reveal_report(config_file: Path) -> None:
    """Print reveals asked for or approved in the last seven days, as JSON lines: who, why, used."""
    async with kept(load_settings(config_file)) as database:
        found = await CustodyReader(database).reveals(SystemClock().utc_us() - WEEK_US)
    for each in found:
        click.echo(msgspec.json.encode(each).decode())


CUSTODY = (hold, reveal)
