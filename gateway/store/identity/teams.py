"""Teams: workspaces as people run them, with an owner, members, and limits for new keys.

A team groups keys, money and policy. It is no security boundary: membership gives no permission,
and whoever may read an organisation's traffic reads that of all its teams.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import (
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    String,
    Table,
    and_,
    delete,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import Clock
from gateway.errors import RequestInvalid
from gateway.money.budgets import WINDOWS, WindowKind
from gateway.oversight.access import EVERYWHERE
from gateway.store.engine import Database
from gateway.store.identity.keys import Place, check_place
from gateway.store.identity.names import visible
from gateway.store.schema.tables import metadata, organisations, people, role_grants, workspaces


TITLE_CHARS_MAX = 200
EXPIRES_DAYS_MAX = 36_500
MICROUSD_MAX = 10**15
COUNT_MAX = 10**12
MEMBERS_MAX = 500

team_members = Table(
    "team_members",
    metadata,
    Column("organisation", String(63), primary_key=True),
    Column("workspace", String(63), primary_key=True),
    Column("person", String(63), ForeignKey("people.name"), primary_key=True, index=True),
    ForeignKeyConstraint(
        ["organisation", "workspace"], ["workspaces.organisation", "workspaces.name"]
    ),
)


class KeyDefaults(Struct, frozen=True, forbid_unknown_fields=True):
    """Defaults for a new key; None for no limit of its own."""

    expires_days: int | None = None
    budget_microusd: int | None = None
    budget_window: WindowKind = "month"
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None

    @property
    def rates(self) -> tuple[int | None, int | None, int | None]:
        return self.requests_per_minute, self.tokens_per_minute, self.concurrent_requests

    @property
    def is_nothing(self) -> bool:
        return self.budget_microusd is None and self.rates == (None, None, None)


class Team(Struct, frozen=True):
    """One team as it is stored."""

    organisation: str
    name: str
    title: str
    created_us: int
    owner: str
    """The name of a person; empty for nobody."""
    archived_us: int | None
    revision: int
    """Counts changes, so that a form says which state it was based on."""
    defaults: KeyDefaults
    members: tuple[str, ...]


class TeamStore:
    """Teams of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def teams(self, organisation: str) -> list[Team]:
        """All teams of an organisation, including archived ones, by name."""
        return await self._read(workspaces.c.organisation == organisation)

    async def team(self, organisation: str, name: str) -> Team | None:
        columns = workspaces.c
        found = await self._read(and_(columns.organisation == organisation, columns.name == name))
        return found[0] if found else None

    async def of_person(self, person: str) -> list[tuple[str, str]]:
        """Organisation and name of every team that a person belongs to or owns."""
        member, columns = team_members.c, workspaces.c
        belongs = select(member.organisation, member.workspace).where(member.person == person)
        owns = select(columns.organisation, columns.name).where(columns.owner == person)
        async with self._database.reading() as connection:
            rows = (await connection.execute(belongs.union(owns))).all()
        return sorted((row[0], row[1]) for row in rows)

    async def create(self, organisation: str, name: str, title: str = "", owner: str = "") -> None:
        """Create a team without a key.

        Raises:
            RequestInvalid: the name is taken or not possible, the owner does not exist, or there is
                no such organisation.
        """
        check_place(Place(organisation, name, name))
        row = {"organisation": organisation, "name": name, "title": checked_title(title or name)}
        row |= {"owner": owner}
        try:
            async with self._database.writing() as connection:
                there = select(organisations.c.name).where(organisations.c.name == organisation)
                if (await connection.execute(there)).first() is None:
                    reason = "there is no such organisation"
                    raise RequestInvalid(reason, parameter="organisation")
                await _require_person(connection, organisation, owner, "owner")
                await connection.execute(
                    insert(workspaces).values(**row, created_us=self._clock.utc_us())
                )
        except IntegrityError:
            raise RequestInvalid("there is such a team already", parameter="name") from None

    async def change(
        self, organisation: str, name: str, *, title: str, owner: str, revision: int | None = None
    ) -> bool:
        """Change title and owner; False if somebody changed the team after `revision`.

        Raises:
            RequestInvalid: the title is not possible, or the owner does not exist.
        """
        values = {"title": checked_title(title), "owner": owner}
        return await self._change(organisation, name, revision, values, owner)

    async def set_defaults(
        self, organisation: str, name: str, defaults: KeyDefaults, revision: int | None = None
    ) -> bool:
        """Set the defaults for new keys; existing keys keep what they have. Like `change`."""
        checked_defaults(defaults)
        values = {f"key_{field}": value for field, value in asdict(defaults).items()}
        return await self._change(organisation, name, revision, values)

    async def archive(self, organisation: str, name: str, revision: int | None = None) -> bool:
        """Issue no new keys from now on; existing keys go on. Like `change`."""
        values = {"archived_us": self._clock.utc_us()}
        return await self._change(organisation, name, revision, values)

    async def restore(self, organisation: str, name: str, revision: int | None = None) -> bool:
        """Allow new keys again. Like `change`."""
        return await self._change(organisation, name, revision, {"archived_us": None})

    async def add_member(self, organisation: str, name: str, person: str) -> None:
        """Add a person to the team; repeating it is no error.

        Raises:
            RequestInvalid: nobody with a role there has this name, or there are too many.
        """
        row = {"organisation": organisation, "workspace": name, "person": person}
        async with self._database.writing() as connection:
            await _require_person(connection, organisation, person, "person")
            # One row of the team is locked, so that two additions count one after the other.
            await connection.execute(
                select(workspaces.c.name).where(*_is(organisation, name)).with_for_update()
            )
            of = _of(organisation, name)
            members = select(team_members.c.person).where(*of)
            there = (await connection.execute(members)).scalars().all()
            if person in there:
                return
            if len(there) >= MEMBERS_MAX:
                raise RequestInvalid(
                    f"a team has at most {MEMBERS_MAX} members", parameter="person"
                )
            await connection.execute(insert(team_members).values(**row))

    async def remove_member(self, organisation: str, name: str, person: str) -> None:
        """Remove a person from the team; repeating it is no error."""
        gone = delete(team_members).where(*_of(organisation, name), team_members.c.person == person)
        async with self._database.writing() as connection:
            await connection.execute(gone)

    async def _change(
        self,
        organisation: str,
        name: str,
        revision: int | None,
        values: dict[str, Any],
        person: str = "",
    ) -> bool:
        columns = workspaces.c
        statement = update(workspaces).where(*_is(organisation, name))
        if revision is not None:
            statement = statement.where(columns.revision == revision)
        statement = statement.values(**values, revision=columns.revision + 1)
        async with self._database.writing() as connection:
            await _require_person(connection, organisation, person, "owner")
            return bool((await connection.execute(statement)).rowcount)

    async def _read(self, where: Any) -> list[Team]:
        query = select(workspaces).where(where).order_by(workspaces.c.name)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
            if not rows:
                return []
            names = [rows[0]["name"]] if len(rows) == 1 else None
            belongs = await members_of(connection, rows[0]["organisation"], names)
        return [team_of(row, belongs.get(row["name"], ())) for row in rows]


