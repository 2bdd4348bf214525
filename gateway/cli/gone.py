"""`gatewright audit gone …`: workers that never came back, and what they left open."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import click
import msgspec

from gateway.audit.disk import Disk
from gateway.audit.projector import Projector
from gateway.audit.segments import LOCK_NAME
from gateway.batching.left_open import LeftBehind, LeftOpen
from gateway.cli.deeds import actor, opened_log, says_it_records
from gateway.cli.options import Refused, asynchronous, config_option
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.oversight.deeds import Deeds
from gateway.store.batching.lines import LineStore
from gateway.store.batching.unsent_lines import UnsentLines
from gateway.store.engine import Database, open_database
from gateway.store.evidence.retiring import Retiring
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.evidence.unended import UnendedReader
from gateway.store.money.late_bookings import LateBookings
from gateway.store.money.parked_money import ParkedMoney
from gateway.store.money.slices import LeaseHolder
from gateway.store.schema.version import require_newest_schema


_NOBODY: Final = LeaseHolder("", "")
"""Whoever types a command holds no money."""
SETTLE_S: Final = 20.0
"""Until what another worker wrote about a line is in the database."""


@click.group()
def gone() -> None:
    """Workers that never came back, and requests of theirs without an outcome."""


@gone.command("list")
@config_option
@asynchronous
async def gone_list(config_file: Path) -> None:
    """Print as JSON lines which left how many requests open in their last hours, and since when."""
    async with _opened(load_settings(config_file)) as (database, _):
        reader = UnendedReader(database, SystemClock())
        await reader.count()
        for each in await reader.kept():
            click.echo(msgspec.json.encode(each).decode())


@gone.command("end")
@config_option
@click.argument("worker")
@click.option("--reason", required=True, help="Why it cannot come back; it stands in the record.")
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
        with _proved_gone(settings.path(settings.audit.directory) / worker, worker):
            retiring, deeds = Retiring(database, sink, clock), Deeds(log, clock)
            stores = LineStore(database, clock), UnsentLines(database, clock)
            left = LeftOpen(
                *(retiring, *stores),
                late=LateBookings(database, clock),
                parked=ParkedMoney(database, clock, _NOBODY),
                audit=log,
                outcome_of=sink.outcome,
                clock=clock,
            )
            standing = await retiring.standing(worker)
            if not yes:
                click.echo(_told(await left.look(worker)))
                click.echo("nothing was done without --yes")
                return
            before, after = msgspec.to_builtins(standing), {"worker": worker, "reason": reason}
            async with deeds.doing(actor(), "worker.retired", "", before=before, after=after):
                await retiring.retire(worker, standing, actor(), reason)
                ended = await left.end(worker, SETTLE_S)
            counts = {name: str(value) for name, value in msgspec.structs.asdict(ended).items()}
            await deeds.record(actor(), "worker.requests_ended", "", worker=worker, **counts)
        await Projector(settings.path(settings.audit.directory), sink).catch_up()
        await UnendedReader(database, clock).count()
    click.echo(_told(ended))


def _told(found: LeftBehind) -> str:
    return msgspec.json.encode(found).decode()


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[tuple[Database, DatabaseAuditSink]]:
    """The database, brought up to date with the segments that are here."""
    directory = settings.path(settings.audit.directory)
    database = open_database(settings.database_url, pooled=False)
    try:
        await require_newest_schema(database)
        sink = DatabaseAuditSink(database, directory)
        await Projector(directory, sink).catch_up()
        yield database, sink
    finally:
        await database.close()


@contextmanager
def _proved_gone(folder: Path, worker: str) -> Iterator[None]:
    """Where its segments are here, with their lock held, which no living worker gives away."""
    if not folder.is_dir():
        yield
        return
    disk = Disk()
    try:
        descriptor = disk.lock(folder / LOCK_NAME)
    except BlockingIOError:
        raise Refused(f"worker {worker} lives: it holds the lock of its segments") from None
    try:
        yield
    finally:
        disk.close(descriptor)
