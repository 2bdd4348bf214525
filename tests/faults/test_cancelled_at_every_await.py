"""A request that is cancelled at any of its awaits leaves no money reserved and no intent open.

Not at random moments but at each one: the test drives the journey by hand, and the cancellation
arrives at its n-th suspension, for every n until it gets through.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from gateway.app import DataPlane
from gateway.audit.projecting.export import segment_rows
from gateway.cli.init import prepare
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.dialects.registry import DIALECTS
from gateway.errors import BudgetExhausted
from gateway.identity import Peppers
from gateway.money.budgets import Limit
from gateway.pacing.pings import never_direct
from gateway.pacing.turns import CROWD
from gateway.passage import Arrival
from gateway.pipeline import Pipeline, StreamedAnswer
from gateway.secrets.credentials import pepper
from gateway.store.engine import open_database
from gateway.store.identity.keys import KeyStore, NewKey, Place
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.leases import LeaseTable
from gateway.types import AuditRecord


pytestmark = pytest.mark.anyio
CONFIG = """
[audit]
free_bytes_min = 1
[providers.script]
kind = "scripted"
jurisdiction = "us"
[targets."scripted/model"]
provider = "script"
model = "m"
catalogue = "claude-haiku-5-5"
"""


class CancelledAt:
    """An awaitable around a coroutine that is cancelled at its n-th suspension, from 1."""

    def __init__(self, work: Any, number: int) -> None:
        self._work, self._number = work, number
        self.was_reached = False

    def __await__(self) -> Generator[Any, None, Any]:
        suspended = 0
        try:
            waiting = self._work.send(None)
            while True:
                suspended += 1
                if suspended == self._number:
                    self.was_reached = True
                    waiting = self._work.throw(asyncio.CancelledError())
                    continue
                try:
                    yield waiting
                except BaseException as error:  # noqa: BLE001 - passed on to whom it is for
                    waiting = self._work.throw(error)
                else:
                    waiting = self._work.send(None)
        except StopIteration as end:
            return end.value


async def cancelled_everywhere(
    begin: Callable[[], Any], check: Callable[[], Awaitable[None]], most: int = 400
) -> int:
    """Run it anew for each of its suspensions; how many there were."""
    for number in range(1, most):
        driven = CancelledAt(begin(), number)
        try:
            await driven
        except asyncio.CancelledError:
            assert driven.was_reached
        except BudgetExhausted:
            pytest.fail(f"refused falsely after a cancellation at {number - 1}")
        await check()
        if not driven.was_reached:
            return number - 1
    raise AssertionError("it never got through")


async def test_a_reservation_that_is_cancelled_anywhere_holds_nothing(database_url: str) -> None:
    database = open_database(database_url)
    table = LeaseTable(database, SystemClock())
    path = ("org:acme", "key:abc", "user:acme/ann")
    for account in (*path[:2], "user:acme/*"):
        await table.set_limit(Limit(account, 1000))
    ledgers: list[LeasedLedger] = []

    async def fresh() -> None:
        for ledger in ledgers:
            await ledger.close()
        ledger = LeasedLedger(table, SystemClock(), "w1", flush_every_s=3600.0, patience_s=0.0)
        await ledger.start()
        ledgers[:] = [ledger]

    async def request() -> None:
        ledger = ledgers[0]
        assert await ledger.left_now_microusd(path) == 1000
        ledger.release(await ledger.reserve(path, 1000))

    async def check() -> None:
        assert [part.reserved for part in ledgers[0]._held.by_key.values()] in ([0, 0], [0, 0, 0])
        assert not ledgers[0]._held._awaited
        await fresh()

    await fresh()
    assert await cancelled_everywhere(request, check) > 0
    await ledgers[0].close()
    assert [row.leased_microusd for row in await table.budgets(None)] == [0] * 4
    await database.close()


class InProcess:
    """A data plane without a socket: its journey, and what it left behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answered = 0

    async def start(self) -> None:
        self.folder.joinpath("gatewright.toml").write_text(CONFIG)
        await prepare(self.folder)
        self.settings = load_settings(self.folder / "gatewright.toml", {})
        database = open_database(self.settings.database_url)
        keys = KeyStore(database, Peppers({1: pepper(self.settings)}), SystemClock())
        self.key = await keys.issue(NewKey(Place("acme", "research", "bot"), "k", "a test"))
        await LeaseTable(database, SystemClock()).set_limit(Limit("org:acme", 10**9))
        await database.close()
        self.plane = DataPlane(self.settings)
        self.pipeline = Pipeline(self.plane._stages())
        await self.plane.start()

    async def ask(self, *, stream: bool) -> None:
        self.answered += 1
        arrival = Arrival(
            request_id=f"req_{self.answered}",
            endpoint="/v1/chat/completions",
            dialect=DIALECTS["openai_chat"],
            headers=[(b"authorization", b"Bearer " + self.key.reveal().encode())],
            arrived_us=SystemClock().utc_us(),
            snapshot=self.plane.snapshots.current(),
        )

        async def body() -> bytes:
            await asyncio.sleep(0)
            return (
                b'{"model":"scripted/model","messages":[{"role":"user","content":"hello"}],'
                b'"max_tokens":9,"stream":%s}' % (b"true" if stream else b"false")
            )

        async def write(_: bytes) -> None:
            await asyncio.sleep(0)

        answer = await self.pipeline.serve(arrival, body, lambda _: write)
        if isinstance(answer, StreamedAnswer):
            await answer.relay(write, never_direct)

    async def check(self) -> None:
        """Nothing reserved: what a cancelled request leaves behind runs on, shielded, and ends."""
        async with asyncio.timeout(30):
            while self.plane._ledger.book._open:
                await asyncio.sleep(0.005)
        assert all(part.reserved == 0 for part in self.plane._ledger._held.by_key.values())

    async def stages(self) -> tuple[set[str], dict[str, AuditRecord]]:
        folder = self.settings.path(self.settings.audit.directory)
        rows = [row.projected.record async for row in segment_rows(folder)]
        intents = {record.request_id for record in rows if record.stage == "intent"}
        return intents, {record.request_id: record for record in rows if record.stage == "outcome"}


@pytest.mark.parametrize(("present", "places_least"), [(0, 3), (CROWD + 1, 9)])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_journey_that_is_cancelled_anywhere_leaves_nothing_reserved_and_no_intent_open(
    tmp_path: Path, stream: bool, present: int, places_least: int
) -> None:
    world = InProcess(tmp_path)
    await world.start()
    world.plane._turns.present = present
    places = await cancelled_everywhere(lambda: world.ask(stream=stream), world.check)
    await world.plane.close()
    intents, outcomes = await world.stages()

    assert places >= places_least
    assert intents
    assert intents <= outcomes.keys()
    # Who leaves while the whole answer is there, and waits for its turn, pays for it.
    paid = [each for each in outcomes.values() if each.status == "cancelled" and each.cost_microusd]
    has_answer = [each for each in paid if [attempt.error for attempt in each.attempts] == [""]]
    assert stream or bool(has_answer) is (present > CROWD)
