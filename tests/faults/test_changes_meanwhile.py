"""Changes while a request is under way: it ends as it was decided, and the next does not.

A policy, a rollback, a canary, an appointment, prices, a key and a limit change in the middle of a
stream, between two attempts, and before a hedge. Parked lines of batches are in
`test_changes_while_parked`.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from itertools import count
from pathlib import Path

import aiohttp
import pytest
from msgspec import Struct

from gateway.clock import SECOND_US, SystemClock
from gateway.money.budgets import Limit
from gateway.oversight.key_scope import scope_of
from gateway.rollout.versions import INSTALLATION
from gateway.store.engine import Database, open_database
from gateway.store.identity.key_scopes import KeyScopes
from gateway.store.identity.keys import Place
from gateway.store.money.leases import LeaseTable
from gateway.store.money.price_files import PriceFiles, PriceOrder, next_number, put_in_force
from gateway.store.policies.documents import PolicyStore
from gateway.store.schema.prices import price_orders
from policies.program import PolicyDocument
from tests.faults.envelopes import Caller, Reply, ask
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

CHAIN: dict[str, object] = {"targets": [CLAUDE_TARGET, GPT_TARGET], "order": ["cheap"]}
HEDGE_S = 1.5
ROUTES: tuple[Mapping[str, object], ...] = (
    {"name": "hedge", "route": "hedge", "hedge_after_ms": int(HEDGE_S * 1000), **CHAIN},
    {"name": "fallback", "route": "fallback", **CHAIN},
)
BEFORE = document({"name": "long", "cap_output_tokens": 40}, preferences=ROUTES)
AFTER = document({"name": "home", "allow_only": {"targets": [ENGINE_TARGET]}}, preferences=ROUTES)
LIMIT = 10**9
COST = 11 * 2 + 7 * 10
"""Of eleven tokens read and seven written by the second vendor, before the prices rise."""
DEARER = 10
PRICES = f"""
[models."{GPT_TARGET}"]
vendor = "openai"
tier = "mid"
input_microusd_per_mtok = {2_000_000 * DEARER}
output_microusd_per_mtok = {10_000_000 * DEARER}
cache_read_microusd_per_mtok = 0
cache_write_microusd_per_mtok = 0
cache_write_1h_microusd_per_mtok = 0
batch_percent = 50
context_window_tokens = 1_050_000
output_tokens_max = 128_000
capabilities = ["streaming"]
source = "an agreement"
as_of = "2026-11-01"
"""
CHUNK = (
    b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[%b]%b}\n\n'
)
HALF = CHUNK % (
    b'{"index":0,"delta":{"role":"assistant","content":"half"},"finish_reason":null}',
    b"",
)
REST = (
    CHUNK % (b'{"index":0,"delta":{"content":" whole"},"finish_reason":"stop"}', b"")
    + CHUNK % (b"", b',"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}')
    + b"data: [DONE]\n\n"
)
_numbers = count(1)


class Ground(Struct, frozen=True):
    """One caller whose organisation is nobody else's, and what governs the gateway."""

    gateway: RunningGateway
    database: Database
    caller: Caller
    organisation: str
    key: str

    @property
    def policies(self) -> PolicyStore:
        return PolicyStore(self.database, SystemClock())

    async def approved(self, made: PolicyDocument) -> int:
        version = await self.policies.draft(INSTALLATION, made, "Ann")
        await self.policies.act(INSTALLATION, version.number, "approve", "Bob")
        return version.number

    async def publish(self, made: PolicyDocument) -> None:
        number = await self.approved(made)
        await self.policies.act(INSTALLATION, number, "publish", "Bob")

    async def governs(self, made: PolicyDocument) -> None:
        """Wait until nothing but this does."""
        snapshots = self.gateway.plane.snapshots
        async with asyncio.timeout(20):
            while True:
                level = snapshots.policies.levels.get(INSTALLATION)
                live = level.live if level is not None and level.canary is None else None
                if live is not None and live.digest == made.digest:
                    return
                await asyncio.sleep(0.01)

    async def answers(self, status: int) -> None:
        """Wait until a request that begins now gets it."""
        async with asyncio.timeout(20):
            while (await self.asks()).status != status:
                await asyncio.sleep(0.02)

    async def goes_home(self) -> None:
        """Wait until a request that begins now is answered in the house."""
        async with asyncio.timeout(20):
            while (await self.asks()).headers["x-gatewright-target"] != ENGINE_TARGET:
                await asyncio.sleep(0.02)

    async def asks(self) -> Reply:
        return await self.caller.post("openai", ask("openai", model=GPT_TARGET))


async def published(ground: Ground) -> None:
    await ground.publish(AFTER)
    await ground.goes_home()


async def rolled_back(ground: Ground) -> None:
    await ground.policies.roll_back(INSTALLATION, "Bob")
    await ground.goes_home()


async def canary(ground: Ground) -> None:
    number = await ground.approved(AFTER)
    await ground.policies.act(INSTALLATION, number, "canary", "Bob", percent=100.0)
    await ground.goes_home()


async def appointed(ground: Ground) -> None:
    number = await ground.approved(AFTER)
    at_us = SystemClock().utc_us() + SECOND_US // 5
    await ground.policies.schedules.add(INSTALLATION, number, "publish", at_us, "Bob")
    await ground.goes_home()


async def revoked(ground: Ground) -> None:
    await ground.gateway.revoke_key(ground.key)
    await ground.answers(401)


async def narrowed(ground: Ground) -> None:
    scopes = KeyScopes(ground.database, SystemClock())
    seen = scope_of(None, None, (), "warn")
    wanted = scope_of({ENGINE_TARGET}, None, (), "warn")
    await scopes.narrow(ground.organisation, ground.key.split("_")[2], seen, wanted)
    await ground.answers(403)


