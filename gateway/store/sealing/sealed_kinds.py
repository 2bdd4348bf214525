"""Everything that the master key sealed in the database: its kinds, how much, and by which key.

What lies in the audit folder is counted by `content_keys.masters`. Nothing else depends on the
master key: contents are sealed under keys of their own, which it wraps.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, RowMapping, Table, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.audit.content_keys.keys import WrappedKey
from gateway.secrets.content_keys import KeyClosed, wrapped_anew
from gateway.secrets.envelope import MasterKey, UnwrapFailed
from gateway.secrets.keeper import SecretUnavailableError
from gateway.store.background_runs import about_events, background_events
from gateway.store.batching.batches import about_batch
from gateway.store.batching.files import about_file, kept_files
from gateway.store.evidence.second_rows import line_of
from gateway.store.identity.provided_sessions import ABOUT
from gateway.store.kept_answers import about_answer, kept_answers
from gateway.store.schema.audit import audit_second_keys
from gateway.store.schema.batches import batches
from gateway.store.schema.owned import OWNER, owner_of
from gateway.store.schema.tables import admin_sessions, sealed_secrets, spare_secrets
from gateway.store.sealing.sealed_secrets import sealed_anew


Values = Mapping[str, object]
_CLOSED: Final = (KeyClosed, UnwrapFailed, SecretUnavailableError, msgspec.MsgspecError)


class SealedKind(Struct, frozen=True):
    """Rows of one table whose keys the master key wrapped."""

    name: str
    """A plural for operators."""
    table: Table
    read: tuple[str, ...]
    """The columns needed for sealing a row again, besides its primary key."""
    sealed_by: Callable[[MasterKey, RowMapping], Values]
    """A row's new values under the present master key; raises one of `_CLOSED`."""

    @property
    def is_sealed(self) -> ColumnElement[bool]:
        """Whether a row holds anything sealed."""
        return self.table.c[self.read[0]].is_not(None)

    def anew(self, master: MasterKey, row: RowMapping) -> Values | None:
        """A row's new values; None if none of the keys opens it."""
        try:
            return self.sealed_by(master, row)
        except _CLOSED:
            return None


def _secret(master: MasterKey, row: RowMapping) -> Values:
    return sealed_anew(master, row)


def _file(master: MasterKey, row: RowMapping) -> Values:
    return _wrapped(master, row, *about_file(owner_of(row), row["id"]))


def _batch(master: MasterKey, row: RowMapping) -> Values:
    return _wrapped(master, row, *about_batch(owner_of(row), row["id"]))


def _wrapped(master: MasterKey, row: RowMapping, *about: str) -> Values:
    return {
        "wrapped_key": wrapped_anew(master, row["wrapped_key"], *about),
        "master_key_id": master.key_id,
    }


def _answer(master: MasterKey, row: RowMapping) -> Values:
    return _bound(master, row, about_answer(owner_of(row), row["id"], row["data_class"]))


def _events(master: MasterKey, row: RowMapping) -> Values:
    return _bound(master, row, about_events(owner_of(row), row["id"], row["number"]))


def _bound(master: MasterKey, row: RowMapping, about: bytes) -> Values:
    key = master.unwrap(bytes(row["wrapped_key"]), about)
    return {"wrapped_key": master.wrap(key, about), "master_key_id": master.key_id}


def _session(master: MasterKey, row: RowMapping) -> Values:
    wrapped = wrapped_anew(master, row["id_token_key"], ABOUT, bytes(row["digest"]).hex())
    return {"id_token_key": wrapped, "master_key_id": master.key_id}


def _second_key(master: MasterKey, row: RowMapping) -> Values:
    line = msgspec.json.decode(row["line"], type=WrappedKey)
    wrapped = master.wrap(master.unwrap(line.wrapped, line.aad()), line.aad())
    return line_of(msgspec.structs.replace(line, master=master.key_id, wrapped=wrapped))


_SECRET: Final = ("wrapped_key", "name", "version", "sealed")
KINDS: Final = (
    SealedKind("secrets", sealed_secrets, _SECRET, _secret),
    SealedKind("next and former versions of secrets", spare_secrets, _SECRET, _secret),
    SealedKind("files", kept_files, ("wrapped_key", *OWNER), _file),
    SealedKind("batches", batches, ("wrapped_key", *OWNER), _batch),
    SealedKind("kept answers", kept_answers, ("wrapped_key", "data_class"), _answer),
    SealedKind("events of answers", background_events, ("wrapped_key",), _events),
    SealedKind("identity tokens of sessions", admin_sessions, ("id_token_key",), _session),
    SealedKind("keys of contents in the database", audit_second_keys, ("line",), _second_key),
)


async def hanging_on(
    connection: AsyncConnection, key_ids: Collection[str]
) -> dict[str, Counter[str]]:
    """How much of each kind depends on each of these master keys, by key id."""
    found: dict[str, Counter[str]] = {key_id: Counter() for key_id in key_ids}
    for kind in KINDS if key_ids else ():
        by = kind.table.c.master_key_id
        query = select(by, func.count()).where(by.in_(key_ids), kind.is_sealed).group_by(by)
        for key_id, count in (await connection.execute(query)).all():
            found[key_id][kind.name] = count
    return found


async def named_masters(connection: AsyncConnection) -> set[str]:
    """Ids of the master keys that anything names; an empty one is for what no key opened."""
    ids: set[str] = set()
    for kind in KINDS:
        query = select(kind.table.c.master_key_id).where(kind.is_sealed).distinct()
        ids.update((await connection.execute(query)).scalars())
    return ids


async def say_who_sealed(connection: AsyncConnection, key: MasterKey) -> None:
    """Name the first key that a database ever knew in rows that name none."""
    for kind in () if key.others else KINDS:
        unsaid = (kind.table.c.master_key_id == "") & kind.is_sealed
        await connection.execute(kind.table.update().where(unsaid).values(master_key_id=key.key_id))
