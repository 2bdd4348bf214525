"""Secrets in the database, sealed: each under a data key of its own, which the master key wraps.

What is sealed is bound to its row: name and version are authenticated with it, so that a row copied
over another, or an old value under a newer version, does not open. A complete older row does open:
nothing outside of it says which version is the newest. Values are stored and used, but never shown.
"""

import os
import re
import secrets
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Struct
from sqlalchemy import RowMapping, delete, select, union_all
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import Clock
from gateway.errors import ChangedMeanwhile, NotReady, RequestInvalid
from gateway.secrets.envelope import KEY_BYTES, MasterKey, UnwrapFailed
from gateway.secrets.keeper import SecretUnavailableError
from gateway.secrets.secret import Secret
from gateway.secrets.sources import SECRET_MAX_BYTES
from gateway.store.engine import Database
from gateway.store.revisions import bump
from gateway.store.schema.tables import sealed_secrets, spare_secrets


_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_NONCE_BYTES = 12
MEANWHILE = "Somebody else set or removed this secret meanwhile. Nothing was done."


class SealedSecret(Struct, frozen=True):
    """What may be shown of a secret."""

    name: str
    version: int
    master_key_id: str
    set_us: int
    set_by: str
    fingerprint: str = ""
    """Distinguishes values without revealing them; empty if sealed before fingerprints existed."""


