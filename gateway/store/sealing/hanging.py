"""Counts what depends on each master key, in the database and this machine's audit folder."""

import asyncio
from collections import Counter
from collections.abc import Collection

from gateway.audit.content_keys.masters import hanging_in, masters_of
from gateway.configuration.settings import Settings
from gateway.errors import StartupRefused
from gateway.store.engine import Database
from gateway.store.sealing.key_checks import known_masters
from gateway.store.sealing.sealed_kinds import hanging_on, named_masters


Hanging = dict[str, Counter[str]]
"""How much of each kind, by key id; an empty id is for what no key here opened."""


async def hanging(settings: Settings, database: Database, key_ids: Collection[str]) -> Hanging:
    """What depends on these keys.

    Raises:
        StartupRefused: the audit folder cannot be read.
        NotReady: the database does not answer.
    """
    directory = settings.path(settings.audit.directory)
    async with database.reading() as connection:
        found = await hanging_on(connection, key_ids)
    try:
        lying = await asyncio.to_thread(hanging_in, directory, key_ids)
    except OSError as error:
        raise StartupRefused(f"audit: {error.filename or directory}: {error.strerror}") from error
    return {key_id: found[key_id] + lying[key_id] for key_id in key_ids}


async def all_hanging(settings: Settings, database: Database) -> Hanging:
    """The same for every key that anything names; raises as `hanging`."""
    directory = settings.path(settings.audit.directory)
    async with database.reading() as connection:
        ids = await named_masters(connection) | await known_masters(connection)
    try:
        ids |= await asyncio.to_thread(masters_of, directory)
    except OSError as error:
        raise StartupRefused(f"audit: {error.filename or directory}: {error.strerror}") from error
    return await hanging(settings, database, ids)


def told(counts: Counter[str]) -> str:
    """How much depends on a key, in words."""
    if not counts:
        return "nothing hangs on it"
    number = counts.total()
    said = "1 thing hangs on it" if number == 1 else f"{number} things hang on it"
    return f"{said} ({', '.join(f'{name}: {count}' for name, count in counts.items())})"
