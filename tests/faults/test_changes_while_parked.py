"""Changes while one line of a batch is with its vendor, and another waits for its turn.

The first ends as it was decided, by that version and at those prices; the second is decided when it
is sent. Requests of waiting callers are in `test_changes_meanwhile`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.clock import SystemClock
from gateway.money.budgets import Limit
from gateway.oversight.key_scope import scope_of
from gateway.providers.parcels.scripted import ParcelFaults
from gateway.rollout.versions import INSTALLATION
from gateway.store.engine import Database, open_database
from gateway.store.identity.key_scopes import KeyScopes
from gateway.store.money.leases import LeaseTable
from gateway.store.policies.documents import PolicyStore
from tests.conformance.test_batches import ended, line, make
from tests.faults.test_changes_meanwhile import PRICES, put_prices
from tests.faults.test_native_batches import (
    MORE,
    NATIVE,
    TOKENS,
    all_results,
    asking,
    outcomes,
    speaking,
)
from tests.faults.test_policies_on_trial import released
from tests.policies.worlds import document
from tests.running_gateway import (
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

AFTER = document({"name": "elsewhere", "allow_only": {"targets": [CLAUDE_TARGET]}})
COST = (100_000 * 2 + 10_000 * 10) // 2
"""Of what each parked line reads and writes, at its vendor's price for batches."""


class Ground(msgspec.Struct, frozen=True):
    gateway: RunningGateway
    database: Database
    key: str

    @property
    def first_policy(self) -> str:
        return self.gateway.plane.snapshots.policies.base.digest


async def published(ground: Ground) -> None:
    """Another policy, which closes where both lines were to go, and other prices."""
    await put_prices(ground.database, PRICES)
    store = PolicyStore(ground.database, SystemClock())
    await store.act(INSTALLATION, await released(store, AFTER), "publish", "Bob")
    snapshots = ground.gateway.plane.snapshots
    while (
        INSTALLATION not in snapshots.policies.levels
        or snapshots.board.targets[GPT_TARGET].price.input_microusd_per_mtok == 2_000_000
    ):
        await asyncio.sleep(0.02)


async def narrowed(ground: Ground) -> None:
    scopes, key_id = KeyScopes(ground.database, SystemClock()), ground.key.split("_")[2]
    wanted = scope_of({CLAUDE_TARGET}, None, (), "warn")
    await scopes.narrow("acme", key_id, scope_of(None, None, (), "warn"), wanted)
    snapshots = ground.gateway.plane.snapshots
    while snapshots.current().keys.records[key_id].principal.models is None:
        await asyncio.sleep(0.02)


async def limited(ground: Ground) -> None:
    table = LeaseTable(ground.database, SystemClock())
    await table.set_limit(Limit("org:acme", 1))
    while (ground.gateway.budget_left(("org:acme",)) or 0) > 1:
        await asyncio.sleep(0.02)


CHANGES: Mapping[str, tuple[Callable[[Ground], Awaitable[None]], str]] = {
    "published": (published, CLAUDE_TARGET),
    "narrowed": (narrowed, ""),
    "limited": (limited, ENGINE_TARGET),
}
"""What is done, and where the line that waits goes then; in the house it costs nothing."""


@pytest.fixture
async def ground(
    tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Ground]:
    monkeypatch.setattr("gateway.pacing.rhythm.PRICES_S", 0.1)
    database = open_database(sqlite_url)
    gateway = RunningGateway(tmp_path, sqlite_url, own_upstreams, more=MORE, managed=NATIVE)
    try:
        async with gateway:
            await gateway.limit("org:acme", 10**9)
            yield Ground(gateway, database, await gateway.issue_key())
    finally:
        await database.close()


@pytest.mark.parametrize("change", CHANGES)
async def test_a_parked_line_ends_as_decided_and_one_that_waits_is_decided_anew(
    change: str, ground: Ground, own_upstreams: Upstreams
) -> None:
    act, answers = CHANGES[change]
    vendor, engine = own_upstreams.openai.batches, own_upstreams.engine
    vendor.faults = ParcelFaults(is_slow=True)
    own_upstreams.openai.answer(TOKENS)
    engine.answer_once(Answer(status=503))
    first_policy = ground.first_policy
    async with speaking(ground.gateway.url, ground.key) as client:
        parked = await make(client, asking(2))
        waiting = await make(client, [line("later", model=ENGINE_TARGET)])
        async with asyncio.timeout(30):
            while not vendor.looks or not engine.calls:
                await asyncio.sleep(0.02)

        await act(ground)
        vendor.faults = ParcelFaults()
        ends = [await ended(client, each) for each in (parked, waiting)]
        found = [await all_results(client, each) for each in ends]

    assert [wire["response"]["status_code"] for wire in found[0].values()] == [200, 200]
    assert len(engine.calls) == 1 + (answers == ENGINE_TARGET), "nothing goes where it may not"
    assert len(vendor.lines) == 2
    await check_parked(ground, found[0], first_policy)
    await check_decided_anew(ground, found[1]["later"], answers)


async def check_parked(ground: Ground, found: dict[str, Any], first_policy: str) -> None:
    """Decided and paid as in the moment when it was parked, whatever the limit is by now."""
    for wire in found.values():
        intent, outcome = await ground.gateway.records(wire["response"]["request_id"])
        assert intent.policy_digest == outcome.policy_digest == first_policy
        assert (outcome.status, outcome.target) == ("ok", GPT_TARGET)
        assert outcome.cost_microusd == wire["gatewright"]["cost_microusd"] == COST


async def check_decided_anew(ground: Ground, wire: dict[str, Any], answers: str) -> None:
    *intents, outcome = await ground.gateway.records(wire["response"]["request_id"])
    assert wire["response"]["status_code"] == (200 if answers else 403)
    assert (outcome.status, outcome.target) == (("ok", answers) if answers else ("refused", ""))
    if answers == CLAUDE_TARGET:
        assert {each.policy_digest for each in (*intents, outcome)} == {AFTER.digest}
    elif not answers:
        assert (intents, outcome.cost_microusd) == ([], 0)


async def test_a_revoked_key_ends_what_waits_at_once_and_what_its_vendor_has(
    ground: Ground, own_upstreams: Upstreams
) -> None:
    vendor, engine = own_upstreams.openai.batches, own_upstreams.engine
    vendor.faults = ParcelFaults(is_slow=True)
    own_upstreams.openai.answer(TOKENS)
    engine.answer_once(Answer(status=503))
    colleague = await ground.gateway.issue_key()
    async with speaking(ground.gateway.url, ground.key) as client:
        parked = await make(client, asking(2))
        waiting = await make(client, [line("later", model=ENGINE_TARGET)])
        async with asyncio.timeout(30):
            while not vendor.looks or not engine.calls:
                await asyncio.sleep(0.02)

    await ground.gateway.revoke_key(ground.key)
    async with speaking(ground.gateway.url, colleague) as client:
        async with asyncio.timeout(30):
            ends = [
                await ended(client, await client.batches.retrieve(each.id))
                for each in (parked, waiting)
            ]
            found = [await all_results(client, each) for each in ends]
    records = await ground.gateway.records()

    assert len(engine.calls) == 1
    assert vendor.cancelled
    wires = [wire for each in found for wire in each.values()]
    assert [wire["error"]["code"] for wire in wires] == ["invalid_api_key"] * 3
    outcomes([each for each in records if each.stage != "admin"])
