"""`gatewright audit …`: verifies the evidence offline, and exports it."""

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import click
import msgspec

from gateway.audit.content_keys.erasure import damaged_keys
from gateway.audit.content_keys.keys import DamagedLine
from gateway.audit.projecting.export import export_records
from gateway.audit.projecting.parquet import ParquetUnavailable, write_parquet
from gateway.audit.proving.verify import VerifyReport, verify_directory, verify_receipt
from gateway.cli.audit.accept import accept
from gateway.cli.audit.custody import CUSTODY, require_known
from gateway.cli.audit.erasing import ERASING
from gateway.cli.audit.evidence import PROOFS, open_line
from gateway.cli.audit.gone import gone
from gateway.cli.audit.keeping import KEEPING
from gateway.cli.audit.lost import lost
from gateway.cli.damage import catch_up, end_if_damaged
from gateway.cli.groups import Commands
from gateway.cli.opening import opened_database
from gateway.cli.options import Refused, asynchronous, config_option
from gateway.cli.orderly import orderly
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.store.evidence.recovery import projector_for
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink


directory_option = click.option(
    "--directory",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="The audit folder; default: the one of the configuration.",
)


@click.group(cls=Commands)
def audit() -> None:
    """The audit log."""


for _command in (*PROOFS, *CUSTODY, *ERASING, *KEEPING, gone, lost, accept):
    audit.add_command(_command)


@audit.command()
@config_option
@directory_option
@click.option("--receipt", help="Check one receipt and show the records of its request.")
def verify(config_file: Path, directory: Path | None, receipt: str | None) -> None:
    """Derive the chain again and name the first bad record; exit status 1 when there is one.

    Lines of key files that cannot be read are named too; whether the others open is for `fsck`,
    which has the master key.
    """
    folder = directory or _folder(load_settings(config_file))
    if not folder.is_dir():
        raise Refused(f"{folder}: there is no audit folder")
    try:
        holds = _verify_all(folder) if receipt is None else _verify_one(folder, receipt)
    except BrokenPipeError:
        raise  # The reader of the output has left.
    except OSError as error:
        raise Refused(f"{error.filename or folder}: {error.strerror}") from error
    sys.exit(0 if holds else 1)


def _verify_all(folder: Path) -> bool:
    report = verify_directory(folder)
    if not report.segments and report.ok:
        # An empty or wrong folder must not pass for an intact log.
        raise Refused(f"{folder}: there are no audit segments; name the folder above the workers'")
    lines = damaged_keys(folder)
    _print_report(report, lines)
    return report.ok and not lines


def _verify_one(folder: Path, receipt: str) -> bool:
    found = verify_receipt(folder, receipt)
    for record in found.records:
        click.echo(msgspec.json.encode(record).decode())
    if found.later_damage and found.ok:
        click.echo(f"note: damage after this record: {found.later_damage}", err=True)
    click.echo("receipt: holds" if found.ok else f"receipt: DOES NOT HOLD: {found.reason}")
    return found.ok


@audit.command("export")
@config_option
@click.option("--organisation", help="Only this organisation's records.")
@click.option("--request-id", help="Only the records of one request.")
@click.option("--format", "form", type=click.Choice(["jsonl", "parquet"]), default="jsonl")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A new file instead of standard output; Parquet needs one.",
)
@orderly
@asynchronous
async def export_lines(
    config_file: Path,
    organisation: str | None,
    request_id: str | None,
    form: str,
    output: Path | None,
) -> None:
    """Write records as JSON lines or Parquet, each with its number in its organisation's sequence.

    What was said is not among it: see `gatewright audit reveal`.
    """
    if form == "parquet" and output is None:
        raise Refused("Parquet is no text: name a new file with --output")
    settings = load_settings(config_file)
    try:
        async with opened_database(settings) as database:
            if organisation is not None:
                await require_known(settings, database, organisation)
            sink = DatabaseAuditSink(database, _folder(settings))
            damage = await catch_up(projector_for(settings, database, sink, SystemClock()))
            rows = sink.records(AuditQuery(organisation=organisation, request_id=request_id))
            with _opened(output) as file:
                unreadable = await _WRITERS[form](export_records(rows), file)
            damage = "not all records could be read" if unreadable else damage
    except ParquetUnavailable as error:
        raise Refused(str(error)) from error
    end_if_damaged(damage)


@contextmanager
def _opened(output: Path | None) -> Iterator[IO[bytes]]:
    """Standard output, or a new file that only its owner can read; removed after a failure."""
    if output is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise Refused(f"{output}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
    except BaseException as error:
        # Also if only the last bytes, written on closing, find no space.
        output.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            raise Refused(f"{output}: {error.strerror}") from error
        raise


async def _write_lines(lines: AsyncIterator[Mapping[str, Any]], file: IO[bytes]) -> int:
    """Write records; returns how many could not be read."""
    unreadable = 0
    async for line in lines:
        file.write(json.dumps(line, ensure_ascii=True).encode() + b"\n")
        unreadable += "record_error" in line
    return unreadable


_WRITERS = {"jsonl": _write_lines, "parquet": write_parquet}


def _folder(settings: Settings) -> Path:
    return settings.path(settings.audit.directory)


def _print_report(report: VerifyReport, lines: Sequence[DamagedLine]) -> None:
    click.echo(
        f"{report.records} records of {report.workers} worker(s) in {report.segments} segment(s): "
        f"{report.intents} intents, {report.outcomes} outcomes, "
        f"{report.admin_actions} admin actions, {report.open_intents} intents without an outcome"
    )
    for left in report.open_of:
        click.echo(open_line(left.worker, left.intents, left.since_us))
    for note in report.notes:
        click.echo(f"note: {note}")
    for bad in (*report.bad, *lines):
        click.echo(f"BAD: {bad}")
    keys = f"{len(lines)} damaged line(s) of key files: what their keys sealed cannot be read"
    if not report.ok:
        click.echo("THE CHAIN IS BROKEN")
    else:
        click.echo(f"the chain is whole, BUT {keys}" if lines else "the chain is whole")
