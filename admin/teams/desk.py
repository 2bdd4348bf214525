"""Changes teams for the signed-in person; each change is first recorded as an admin record."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import asdict

from admin.services import Services
from gateway.errors import ChangedMeanwhile, RequestInvalid
from gateway.oversight.access import Person
from gateway.store.identity.teams import (
    KeyDefaults,
    Team,
    TeamStore,
    checked_defaults,
    checked_title,
)


class TeamDesk:
    """What people may do to teams of one organisation."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._store = TeamStore(services.database, services.clock)

    async def create(
        self, person: Person, organisation: str, name: str, title: str, owner: str
    ) -> None:
        """A team without a key.

        Raises:
            RequestInvalid: the name is taken or cannot be one, or nobody is called like the owner.
        """
        said = {"team": name, "title": checked_title(title or name), "owner": owner}
        async with self._services.deeds.doing(
            person.name, "team.created", organisation, after=said
        ):
            await self._store.create(organisation, name, title, owner)

    async def change(
        self, person: Person, team: Team, title: str, owner: str, revision: int | None
    ) -> None:
        """Another title or owner.

        Raises:
            RequestInvalid: the title cannot be one, or nobody is called like the owner.
            ChangedMeanwhile: somebody changed it after `revision`.
        """
        before = {"team": team.name, "title": team.title, "owner": team.owner}
        after = {"team": team.name, "title": checked_title(title), "owner": owner}
        async with self._doing(person, "team.changed", team, before, after):
            done = await self._store.change(
                team.organisation, team.name, title=title, owner=owner, revision=revision
            )
            _require(done)

    async def set_defaults(
        self, person: Person, team: Team, defaults: KeyDefaults, revision: int | None
    ) -> None:
        """What new keys get. Raises like `change`."""
        checked_defaults(defaults)
        before, after = asdict(team.defaults), {"team": team.name} | asdict(defaults)
        async with self._doing(person, "team.defaults_set", team, before, after):
            done = await self._store.set_defaults(team.organisation, team.name, defaults, revision)
            _require(done)

    async def archive(self, person: Person, team: Team, revision: int | None) -> None:
        """No new key from now on. Raises like `change`."""
        if team.archived_us is not None:
            raise RequestInvalid("This team is already archived.")
        before = {"archived": False}
        async with self._doing(
            person, "team.archived", team, before, {"team": team.name, "archived": True}
        ):
            _require(await self._store.archive(team.organisation, team.name, revision))

    async def restore(self, person: Person, team: Team, revision: int | None) -> None:
        """New keys again. Raises like `change`."""
        if team.archived_us is None:
            raise RequestInvalid("This team is not archived.")
        before = {"archived": True}
        async with self._doing(
            person, "team.restored", team, before, {"team": team.name, "archived": False}
        ):
            _require(await self._store.restore(team.organisation, team.name, revision))

    async def add_member(self, person: Person, team: Team, member: str) -> None:
        """Raises RequestInvalid where nobody with a role in the organisation is called so."""
        after = {"team": team.name, "person": member[:80]}
        async with self._doing(person, "team.member_added", team, None, after):
            await self._store.add_member(team.organisation, team.name, member)

    async def remove_member(self, person: Person, team: Team, member: str) -> None:
        """Somebody belongs to it no more; again is no error."""
        after = {"team": team.name, "person": member[:80]}
        async with self._doing(person, "team.member_removed", team, None, after):
            await self._store.remove_member(team.organisation, team.name, member)

    @asynccontextmanager
    async def _doing(
        self, person: Person, action: str, team: Team, before: object, after: object
    ) -> AsyncIterator[None]:
        async with self._services.deeds.doing(
            person.name, action, team.organisation, before=before, after=after
        ):
            yield


def _require(is_done: bool) -> None:  # noqa: FBT001 - the answer of what was just asked
    if not is_done:
        raise ChangedMeanwhile("somebody changed this team meanwhile")
