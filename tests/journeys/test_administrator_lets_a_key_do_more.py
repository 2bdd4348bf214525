"""A key gets another model when a second person agrees, and a running worker knows it at once."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from gateway.clock import SystemClock
from gateway.oversight.key_scope import scope_of
from gateway.store.engine import open_database
from gateway.store.identity.key_scopes import KeyScopes
from tests.faults.envelopes import Caller, ask
from tests.running_gateway import CLAUDE_TARGET, ENGINE_TARGET, RunningGateway, Upstreams


pytestmark = pytest.mark.anyio
HAS = scope_of([ENGINE_TARGET], None, [], "warn")
MORE = scope_of([ENGINE_TARGET, CLAUDE_TARGET], None, [], "warn")


@pytest.fixture
async def scopes(gateway_on_each_database: RunningGateway) -> AsyncIterator[KeyScopes]:
    """As another process has them."""
    database = open_database(gateway_on_each_database.settings.database_url)
    yield KeyScopes(database, SystemClock())
    await database.close()


async def status_of(caller: Caller) -> int:
    return (await caller.post("openai", ask("openai", model=CLAUDE_TARGET))).status


async def becomes(caller: Caller, status: int) -> None:
    while await status_of(caller) != status:
        await asyncio.sleep(0.05)


async def test_a_worker_serves_what_two_people_agreed_on_and_nothing_before(
    gateway_on_each_database: RunningGateway,
    scopes: KeyScopes,
    http: aiohttp.ClientSession,
    upstreams: Upstreams,
) -> None:
    gateway = gateway_on_each_database
    caller = Caller(gateway, http, await gateway.issue_key(models=[ENGINE_TARGET]))
    key_id = caller.key.split("_")[2]
    refused = await status_of(caller)
    proposed = await scopes.propose(
        "acme", key_id, MORE, seen=HAS, actor="petra", reason="manuals with drawings"
    )
    assert await status_of(caller) == refused
    assert not upstreams.anthropic.calls

    await scopes.approve("acme", proposed.id, "anton", "as she says")
    await becomes(caller, 200)
    assert upstreams.anthropic.calls
    # What only takes away needs one person.
    await scopes.narrow("acme", key_id, MORE, HAS)
    await becomes(caller, refused)
