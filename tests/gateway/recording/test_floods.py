"""Of refusals a few are on record, and of a flood how many; nobody is lost count of."""

import asyncio
from collections import Counter
from pathlib import Path

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.audit.memory import MemoryAuditLog
from gateway.clock import StoppedClock
from gateway.errors import AuditUnavailable
from gateway.recording.evidence import UNKNOWN_ORGANISATION
from gateway.recording.floods import (
    ALIKE_AT_ONCE_MAX,
    ALIKE_PER_SECOND_MAX,
    LEFT_OUT,
    STRANGERS_AT_ONCE_MAX,
    STRANGERS_PER_SECOND_MAX,
    Floods,
)
from gateway.types import AuditRecord, Receipt
from tests.running_gateway import RunningGateway, Upstreams


pytestmark = pytest.mark.anyio


Kind = tuple[str, str, str]
STRANGER = ("", "invalid_api_key", "")
ALIKE = ("key1", "policy_denied", "S1")
OTHERS = [("key2", *ALIKE[1:]), ("key1", "invalid_request", "S1"), (*ALIKE[:2], "S4")]


def record(number: int, kind: Kind = STRANGER) -> AuditRecord:
    key_id, error, data_class = kind
    return AuditRecord(
        stage="outcome",
        request_id=f"req_{number}",
        organisation="acme" if key_id else UNKNOWN_ORGANISATION,
        utc_us=number,
        key_id=key_id,
        status="refused",
        error=error,
        data_class=data_class,
        detail={"line": "1"},
    )


def counted(log: MemoryAuditLog) -> Counter[Kind]:
    """How many refusals these records stand for."""
    found: Counter[Kind] = Counter()
    for each in log.records:
        kind = (each.key_id, each.error, each.data_class)
        found[kind] += 1 + int(each.detail.get(LEFT_OUT, 0))
    return found


class World:
    """Who is refused at one worker."""

    def __init__(self) -> None:
        self.clock, self.log = StoppedClock(), MemoryAuditLog()
        self.floods = Floods(self.log, self.clock)
        self.number = 0
        self.refused: Counter[Kind] = Counter()

    async def knock(self, times: int = 1, kind: Kind = STRANGER) -> None:
        for _ in range(times):
            self.number += 1
            self.refused[kind] += 1
            await self.floods.note(record(self.number, kind))


async def test_of_a_flood_the_rest_is_counted_in_the_next_that_is_written() -> None:
    world = World()
    await world.log.start()
    await world.knock(STRANGERS_AT_ONCE_MAX + 30)
    assert len(world.log.records) == STRANGERS_AT_ONCE_MAX
    world.clock.advance(1 / STRANGERS_PER_SECOND_MAX)
    await world.knock(2)

    newest = world.log.records[-1]
    assert len(world.log.records) == STRANGERS_AT_ONCE_MAX + 1
    assert newest.detail == {"line": "1", LEFT_OUT: "30"}
    assert newest.request_id == f"req_{STRANGERS_AT_ONCE_MAX + 31}"


async def test_what_was_left_out_of_a_flood_that_is_over_is_told_all_the_same() -> None:
    world = World()
    await world.log.start()
    await world.knock(STRANGERS_AT_ONCE_MAX + 30)
    await world.floods.tell()
    assert len(world.log.records) == STRANGERS_AT_ONCE_MAX, "no record may be written yet"
    await world.floods.tell(is_end=True)
    await world.floods.tell(is_end=True)

    newest = world.log.records[-1]
    assert (newest.request_id, newest.detail[LEFT_OUT]) == (f"req_{world.number}", "29")
    assert counted(world.log) == world.refused


