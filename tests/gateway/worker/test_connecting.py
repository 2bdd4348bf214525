"""A worker takes an ordered test, tests what its own settings name, and leaves it on record."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.audit.memory import MemoryAuditLog
from gateway.clock import StoppedClock, SystemClock
from gateway.oversight.checkup import Checkup
from gateway.oversight.deeds import OPERATORS
from gateway.ports import Provider
from gateway.providers.config import ProviderConfig
from gateway.providers.egress.client import Egress
from gateway.providers.egress.reply import EgressLimits
from gateway.providers.registry import build_provider
from gateway.routing.board import TargetBoard
from gateway.secrets.envelope import MasterKey
from gateway.secrets.keeper import SecretUnavailableError
from gateway.secrets.secret import Secret
from gateway.store.checkups import CheckupOrder, CheckupTable
from gateway.store.engine import Database, open_database
from gateway.worker.connecting import ConnectionTests
from tests.gateway.providers.samples import HOME, make_secret, make_target
from tests.running_gateway import CLAUDE_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer, RecordingUpstream


pytestmark = pytest.mark.anyio


class World:
    """A worker with one provider, before a fake upstream."""

    def __init__(self, database: Database, upstream: RecordingUpstream) -> None:
        self.clock, self.audit = StoppedClock(), MemoryAuditLog()
        self.egress = Egress(EgressLimits(first_byte_s=5.0))
        self.table = CheckupTable(database, self.clock)
        self.master, self.secret = MasterKey(Secret(os.urandom(32))), make_secret()
        config = ProviderConfig("fake", "openai", HOME, upstream.url, self.secret)
        self.providers = {"fake": build_provider(config, self.egress)}
        self.tests = ConnectionTests(
            self.table,
            "w7",
            providers=self.providers,
            board=lambda: TargetBoard({"fast": make_target("fast")}, {}),
            trial=self.trial,
            master=self.master,
            audit=self.audit,
            clock=self.clock,
        )

    async def trial(self, provider: str) -> Provider:
        """No credential here has a next version."""
        raise SecretUnavailableError(provider)

    async def ordered(
        self, provider: str = "fake", target: str = "fast", spare: str = ""
    ) -> CheckupOrder:
        await self.table.ask("t1", provider, target, "ann", spare)
        await self.tests.perform()
        return (await self.table.all())[provider]


@pytest.fixture
async def upstream() -> AsyncIterator[RecordingUpstream]:
    async with RecordingUpstream() as running:
        yield running


@pytest.fixture
async def world(sqlite_url: str, upstream: RecordingUpstream) -> AsyncIterator[World]:
    database = open_database(sqlite_url)
    made = World(database, upstream)
    await made.audit.start()
    yield made
    await made.egress.close()
    await database.close()


async def test_what_was_found_and_what_it_cost_is_kept_and_on_record(
    world: World, upstream: RecordingUpstream
) -> None:
    upstream.answer(Answer(input_tokens=8, output_tokens=1))
    ended = await world.ordered()

    assert ended.found.verdict == "good"
    assert ended.worker == "w7"
    assert ended.found.cost_microusd == 13
    assert ended.found.fingerprint == world.master.fingerprint(world.secret)
    (entry,) = world.audit.records
    assert (entry.organisation, entry.action, entry.actor) == (OPERATORS, "provider.tested", "ann")
    after = json.loads(entry.detail["after"])
    assert (after["cost_microusd"], after["worker"], after["steps"]["call"]) == (13, "w7", "ok")
    assert world.secret.reveal() not in repr(ended) + repr(entry)


async def test_each_step_is_told_while_the_next_is_under_way(
    world: World, upstream: RecordingUpstream
) -> None:
    held = asyncio.Event()
    upstream.answer(Answer(hold=held))
    await world.table.ask("t1", "fake", "fast", "ann")
    running = asyncio.create_task(world.tests.perform())
    await upstream.received(2)
    seen = (await world.table.all())["fake"]
    held.set()
    await running

    assert [step.name for step in seen.found.steps] == ["name", "connection", "credential"]
    assert seen.state(world.clock.utc_us()) == "running"


async def test_a_target_that_the_worker_does_not_have_is_not_tried(
    world: World, upstream: RecordingUpstream
) -> None:
    ended = await world.ordered(target="newer")

    assert {step.code for step in ended.found.steps} == {"unknown_here"}
    assert upstream.requests == []


async def test_a_provider_that_the_worker_does_not_have_is_left_for_another(
    world: World,
) -> None:
    left = await world.ordered(provider="elsewhere")

    assert left.claimed_us == 0
    assert left.found == Checkup()
    assert world.audit.records == []


async def test_a_credential_that_was_rotated_is_the_one_that_is_tested(
    world: World, upstream: RecordingUpstream
) -> None:
    newer = make_secret()
    config = ProviderConfig("fake", "openai", HOME, upstream.url, newer)
    world.providers["fake"] = build_provider(config, world.egress)
    ended = await world.ordered()

    assert ended.found.fingerprint == world.master.fingerprint(newer)
    sent = {request.headers["authorization"] for request in upstream.requests}
    assert sent == {f"Bearer {newer.reveal()}"}


async def test_a_next_version_that_is_not_there_is_said_to_be_missing_and_nothing_is_called(
    world: World, upstream: RecordingUpstream
) -> None:
    order = await world.ordered(spare="next")
    assert [step.code for step in order.found.steps] == [
        *("not_tried", "not_tried", "missing", "not_tried")
    ]
    assert (order.found.verdict, order.ended_us > 0) == ("bad", True)
    assert upstream.calls == []


async def test_without_an_order_nothing_is_done(world: World, upstream: RecordingUpstream) -> None:
    await world.tests.perform()

    assert upstream.requests == []
    assert world.audit.records == []


async def test_running_workers_take_an_order_and_leave_it_on_record(
    tmp_path: Path, database_url: str
) -> None:
    async with (
        Upstreams() as upstreams,
        RunningGateway(tmp_path, database_url, upstreams) as gateway,
    ):
        database = open_database(database_url)
        table = CheckupTable(database, SystemClock())
        await table.ask("t1", "anthropic", CLAUDE_TARGET, "ann")
        async with asyncio.timeout(30):
            while not (order := (await table.all())["anthropic"]).ended_us:
                await asyncio.sleep(0.05)
        await database.close()
        admin = [each for each in await gateway.records() if each.stage == "admin"]

    assert order.found.verdict == "good"
    assert [step.verdict for step in order.found.steps] == ["good"] * 4
    assert order.found.cost_microusd > 0
    assert len(order.found.fingerprint) == 8
    assert [(each.action, each.actor) for each in admin] == [("provider.tested", "ann")]
