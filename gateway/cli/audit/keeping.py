"""`gatewright audit …`: how long content is kept, and whose it is (retention, subject search)."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from gateway.audit.projecting.export import export_line
from gateway.audit.segments import failure_at
from gateway.cli.audit.custody import (
    kept,
    organisation_option,
    require_known,
    subject_of,
)
from gateway.cli.damage import catch_up, end_if_damaged
from gateway.cli.deeds import actor, opened_log, says_it_records
from gateway.cli.options import Refused, asynchronous, config_option
from gateway.cli.orderly import orderly
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.store.custody.orders import Custody
from gateway.store.evidence.recovery import projector_for
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.store.retention.keeping import Expired
from gateway.store.retention.retaining import Retention, RetentionBusy


_UNSURE: Final = (
    "note: content is past its time by this machine's clock, but its log was not signed on each of"
    " the last three days, or a clock that stood far back dated it. It stays until the log was, or"
    " until its worker made a later key; or say --clock-is-right"
)


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
    async with kept(settings) as database:
        await require_known(settings, database, organisation)
        subject = subject_of(settings, organisation, reference) or ""
        written = subject.encode()
        sink = DatabaseAuditSink(database, directory)
        damage = await catch_up(projector_for(settings, database, sink, SystemClock()))
        lines = []
        async for row in sink.records(AuditQuery(organisation=organisation)):
            if not row.projected.raw_json:
                damage = "not all records could be read"
            # Searched in the bytes first: decoding each record would cost more than reading it.
            elif written in row.projected.raw_json and row.projected.record.subject == subject:
                lines.append(json.dumps(export_line(row), ensure_ascii=True))
        detail = {"subject": subject, "found": str(len(lines))}
        # Only now: reading a long log takes minutes, and others record their changes meanwhile.
        async with opened_log(settings) as log:
            custody = Custody(database, log, SystemClock())
            await custody.record(actor(), "subject.searched", organisation, **detail)
    for line in lines:
        click.echo(line)
    end_if_damaged(damage)


@click.command()
@config_option
@click.option("--yes", is_flag=True, help="Do it; without this it only says what it would do.")
@click.option(
    "--clock-is-right",
    "is_sure",
    is_flag=True,
    help="Also by a date that the log does not bear out; it stands in the record.",
)
@orderly
@asynchronous
@says_it_records
async def retain(config_file: Path, *, yes: bool, is_sure: bool) -> None:
    """Destroy the keys of content that is older than its retention class; holds go before it.

    A date counts where a log was signed on each of the days before: a clock that is set forth
    destroys nothing.
    """
    settings = load_settings(config_file)
    clock, unsure, lines = SystemClock(), 0, list[str]()
    async with kept(settings) as database, opened_log(settings) as log:
        retention = Retention(settings, database, log, clock, worker=log.worker)
        carried = retention.carry_out(actor(), is_sure=is_sure) if yes else None
        try:
            async for found in carried or retention.look(is_sure=is_sure):
                lines.append(json.dumps(_said(found, done=yes)))
                unsure += len(found.unsure)
        except RetentionBusy as error:
            raise Refused(f"{error}: try again later") from error
        except OSError as error:
            said = failure_at(settings.path(settings.audit.directory), error)
            raise Refused(f"not all of it could be done; doing it again is safe: {said}") from error
        finally:
            # Not in between: a reader may have left, or have no space, and then the rest would not
            # be done.
            for line in lines:
                click.echo(line)
    if unsure:
        click.echo(_UNSURE, err=True)
        sys.exit(1 if yes else 0)


def _said(found: Expired, *, done: bool) -> dict[str, object]:
    oldest = min((key.day for key in (*found.due, *found.held)), default=None)
    day = None if oldest is None else datetime.fromtimestamp(oldest * 86_400, UTC).date()
    return {
        "organisation": found.organisation,
        "class": found.retention_class,
        "days": found.days,
        "keys": len(found.due),
        "held": len(found.held),
        "unsure": len(found.unsure),
        "oldest": str(day) if day else None,
        "done": done,
    }


KEEPING = (search_subject, retain)
