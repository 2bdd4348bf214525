"""`gatewright audit …`, what needs a second person or cannot be undone: holds, reveals, erasure."""

import asyncio
import json
import os
import pwd
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import click
import msgspec

from gateway.audit.device import AuditLimits
from gateway.audit.disk import Disk
from gateway.audit.erasure import destroy_keys, matching_keys
from gateway.audit.export import export_records
from gateway.audit.projector import Projector
from gateway.audit.writer import SegmentedAuditLog
from gateway.budgets import end_user_subject
from gateway.cli.options import Refused, asynchronous, config_option
from gateway.clock import SystemClock
from gateway.credentials import master_key, pepper
from gateway.errors import StartupRefused
from gateway.identity import Peppers
from gateway.settings import Settings, load_settings
from gateway.store.audit_sink import AuditQuery, DatabaseAuditSink
from gateway.store.custody import Custody, CustodyRefused
from gateway.store.engine import Database, open_database
from gateway.store.schema import require_newest_schema
from gateway.store.second_rows import SecondContents


WEEK_US = 7 * 86_400_000_000
_TRIES, _PAUSE_S = 50, 0.1

organisation_option = click.option("--organisation", required=True)


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[tuple[Custody, Database]]:
    """Custody with segments of the command line's own, for the length of one command."""
    clock = SystemClock()
    database = open_database(settings.database_url)
    try:
        await require_newest_schema(database)
        log = await _started_log(settings)
        try:
            yield Custody(database, log, clock), database
        finally:
            await log.close()
    except CustodyRefused as error:
        raise Refused(str(error)) from error
    finally:
        await database.close()


async def _started_log(settings: Settings) -> SegmentedAuditLog:
    for left in reversed(range(_TRIES)):
        log = SegmentedAuditLog(
            settings.path(settings.audit.directory),
            f"{settings.audit.worker}-operators",
            keys=master_key(settings),
            clock=SystemClock(),
            limits=AuditLimits(free_floor_bytes=settings.audit.free_bytes_min),
        )
        try:
            await log.start()
        except StartupRefused:
            # Another command is writing; commands are short.
            if not left:
                raise
            await asyncio.sleep(_PAUSE_S)
        else:
            return log
    raise AssertionError


def _actor() -> str:
    """The user of this machine who types the command, as the system knows it."""
    return f"os:{pwd.getpwuid(os.getuid()).pw_name}"


def _subject(settings: Settings, organisation: str, reference: str | None) -> str | None:
    if reference is None:
        return None
    peppers = Peppers({settings.secrets.pepper_version: pepper(settings)})
    return end_user_subject(organisation, reference, peppers.keyed)


user_option = click.option(
    "--user", "reference", help="The end user, as requests name it; default: the organisation."
)


@click.group()
def hold() -> None:
    """Legal holds: content that must not be erased."""


@hold.command("set")
@config_option
@organisation_option
@user_option
@click.option("--reason", required=True)
@asynchronous
async def hold_set(
    config_file: Path, organisation: str, reference: str | None, reason: str
) -> None:
    """Forbid the erasure of an organisation's or an end user's content."""
    settings = load_settings(config_file)
    async with _opened(settings) as (custody, _):
        subject = _subject(settings, organisation, reference) or ""
        click.echo((await custody.set_hold(_actor(), organisation, subject, reason)).id)


@hold.command("release")
@config_option
@click.argument("hold_id")
@asynchronous
async def hold_release(config_file: Path, hold_id: str) -> None:
    """Ask for the release of a hold; it is released when a second person does the same."""
    async with _opened(load_settings(config_file)) as (custody, _):
        is_released = await custody.release_hold(_actor(), hold_id)
    click.echo("released" if is_released else "a second person must release it too")


@hold.command("list")
@config_option
@asynchronous
async def hold_list(config_file: Path) -> None:
    """Print the holds in force as JSON lines."""
    async with _opened(load_settings(config_file)) as (custody, _):
        for each in await custody.holds():
            click.echo(msgspec.json.encode(each).decode())


