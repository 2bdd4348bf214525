"""Steps are begun once by each name, and what crashes is written down and holds its place."""

import asyncio

import pytest
from structlog.testing import capture_logs

from gateway.batching.steps import Steps


pytestmark = pytest.mark.anyio


class DeviceLostError(Exception):
    pass


async def crash() -> None:
    raise DeviceLostError


async def test_what_is_done_is_forgotten_and_what_crashed_is_told() -> None:
    wake = asyncio.Event()
    steps = Steps(wake)
    hold = asyncio.Event()
    steps.begin("good", "b-1", asyncio.sleep(0))
    steps.begin("bad", "b-2", crash())
    steps.begin("long", "b-3", _wait(hold))
    await wake.wait()
    await asyncio.sleep(0)
    with capture_logs() as lines:
        assert sorted(steps.reap()) == [("bad", True), ("good", False)]
    (line,) = lines
    assert (line["event"], line["batch"]) == ("batch:failed", "b-2")
    assert line["error_class"] == "DeviceLostError"
    assert ("long" in steps, "bad" in steps, len(steps)) == (True, False, 1)
    hold.set()
    await asyncio.sleep(0.01)
    assert steps.reap() == [("long", False)]


async def test_what_crashed_holds_its_place_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.batching.steps.CRASHED_REST_S", 0.01)
    wake = asyncio.Event()
    steps = Steps(wake)
    steps.begin("bad", "b-1", crash())
    await wake.wait()
    wake.clear()
    steps.tidy()
    assert "bad" in steps
    await wake.wait()
    steps.tidy()
    assert len(steps) == 0


async def test_steps_that_are_cancelled_have_not_crashed() -> None:
    steps = Steps(asyncio.Event())
    steps.begin("long", "b-1", _wait(asyncio.Event()))
    await asyncio.sleep(0)
    await steps.cancel()
    with capture_logs() as lines:
        assert steps.reap() == [("long", False)]
    assert lines == []


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