class SealedSecretNames:
    """Lists what is sealed in one database; needs no key, and opens nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def listed(self) -> Sequence[SealedSecret]:
        """All secrets, without their values."""
        query = select(sealed_secrets).order_by(sealed_secrets.c.name)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [SealedSecret(**{key: row[key] for key in _PUBLIC}) for row in rows]


class SealedSecretTable(SealedSecretNames):
    """Sealed secrets of one database under one master key."""

    def __init__(self, database: Database, master: MasterKey, clock: Clock) -> None:
        super().__init__(database)
        self._master = master
        self._clock = clock

    async def seal(
        self, name: str, value: Secret[str], set_by: str, *, expected: int | None = None
    ) -> int:
        """Seal a value under a new version, which is returned; workers use it within seconds.

        `expected` is the version that the caller has seen, 0 for none.

        Raises:
            RequestInvalid: the name or the value is not possible.
            ChangedMeanwhile: there is another version now.
        """
        if _NAME.fullmatch(name) is None:
            reason = "use 1 to 63 lower-case letters, digits, '.', '_' or '-'"
            raise RequestInvalid(f"name: {reason}", parameter="name")
        text = value.reveal().encode()
        if not text or len(text) > SECRET_MAX_BYTES:
            raise RequestInvalid("a secret is neither empty nor huge", parameter="value")
        try:
            return await self._seal(name, value, set_by, expected)
        except IntegrityError:
            # Somebody else sealed the first one at the same moment: now there is one to be seen.
            return await self._seal(name, value, set_by, expected)

    async def _seal(self, name: str, value: Secret[str], set_by: str, expected: int | None) -> int:
        async with self._database.writing() as connection:
            query = select(sealed_secrets.c.version).where(sealed_secrets.c.name == name)
            found = (await connection.execute(query.with_for_update())).scalar_one_or_none()
            _check_version(expected, found)
            version = await newest_version(connection, name) + 1
            row = sealed_row(self._master, self._clock, name, version, value, set_by)
            if found is not None:  # Otherwise it might be another's, which nobody has seen.
                gone = delete(sealed_secrets).where(sealed_secrets.c.name == name)
                await connection.execute(gone)
            await connection.execute(sealed_secrets.insert(), row)
            await bump(connection)
        return version

    async def remove(self, name: str, *, expected: int | None = None) -> None:
        """Delete all versions of a secret; its users lose it after the outage tolerance.

        Raises:
            RequestInvalid: there is none of this name.
            ChangedMeanwhile: it has another version than the expected one.
        """
        gone = delete(sealed_secrets).where(sealed_secrets.c.name == name)
        query = select(sealed_secrets.c.version).where(sealed_secrets.c.name == name)
        async with self._database.writing() as connection:
            found = (await connection.execute(query.with_for_update())).scalar_one_or_none()
            _check_version(expected, found)
            if not (await connection.execute(gone)).rowcount:
                raise RequestInvalid("there is no such secret", parameter="name")
            await connection.execute(delete(spare_secrets).where(spare_secrets.c.name == name))
            await bump(connection)

    async def open(self, name: str) -> Secret[str]:
        """The version in use.

        Raises:
            SecretUnavailableError: there is none, it was moved or changed, or was sealed under
                another master key, or the database does not answer.
        """
        query = select(sealed_secrets).where(sealed_secrets.c.name == name)
        try:
            async with self._database.reading() as connection:
                row = (await connection.execute(query)).mappings().one_or_none()
        except NotReady:
            raise SecretUnavailableError("the database does not answer") from None
        if row is None:
            raise SecretUnavailableError("the database has no such secret")
        return open_row(self._master, row)


def sealed_row(
    master: MasterKey, clock: Clock, name: str, version: int, value: Secret[str], set_by: str
) -> dict[str, object]:
    """A row that holds a value under a data key of its own."""
    bound_to = _bound_to(name, version)
    key, nonce = secrets.token_bytes(KEY_BYTES), os.urandom(_NONCE_BYTES)
    text = value.reveal().encode()
    return {
        "name": name,
        "version": version,
        "master_key_id": master.key_id,
        "wrapped_key": master.wrap(key, bound_to),
        "sealed": nonce + AESGCM(key).encrypt(nonce, text, bound_to),
        "set_us": clock.utc_us(),
        "set_by": set_by[:200],
        "fingerprint": master.fingerprint(value),
    }


def open_row(master: MasterKey, row: RowMapping) -> Secret[str]:
    """The value in a row; raises SecretUnavailableError as `SealedSecretTable.open`."""
    bound_to = _bound_to(row["name"], row["version"])
    sealed = bytes(row["sealed"])
    try:
        key = master.unwrap(bytes(row["wrapped_key"]), bound_to)
        text = AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound_to)
    except (UnwrapFailed, InvalidTag, ValueError):  # The last where too little is left of it.
        reason = "the secret was changed, moved, or sealed under another master key"
        raise SecretUnavailableError(reason) from None
    return Secret(text.decode())


def sealed_anew(master: MasterKey, row: RowMapping) -> dict[str, object]:
    """The changes to a row when the present master key seals it; raises as `open_row`."""
    value, bound_to = open_row(master, row), _bound_to(row["name"], row["version"])
    key = master.unwrap(bytes(row["wrapped_key"]), bound_to)
    return {
        "master_key_id": master.key_id,
        "wrapped_key": master.wrap(key, bound_to),
        "fingerprint": master.fingerprint(value),
    }


async def newest_version(connection: AsyncConnection, name: str) -> int:
    """The highest version number of a secret; 0 for none: no number is given twice."""
    numbers = [
        select(table.c.version).where(table.c.name == name)
        for table in (sealed_secrets, spare_secrets)
    ]
    found = (await connection.execute(union_all(*numbers))).scalars().all()
    return max(found, default=0)


class DatabasePlace:
    """One sealed secret, see `gateway.secrets.keeper.SecretPlace`."""

    def __init__(self, table: SealedSecretTable, name: str) -> None:
        self._table = table
        self._name = name

    async def read(self) -> Secret[str]:
        return await self._table.open(self._name)


_PUBLIC = ("name", "version", "master_key_id", "set_us", "set_by", "fingerprint")


def _check_version(expected: int | None, found: int | None) -> None:
    if expected is not None and expected != (found or 0):
        raise ChangedMeanwhile(MEANWHILE)


def _bound_to(name: str, version: int) -> bytes:
    return f"gatewright sealed secret\x00{name}\x00{version}".encode()
