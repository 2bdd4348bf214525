"""Refuses to start with a master key or a pepper that is not the database's own.

With a wrong key everything that is sealed looks lost, and what is sealed meanwhile is lost to the
right key. An outage of a key service is reported earlier, by `gateway.secrets.credentials`.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Column, RowMapping, Table, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.audit.content_keys.keys import WrappedKey
from gateway.audit.content_keys.masters import masters_of
from gateway.clock import Clock
from gateway.configuration.sections import SecretReference
from gateway.configuration.settings import Settings
from gateway.errors import ConfigurationInvalid, StartupRefused
from gateway.secrets.content_keys import KeyClosed, opened_key
from gateway.secrets.credentials import all_peppers, master_key, pepper_setting
from gateway.secrets.envelope import MasterKey, UnwrapFailed
from gateway.store.batching.batches import about_batch
from gateway.store.batching.files import about_file, kept_files
from gateway.store.engine import Database
from gateway.store.identity.key_peppers import hanging_on_peppers
from gateway.store.kept_answers import about_answer, kept_answers
from gateway.store.schema.audit import audit_second_keys
from gateway.store.schema.batches import batches
from gateway.store.schema.owned import owner_columns, owner_of
from gateway.store.schema.tables import sealed_secrets, spare_secrets
from gateway.store.sealing.hanging import hanging, told
from gateway.store.sealing.key_checks import (
    MASTER_KEY,
    KeyCheck,
    Vouched,
    checked,
    foreseen,
    key_of_pepper,
    known_masters,
    known_peppers,
    pepper_check,
)
from gateway.store.sealing.sealed_kinds import say_who_sealed


_LOOKED_AT = 20
"""How many of the newest things of a kind are tried: one may be damaged, but hardly all."""
_LOST = "if that is lost for good, or was never the right one, see `gatewright secrets adopt`"


async def require_right_keys(settings: Settings, database: Database, clock: Clock) -> None:
    """Check both keys of a process that serves.

    Raises:
        ConfigurationInvalid: one is not the database's own, or cannot be read.
        StartupRefused: the audit folder, which is read if the database knows no key, cannot be.
        NotReady: the database does not answer.
    """
    await require_right_master(settings, database, clock)
    await require_right_pepper(settings, database, clock)


async def require_right_master(
    settings: Settings, database: Database, clock: Clock, key: MasterKey | None = None
) -> None:
    """Check only the master key, for commands that use no other; raises as `require_right_keys`."""
    key = key or master_key(settings)
    vouched = _vouched(settings)
    found = await checked(database, MASTER_KEY, key, clock, vouched, begun=say_who_sealed)
    _refuse_master(settings, key, found)
    await _refuse_missing(settings, database, key)


async def require_right_pepper(settings: Settings, database: Database, clock: Clock) -> None:
    """Check the peppers, each of the version that the settings state."""
    for version, value in all_peppers(settings).items():
        key, name = key_of_pepper(value), pepper_check(version)
        found = await checked(database, name, key, clock, _unknowable)
        _refuse_pepper(settings, version, key, found)
    await _refuse_missing_pepper(settings, database, clock)


async def look_at_keys(settings: Settings, database: Database, clock: Clock) -> None:
    """As `require_right_keys`, for processes that only look: a first key is not stored."""
    key = master_key(settings)
    _refuse_master(settings, key, await foreseen(database, MASTER_KEY, key, _vouched(settings)))
    await _refuse_missing(settings, database, key)
    for version, value in all_peppers(settings).items():
        key, name = key_of_pepper(value), pepper_check(version)
        _refuse_pepper(settings, version, key, await foreseen(database, name, key, _unknowable))
    await _refuse_missing_pepper(settings, database, clock)


def _vouched(settings: Settings) -> Vouched:
    return partial(opens_something, directory=settings.path(settings.audit.directory))


def _refuse_master(settings: Settings, key: MasterKey, found: KeyCheck) -> None:
    _refuse(settings, "secrets.master_key", settings.secrets.master_key, key, found)


async def _refuse_missing(settings: Settings, database: Database, key: MasterKey) -> None:
    """Refuse to go on without a former master key of this database that is still needed."""
    async with database.reading() as connection:
        missing = await known_masters(connection) - key.key_ids
    if not missing:
        return
    for key_id, counts in (await hanging(settings, database, sorted(missing))).items():
        if counts:
            reason = (
                f"does not name master key {key_id}, and {told(counts)}: name it again, and run"
                " `gatewright secrets reseal`; if it is lost for good, see `gatewright secrets"
                " adopt`"
            )
            raise ConfigurationInvalid(settings.source, "secrets.other_master_keys", reason)


async def _refuse_missing_pepper(settings: Settings, database: Database, clock: Clock) -> None:
    """Refuse to go on without a former pepper of this database that valid keys need."""
    async with database.reading() as connection:
        known = await known_peppers(connection)
        keys = await hanging_on_peppers(connection, clock.utc_us())
    for version in sorted(known & keys.keys()):
        if not pepper_setting(settings, version):
            reason = (
                f"does not name pepper version {version}, and {told(keys[version])}: name it again"
                " until they were rotated or revoked; if it is lost for good, see `gatewright"
                " secrets adopt`"
            )
            raise ConfigurationInvalid(settings.source, "secrets.other_peppers", reason)


def _refuse_pepper(settings: Settings, version: int, key: MasterKey, found: KeyCheck) -> None:
    others, setting = settings.secrets.other_peppers, pepper_setting(settings, version)
    _refuse(settings, setting, others.get(str(version), settings.secrets.pepper), key, found)


def _refuse(
    settings: Settings, setting: str, where: SecretReference, key: MasterKey, found: KeyCheck
) -> None:
    if found.is_own:
        return
    place = where.env or str(settings.path(where.file))
    if not found.key_id:
        problem = "opens nothing of what lies sealed in this database or its audit folder"
    elif found.key_id == key.key_id:
        problem = "is this database's own, but the check that lies there was changed"
    else:
        problem = f"is key {key.key_id}, but this database was begun with {found.key_id}"
    reason = f"{place} {problem}: put the right one back; {_LOST}"
    raise ConfigurationInvalid(settings.source, setting, reason)


async def _unknowable(_: AsyncConnection, __: MasterKey) -> bool:
    """Without the keys themselves, their digests say nothing about the pepper."""
    return True


async def opens_something(
    connection: AsyncConnection, master: MasterKey, *, directory: Path
) -> bool:
    """Whether a database without a check holds nothing sealed, or something of this key.

    A database that was upgraded, or made anew beside an old audit folder, has content and no check.
    What opens tells which key is its own. Most lies in the folder: workers sign there from the
    first minute.
    """
    try:
        ids = await asyncio.to_thread(masters_of, directory)
    except OSError as error:
        raise StartupRefused(f"audit: {error.filename or directory}: {error.strerror}") from error
    for table in (sealed_secrets, spare_secrets):
        ids.update((await connection.execute(select(table.c.master_key_id))).scalars())
    lines = (await connection.execute(select(audit_second_keys.c.line).limit(_LOOKED_AT))).scalars()
    ids.update(msgspec.json.decode(line, type=WrappedKey).master for line in lines)
    if not master.key_ids.isdisjoint(ids):
        return True
    told = await _opened(connection, master)
    return any(told) or not (ids or told)


async def _opened(connection: AsyncConnection, master: MasterKey) -> list[bool]:
    """Which of the newest batches, files and answers open."""
    told = []
    for table, about in ((batches, about_batch), (kept_files, about_file)):
        for row in await _newest(connection, table):
            label = about(owner_of(row), row["id"])
            told.append(_opens(partial(opened_key, master, row["wrapped_key"], *label)))
    for row in await _newest(connection, kept_answers, kept_answers.c.data_class):
        bound_to = about_answer(owner_of(row), row["id"], row["data_class"])
        told.append(_opens(partial(master.unwrap, bytes(row["wrapped_key"]), bound_to)))
    return told


def _opens(opening: Callable[[], object]) -> bool:
    try:
        opening()
    except (KeyClosed, UnwrapFailed):
        return False
    return True


async def _newest(
    connection: AsyncConnection, table: Table, *more: Column[Any]
) -> Sequence[RowMapping]:
    columns = table.c
    query = select(columns.id, *owner_columns(table), columns.wrapped_key, *more)
    rows = await connection.execute(query.order_by(columns.created_us.desc()).limit(_LOOKED_AT))
    return rows.mappings().all()
