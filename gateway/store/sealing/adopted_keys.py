"""Accepts another master key or pepper as the database's own when the previous one is lost."""

import asyncio

from msgspec import Struct

from gateway.audit.content_keys.masters import masters_of
from gateway.audit.disk import Disk
from gateway.audit.proving.checkpoints import renew_signers
from gateway.clock import Clock
from gateway.configuration.settings import Settings
from gateway.secrets.credentials import master_key, pepper, pepper_setting
from gateway.secrets.envelope import MasterKey
from gateway.store.engine import Database
from gateway.store.sealing.key_checks import (
    MASTER_KEY,
    asked,
    keep_anew,
    key_of_pepper,
    known_masters,
    known_peppers,
    pepper_check,
)


class Adoption(Struct, frozen=True):
    """A key that replaces a database's own."""

    name: str
    """The name of its check."""
    key: MasterKey
    former: tuple[str, ...]
    """Ids of the former keys: the database's own, and others that wrapped keys of the audit
    folder."""


async def adoption_of(settings: Settings, database: Database, setting: str) -> Adoption:
    """What adopting the key that a setting names would change.

    Raises:
        ConfigurationInvalid: it cannot be read.
        OSError: the audit folder cannot be read.
        NotReady: the database does not answer.
    """
    former: set[str] = set()
    if setting == MASTER_KEY:
        key, name = master_key(settings), MASTER_KEY
        former |= await asyncio.to_thread(masters_of, settings.path(settings.audit.directory))
        async with database.reading() as connection:
            former |= await known_masters(connection)
    else:
        key, name = key_of_pepper(pepper(settings)), pepper_check(settings.secrets.pepper_version)
    async with database.reading() as connection:
        found = await asked(connection, name, key)
    if found is not None:
        former.add(found.key_id)
    return Adoption(name, key, tuple(sorted(former - key.key_ids)))


async def adopt_key(
    adoption: Adoption, settings: Settings, database: Database, clock: Clock
) -> None:
    """Adopt the key; first the key that signs the log of this machine's workers is made again.

    Repeated after a crash, or on another machine of the same database, it does the rest.

    Raises:
        OSError: the audit folder cannot be written.
        NotReady: the database does not answer.
    """
    if adoption.name == MASTER_KEY:
        directory = settings.path(settings.audit.directory)
        await asyncio.to_thread(renew_signers, directory, adoption.key, clock, Disk())
    lost: list[str] = []
    if adoption.name != MASTER_KEY:
        async with database.reading() as connection:
            known = await known_peppers(connection)
        lost = [pepper_check(each) for each in known if not pepper_setting(settings, each)]
    await keep_anew(database, adoption.name, adoption.key, clock, lost)
