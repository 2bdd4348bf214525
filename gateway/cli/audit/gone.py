"""`gatewright audit gone …`: workers that never came back, and what they left open."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from gateway.audit.lifelessness import held_if_here
from gateway.batching.left_open import SETTLE_S, LeftBehind, left_open
from gateway.cli.damage import catch_up, end_if_damaged, refusing_damage
from gateway.cli.deeds import actor, opened_log, says_it_records
from gateway.cli.groups import Commands
from gateway.cli.opening import opened_database
from gateway.cli.options import SAID, Refused, asynchronous, config_option
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.oversight.deeds import Deeds
from gateway.store.engine import Database
from gateway.store.evidence.recovery import projector_for
from gateway.store.evidence.retirements import Retirements
from gateway.store.evidence.retiring import Retiring
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.evidence.unended import UnendedReader


@click.group(cls=Commands)
def gone() -> None:
    """Workers that never came back, and requests of theirs without an outcome."""


@gone.command("list")
@config_option
@asynchronous
async def gone_list(config_file: Path) -> None:
    """Print as JSON lines which left how many requests open in their last hours, and since when.

    A log that is damaged is named at the end (exit status 1): what it says is not all counted.
    """
    settings = load_settings(config_file)
    async with _at_hand(settings) as (database, sink):
        damage = await catch_up(projector_for(settings, database, sink, SystemClock()))
        reader = UnendedReader(database, SystemClock())
        await reader.count()
        for each in await reader.kept():
            click.echo(msgspec.json.encode(each).decode())
    end_if_damaged(damage)


@gone.command("end")
@config_option
@click.argument("worker")
@click.option(
    "--reason", type=SAID, required=True, help="Why it cannot come back; it stands in the record."
)
@click.option("--yes", is_flag=True, help="Do it; without this it only says what would be ended.")
@asynchronous
@says_it_records
async def gone_end(config_file: Path, worker: str, reason: str, *, yes: bool) -> None:
    """Retire a worker's name for good, and end what it left open at the cost that was set aside.

    For a worker whose disk is lost: what it wrote last, and nobody read, is not heard any more. No
    worker starts under its name again.
    """
    settings, clock = load_settings(config_file), SystemClock()
    async with _opened(settings) as (database, sink), opened_log(settings) as log:
        with held_if_here(settings.path(settings.audit.directory) / worker, worker):
            retiring, deeds = Retiring(database, sink, clock), Deeds(log, clock)
            left = left_open(database, sink, log, clock)
            standing = await retiring.standing(worker)
            await _say_what_waits(Retirements(database, clock), worker)
            if not yes:
                click.echo(_told(await left.look(worker)))
                click.echo("nothing was done without --yes")
                return
            before, after = msgspec.to_builtins(standing), {"worker": worker, "reason": reason}
            async with deeds.doing(actor(), "worker.retired", "", before=before, after=after):
                await retiring.retire(worker, standing, actor(), reason)
                if not await retiring.begin_ending(worker, log.worker):
                    raise Refused(f"somebody else is ending what {worker} left: come again")
                ended = await left.end(worker, SETTLE_S)
            counts = {name: str(value) for name, value in msgspec.structs.asdict(ended).items()}
            await deeds.record(actor(), "worker.requests_ended", "", worker=worker, **counts)
            await projector_for(settings, database, sink, SystemClock()).catch_up()
            await retiring.finish_ending(worker, log.worker)
        await UnendedReader(database, clock).count()
    click.echo(_told(ended))


def _told(found: LeftBehind) -> str:
    return msgspec.json.encode(found).decode()


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[tuple[Database, DatabaseAuditSink]]:
    """The database, brought up to date with the segments that are here."""
    async with _at_hand(settings) as (database, sink):
        with refusing_damage():
            await projector_for(settings, database, sink, SystemClock()).catch_up()
            yield database, sink


@asynccontextmanager
async def _at_hand(settings: Settings) -> AsyncIterator[tuple[Database, DatabaseAuditSink]]:
    """The database as it stands."""
    async with opened_database(settings, pooled=False) as database:
        yield database, DatabaseAuditSink(database, settings.path(settings.audit.directory))


async def _say_what_waits(retirements: Retirements, worker: str) -> None:
    """Say on standard error whether somebody asked for the same in the admin listener."""
    waiting = await retirements.waiting_of(worker)
    if waiting is not None:
        asked = datetime.fromtimestamp(waiting.asked_us // 1_000_000, UTC)
        said = f"{waiting.asked_by} asked for this in the admin listener, {asked:%Y-%m-%d %H:%M}Z,"
        said += f" and it waits for a second person there: {waiting.reason}"
        click.echo(said, err=True)
