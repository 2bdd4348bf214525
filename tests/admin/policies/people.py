"""Who works in the room of policies: one person writes, another one agrees and rolls out."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.oversight.access import Grant, Role
from gateway.secrets.secret import Secret
from gateway.store.identity.people import PeopleStore
from tests.admin.listener import Browser, Listener, browsing


PASSWORD = secrets.token_hex(12)
WRITER, APPROVER = "wanda", "anton"


async def add_person(listener: Listener, name: str, *roles: Role, where: str = "acme") -> None:
    async with listener.database() as database:
        people = PeopleStore(database, listener.clock)
        await people.add(name, password=Secret(PASSWORD))
        for role in roles:
            await people.grant(name, Grant(role, where))


async def staff(listener: Listener) -> None:
    """A writer and an approver of acme, which exists because it has a key."""
    await listener.issue_key("assistant")
    await add_person(listener, WRITER, "policy_editor")
    await add_person(listener, APPROVER, "approver")


@asynccontextmanager
async def signed_in(listener: Listener, name: str) -> AsyncIterator[Browser]:
    async with browsing(listener) as browser:
        answer = await browser.sign_in_as(name, PASSWORD)
        assert answer.status == 303
        yield browser
