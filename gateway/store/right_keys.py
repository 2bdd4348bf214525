"""Refuses a start with a master key or a pepper that is another than its database's own.

With a wrong one everything that lies sealed looks lost, and what is sealed meanwhile is lost to the
right one. An outage of a key service is told before, by `gateway.credentials`.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Table, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import Clock
from gateway.configuration.sections import SecretReference
from gateway.configuration.settings import Settings
from gateway.credentials import master_key, pepper
from gateway.errors import ConfigurationInvalid
from gateway.secrets.content_keys import KeyClosed, opened_key
from gateway.secrets.envelope import MasterKey
from gateway.store.batching.batches import about_batch
from gateway.store.batching.files import about_file, kept_files
from gateway.store.engine import Database
from gateway.store.key_checks import (
    MASTER_KEY,
    KeyCheck,
    checked,
    keep_anew,
    key_of_pepper,
    pepper_check,
)
from gateway.store.schema.batches import batches
from gateway.store.schema.tables import sealed_secrets, spare_secrets


_LOOKED_AT = 20
"""So many things of a kind, the newest: one may be damaged, all of them hardly."""
_LOST = "if that is lost for good, see `gatewright secrets adopt`"


async def require_right_keys(settings: Settings, database: Database, clock: Clock) -> None:
    """Check both keys of a process that serves.

    Raises:
        ConfigurationInvalid: one is another than the database's own, or cannot be read.
        NotReady: the database does not answer.
    """
    await require_right_master(settings, database, clock)
    await require_right_pepper(settings, database, clock)


async def require_right_master(
    settings: Settings, database: Database, clock: Clock, key: MasterKey | None = None
) -> None:
    """The master key alone, for commands that use no other; raises as `require_right_keys`."""
    key = key or master_key(settings)
    found = await checked(database, MASTER_KEY, key, clock, opens_something)
    _refuse(settings, "secrets.master_key", settings.secrets.master_key, key, found)


async def require_right_pepper(settings: Settings, database: Database, clock: Clock) -> None:
    """Likewise the pepper, of the version that the settings say it has."""
    key, name = key_of_pepper(pepper(settings)), pepper_check(settings.secrets.pepper_version)
    found = await checked(database, name, key, clock, _unknowable)
    _refuse(settings, "secrets.pepper", settings.secrets.pepper, key, found)


async def adopt_key(settings: Settings, database: Database, clock: Clock, setting: str) -> str:
    """Take the key that a setting names for the database's own; its id, or its name and version.

    Raises:
        ConfigurationInvalid: it cannot be read.
        NotReady: the database does not answer.
    """
    if setting == MASTER_KEY:
        key, name = master_key(settings), MASTER_KEY
    else:
        key, name = key_of_pepper(pepper(settings)), pepper_check(settings.secrets.pepper_version)
    await keep_anew(database, name, key, clock)
    return key.key_id


def _refuse(
    settings: Settings, setting: str, where: SecretReference, key: MasterKey, found: KeyCheck
) -> None:
    if found.is_own:
        return
    place = where.env or str(settings.path(where.file))
    if not found.key_id:
        problem = "opens nothing of what lies sealed in this database"
    elif found.key_id == key.key_id:
        problem = "is this database's own, but the check that lies there was changed"
    else:
        problem = f"is key {key.key_id}, but this database was begun with {found.key_id}"
    reason = f"{place} {problem}: put the right one back; {_LOST}"
    raise ConfigurationInvalid(settings.source, setting, reason)


async def _unknowable(_: AsyncConnection, __: MasterKey) -> bool:
    """Digests of keys say nothing about the pepper to who does not have the keys."""
    return True


async def opens_something(connection: AsyncConnection, master: MasterKey) -> bool:
    """Whether a database without a check holds nothing sealed, or something of this key.

    One that was upgraded has content and no check. What opens in it says which key is its own.
    """
    ids: set[str] = set()
    for table in (sealed_secrets, spare_secrets):
        ids.update((await connection.execute(select(table.c.master_key_id))).scalars())
    if master.key_id in ids:
        return True
    is_empty = not ids
    for table, about in ((batches, about_batch), (kept_files, about_file)):
        for row in await _newest(connection, table):
            is_empty = False
            project = (row.organisation, row.workspace, row.project)
            try:
                opened_key(master, row.wrapped_key, *about(project, row.id))
            except KeyClosed:
                continue
            return True
    return is_empty


async def _newest(connection: AsyncConnection, table: Table) -> Sequence[Any]:
    columns = table.c
    query = select(
        columns.id, columns.organisation, columns.workspace, columns.project, columns.wrapped_key
    )
    rows = await connection.execute(query.order_by(columns.created_us.desc()).limit(_LOOKED_AT))
    return rows.all()
