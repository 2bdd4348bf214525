"""Makes a person's roles follow their groups at the provider; each change is recorded first."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

from admin.sign_in.groups import roles_of
from gateway.configuration.sections import GroupRole
from gateway.oversight.access import EVERYWHERE, PROVIDER, Grant, Person
from gateway.oversight.deeds import Deeds
from gateway.store.identity.group_grants import GroupGrants
from gateway.store.identity.people import PeopleStore, name_of_subject


GIVEN: Final = "role.granted"
TAKEN: Final = "role.revoked"


class GroupRoles:
    """What a sign-in by the provider changes about people and their roles."""

    def __init__(
        self, people: PeopleStore, grants: GroupGrants, deeds: Deeds, mapping: Sequence[GroupRole]
    ) -> None:
        self._people = people
        self._grants = grants
        self._deeds = deeds
        self._mapping = mapping

    async def person(self, subject: str, title: str, groups: frozenset[str]) -> Person | None:
        """Whom the provider vouches for, with the roles of their groups; None for who is disabled.

        Who is disabled keeps out, and their roles stay as they are.
        """
        wanted = roles_of(groups, self._mapping)
        if await self._people.has_subject(subject):
            person = await self._people.by_subject(subject, title)
        else:
            name = name_of_subject(subject)
            after = {"name": name, "title": title, "subject": subject}
            known = {"groups": sorted(set(wanted.values()))} if wanted else {}
            async with self._deeds.doing(PROVIDER, "person.added", "", after=after | known):
                person = await self._people.by_subject(subject, title)
        if person is not None:
            await self._follow(person.name, wanted)
        return person

    async def _follow(self, name: str, wanted: dict[Grant, str]) -> None:
        held = await self._grants.held(name)
        # First what ends: one that cannot be recorded leaves nobody with more than before.
        for grant, group in sorted(held.by_group.items()):
            if wanted.get(grant) != group:
                async with self._doing(TAKEN, name, grant, group):
                    await self._grants.take(name, grant)
        for grant, group in sorted(wanted.items()):
            if grant not in held.by_hand and held.by_group.get(grant) != group:
                async with self._doing(GIVEN, name, grant, group):
                    await self._grants.give(name, grant, group)

    def _doing(
        self, action: str, name: str, grant: Grant, group: str
    ) -> AbstractAsyncContextManager[None]:
        about = "" if grant.organisation == EVERYWHERE else grant.organisation
        after = {"person": name, "role": grant.role, "organisation": grant.organisation}
        return self._deeds.doing(PROVIDER, action, about, after=after | {"group": group})