async def limited(ground: Ground) -> None:
    limit = Limit(f"org:{ground.organisation}", 1)
    await LeaseTable(ground.database, SystemClock()).set_limit(limit)
    await ground.answers(429)


async def dearer(ground: Ground) -> None:
    await put_prices(ground.database, PRICES)
    async with asyncio.timeout(20):
        while (await ground.asks()).headers["x-gatewright-cost-microusd"] != str(COST * DEARER):
            await asyncio.sleep(0.02)


async def put_prices(database: Database, text: str) -> None:
    """These, or with no text those that the configuration names."""
    number = await PriceFiles(database, SystemClock()).add("dear.toml", text, "Ann") if text else 0
    async with database.writing() as connection:
        place = await next_number(connection, price_orders.c.place)
        now_us = SystemClock().utc_us()
        await put_in_force(connection, PriceOrder(place, number, "Bob", "", now_us))


CHANGES: Mapping[str, Callable[[Ground], Awaitable[None]]] = {
    each.__name__: each
    for each in (published, rolled_back, canary, appointed, revoked, narrowed, limited, dearer)
}
every = pytest.mark.parametrize("change", CHANGES)


@pytest.fixture(scope="module")
async def changing(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path, shared_upstreams: Upstreams
) -> AsyncIterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("changing")
    shutil.copyfile(sqlite_template, folder / "gateway.db")
    url = f"sqlite+aiosqlite:///{folder / 'gateway.db'}"
    with pytest.MonkeyPatch.context() as brisk:
        brisk.setattr("gateway.pacing.rhythm.PRICES_S", 0.1)
        running = RunningGateway(folder, url, shared_upstreams)
        async with running:
            yield running


@pytest.fixture
async def ground(
    changing: RunningGateway, upstreams: Upstreams, http: aiohttp.ClientSession
) -> AsyncIterator[Ground]:
    changing.plane._health.breakers._states.clear()  # What targets did in earlier tests.
    organisation = f"org{next(_numbers)}"
    database = open_database(changing.settings.database_url)
    try:
        key = await changing.issue_key(Place(organisation, "research", "assistant"))
        await changing.limit(f"org:{organisation}", LIMIT)
        made = Ground(changing, database, Caller(changing, http, key), organisation, key)
        # So that what comes back is what closes the managed targets.
        await made.publish(AFTER)
        await made.publish(BEFORE)
        await made.governs(BEFORE)
        yield made
        await put_prices(database, "")
        board = changing.plane.snapshots
        while board.board.targets[GPT_TARGET].price.input_microusd_per_mtok != 2_000_000:
            await asyncio.sleep(0.02)
    finally:
        await database.close()


async def check_ended_as_decided(ground: Ground, reply: Reply) -> None:
    """By the version that decided, in both records, and at the prices of that moment."""
    assert reply.status == 200
    intent, outcome = await ground.gateway.records(reply.request_id)
    assert (intent.stage, outcome.stage, outcome.status) == ("intent", "outcome", "ok")
    assert intent.policy_digest == outcome.policy_digest == BEFORE.digest
    assert intent.decision == outcome.decision
    assert outcome.target == GPT_TARGET
    (answering,) = [each for each in outcome.attempts if each.target == GPT_TARGET]
    assert answering.cost_microusd == COST
    assert outcome.cost_microusd == sum(each.cost_microusd for each in outcome.attempts)


@every
async def test_a_stream_that_has_said_half_says_the_other_half(
    change: str, ground: Ground, upstreams: Upstreams
) -> None:
    may_go_on, has_begun = asyncio.Event(), asyncio.Event()
    upstreams.openai.answer_once(Answer(events=(HALF, REST), hold=may_go_on))
    body = ask("openai", model=GPT_TARGET, stream=True)
    asking = asyncio.ensure_future(ground.caller.post("openai", body, on_first=has_begun.set))
    await has_begun.wait()

    await CHANGES[change](ground)
    may_go_on.set()
    reply = await asking

    assert b"half" in reply.body
    assert b" whole" in reply.body
    assert b"[DONE]" in reply.body
    await check_ended_as_decided(ground, reply)


@every
async def test_the_second_attempt_is_the_one_that_was_decided(
    change: str, ground: Ground, upstreams: Upstreams
) -> None:
    may_fail = asyncio.Event()
    upstreams.anthropic.answer_once(Answer(status=500, hold=may_fail))
    asking = asyncio.ensure_future(
        ground.caller.post("openai", ask("openai", model="auto:fallback", max_tokens=50))
    )
    await upstreams.anthropic.called()

    await CHANGES[change](ground)
    asked = len(upstreams.openai.calls)
    may_fail.set()
    reply = await asking

    assert [call.json.get("max_completion_tokens") for call in upstreams.openai.calls[asked:]] == [
        40
    ]
    await check_ended_as_decided(ground, reply)


async def test_a_hedge_that_has_not_begun_begins_as_it_was_decided(
    ground: Ground, upstreams: Upstreams
) -> None:
    """All of it changes before; and what begins afterwards is under none of it."""
    never = asyncio.Event()
    upstreams.anthropic.answer_once(Answer(hold=never))
    asking = asyncio.ensure_future(ground.caller.post("openai", ask("openai", model="auto:hedge")))
    await upstreams.anthropic.called()

    await put_prices(ground.database, PRICES)
    await ground.publish(AFTER)
    await ground.gateway.revoke_key(ground.key)
    await ground.answers(401)
    asked = len(upstreams.openai.calls)
    reply = await asking

    assert len(upstreams.openai.calls[asked:]) == 1
    await upstreams.anthropic.aborted()
    assert len(upstreams.anthropic.calls) == 1
    await check_ended_as_decided(ground, reply)
