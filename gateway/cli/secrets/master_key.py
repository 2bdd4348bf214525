"""`gatewright secrets wrap` and `adopt`: a master key in Vault or KMS, or one for a lost one."""

import os
import secrets as random
from collections.abc import Collection
from pathlib import Path

import click

from gateway.cli.deeds import actor, opened_log, says_it_records
from gateway.cli.opening import opened_database
from gateway.cli.options import SAID, Refused, asynchronous, config_option
from gateway.clock import Clock, SystemClock
from gateway.configuration.reading import load_settings
from gateway.oversight.deeds import Deeds
from gateway.secrets.credentials import (
    assembled,
    key_bytes_at,
    key_service,
    named_master_keys,
)
from gateway.secrets.envelope import sync_folder
from gateway.secrets.key_services import KeyService, KeyServiceFailed, is_wrapped
from gateway.store.sealing.adopted_keys import adopt_key, adoption_of
from gateway.store.sealing.key_checks import MASTER_KEY
from gateway.store.sealing.right_keys import require_right_master
from gateway.store.workers import WorkerTable


@click.command("wrap")
@config_option
@asynchronous
@says_it_records
async def wrap_master_key(config_file: Path) -> None:
    """Replace each master key's file by one that only `secrets.key_service` can unwrap.

    Run again after the service's key was rotated: the files are then wrapped by the newest version.
    """
    settings = load_settings(config_file)
    service = key_service(settings)
    if service is None:
        raise Refused("secrets.key_service names no service")
    named = named_master_keys(settings)
    for key, reference in named:
        if not reference.file:
            raise Refused(f"{key} must be a file")
    raw = [key_bytes_at(settings, *each, plain_too=True) for each in named]
    wrapped = [_wrapped_by(service, each) for each in raw]
    keys = assembled(raw)
    async with opened_database(settings, pooled=False) as database:
        # The old files are destroyed: their replacements must open what they opened.
        await require_right_master(settings, database, SystemClock(), keys)
    ids = [keys.key_id, *(other.key_id for other in keys.others)]
    async with opened_log(settings, keys) as log:
        deeds = Deeds(log, SystemClock())
        for (_, reference), key_id, text in zip(named, ids, wrapped, strict=True):
            after = {"service": settings.secrets.key_service, "master_key_id": key_id}
            async with deeds.doing(actor(), "master_key.wrapped", "", after=after):
                path = settings.path(reference.file)
                try:
                    _replace(path, text)
                except OSError as error:
                    raise Refused(f"{path}: {error.strerror}") from error
            click.echo(f"{key_id}: wrapped by {settings.secrets.key_service}")


def _wrapped_by(service: KeyService, raw: bytes) -> str:
    try:
        wrapped = service.wrap(raw)
        # In another form the file could not be told from a plain one, and nobody could read it.
        if not is_wrapped(wrapped) or not wrapped.isascii() or wrapped.split() != [wrapped]:
            raise Refused("what the service calls wrapped does not look it")
        if service.unwrap(wrapped) != raw:
            raise Refused("the service does not give back what it was given")
    except KeyServiceFailed as error:
        raise Refused(str(error)) from error
    return wrapped


@click.command("adopt")
@config_option
@click.argument("key", type=click.Choice(["master_key", "pepper"]))
@click.option("--reason", type=SAID, required=True, help="It stands in the record.")
@click.option(
    "--dead",
    multiple=True,
    metavar="WORKER",
    help="A worker that is known to be dead.",
)
@asynchronous
@says_it_records
async def adopt(config_file: Path, key: str, reason: str, dead: tuple[str, ...]) -> None:
    """Begin anew with the master key, or the pepper, that the settings name: the old one is lost.

    What the old one sealed is never opened again; digests of an old pepper fit no key. Stop every
    process before: a running one goes on with the old one, so none is adopted while workers of the
    database run. Where workers have audit folders on
    several machines, run it for the master key on each: it makes new keys to sign the log with.
    """
    settings, clock = load_settings(config_file), SystemClock()
    async with opened_database(settings, pooled=False) as database:
        await _require_stopped(WorkerTable(database), clock, dead)
        adoption = await adoption_of(settings, database, key)
        # For a pepper the log is written as always: the master key is the right one.
        async with opened_log(settings, adoption.key if key == MASTER_KEY else None) as log:
            after = {"key_id": adoption.key.key_id, "instead_of": adoption.former}
            deeds = Deeds(log, clock)
            detail = {"reason": reason, "called_dead": ", ".join(dead)}
            async with deeds.doing(actor(), f"{key}.adopted", "", after=after, **detail):
                await adopt_key(adoption, settings, database, clock)
    click.echo(f"{key}: {adoption.key.key_id} is this database's own from now on")


async def _require_stopped(table: WorkerTable, clock: Clock, dead: Collection[str]) -> None:
    """Raises Refused while a worker runs, which would keep encrypting with the abandoned key."""
    running = [name for name in await table.alive(clock.utc_us()) if name not in dead]
    if running:
        raise Refused(
            "workers are running, and go on with the key that they began with:"
            f" {', '.join(running)}. Stop them first; one that was killed is forgotten after 15"
            " seconds, or name it with --dead"
        )


def _replace(path: Path, text: str) -> None:
    """Completely or not at all; the old bytes are overwritten before they are released."""
    draft = path.with_name(f".{path.name}.{random.token_hex(8)}")
    try:
        _write(draft, text + "\n")
        old = path.open("r+b")
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    with old:
        length = old.seek(0, os.SEEK_END)
        draft.rename(path)
        # A power loss must not bring back a name whose bytes are zeros: nothing else has the key.
        sync_folder(path.parent)
        old.seek(0)
        old.write(bytes(length))
        old.flush()
        os.fsync(old.fileno())


def _write(path: Path, text: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
