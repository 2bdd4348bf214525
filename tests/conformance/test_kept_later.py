"""Answers and turns that the database did not take: kept when it is back, once, or it is said."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import openai
import pytest

from gateway.clock import StoppedClock
from gateway.configuration.sections import ResponsesSettings
from gateway.configuration.settings import Limits
from gateway.continuing import finished
from gateway.continuing.conversing import Conversations
from gateway.continuing.finished import WAITS_S, Finished, Keeping
from gateway.continuing.kept_answers import KeptAnswer, MemoryAnswers
from gateway.continuing.kept_conversations import MemoryConversations
from gateway.errors import Unavailable
from gateway.projects import Project
from tests.conformance.test_background import client
from tests.running_gateway import CLAUDE_TARGET, RunningGateway, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

__all__ = ["client"]
PROJECT = Project("acme", "research", "assistant")


def away(usual: Callable[..., Any], times: int, *, is_done: bool) -> Callable[..., Any]:
    """So often the database does not answer, whether or not it did what it was asked."""
    left = iter(range(times))

    async def asked(*given: Any, **more: Any) -> Any:
        is_away = next(left, None) is not None
        done = await usual(*given, **more) if is_done or not is_away else None
        if is_away:
            raise Unavailable("The database does not answer.")
        return done

    return asked


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("stream", [False, True])
async def test_what_was_answered_in_an_outage_can_be_gone_on_with(
    client: openai.AsyncOpenAI,
    gateway: RunningGateway,
    upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
    is_done: bool,
    stream: bool,
) -> None:
    threads = gateway.plane._threads
    talk = await client.conversations.create()
    answers, talks = threads.keeping._store, threads.conversations._store
    times = 1 if is_done else 3
    monkeypatch.setattr(answers, "keep", away(answers.keep, times, is_done=is_done))
    monkeypatch.setattr(talks, "write", away(talks.write, times, is_done=is_done))
    made: Any = await client.responses.create(
        model=CLAUDE_TARGET, input="Question", conversation=talk.id, stream=stream
    )
    if stream:
        made = [event async for event in made][-1].response
    patient = client.with_options(max_retries=20)
    again = await patient.responses.create(
        model=CLAUDE_TARGET, input="Another", conversation=talk.id
    )
    asked = upstreams.anthropic.calls[-1].body.decode()
    assert 0 < asked.find("Question") < asked.find("Another"), "nobody came between"
    while threads.keeping._waiting:
        await asyncio.sleep(0.02)
    assert len((await client.conversations.items.list(talk.id)).data) == 4
    assert (await client.responses.retrieve(made.id)).output_text == made.output_text
    assert (await client.responses.retrieve(again.id)).id == again.id
    assert threads.keeping._waiting_bytes == 0


class Waiting:
    """One worker's share, with a database that is away."""

    def __init__(self) -> None:
        self.clock = StoppedClock()
        store: Any = MemoryAnswers()
        self.store = store
        talks = Conversations(MemoryConversations(), self.clock, ResponsesSettings(), Limits())
        self.keeping = Keeping(self.store, talks, self.clock)
        self._keep: Any = self.store.keep
        self.store.keep = self._away

    async def _away(self, *_: Any) -> bool:
        raise Unavailable("The database does not answer.")

    def is_back(self) -> None:
        self.store.keep = self._keep

    async def answer(self, name: str) -> None:
        response = b'{"output":[]}'
        answer = KeptAnswer(name, PROJECT, "key1", "", "S0", 1, 2**60, b"[]", response)
        await self.keeping.keep(Finished(f"req_{name}", answer, keeps=True, turn=None))

    async def kept(self, *names: str) -> list[str]:
        return [name for name in names if await self.store.find(PROJECT, name, 1)]


def not_kept(said: str) -> list[str]:
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return [each["request_id"] for each in events if each["event"] == "response:not_kept"]


async def test_what_waits_too_long_is_said_not_to_be_kept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    worker = Waiting()
    await worker.answer("a")
    worker.clock.advance(WAITS_S / 2)
    await worker.answer("b")
    await worker.keeping.tend()
    worker.clock.advance(WAITS_S / 2)
    for _ in range(2):
        await worker.keeping.tend()
    assert not_kept(capsys.readouterr().err) == ["req_a"]
    worker.is_back()
    await worker.keeping.tend()
    assert await worker.kept("a", "b") == ["b"]


async def test_what_waits_is_bounded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Waiting()
    monkeypatch.setattr(finished, "WAITING_BYTES_MAX", 40)
    for name in ("a", "b", "c"):
        await worker.answer(name)
    assert not_kept(capsys.readouterr().err) == ["req_c"]
    worker.is_back()
    await worker.keeping.tend()
    assert await worker.kept("a", "b", "c") == ["a", "b"]
    await worker.answer("d")
    assert await worker.kept("d") == ["d"]


@pytest.mark.parametrize("is_back", [False, True])
async def test_a_worker_that_ends_tries_once_more_and_says_what_is_lost(
    capsys: pytest.CaptureFixture[str], is_back: bool
) -> None:
    worker = Waiting()
    for name in ("a", "b"):
        await worker.answer(name)
    if is_back:
        worker.is_back()
    await worker.keeping.conclude()
    assert not_kept(capsys.readouterr().err) == ([] if is_back else ["req_a", "req_b"])
    assert await worker.kept("a", "b") == (["a", "b"] if is_back else [])
