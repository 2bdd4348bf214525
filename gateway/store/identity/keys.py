"""The tree of organisations, workspaces and projects, and the virtual keys that hang on it."""

import re
import secrets
from collections.abc import Callable, Sequence

from msgspec import Struct
from sqlalchemy import RowMapping, Table, func, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import Clock, SteadyClock
from gateway.errors import ChangedMeanwhile, RequestInvalid
from gateway.identity import (
    KeyDigest,
    KeyRecord,
    KeyTable,
    KeyText,
    Peppers,
    Workload,
    accounts_of,
    issue_key,
    key_table,
)
from gateway.store.engine import Database
from gateway.store.identity.names import visible
from gateway.store.identity.workloads import require_unbound, stored, workload_of
from gateway.store.revisions import bump, revision_in
from gateway.store.schema.tables import organisations, projects, virtual_keys, workspaces
from gateway.store.speech import insert_into
from gateway.types import Principal, Translation


_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}", re.ASCII)
_TITLE_LENGTH = 200
EXPIRED_KEPT_US = 7 * 86_400_000_000
"""How long a worker knows a key that has expired."""
TURNED = "This key was given another secret meanwhile. Nothing was done now."
OVERLAPS = "This key has two secrets: say that the older one ends now. Nothing was done."


NOT_ROTATED = "This key has no secret of ours: it is proved by tokens of its issuer."


class Place(Struct, frozen=True):
    """A project and where it lies; each name is lower-case letters, digits, `.`, `_` or `-`."""

    organisation: str
    workspace: str
    project: str


class NewKey(Struct, frozen=True):
    """The properties of a key to be issued."""

    place: Place
    name: str
    created_by: str
    labels: tuple[str, ...] = ()
    models: frozenset[str] | None = None
    """Targets the key may use; None for all that policy permits, an empty set for none."""
    expires_us: int | None = None
    translation: Translation = "warn"
    workload: Workload | None = None
    """Whose tokens prove it, instead of a secret."""
    key_id: str = ""
    """Chosen by a caller that records the deed in advance; otherwise drawn."""


