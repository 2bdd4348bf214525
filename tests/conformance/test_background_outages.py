"""Answers of the background while the database is away: none is lost that can still be ended."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import openai
import pytest

from gateway.background import runner as runners
from gateway.background.beats import AMNESTY_S, SILENT_S, Beats
from gateway.background.runs import LEASE_US, Run
from gateway.clock import Clock, StoppedClock, SystemClock
from gateway.errors import NotReady, Unavailable
from gateway.metrics import Metrics
from gateway.projects import Project
from tests.conformance.test_background import SAID, client, over, under_way
from tests.running_gateway import GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

__all__ = ["client"]


class Leaping(SystemClock):
    """A minute is over each time that it is asked."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def monotonic_s(self) -> float:
        self._ahead_s += 60.0
        return super().monotonic_s() + self._ahead_s


def away(usual: Callable[..., Any], times: int) -> Callable[..., Any]:
    """So often the database does not answer."""
    left = iter(range(times))

    async def asked(*given: Any, **more: Any) -> Any:
        if next(left, None) is not None:
            raise Unavailable("The database does not answer.")
        return await usual(*given, **more)

    return asked


async def test_an_answer_that_ended_in_a_long_outage_is_whole_afterwards(
    client: openai.AsyncOpenAI,
    gateway: RunningGateway,
    upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was paid for, and nobody else could give it up meanwhile."""
    runner, end = gateway.plane._apart.runner, asyncio.Event()
    clock: Clock = Leaping()
    monkeypatch.setattr("gateway.background.ending.AGAIN_S", 0.01)
    monkeypatch.setattr(runner._endings, "_clock", clock)
    monkeypatch.setattr(runner._store, "end_turn", away(runner._store.end_turn, 3))
    upstreams.openai.answer_once(Answer(hold=end))
    talk = await client.conversations.create()
    made = await client.responses.create(
        model=GPT_TARGET, input="x", conversation=talk.id, background=True
    )
    await under_way(client, made.id)
    end.set()
    ended = await over(client, made.id)
    assert (ended.status, ended.output_text) == ("completed", SAID)
    assert len((await client.conversations.items.list(talk.id)).data) == 2


async def test_who_waits_for_a_turn_waits_for_the_database_too(
    client: openai.AsyncOpenAI, gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that failed would give its place to the next, which failed: a blink emptied the queue."""
    runner = gateway.plane._apart.runner
    monkeypatch.setattr(runners, "AGAIN_S", 0.01)
    monkeypatch.setattr(runner._store, "start", away(runner._store.start, 4))
    made = [
        await client.responses.create(model=GPT_TARGET, input="x", background=True)
        for _ in range(3)
    ]
    ended = [await over(client, each.id) for each in made]
    assert [each.status for each in ended] == ["completed"] * 3


class Worker:
    """One that makes nothing itself, and the database as it finds it."""

    def __init__(self) -> None:
        self.clock = StoppedClock()
        self.is_away = False
        self.runs: list[Run] = []
        self.is_left = False
        shared: Any = SimpleNamespace(
            monotonic_s=self.clock.monotonic_s, utc_us=self.clock.utc_us, follow=self._answer
        )
        store: Any = SimpleNamespace(
            leave_earlier_lives=self._answer,
            lapsed=self._lapsed,
            forget_events=self._answer,
            drop=self._drop,
            end_lapsed=self._answer,
        )
        threads: Any = SimpleNamespace(find_kept=self._answer)
        rates: Any = None
        self.beats = Beats(
            store,
            threads,
            rates,
            Metrics(),
            shared=shared,
            worker="w0",
            holder="w0.1",
            deadline_s=1.0,
        )

    async def _answer(self, *_: object) -> None:
        if self.is_away:
            raise NotReady("the database does not answer")

    async def _lapsed(self, *, left_only: bool) -> list[Run]:
        return [*self.runs] if self.is_left or not left_only else []

    async def _drop(self, run: Run) -> None:
        self.runs.remove(run)

    async def beat(self) -> None:
        await self.beats.beat({}, {}, {})


LAPSED = Run(Project("acme", "research", "assistant"), "resp_1", "req_1", "w1", "w1.1")


@pytest.mark.parametrize("silent_s", [SILENT_S - 1.0, SILENT_S, LEASE_US / 1e6])
async def test_others_have_a_while_to_say_that_they_live_once_the_database_is_back(
    silent_s: float,
) -> None:
    """Their leases lapsed while nobody could renew them."""
    worker = Worker()
    await worker.beat()
    worker.clock.advance(AMNESTY_S)
    worker.is_away = True
    for _ in range(2):
        with pytest.raises(NotReady):
            await worker.beat()
        worker.clock.advance(silent_s / 2)
    worker.is_away = False
    worker.beats._look_s = 0.0
    worker.runs = [LAPSED]
    if silent_s >= SILENT_S:
        await worker.beat()
        worker.clock.advance(AMNESTY_S - 1.0)
        await worker.beat()
        assert len(worker.runs) == 1
        worker.clock.advance(1.0)
    await worker.beat()
    assert worker.runs == []


@pytest.mark.parametrize("waits_s", [0.0, SILENT_S])
async def test_who_starts_does_not_know_whether_others_could_say_that_they_live(
    waits_s: float,
) -> None:
    """The database may have come back for them in the same moment."""
    worker = Worker()
    worker.runs, worker.is_away = [LAPSED], waits_s > 0
    if worker.is_away:
        with pytest.raises(NotReady):
            await worker.beat()
        worker.clock.advance(waits_s)
        worker.is_away = False
    for _ in range(round(AMNESTY_S)):
        await worker.beat()
        assert worker.runs
        worker.clock.advance(1.0)
    await worker.beat()
    assert worker.runs == []


async def test_what_an_earlier_life_left_behind_is_ended_at_once() -> None:
    worker = Worker()
    worker.runs, worker.is_left = [LAPSED], True
    await worker.beat()
    assert worker.runs == []
