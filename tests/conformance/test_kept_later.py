"""Answers and turns that the database did not take: kept when it is back, once, or it is said."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest

from gateway.clock import StoppedClock
from gateway.configuration.sections import ResponsesSettings
from gateway.configuration.settings import Limits
from gateway.continuing import finished
from gateway.continuing.conversing import Conversations, Turn
from gateway.continuing.finished import OVERHEAD_BYTES, WAITS_S, Finished, Keeping
from gateway.continuing.kept_answers import KeptAnswer, MemoryAnswers
from gateway.continuing.kept_conversations import MemoryConversations
from gateway.errors import RequestInvalid, Unavailable
from gateway.pacing.upkeep import Duty, Upkeep
from gateway.projects import Project
from gateway.telemetry import Event
from gateway.types import Principal
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
    monkeypatch.setattr(finished, "WAITING_BYTES_MAX", 5 * OVERHEAD_BYTES // 2)
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


class Hanging(Waiting):
    """With a database that says nothing any more, until somebody gives up."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = asyncio.Event()

    def hang(self) -> None:
        async def hangs(*_: Any) -> bool:
            self.is_asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        self.store.keep = hangs


@pytest.mark.parametrize("is_back", [False, True])
async def test_what_is_tried_when_its_worker_ends_is_kept_or_said_to_be_lost(
    capsys: pytest.CaptureFixture[str], is_back: bool
) -> None:
    worker = Hanging()
    await worker.answer("a")
    worker.hang()
    duty = Duty(
        "late", 0.01, worker.keeping.tend, Event.UPKEEP_FAILED, last=worker.keeping.conclude
    )
    upkeep = Upkeep((duty,))
    upkeep.start()
    await worker.is_asked.wait()
    assert worker.keeping.has("req_a"), "its turn is not let go meanwhile"
    if is_back:
        worker.is_back()
    else:
        worker.store.keep = worker._away
    await upkeep.close()
    assert not_kept(capsys.readouterr().err) == ([] if is_back else ["req_a"])
    assert await worker.kept("a") == (["a"] if is_back else [])


async def test_what_a_silent_database_does_not_take_at_the_end_is_said_to_be_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    worker = Hanging()
    for name in ("a", "b"):
        await worker.answer(name)
    worker.hang()
    ending = asyncio.create_task(worker.keeping.conclude())
    await worker.is_asked.wait()
    ending.cancel()
    await asyncio.wait([ending])
    assert sorted(not_kept(capsys.readouterr().err)) == ["req_a", "req_b"]


@pytest.mark.parametrize("ends", [False, True])
async def test_what_the_database_refuses_is_said_to_be_lost_and_holds_up_nothing(
    capsys: pytest.CaptureFixture[str], ends: bool
) -> None:
    worker = Waiting()
    for name in ("a", "b", "c"):
        await worker.answer(name)
    usual = worker._keep

    async def refuses(answer: KeptAnswer, *more: Any) -> bool:
        if answer.answer_id == "a":
            raise RequestInvalid("this holds what no database keeps")
        return bool(await usual(answer, *more))

    worker.store.keep = refuses
    await (worker.keeping.conclude() if ends else worker.keeping.tend())
    assert not_kept(capsys.readouterr().err) == ["req_a"]
    assert await worker.kept("a", "b", "c") == ["b", "c"]
    assert worker.keeping._waiting_bytes == 0
    await worker.answer("a")
    assert not_kept(capsys.readouterr().err) == ["req_a"], "its caller has it all the same"


async def test_what_fails_for_a_reason_of_ours_does_not_hold_up_the_others() -> None:
    worker = Waiting()
    for name in ("a", "b"):
        await worker.answer(name)
    usual = worker._keep

    async def fails(answer: KeptAnswer, *more: Any) -> bool:
        if answer.answer_id == "a":
            raise LookupError
        return bool(await usual(answer, *more))

    worker.store.keep = fails
    for _ in range(2):
        with pytest.raises(LookupError):
            await worker.keeping.tend()
    assert await worker.kept("a", "b") == ["b"]


