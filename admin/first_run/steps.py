"""The five steps of a first run, from no users to an explained answer, and which are done."""

from typing import Final

from msgspec import Struct

from admin.services import Services
from gateway.oversight.access import TOKEN_PERSON, Permission, Person, organisations_of
from gateway.store.evidence.sink import AuditQuery
from gateway.types import AuditRecord


LOOKED_AT_MAX: Final = 20


class Steps(Struct, frozen=True):
    """What is done; each step names what it left behind, empty while it is to be done."""

    person: str
    organisation: str
    key_id: str
    key_name: str
    request_id: str
    request_organisation: str

    @property
    def done(self) -> int:
        """How many of the five; a request's page is there with the request."""
        first = (self.person, self.organisation, self.key_id)
        return sum(map(bool, first)) + 2 * bool(self.request_id)


async def steps_of(services: Services, person: Person) -> Steps:
    """As far as somebody may see it.

    Raises:
        NotReady: the database does not answer.
    """
    visible = organisations_of(person, Permission.OVERVIEW_READ)
    names = sorted(await services.people.organisations())
    own = [name for name in names if visible is None or name in visible]
    keys = [key for key in await services.keys.keys() if key.principal.organisation in own]
    last = await _last(services, own)
    return Steps(
        person=await _first_person(services, person),
        organisation=own[0] if own else "",
        key_id=keys[0].key_id if keys else "",
        key_name=keys[0].principal.key_name if keys else "",
        request_id=last.request_id if last else "",
        request_organisation=last.organisation if last else "",
    )


async def _first_person(services: Services, person: Person) -> str:
    if person.name != TOKEN_PERSON.name:
        return person.name
    return next((each.name for each in await services.people.listed()), "")


async def _last(services: Services, organisations: list[str]) -> AuditRecord | None:
    found = []
    for name in organisations[:LOOKED_AT_MAX]:
        query = AuditQuery(organisation=name, stage="outcome", status="ok")
        newest = await services.records.newest(query, 1)
        found += [row.projected.record for row in newest]
    return max(found, key=lambda record: record.utc_us, default=None)
