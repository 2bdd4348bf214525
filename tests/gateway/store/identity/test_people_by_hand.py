"""What the store of people holds to by itself, whatever its callers or the table say."""

import pytest
from sqlalchemy import update

from gateway.clock import StoppedClock
from gateway.errors import Forbidden, RequestInvalid
from gateway.oversight.access import NAMES_OF_PARTS, Grant, Person
from gateway.store.engine import Database
from gateway.store.identity.people import PeopleStore
from gateway.store.schema.tables import people


pytestmark = pytest.mark.anyio


async def test_whoever_was_disabled_in_the_table_is_signed_in_no_more(database: Database) -> None:
    store = PeopleStore(database, StoppedClock())
    await store.add("ann")
    session_id = await store.begin("ann")
    assert await store.session(session_id) is not None
    async with database.writing() as connection:
        await connection.execute(update(people).values(disabled_us=1))

    assert await store.session(session_id) is None


async def test_nobody_lets_in_again_who_may_do_more(database: Database) -> None:
    store = PeopleStore(database, StoppedClock())
    await store.add("ann")
    await store.grant("ann", Grant("platform_admin", "*"))
    await store.disable("ann")
    here = Person("sec", grants=frozenset({Grant("security_admin", "acme")}))
    with pytest.raises(Forbidden):
        await store.enable("ann", here)
    assert (await store.listed())[0].is_disabled

    await store.enable("ann", Person("all", grants=frozenset({Grant("platform_admin", "*")})))
    assert not (await store.listed())[0].is_disabled


@pytest.mark.parametrize("name", [*sorted(NAMES_OF_PARTS), "oidc-0123456789ab", "A", "a b", ""])
async def test_nobody_is_made_under_a_name_that_none_may_have(
    database: Database, name: str
) -> None:
    with pytest.raises(RequestInvalid):
        await PeopleStore(database, StoppedClock()).add(name)