@click.group()
def reveal() -> None:
    """Break-glass access to content: asked for by one person, approved by another, for a while."""


@reveal.command("ask")
@config_option
@organisation_option
@click.option("--request-id", default="", help="Only this request.")
@click.option("--reason", required=True)
@click.option("--ticket", required=True)
@click.option("--minutes", type=int, default=30, show_default=True)
@asynchronous
async def reveal_ask(
    config_file: Path, organisation: str, request_id: str, reason: str, ticket: str, minutes: int
) -> None:
    """Ask to read content; prints the id that the second person approves."""
    async with _opened(load_settings(config_file)) as (custody, _):
        asked = await custody.ask_reveal(
            _actor(), organisation, request_id, reason=reason, ticket=ticket, minutes=minutes
        )
    click.echo(asked.id)


@reveal.command("approve")
@config_option
@click.argument("reveal_id")
@asynchronous
async def reveal_approve(config_file: Path, reveal_id: str) -> None:
    """Approve what another person asked for; its time begins now."""
    async with _opened(load_settings(config_file)) as (custody, _):
        approved = await custody.approve_reveal(_actor(), reveal_id)
    click.echo(f"open for {approved.minutes} minutes")


@reveal.command("show")
@config_option
@click.argument("reveal_id")
@asynchronous
async def reveal_show(config_file: Path, reveal_id: str) -> None:
    """Print the records of an approved reveal with their content, as JSON lines."""
    settings = load_settings(config_file)
    directory = settings.path(settings.audit.directory)
    async with _opened(settings) as (custody, database):
        used = await custody.use_reveal(_actor(), reveal_id)
        sink = DatabaseAuditSink(database, directory)
        await Projector(directory, sink).catch_up()
        query = AuditQuery(organisation=used.organisation, request_id=used.request_id or None)
        async for line in export_records(
            sink.records(query),
            directory=directory,
            keys=master_key(settings),
            second=SecondContents(database),
        ):
            click.echo(json.dumps(line, ensure_ascii=True))


@reveal.command("report")
@config_option
@asynchronous
async def reveal_report(config_file: Path) -> None:
    """Print the reveals of the last seven days as JSON lines: who, why, approved by whom, used."""
    async with _opened(load_settings(config_file)) as (custody, _):
        for each in await custody.reveals(SystemClock().utc_us() - WEEK_US):
            click.echo(msgspec.json.encode(each).decode())


@click.command()
@config_option
@organisation_option
@user_option
@click.option("--ticket", required=True)
@click.option("--yes", is_flag=True, help="Do it; without this it only says what it would do.")
@asynchronous
async def erase(
    config_file: Path, organisation: str, reference: str | None, ticket: str, *, yes: bool
) -> None:
    """Destroy the keys of an end user's, or an organisation's, content, for good."""
    settings = load_settings(config_file)
    directory = settings.path(settings.audit.directory)
    async with _opened(settings) as (custody, database):
        subject = _subject(settings, organisation, reference)
        await custody.require_no_hold(organisation, subject)
        second = SecondContents(database)
        keys = await asyncio.to_thread(matching_keys, directory, organisation, subject)
        keys += await second.matching_keys(organisation, subject)
        if not yes:
            click.echo(f"{len(keys)} keys would be destroyed; nothing was done without --yes")
            return
        detail = {"ticket": ticket, "subject": subject or "", "keys": str(len(keys))}
        await custody.record(_actor(), "content.erased", organisation, **detail)
        folder = settings.path(settings.audit.checkpoint_directory)
        now_us = SystemClock().utc_us()
        await asyncio.to_thread(destroy_keys, directory, folder, keys, now_us, Disk())
        await second.destroy([line.key for line in keys])
    click.echo(f"{len(keys)} keys destroyed")


CUSTODY = (hold, reveal, erase)
