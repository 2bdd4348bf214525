"""A second version of a sealed secret: the next one before its use, the former for a while.

The next version is tried before anything depends on it. When it takes over, the former one is kept
for a stated time and can be put back; then it is destroyed. Workers read only the version in use: a
switch reaches them as any other change of a secret does.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Literal

from msgspec import Struct
from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import SECOND_US, Clock
from gateway.errors import ChangedMeanwhile, NotReady, RequestInvalid
from gateway.oversight.deeds import Deeds
from gateway.secrets.envelope import MasterKey
from gateway.secrets.keeper import SecretUnavailableError
from gateway.secrets.secret import Secret
from gateway.store.engine import Database
from gateway.store.revisions import bump
from gateway.store.schema.tables import sealed_secrets, spare_secrets
from gateway.store.sealing.sealed_secrets import MEANWHILE, newest_version, open_row, sealed_row


SpareKind = Literal["next", "former"]
NEXT: Final[SpareKind] = "next"
FORMER: Final[SpareKind] = "former"
NONE_SUCH: Final = "there is no such version"
OVER: Final = "Its time is over: it cannot be put back any more."
_C: Final = spare_secrets.c
_PUBLIC: Final = ("name", "kind", "version", "set_us", "set_by", "fingerprint", "until_us")
_SEALED: Final = tuple(column.name for column in sealed_secrets.c)


class SpareSecret(Struct, frozen=True):
    """What may be shown of a version that is not in use."""

    name: str
    kind: SpareKind
    version: int
    set_us: int
    set_by: str
    fingerprint: str
    until_us: int = 0
    """When a former version can no longer be put back."""


class SpareSecretTable:
    """Versions beside those in use, of one database under one master key."""

    def __init__(self, database: Database, master: MasterKey, clock: Clock) -> None:
        self._database = database
        self._master = master
        self._clock = clock

    async def of(self, name: str) -> dict[str, SpareSecret]:
        """The versions by kind; a former one whose time is over counts as gone. Raises NotReady."""
        return {each.kind: each for each in await self._listed(_C.name == name)}

    async def expired(self) -> Sequence[SpareSecret]:
        """Former versions whose time is over, but which still exist."""
        now_us = self._clock.utc_us()
        rows = await self._rows((_C.kind == FORMER) & (_C.until_us <= now_us))
        return [_spare(row) for row in rows]

    async def prepare(self, name: str, value: Secret[str], by: str, *, expected: int) -> int:
        """Seal a next version beside the one in use; returns its number.

        `expected` is the next version that was seen, 0 for none: that one is replaced.

        Raises:
            RequestInvalid: no version of it is in use.
            ChangedMeanwhile: there is another next version now.
        """
        async with self._database.writing() as connection:
            await _in_use(connection, name)
            await _require(connection, name, NEXT, expected)
            version = await newest_version(connection, name) + 1
            row = sealed_row(self._master, self._clock, name, version, value, by)
            await _drop(connection, name, NEXT)
            await connection.execute(insert(spare_secrets), row | {"kind": NEXT, "until_us": 0})
        return version

    async def switch(self, name: str, *, expected: int, in_use: int, keep_s: float) -> SpareSecret:
        """Use the next version from now on; returns the previous one, which is kept for a while.

        Raises:
            RequestInvalid: there is no next version.
            ChangedMeanwhile: the next version, or the one in use, is not the one that was seen.
        """
        until_us = self._clock.utc_us() + round(keep_s * SECOND_US)
        async with self._database.writing() as connection:
            current = await _in_use(connection, name, in_use)
            coming = await _require(connection, name, NEXT, expected)
            former = current | {"kind": FORMER, "until_us": until_us}
            await _drop(connection, name, NEXT, FORMER)
            await _use(connection, name, coming)
            await connection.execute(insert(spare_secrets), former)
            await bump(connection)
        return _spare(former)

    async def put_back(self, name: str, *, expected: int, in_use: int, coming: int) -> int:
        """Use the former version again; the one in use becomes the next one, replacing `coming`.

        `coming` is the next version that was seen, 0 for none.

        Raises:
            RequestInvalid: there is none, or its time is over.
            ChangedMeanwhile: one of the three is not the one that was seen. A newer value would be
                replaced by an older one, and a prepared one would be destroyed.
        """
        async with self._database.writing() as connection:
            current = await _in_use(connection, name, in_use)
            former = await _require(connection, name, FORMER, expected)
            await _require(connection, name, NEXT, coming)
            if not former:
                raise RequestInvalid(NONE_SUCH, parameter="version")
            if former["until_us"] <= self._clock.utc_us():
                raise RequestInvalid(OVER, parameter="version")
            await _drop(connection, name, NEXT, FORMER)
            await _use(connection, name, former)
            await connection.execute(insert(spare_secrets), current | {"kind": NEXT, "until_us": 0})
            await bump(connection)
            return int(former["version"])

    async def drop(self, name: str, kind: SpareKind, *, expected: int) -> None:
        """Destroy a version that is not in use; raises like `put_back`."""
        async with self._database.writing() as connection:
            await _in_use(connection, name)
            if not await _require(connection, name, kind, expected):
                raise RequestInvalid(NONE_SUCH, parameter="version")
            await _drop(connection, name, kind)

    async def open_next(self, name: str) -> Secret[str]:
        """The next version, to be tried.

        Raises:
            SecretUnavailableError: there is none, it does not open, or the database is away.
        """
        try:
            rows = await self._rows((_C.name == name) & (_C.kind == NEXT))
        except NotReady:
            raise SecretUnavailableError("the database does not answer") from None
        if not rows:
            raise SecretUnavailableError("there is no next version")
        return open_row(self._master, rows[0])

    async def _listed(self, condition: Any) -> list[SpareSecret]:
        now_us = self._clock.utc_us()
        found = [_spare(row) for row in await self._rows(condition)]
        return [each for each in found if each.kind == NEXT or each.until_us > now_us]

    async def _rows(self, condition: Any) -> Sequence[Any]:
        query = select(spare_secrets).where(condition).order_by(_C.name, _C.kind)
        async with self._database.reading() as connection:
            return (await connection.execute(query)).mappings().all()


class Retirement:
    """Destroys former versions whose time is over; each is recorded."""

    def __init__(self, table: SpareSecretTable, deeds: Deeds) -> None:
        self._table = table
        self._deeds = deeds

    async def tend(self) -> None:
        """Check once; raises NotReady."""
        for each in await self._table.expired():
            after = {"name": each.name, "version": each.version, "fingerprint": each.fingerprint}
            with suppress(ChangedMeanwhile):
                async with self._deeds.doing("schedule", "secret.retired", "", after=after):
                    await self._table.drop(each.name, FORMER, expected=each.version)


def _spare(row: Any) -> SpareSecret:
    return SpareSecret(**{key: row[key] for key in _PUBLIC})


async def _in_use(
    connection: AsyncConnection, name: str, expected: int | None = None
) -> dict[str, Any]:
    """The row in use, locked: changes of a secret happen one after the other."""
    query = select(sealed_secrets).where(sealed_secrets.c.name == name).with_for_update()
    row = (await connection.execute(query)).mappings().one_or_none()
    if row is None:
        raise RequestInvalid("there is no such secret: set it first", parameter="name")
    if expected is not None and row["version"] != expected:
        raise ChangedMeanwhile(MEANWHILE)
    return dict(row)


async def _require(
    connection: AsyncConnection, name: str, kind: SpareKind, expected: int
) -> dict[str, Any]:
    """The row of a kind, with the version that was seen; empty if none was seen and none exists."""
    query = select(spare_secrets).where(_C.name == name, _C.kind == kind)
    row = (await connection.execute(query)).mappings().one_or_none()
    if (row["version"] if row else 0) != expected:
        raise ChangedMeanwhile(MEANWHILE)
    return dict(row) if row else {}


async def _use(connection: AsyncConnection, name: str, row: dict[str, Any]) -> None:
    if not row:
        raise RequestInvalid(NONE_SUCH, parameter="version")
    values = {key: row[key] for key in _SEALED}
    await connection.execute(
        update(sealed_secrets).where(sealed_secrets.c.name == name).values(**values)
    )


async def _drop(connection: AsyncConnection, name: str, *kinds: SpareKind) -> None:
    await connection.execute(delete(spare_secrets).where(_C.name == name, _C.kind.in_(kinds)))
