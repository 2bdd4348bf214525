"""Of who has no key a few are on record, and of a flood how many; nobody is lost count of."""

import asyncio
from pathlib import Path

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.audit.memory import MemoryAuditLog
from gateway.clock import StoppedClock
from gateway.errors import AuditUnavailable
from gateway.evidence import UNKNOWN_ORGANISATION
from gateway.strangers import AT_ONCE_MAX, LEFT_OUT, PER_SECOND_MAX, Strangers
from gateway.types import AuditRecord, Receipt
from tests.running_gateway import RunningGateway, Upstreams


pytestmark = pytest.mark.anyio


def record(number: int) -> AuditRecord:
    return AuditRecord(
        stage="outcome",
        request_id=f"req_{number}",
        organisation=UNKNOWN_ORGANISATION,
        utc_us=number,
        status="refused",
        detail={"line": "1"},
    )


def counted(log: MemoryAuditLog) -> int:
    """How many refusals these records stand for."""
    return sum(1 + int(each.detail.get(LEFT_OUT, 0)) for each in log.records)


class World:
    """Strangers at one worker."""

    def __init__(self) -> None:
        self.clock, self.log = StoppedClock(), MemoryAuditLog()
        self.strangers = Strangers(self.log, self.clock)
        self.number = 0

    async def knock(self, times: int = 1) -> None:
        for _ in range(times):
            self.number += 1
            await self.strangers.note(record(self.number))


async def test_of_a_flood_the_rest_is_counted_in_the_next_that_is_written() -> None:
    world = World()
    await world.log.start()
    await world.knock(AT_ONCE_MAX + 30)
    assert len(world.log.records) == AT_ONCE_MAX
    world.clock.advance(1 / PER_SECOND_MAX)
    await world.knock(2)

    newest = world.log.records[-1]
    assert len(world.log.records) == AT_ONCE_MAX + 1
    assert newest.detail == {"line": "1", LEFT_OUT: "30"}
    assert newest.request_id == f"req_{AT_ONCE_MAX + 31}"


async def test_what_was_left_out_of_a_flood_that_is_over_is_told_all_the_same() -> None:
    world = World()
    await world.log.start()
    await world.knock(AT_ONCE_MAX + 30)
    await world.strangers.tell()
    assert len(world.log.records) == AT_ONCE_MAX, "no record may be written yet"
    await world.strangers.tell(is_end=True)
    await world.strangers.tell(is_end=True)

    newest = world.log.records[-1]
    assert (newest.request_id, newest.detail[LEFT_OUT]) == (f"req_{world.number}", "29")
    assert counted(world.log) == world.number


@given(
    steps=st.lists(
        st.one_of(
            st.sampled_from(["tell", "fail", "mend"]),
            st.integers(1, AT_ONCE_MAX),
            st.floats(0.1, 60.0),
        ),
        max_size=12,
    )
)
def test_nobody_is_lost_count_of_and_nobody_counted_twice(steps: list[str | int | float]) -> None:
    async def live() -> None:
        world = World()
        await world.log.start()
        for step in steps:
            try:
                if isinstance(step, int):
                    await world.knock(step)
                elif isinstance(step, float):
                    world.clock.advance(step)
                elif step == "tell":
                    await world.strangers.tell()
                else:
                    world.log.failing = step == "fail"
            except AuditUnavailable:
                assert world.log.failing
        world.log.failing = False
        await world.strangers.tell(is_end=True)
        assert counted(world.log) == world.number

    asyncio.run(live())


async def test_who_leaves_while_he_is_written_down_is_not_counted_again() -> None:
    class Slow(MemoryAuditLog):
        async def append(self, record: AuditRecord, content: bytes | None = None) -> Receipt:
            await super().append(record, content)
            return await asyncio.Future()

    world, log = World(), Slow()
    await log.start()
    strangers = Strangers(log, world.clock)
    leaving = asyncio.create_task(strangers.note(record(1)))
    while not log.records:
        await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait({leaving})
    await strangers.tell(is_end=True)

    assert counted(log) == 1


async def test_a_flood_of_wrong_keys_fills_neither_the_log_nor_the_disk(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.strangers.AT_ONCE_MAX", 5)
    monkeypatch.setattr("gateway.strangers.PER_SECOND_MAX", 0.0)
    async with (
        Upstreams() as upstreams,
        aiohttp.ClientSession() as http,
        RunningGateway(tmp_path, sqlite_url, upstreams) as gateway,
    ):
        for number in range(40):
            wrong = {"authorization": f"Bearer sk-{number}"}
            url = f"{gateway.url}/v1/chat/completions"
            async with http.post(url, headers=wrong, json={}) as answer:
                assert answer.status == 401
        folder = gateway.audit_folder
        known = [each for each in await gateway.records() if each.status == "refused"]
        assert len(known) == 5
    left = [each for each in await gateway.records() if each.status == "refused"][5:]

    assert folder.exists()
    assert [(each.error, each.detail) for each in left] == [("invalid_api_key", {LEFT_OUT: "34"})]
