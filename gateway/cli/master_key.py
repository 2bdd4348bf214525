"""`gatewright secrets wrap`: lets Vault or KMS keep what opens the master key."""

import os
import secrets as random
from pathlib import Path

import click

from gateway.cli.deeds import actor, opened_log, says_it_records
from gateway.cli.options import Refused, asynchronous, config_option
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.credentials import key_service, master_key_bytes
from gateway.oversight.deeds import Deeds
from gateway.secrets.envelope import MasterKey, sync_folder
from gateway.secrets.key_services import KeyServiceFailed
from gateway.secrets.secret import Secret


@click.command("wrap")
@config_option
@asynchronous
@says_it_records
async def wrap_master_key(config_file: Path) -> None:
    """Replace the master key's file by one that only `secrets.key_service` can unwrap.

    Run again after the service's key was rotated: the file is then wrapped by the newest version.
    """
    settings = load_settings(config_file)
    service = key_service(settings)
    if service is None:
        raise Refused("secrets.key_service names no service")
    if not settings.secrets.master_key.file:
        raise Refused("secrets.master_key must be a file")
    raw = master_key_bytes(settings, plain_too=True)
    try:
        wrapped = service.wrap(raw)
        if service.unwrap(wrapped) != raw:
            raise Refused("the service does not give back what it was given")
    except KeyServiceFailed as error:
        raise Refused(str(error)) from error
    keys = MasterKey(Secret(raw))
    async with opened_log(settings, keys) as log:
        deeds = Deeds(log, SystemClock())
        after = {"service": settings.secrets.key_service, "master_key_id": keys.key_id}
        async with deeds.doing(actor(), "master_key.wrapped", "", after=after):
            path = settings.path(settings.secrets.master_key.file)
            try:
                _replace(path, wrapped)
            except OSError as error:
                raise Refused(f"{path}: {error.strerror}") from error
    click.echo(f"{keys.key_id}: wrapped by {settings.secrets.key_service}")


def _replace(path: Path, text: str) -> None:
    """Whole or not at all; the old bytes are overwritten before they are let go."""
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
