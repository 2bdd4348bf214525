"""A link is worth what its maker may do, when it is followed."""

import pytest
from sqlalchemy import delete

from gateway.clock import StoppedClock
from gateway.errors import Unauthenticated
from gateway.oversight.access import Grant, Person
from gateway.store.engine import Database
from gateway.store.identity.invitations import Invitations
from gateway.store.identity.people import PeopleStore
from gateway.store.schema.tables import people, role_grants


pytestmark = pytest.mark.anyio


async def test_a_link_of_somebody_who_is_nobody_any_more_lets_no_role_in(
    database: Database,
) -> None:
    """Their row was taken out of the table by hand: it is then no link of the operator's."""
    clock = StoppedClock()
    store, links = PeopleStore(database, clock), Invitations(database, clock)
    for name in ("sec", "newt"):
        await store.add(name)
    await store.grant("newt", Grant("viewer", "acme"))
    maker = Person("sec", grants=frozenset({Grant("security_admin", "*")}))
    await store.grant("sec", Grant("security_admin", "*"))
    code = await links.make("newt", "sec", maker)
    assert await links.whose(code) == "newt"

    async with database.writing() as connection:
        await connection.execute(delete(role_grants).where(role_grants.c.person == "sec"))
        await connection.execute(delete(people).where(people.c.name == "sec"))
    with pytest.raises(Unauthenticated):
        await links.whose(code)