def checked_title(title: str) -> str:
    """Raise RequestInvalid if it is not a possible title."""
    said = title.strip()
    if not 0 < len(said) <= TITLE_CHARS_MAX:
        reason = f"a title has 1 to {TITLE_CHARS_MAX} characters that can be seen"
        raise RequestInvalid(reason, parameter="title")
    return visible(said, "title")


def checked_defaults(defaults: KeyDefaults) -> None:
    """Raise RequestInvalid naming the field that is wrong."""
    days, money = defaults.expires_days, defaults.budget_microusd
    if days is not None and not 0 < days <= EXPIRES_DAYS_MAX:
        raise RequestInvalid(f"1 to {EXPIRES_DAYS_MAX} days", parameter="expires_days")
    if money is not None and not 0 <= money <= MICROUSD_MAX:
        raise RequestInvalid("this amount is negative or too large", parameter="budget_microusd")
    if defaults.budget_window not in WINDOWS:
        raise RequestInvalid("there is no such window", parameter="budget_window")
    for name in ("requests_per_minute", "tokens_per_minute", "concurrent_requests"):
        number = getattr(defaults, name)
        if number is not None and not 0 <= number <= COUNT_MAX:
            raise RequestInvalid("this number is negative or too large", parameter=name)


def _is(organisation: str, name: str) -> tuple[Any, ...]:
    return workspaces.c.organisation == organisation, workspaces.c.name == name


def _of(organisation: str, name: str) -> tuple[Any, ...]:
    return team_members.c.organisation == organisation, team_members.c.workspace == name


async def members_of(
    connection: AsyncConnection, organisation: str, names: Sequence[str] | None
) -> dict[str, tuple[str, ...]]:
    """The members of these teams; None means all of the organisation's."""
    columns = team_members.c
    query = select(columns.workspace, columns.person).where(columns.organisation == organisation)
    if names is not None:
        query = query.where(columns.workspace.in_(names))
    found: dict[str, list[str]] = {}
    for workspace, person in await connection.execute(query.order_by(columns.person)):
        found.setdefault(workspace, []).append(person)
    return {workspace: tuple(names) for workspace, names in found.items()}


async def _require_person(
    connection: AsyncConnection, organisation: str, person: str, parameter: str
) -> None:
    """People without a role there get the same answer as unknown ones: names must not be probed."""
    if not person and parameter == "owner":
        return
    query = (
        select(people.c.name)
        .join(role_grants, role_grants.c.person == people.c.name)
        .where(
            people.c.name == person,
            people.c.disabled_us.is_(None),
            or_(
                role_grants.c.organisation == organisation,
                role_grants.c.organisation == EVERYWHERE,
            ),
        )
        .limit(1)
    )
    if (await connection.execute(query)).first() is None:
        reason = "nobody with a role in this organisation is called so"
        raise RequestInvalid(reason, parameter=parameter)


def team_of(row: Any, members: Sequence[str] = ()) -> Team:
    fields = KeyDefaults.__struct_fields__
    return Team(
        organisation=row["organisation"],
        name=row["name"],
        title=row["title"],
        created_us=row["created_us"],
        owner=row["owner"],
        archived_us=row["archived_us"],
        revision=row["revision"],
        defaults=KeyDefaults(**{field: row[f"key_{field}"] for field in fields}),
        members=tuple(members),
    )
