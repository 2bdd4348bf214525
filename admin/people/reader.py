"""Gathers the data of a person's page: how they sign in, their roles, teams, keys and deeds."""

from collections.abc import Mapping
from typing import Final

import msgspec
from litestar.exceptions import NotFoundException
from msgspec import Struct

from admin.services import Services
from gateway.oversight.access import Person
from gateway.oversight.deeds import OPERATORS
from gateway.oversight.searching import Filter, Term, parse
from gateway.store.identity.invitations import Invitation, Invitations
from gateway.store.identity.people import Facts
from gateway.store.identity.teams import TeamStore
from gateway.store.traffic.conditions import Search, Source
from gateway.store.traffic.lists import Row


DEEDS_SHOWN: Final = 20
LOOKED_AT: Final = 500
ABOUT_PEOPLE: Final = "action:person.*,role.*"


class PersonDetail(Struct, frozen=True):
    """All that somebody's page shows."""

    person: Person
    facts: Facts
    state: str
    """`disabled`, `invited`, `shut` (no way to sign in), `here` or `able`."""
    invitation: Invitation | None
    teams: tuple[tuple[str, str], ...]
    """Organisation and name of each that they belong to or own."""
    keys: tuple[tuple[str, int], ...]
    """Organisations, and how many live keys they issued there."""
    did: tuple[Row, ...]
    """What they did last."""
    undergone: tuple[Row, ...]
    """What was done last to them or their roles."""


class PeopleReader:
    """People of the installation."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._traffic = services.traffic
        self._teams = TeamStore(services.database, services.clock)
        self._lists = services.people_lists
        self.invitations = Invitations(services.database, services.clock)

    async def person(self, name: str) -> Person:
        """Raises NotFoundException where there is nobody of that name."""
        found = await self._lists.person(name)
        if found is None:
            raise NotFoundException
        return found

    async def detail(self, name: str) -> PersonDetail:
        """Raises NotFoundException where there is nobody of that name."""
        person = await self.person(name)
        facts = await self._services.people.facts(name)
        if facts is None:
            raise NotFoundException
        invitation = (await self.invitations.pending()).get(name)
        return PersonDetail(
            person=person,
            facts=facts,
            state=state_of(facts, invitation),
            invitation=invitation,
            teams=tuple(await self._teams.of_person(name)),
            keys=tuple((await self._services.keys.issued_by(name)).items()),
            did=await self._did(name),
            undergone=await self._undergone(name),
        )

    async def _did(self, name: str) -> tuple[Row, ...]:
        found = Filter((Term("actor", (name,)),))
        page = await self._traffic.page(self._search(found), limit=DEEDS_SHOWN)
        return page.rows

    async def _undergone(self, name: str) -> tuple[Row, ...]:
        """The newest on this person, among so many of the newest on anybody."""
        page = await self._traffic.page(self._search(parse(ABOUT_PEOPLE)), limit=LOOKED_AT)
        numbers = [row.sequence for row in page.rows]
        records = await self._services.records.numbered(OPERATORS, numbers) if numbers else []
        theirs = {
            each.sequence
            for each in records
            if each.projected.raw_json and _is_about(each.projected.record.detail, name)
        }
        return tuple(row for row in page.rows if row.sequence in theirs)[:DEEDS_SHOWN]

    def _search(self, found: Filter) -> Search:
        return Search(Source(OPERATORS, "admin"), found, self._services.clock.utc_us())


def state_of(facts: Facts, invitation: Invitation | None) -> str:
    """How somebody stands, in a word."""
    if facts.disabled_us is not None:
        return "disabled"
    if not (facts.has_password or facts.has_subject):
        return "invited" if invitation else "shut"
    return "here" if facts.sessions else "able"


def _is_about(detail: Mapping[str, str], name: str) -> bool:
    """Whom a deed was done to stands in its words, as `person` or, on the machine, as `name`."""
    try:
        after = msgspec.json.decode(detail.get("after", "null"))
    except msgspec.DecodeError:
        return False
    return isinstance(after, dict) and name in (after.get("person"), after.get("name"))
