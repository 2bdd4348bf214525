"""A duty that fails is logged and done again; nothing but closing ends the worker loop."""

import asyncio
import errno
import sqlite3

import pytest
from structlog.testing import capture_logs

from gateway.errors import NotReady, ToldToOperators, UpstreamRefused
from gateway.pacing.upkeep import Duty, Upkeep
from gateway.telemetry import Event


pytestmark = pytest.mark.anyio


class Work:
    """Fails so often, then succeeds; tells when it has been done `until` times."""

    def __init__(self, failures: int, until: int) -> None:
        self.done, self._failures, self._until = 0, failures, until
        self.enough = asyncio.Event()

    async def __call__(self) -> None:
        self.done += 1
        if self.done == self._until:
            self.enough.set()
        if self.done <= self._failures:
            raise RuntimeError("canary-4711")


async def test_a_failing_duty_is_tried_again_and_logged_without_its_words() -> None:
    work = Work(failures=3, until=5)
    with capture_logs() as logs:
        upkeep = Upkeep((Duty("x", 0.001, work, Event.PROBE_FAILED),))
        upkeep.start()
        await work.enough.wait()
        await upkeep.close()

    assert [log["event"] for log in logs] == [Event.PROBE_FAILED] * 3
    assert {log["error_class"] for log in logs} == {"RuntimeError"}
    assert "canary" not in str(logs)


async def test_one_failing_duty_does_not_hold_up_another() -> None:
    bad, good = Work(failures=10**9, until=1), Work(failures=0, until=3)
    upkeep = Upkeep(
        (
            Duty("bad", 0.001, bad, Event.PROBE_FAILED),
            Duty("good", 0.001, good, Event.PROBE_FAILED),
        )
    )
    upkeep.start()
    await good.enough.wait()
    await upkeep.close()

    assert bad.done >= 1


async def test_what_is_done_once_more_at_the_end_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.pacing.upkeep.LAST_S", 0.02)
    done, first = [], Work(failures=0, until=1)

    async def last() -> None:
        done.append("last")

    async def hangs() -> None:
        done.append("hangs")
        await asyncio.Event().wait()

    duties = tuple(
        Duty(each.__name__, 3600.0, first, Event.PROBE_FAILED, last=each) for each in (hangs, last)
    )
    await Upkeep(duties).close()
    assert not done
    upkeep = Upkeep(duties)
    upkeep.start()
    await first.enough.wait()
    with capture_logs() as logs:
        await upkeep.close()

    assert sorted(done) == ["hangs", "last"]
    assert [(log["component"], log["error_class"]) for log in logs] == [("hangs", "TimeoutError")]


async def test_a_wake_up_comes_before_the_period() -> None:
    wake = asyncio.Event()
    work = Work(failures=0, until=2)
    upkeep = Upkeep((Duty("x", 3600.0, work, Event.PROBE_FAILED, wake=wake),))
    upkeep.start()
    wake.set()
    await work.enough.wait()
    await upkeep.close()

    assert work.done == 2


async def test_a_duty_rests_while_nothing_is_due_and_wakes_all_the_same() -> None:
    asked, is_due, wake = 0, False, asyncio.Event()
    asked_often = asyncio.Event()

    def due() -> bool:
        nonlocal asked
        asked += 1
        if asked % 3 == 0:
            asked_often.set()
        return is_due

    work = Work(failures=0, until=3)
    upkeep = Upkeep((Duty("x", 0.001, work, Event.PROBE_FAILED, wake, due),))
    upkeep.start()
    await asked_often.wait()
    assert work.done == 1, "the first time, and then nothing was due"
    asked_often.clear()
    wake.set()
    await asked_often.wait()
    assert work.done == 2
    is_due = True
    await work.enough.wait()
    await upkeep.close()


async def test_nothing_is_done_after_closing() -> None:
    work = Work(failures=0, until=1)
    upkeep = Upkeep((Duty("x", 0.0, work, Event.PROBE_FAILED),))
    upkeep.start()
    await work.enough.wait()
    await upkeep.close()
    done = work.done
    for _ in range(5):
        await asyncio.sleep(0)

    assert work.done == done


async def test_why_a_duty_failed_is_said_where_no_words_of_others_can_be_in_it() -> None:
    """Ours of what is unavailable, the driver's of its database, the machine's of its files."""
    away = NotReady("the database takes no writes")
    away.__cause__ = sqlite3.OperationalError("database or disk is full\nDETAIL: canary-4711")
    told: list[Exception] = [away, OSError(errno.ENOSPC, "No space left on device", "/canary-4711")]
    told += [ToldToOperators("the database was put back")]
    told += [UpstreamRefused("canary-4711", upstream_status=400), TimeoutError()]
    enough = asyncio.Event()

    async def fail() -> None:
        if len(told) == 1:
            enough.set()
        raise told.pop(0)

    with capture_logs() as logs:
        upkeep = Upkeep((Duty("x", 0.001, fail, Event.UPKEEP_FAILED),))
        upkeep.start()
        await enough.wait()
        await upkeep.close()

    assert [log["reason"] for log in logs] == [
        "the database takes no writes: database or disk is full",
        "No space left on device",
        "the database was put back",
        "",
        "",
    ]
    assert "canary" not in str(logs)
