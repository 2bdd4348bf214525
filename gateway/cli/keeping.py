"""`gatewright audit …`, how long content is kept and whose it is: retention and subject search."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click
from msgspec import Struct

from gateway.audit.disk import Disk
from gateway.audit.erasure import destroy_keys, matching_keys
from gateway.audit.export import export_line
from gateway.audit.keys import WrappedKey
from gateway.audit.projector import Projector
from gateway.cli.custody import opened_custody, organisation_option, subject_of
from gateway.cli.deeds import actor, says_it_records
from gateway.cli.options import asynchronous, config_option
from gateway.clock import SystemClock
from gateway.settings import Settings, load_settings
from gateway.store.audit_sink import AuditQuery, DatabaseAuditSink
from gateway.store.audit_tree import DatabaseAuditTrees
from gateway.store.custody import Hold
from gateway.store.engine import Database
from gateway.store.second_rows import SecondContents


_DAY_US = 86_400_000_000


class Expired(Struct, frozen=True):
    """What retention means for one organisation today."""

    organisation: str
    retention_class: str
    days: int
    due: tuple[WrappedKey, ...]
    held: tuple[WrappedKey, ...]
    """Past their time too, but a hold forbids it."""


@click.command("search")
@config_option
@organisation_option
@click.option("--user", "reference", required=True, help="The end user, as requests name it.")
@asynchronous
@says_it_records
async def search_subject(config_file: Path, organisation: str, reference: str) -> None:
    """Print the records of an end user as JSON lines, found by a keyed digest; without content."""
    settings = load_settings(config_file)
    directory = settings.path(settings.audit.directory)
    async with opened_custody(settings) as (custody, database):
        subject = subject_of(settings, organisation, reference)
        sink = DatabaseAuditSink(database, directory)
        await Projector(directory, sink).catch_up()
        lines = [
            json.dumps(export_line(row), ensure_ascii=True)
            async for row in sink.records(AuditQuery(organisation=organisation))
            if row.projected.raw_json and row.projected.record.subject == subject
        ]
        detail = {"subject": subject or "", "found": str(len(lines))}
        await custody.record(actor(), "subject.searched", organisation, **detail)
    for line in lines:
        click.echo(line)


@click.command()
@config_option
@click.option("--yes", is_flag=True, help="Do it; without this it only says what it would do.")
@asynchronous
@says_it_records
async def retain(config_file: Path, *, yes: bool) -> None:
    """Destroy the keys of content that is older than its retention class; holds go before it."""
    settings = load_settings(config_file)
    now_us = SystemClock().utc_us()
    async with opened_custody(settings) as (custody, database):
        holds = await custody.holds()
        for expired in await _expired(settings, database, holds, now_us // _DAY_US):
            if yes and expired.due:
                detail = {"class": expired.retention_class, "keys": str(len(expired.due))}
                about = expired.organisation
                await custody.record(actor(), "content.retired", about, **detail)
                await _destroy(settings, database, expired.due, now_us)
            click.echo(json.dumps(_said(expired, done=yes)))


async def _expired(
    settings: Settings, database: Database, holds: Sequence[Hold], today: int
) -> list[Expired]:
    directory, retention = settings.path(settings.audit.directory), settings.retention
    second, found = SecondContents(database), []
    for organisation in sorted(await DatabaseAuditTrees(database).trees()):
        name = retention.organisations.get(organisation, retention.default)
        days = retention.classes.get(name, 0)
        if not days:
            continue
        keys = await asyncio.to_thread(matching_keys, directory, organisation, None)
        keys += await second.matching_keys(organisation, None)
        old = [key for key in keys if key.day + days < today]
        held_for = [hold.subject for hold in holds if hold.organisation == organisation]
        held = [key for key in old if "" in held_for or key.subject in held_for]
        due = tuple(key for key in old if key not in held)
        found.append(Expired(organisation, name, days, due, tuple(held)))
    return found


async def _destroy(
    settings: Settings, database: Database, keys: Sequence[WrappedKey], now_us: int
) -> None:
    directory = settings.path(settings.audit.directory)
    folder = settings.path(settings.audit.checkpoint_directory)
    await asyncio.to_thread(destroy_keys, directory, folder, keys, now_us, Disk())
    await SecondContents(database).destroy([key.key for key in keys])


def _said(expired: Expired, *, done: bool) -> dict[str, object]:
    oldest = min((key.day for key in (*expired.due, *expired.held)), default=None)
    day = None if oldest is None else datetime.fromtimestamp(oldest * 86_400, UTC).date()
    return {
        "organisation": expired.organisation,
        "class": expired.retention_class,
        "days": expired.days,
        "keys": len(expired.due),
        "held": len(expired.held),
        "oldest": str(day) if day else None,
        "done": done,
    }


KEEPING = (search_subject, retain)