@pytest.mark.parametrize("is_late", [False, True])
async def test_an_answer_that_was_deleted_while_it_waited_does_not_come_back(is_late: bool) -> None:
    """Also where it is deleted in the moment in which it is written."""
    worker = Waiting()
    await worker.answer("a")
    usual = worker._keep

    async def keeps(*given: Any) -> bool:
        assert is_late
        assert worker.keeping.drop(PROJECT, "a")
        return bool(await usual(*given))

    if not is_late:
        assert worker.keeping.drop(PROJECT, "a")
    worker.store.keep = keeps
    await worker.keeping.tend()
    assert await worker.kept("a") == []
    assert not worker.keeping.drop(PROJECT, "a")


async def test_a_project_deletes_what_waits_to_be_kept(
    client: openai.AsyncOpenAI, gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeping = gateway.plane._threads.keeping
    usual = keeping._store.keep
    monkeypatch.setattr(keeping._store, "keep", away(usual, 10**6, is_done=True))
    made = await client.responses.create(model=CLAUDE_TARGET, input="Question")
    await client.responses.delete(made.id)
    monkeypatch.setattr(keeping._store, "keep", usual)
    while keeping._waiting:
        await asyncio.sleep(0.02)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(made.id)


@pytest.mark.parametrize("is_done", [False, True])
async def test_a_project_deletes_at_any_worker_what_waits_at_another(
    tmp_path: Path,
    database_url: str,
    upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
    is_done: bool,
) -> None:
    """Also where the first try was written, of which its worker never heard."""
    async with (
        RunningGateway(tmp_path, database_url, upstreams) as one,
        RunningGateway(tmp_path, database_url, upstreams, worker="w1") as other,
    ):
        key = await other.issue_key()
        while key.split("_")[2] not in one.plane.snapshots.current().keys.records:
            await asyncio.sleep(0.01)
        keeping = one.plane._threads.keeping
        usual = keeping._store.keep
        monkeypatch.setattr(keeping._store, "keep", away(usual, 10**6, is_done=is_done))
        find = keeping._store.find
        monkeypatch.setattr(keeping._store, "find", away(find, 10**6, is_done=False))
        async with (
            openai.AsyncOpenAI(base_url=f"{one.url}/v1", api_key=key, max_retries=0) as here,
            openai.AsyncOpenAI(base_url=f"{other.url}/v1", api_key=key, max_retries=20) as there,
        ):
            made = await here.responses.create(model=CLAUDE_TARGET, input="Question")
            if is_done:
                await there.responses.delete(made.id)
            with pytest.raises(openai.NotFoundError):
                await there.responses.delete(made.id)
            assert keeping._waiting
            monkeypatch.setattr(keeping._store, "find", find)
            monkeypatch.setattr(keeping._store, "keep", usual)
            while keeping._waiting:
                await asyncio.sleep(0.02)
            for client in (here, there):
                with pytest.raises(openai.NotFoundError):
                    await client.responses.retrieve(made.id)


async def test_a_turn_that_says_what_an_earlier_one_said_is_added_all_the_same() -> None:
    """Where it is tried twice, what stands there from before is not taken for it."""
    worker = Waiting()
    worker.is_back()
    talks: Any = worker.keeping._conversations
    say = [msgspec.Raw(b'{"role":"user","content":"Again."}')]
    reply = [msgspec.Raw(b'{"type":"message","role":"assistant","content":"Again."}')]
    caller = Principal("key1", "mine", *PROJECT, labels=(), models=None, accounts=())
    made = await talks.create(caller, [], {}, "S0")
    for number in (1, 2):
        name = f"req_{number}"
        await talks.begin(name, PROJECT, made.conversation_id, takes=True)
        usual = talks._store.write
        talks._store.write = away(usual, 1, is_done=False)
        turn = Turn(name, PROJECT, made.conversation_id, say, reply, "S0")
        answer = KeptAnswer(name, PROJECT, "key1", "", "S0", 1, 2**60, b"[]", b'{"output":[]}')
        await worker.keeping.keep(Finished(name, answer, keeps=False, turn=turn))
        talks._store.write = usual
        await worker.keeping.tend()
        found = await talks.find(caller, made.conversation_id)
        assert len(found.entries) == 2 * number