class KeyReader:
    """Reads keys, which are stored as digests only; reading needs no pepper."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def keys(self, organisation: str | None = None) -> list[KeyRecord]:
        """Keys of one organisation or of all, the newest first; revoked ones too."""
        query = select(virtual_keys).order_by(virtual_keys.c.created_us.desc(), virtual_keys.c.id)
        if organisation is not None:
            query = query.where(virtual_keys.c.organisation == organisation)
        async with self._database.reading() as connection:
            return [_record(row) for row in (await connection.execute(query)).mappings()]


class KeyStore(KeyReader):
    """Reads and changes keys; every change reaches all workers within a second."""

    def __init__(
        self,
        database: Database,
        peppers: Peppers,
        clock: Clock,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        super().__init__(database)
        self._peppers = peppers
        self._clock, self._steady = clock, SteadyClock(clock)
        self._random_bytes = random_bytes

    async def ensure_place(self, place: Place) -> None:
        """Make the organisation, the workspace and the project that do not exist yet.

        Raises:
            RequestInvalid: a name has a form that is not allowed.
        """
        check_place(place)
        async with self._database.writing() as connection:
            await self._ensure(connection, place)

    async def issue(self, new: NewKey) -> KeyText:
        """Make a key, and its place if missing; the text can never be read again.

        The text of a key with a `workload` opens nothing: it only gives the row a digest.

        Raises:
            RequestInvalid: a name has a form that is not allowed, there is a key with this id, its
                workspace is archived, or another live key is bound to such tokens.
        """
        check_place(new.place)
        if not 0 < len(new.name) <= _TITLE_LENGTH:
            raise RequestInvalid("a key needs a name of 1 to 200 characters", parameter="name")
        visible(new.name, "name")
        key = issue_key(self._random_bytes, new.key_id)
        version = self._peppers.newest
        row = {
            "id": key.key_id,
            "organisation": new.place.organisation,
            "workspace": new.place.workspace,
            "project": new.place.project,
            "name": new.name,
            "digest": self._peppers.digest(key.reveal(), version),
            "pepper_version": version,
            "labels": list(new.labels),
            "models": None if new.models is None else sorted(new.models),
            "created_us": self._clock.utc_us(),
            "created_by": new.created_by[:_TITLE_LENGTH],
            "expires_us": new.expires_us,
            "translation": new.translation,
            "workload": None if new.workload is None else stored(new.workload),
        }
        try:
            async with self._database.writing() as connection:
                if new.workload is not None:
                    # The counter is raised first, so that two bound at once take turns.
                    await bump(connection)
                    await require_unbound(connection, new.workload, self._clock.utc_us())
                await self._ensure(connection, new.place)
                await _require_open(connection, new.place)
                await connection.execute(virtual_keys.insert(), row)
                await bump(connection)
        except IntegrityError:
            raise RequestInvalid("this key was issued already", parameter="key_id") from None
        return key

    async def issued_by(self, person: str) -> dict[str, int]:
        """How many live keys somebody issued, by organisation."""
        columns, now_us = virtual_keys.c, self._clock.utc_us()
        query = (
            select(columns.organisation, func.count())
            .where(
                columns.created_by == person,
                columns.revoked_us.is_(None),
                or_(columns.expires_us.is_(None), columns.expires_us > now_us),
            )
            .group_by(columns.organisation)
            .order_by(columns.organisation)
        )
        async with self._database.reading() as connection:
            return {row[0]: int(row[1]) for row in await connection.execute(query)}

    async def places(self, organisation: str) -> list[Place]:
        """The projects of an organisation, by their names."""
        columns = projects.c
        query = (
            select(columns.organisation, columns.workspace, columns.name)
            .where(columns.organisation == organisation)
            .order_by(columns.workspace, columns.name)
        )
        async with self._database.reading() as connection:
            return [Place(*row) for row in (await connection.execute(query)).all()]

    async def table(self) -> KeyTable:
        """All keys that are not revoked, for a worker's memory; long expired ones are left out.

        Recently expired ones are included: a clock that is ahead may be corrected.
        """
        since_us = min(self._clock.utc_us(), self._steady.utc_us()) - EXPIRED_KEPT_US
        columns = virtual_keys.c
        async with self._database.reading() as connection:
            # The counter is read first: a change after it makes the watcher load again.
            revision = await revision_in(connection)
            query = select(virtual_keys).where(
                columns.revoked_us.is_(None),
                or_(columns.expires_us.is_(None), columns.expires_us > since_us),
            )
            rows = (await connection.execute(query)).mappings().all()
        return key_table(revision, map(_record, rows), self._steady.utc_us)

    async def revoke(self, key_id: str, organisation: str | None = None) -> None:
        """End a key for good; revoking it again is no error.

        Raises:
            RequestInvalid: there is no such key, or it belongs to another organisation.
        """
        async with self._database.writing() as connection:
            row = await self._locked(connection, key_id, organisation)
            if row["revoked_us"] is not None:
                return
            # The counter is raised first, to know from which revision on the key is dead.
            await bump(connection)
            ended = {
                "revoked_us": self._clock.utc_us(),
                "revoked_revision": await revision_in(connection),
            }
            mine = virtual_keys.c.id == key_id
            await connection.execute(update(virtual_keys).where(mine).values(**ended))

    async def rotate(
        self,
        key_id: str,
        *,
        overlap_s: float,
        organisation: str | None = None,
        seen: str | None = None,
        ends_former: bool = True,
    ) -> KeyText:
        """Give a key a new secret; the present one stays valid for `overlap_s` more seconds.

        The secret before the present one ends. So a form says by `seen` (`secrets_mark`) which
        secrets it was made for: a form sent twice would end the secret that is in use. Without
        `seen`, a former secret that is still valid ends only if `ends_former` is set.

        Raises:
            ChangedMeanwhile: it has other secrets by now, or two where one was expected.
            RequestInvalid: there is no such key, it is revoked, or another organisation's.
        """
        key = issue_key(self._random_bytes, key_id)
        version, now_us = self._peppers.newest, self._clock.utc_us()
        async with self._database.writing() as connection:
            row = await self._locked(connection, key_id, organisation)
            if row["revoked_us"] is not None:
                raise RequestInvalid("a revoked key cannot be rotated", parameter="key_id")
            if row["workload"] is not None:
                raise RequestInvalid(NOT_ROTATED, parameter="key_id")
            if seen is not None and seen != secrets_mark(row["former_until_us"]):
                raise ChangedMeanwhile(TURNED, parameter="key_id")
            if seen is None and not ends_former and (row["former_until_us"] or 0) > now_us:
                raise ChangedMeanwhile(OVERLAPS, parameter="ends_former")
            await self._change(
                connection,
                key_id,
                digest=self._peppers.digest(key.reveal(), version),
                pepper_version=version,
                former_digest=row["digest"],
                former_pepper_version=row["pepper_version"],
                former_until_us=now_us + round(overlap_s * 1_000_000),
            )
        return key

    async def take_back(self, told_nobody: KeyText) -> None:
        """End a secret from a rotation that nobody could be told; the previous one stays valid.

        Nothing happens if the secret was replaced meanwhile.
        """
        columns, text = virtual_keys.c, told_nobody.reveal()
        async with self._database.writing() as connection:
            row = await self._locked(connection, told_nobody.key_id, None)
            if not self._peppers.proves(text, row["pepper_version"], bytes(row["digest"])):
                return
            await self._change(
                connection,
                told_nobody.key_id,
                digest=columns.former_digest,
                pepper_version=columns.former_pepper_version,
                former_digest=None,
                former_pepper_version=None,
                former_until_us=None,
            )

    async def _locked(
        self, connection: AsyncConnection, key_id: str, organisation: str | None
    ) -> RowMapping:
        query = select(virtual_keys).where(virtual_keys.c.id == key_id).with_for_update()
        if organisation is not None:
            query = query.where(virtual_keys.c.organisation == organisation)
        row = (await connection.execute(query)).mappings().one_or_none()
        if row is None:
            raise RequestInvalid("there is no such key", parameter="key_id")
        return row

    async def _change(self, connection: AsyncConnection, key_id: str, **values: object) -> None:
        statement = update(virtual_keys).where(virtual_keys.c.id == key_id).values(**values)
        await connection.execute(statement)
        await bump(connection)

    async def _ensure(self, connection: AsyncConnection, place: Place) -> None:
        created_us = self._clock.utc_us()
        rows: Sequence[tuple[Table, dict[str, str]]] = (
            (organisations, {"name": place.organisation}),
            (workspaces, {"organisation": place.organisation, "name": place.workspace}),
            (
                projects,
                {
                    "organisation": place.organisation,
                    "workspace": place.workspace,
                    "name": place.project,
                },
            ),
        )
        for table, key in rows:
            values: dict[str, object] = {**key, "title": key["name"], "created_us": created_us}
            statement = insert_into(self._database.kind, table).values(values)
            await connection.execute(statement.on_conflict_do_nothing())


async def _require_open(connection: AsyncConnection, place: Place) -> None:
    # A shared lock, so that nobody archives it until the key is there to be seen.
    query = select(workspaces.c.archived_us).with_for_update(read=True)
    query = query.where(
        workspaces.c.organisation == place.organisation, workspaces.c.name == place.workspace
    )
    if (await connection.execute(query)).scalar_one() is not None:
        reason = f"the team {place.workspace} is archived: no key is issued in it"
        raise RequestInvalid(reason, parameter="workspace")


def secrets_mark(former_until_us: int | None) -> str:
    """The mark by which a form names the secrets it was made for; each rotation changes it."""
    return str(former_until_us or "one")


def check_place(place: Place) -> None:
    """Raises RequestInvalid when a name has a form that is not allowed."""
    for parameter in place.__struct_fields__:
        if _NAME.fullmatch(getattr(place, parameter)) is None:
            reason = "use 1 to 63 lower-case letters, digits, '.', '_' or '-'"
            raise RequestInvalid(f"{parameter}: {reason}", parameter=parameter)


def _record(row: RowMapping) -> KeyRecord:
    digests = [KeyDigest(row["pepper_version"], bytes(row["digest"]))]
    workload = workload_of(row["workload"])
    if row["former_digest"] is not None:
        former = bytes(row["former_digest"])
        digests.append(
            KeyDigest(row["former_pepper_version"], former, until_us=row["former_until_us"])
        )
    principal = Principal(
        key_id=row["id"],
        key_name=row["name"],
        organisation=row["organisation"],
        workspace=row["workspace"],
        project=row["project"],
        labels=tuple(row["labels"]),
        models=None if row["models"] is None else frozenset(row["models"]),
        accounts=accounts_of(row["organisation"], row["workspace"], row["project"], row["id"]),
        translation=row["translation"],
    )
    return KeyRecord(
        key_id=row["id"],
        digests=() if workload is not None else tuple(digests),
        principal=principal,
        created_us=row["created_us"],
        created_by=row["created_by"],
        expires_us=row["expires_us"],
        revoked_us=row["revoked_us"],
        revoked_revision=row["revoked_revision"],
        workload=workload,
    )