async def test_what_a_key_is_refused_for_often_hides_nothing_else_of_it() -> None:
    world = World()
    await world.log.start()
    await world.knock(ALIKE_AT_ONCE_MAX + 30, ALIKE)
    for kind in (*OTHERS, STRANGER):
        await world.knock(1, kind)
    newest = world.log.records[ALIKE_AT_ONCE_MAX:]
    assert [(each.key_id, each.error, each.data_class) for each in newest] == [*OTHERS, STRANGER]

    world.clock.advance(1 / ALIKE_PER_SECOND_MAX)
    await world.floods.tell()
    last = world.log.records[-1]
    assert (last.request_id, last.detail[LEFT_OUT]) == (f"req_{ALIKE_AT_ONCE_MAX + 30}", "29")
    assert counted(world.log) == world.refused


async def test_who_was_refused_long_ago_takes_no_memory() -> None:
    world = World()
    await world.log.start()
    await world.knock(ALIKE_AT_ONCE_MAX + 30, ALIKE)
    for _ in range(2):
        world.clock.advance(ALIKE_AT_ONCE_MAX / ALIKE_PER_SECOND_MAX)
        assert world.floods._alike
        await world.floods.tell()
    world.clock.advance(1 / ALIKE_PER_SECOND_MAX)
    await world.floods.tell()

    assert not world.floods._alike
    assert counted(world.log) == world.refused


@given(
    steps=st.lists(
        st.one_of(
            st.sampled_from(["tell", "fail", "mend"]),
            st.tuples(st.integers(1, 400), st.sampled_from([STRANGER, ALIKE, *OTHERS])),
            st.floats(0.1, 60.0),
        ),
        max_size=12,
    )
)
def test_nobody_is_lost_count_of_and_nobody_counted_twice(
    steps: list[str | tuple[int, Kind] | float],
) -> None:
    async def live() -> None:
        world = World()
        await world.log.start()
        for step in steps:
            try:
                if isinstance(step, tuple):
                    await world.knock(*step)
                elif isinstance(step, float):
                    world.clock.advance(step)
                elif step == "tell":
                    await world.floods.tell()
                else:
                    world.log.failing = step == "fail"
            except AuditUnavailable:
                assert world.log.failing
        world.log.failing = False
        await world.floods.tell(is_end=True)
        assert counted(world.log) == world.refused

    asyncio.run(live())


async def test_who_leaves_while_he_is_written_down_is_not_counted_again() -> None:
    class Slow(MemoryAuditLog):
        async def append(self, record: AuditRecord, content: bytes | None = None) -> Receipt:
            await super().append(record, content)
            return await asyncio.Future()

    world, log = World(), Slow()
    await log.start()
    floods = Floods(log, world.clock)
    leaving = asyncio.create_task(floods.note(record(1)))
    while not log.records:
        await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait({leaving})
    await floods.tell(is_end=True)

    assert counted(log) == {STRANGER: 1}


@pytest.mark.parametrize("has_key", [False, True])
async def test_a_flood_of_refusals_fills_neither_the_log_nor_the_disk(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch, has_key: bool
) -> None:
    prefix = "gateway.recording.floods.ALIKE" if has_key else "gateway.recording.floods.STRANGERS"
    monkeypatch.setattr(f"{prefix}_AT_ONCE_MAX", 5)
    monkeypatch.setattr(f"{prefix}_PER_SECOND_MAX", 0.0)
    receipts = 0
    async with (
        Upstreams() as upstreams,
        aiohttp.ClientSession() as http,
        RunningGateway(tmp_path, sqlite_url, upstreams) as gateway,
    ):
        key = await gateway.issue_key() if has_key else "sk-1"
        for _ in range(40):
            headers = {"authorization": f"Bearer {key}"}
            url = f"{gateway.url}/v1/chat/completions"
            async with http.post(url, headers=headers, json={}) as answer:
                assert answer.status == (400 if has_key else 401)
                receipts += "x-gatewright-receipt" in answer.headers
        known = [each for each in await gateway.records() if each.status == "refused"]
        assert len(known) == 5
    left = [each for each in await gateway.records() if each.status == "refused"][5:]

    assert receipts == (5 if has_key else 0)
    error = "invalid_request" if has_key else "invalid_api_key"
    assert [(each.error, each.detail) for each in left] == [(error, {LEFT_OUT: "34"})]
