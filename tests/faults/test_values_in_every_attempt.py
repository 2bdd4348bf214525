"""An Aadhaar number under hedges, cascades, retries, fallbacks, trials and probes stays home.

If policy sends veiled requests out instead, every attempt uses the same pseudonyms, and the caller
reads the original values, whichever attempt answers.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from gateway.clock import SystemClock
from gateway.rollout.versions import INSTALLATION
from gateway.store.engine import open_database
from gateway.store.policies.documents import PolicyStore
from tests.faults.envelopes import STYLES, Caller, Reply, Style, ask
from tests.faults.test_policies_on_trial import released
from tests.identifiers import aadhaar
from tests.policies.worlds import document
from tests.running_gateway import (
    CHEAP_CLAUDE_TARGET,
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer, Fault, RecordedRequest, RecordingUpstream


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

NUMBER = aadhaar(17)
GROUPED = f"{NUMBER[:4]} {NUMBER[4:8]} {NUMBER[8:]}"
SAID = f"Please register customer Ingrid Halvorsen, Aadhaar number {GROUPED}, today."
VALUES = (NUMBER.encode(), GROUPED.encode(), b"Halvorsen")
DOUBTED = "I'm sorry, but I cannot help with that."
WAYS: dict[str, dict[str, object]] = {
    "fallback": {},
    "hedge": {"hedge_after_ms": 50},
    "cascade": {"cascade_above_percent": 1},
}
HOME = {"name": "home", "when": 'data_class >= "S3"', "allow_only": {"jurisdictions": ["in-house"]}}


def routes(*targets: str) -> tuple[dict[str, Any], ...]:
    """A route for each way of asking more than once, over these targets."""
    return tuple(
        {"name": way, "route": way, "targets": list(targets), "order": ["cheap"], **more}
        for way, more in WAYS.items()
    )


def leaked(upstreams: Upstreams) -> list[RecordedRequest]:
    """Whatever said a value to a managed upstream: in a body, a path or a header."""
    requests = [each for upstream in upstreams.managed for each in upstream.requests]
    return [
        each
        for each in requests
        if any(value in msgspec.json.encode(each) or value in each.body for value in VALUES)
    ]


@pytest.fixture(scope="module")
async def home(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path, shared_upstreams: Upstreams
) -> AsyncIterator[RunningGateway]:
    """Sensitive data stays in the house; a canary and a shadow of a tenant would send it away."""
    folder = tmp_path_factory.mktemp("home")
    shutil.copyfile(sqlite_template, folder / "gateway.db")
    url = f"sqlite+aiosqlite:///{folder / 'gateway.db'}"
    at_home = document(HOME, preferences=routes(CLAUDE_TARGET, GPT_TARGET, ENGINE_TARGET))
    away = document(
        {"name": "away", "cap_output_tokens": 30}, preferences=routes(CLAUDE_TARGET, GPT_TARGET)
    )
    further = document({"name": "further", "cap_output_tokens": 20}, preferences=routes(GPT_TARGET))
    async with RunningGateway(folder, url, shared_upstreams) as running:
        database = open_database(url)
        try:
            store = PolicyStore(database, SystemClock())
            number = await released(store, at_home)
            await store.act(INSTALLATION, number, "publish", "Bob")
            for made, action in ((further, "shadow"), (away, "canary")):
                version = await store.draft("org:acme", made, "Ann")
                await store.act("org:acme", version.number, "approve", "Bob")
                await store.act("org:acme", version.number, action, "Bob", percent=100.0)  # type: ignore[arg-type]
        finally:
            await database.close()
        async with asyncio.timeout(20):
            while not {INSTALLATION, "org:acme"} <= running.plane.snapshots.policies.levels.keys():
                await asyncio.sleep(0.02)
        yield running


@pytest.fixture(scope="module")
async def veiling(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path, shared_upstreams: Upstreams
) -> AsyncIterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("veiling")
    shutil.copyfile(sqlite_template, folder / "gateway.db")
    url = f"sqlite+aiosqlite:///{folder / 'gateway.db'}"
    made = document(
        {"name": "veiled", "pseudonymise": True},
        preferences=routes(CHEAP_CLAUDE_TARGET, GPT_TARGET),
    )
    async with RunningGateway(folder, url, shared_upstreams) as running:
        database = open_database(url)
        try:
            store = PolicyStore(database, SystemClock())
            await store.act(INSTALLATION, await released(store, made), "publish", "Bob")
        finally:
            await database.close()
        async with asyncio.timeout(20):
            while INSTALLATION not in running.plane.snapshots.policies.levels:
                await asyncio.sleep(0.02)
        yield running


def asking(style: Style, model: str, text: str, *, stream: bool) -> dict[str, object]:
    return ask(style, stream=stream, model=model, messages=[{"role": "user", "content": text}])


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("stream", [False, True])
async def test_whatever_the_house_answers_the_number_is_told_to_nobody_else(
    style: Style,
    stream: bool,
    home: RunningGateway,
    upstreams: Upstreams,
    http: aiohttp.ClientSession,
) -> None:
    caller = Caller(home, http, await home.issue_key())
    faults: tuple[Fault, ...] = ("", "reset", "bad_json", "cut", "truncated", "error_event")
    ends = [Answer(text=DOUBTED, fault=fault) for fault in faults]
    ends += [Answer(status=status) for status in (400, 429, 500, 503)]

    ways = [f"auto:{way}" for way in WAYS]
    for model in (*ways, "auto", CLAUDE_TARGET, GPT_TARGET):
        for end in ends if model in ways else ends[:1]:
            upstreams.engine.answer(end)
            home.plane._health.breakers._states.clear()
            reply = await caller.post(style, asking(style, model, SAID, stream=stream))
            if reply.status == 200:
                assert reply.headers["x-gatewright-target"] == ENGINE_TARGET
    assert not any(upstream.calls for upstream in upstreams.managed)
    assert not leaked(upstreams)
    assert len(upstreams.engine.calls) >= len(WAYS) * 3, "it was asked, and failed"

    upstreams.engine.answer(Answer(status=500))
    for model in ways:
        reply = await caller.post(style, asking(style, model, "Good morning", stream=stream))
        assert reply.status == 200
    assert any(upstream.calls for upstream in upstreams.managed), "what is harmless goes out"
    probes = [each for one in upstreams.managed for each in one.requests if each.method == "GET"]
    assert all(each.body == b"" for each in probes)


def said_to(request: RecordedRequest) -> str:
    """The user's words as an upstream got them."""
    content = request.json["messages"][-1]["content"]  # type: ignore[index]
    return str(content if isinstance(content, str) else content[0]["text"])


def repeating(first: Callable[[], Answer | None] = lambda: None) -> Callable[[Any], Answer]:
    """An upstream that says the user's words again, after whatever it does first."""

    def answer_to(request: RecordedRequest) -> Answer:
        return first() or Answer(text=f"Done: {said_to(request)}")

    return answer_to


def once(*answers: Answer) -> Callable[[], Answer | None]:
    left = list(answers)
    return lambda: left.pop(0) if left else None


def told(reply: Reply) -> str:
    """All text of an answer, whole or streamed."""
    marks = (b'"content":"', b'"text":"')
    parts = [part.split(b'"')[0] for mark in marks for part in reply.body.split(mark)[1:]]
    return b"".join(parts).decode()


class Case(msgspec.Struct, frozen=True):
    way: str
    first: tuple[Answer, ...]
    second: tuple[Answer, ...] = ()
    calls: tuple[int, int] = (1, 1)


CASES = {
    "a fallback": Case("fallback", (Answer(status=500),)),
    "a retry": Case("fallback", (Answer(fault="reset"),), calls=(2, 0)),
    "a hedge that wins": Case("hedge", (Answer(fault="hang"),)),
    "a hedge that loses": Case("hedge", (), (Answer(fault="hang"),)),
    "a cascade": Case("cascade", (Answer(text=DOUBTED),)),
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", CASES)
async def test_every_attempt_says_the_same_pseudonyms_and_any_answer_is_unveiled(
    style: Style,
    stream: bool,
    name: str,
    veiling: RunningGateway,
    upstreams: Upstreams,
    http: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = CASES[name]
    veiling.plane._health.breakers._states.clear()  # What targets did in earlier tests.
    caller = Caller(veiling, http, await veiling.issue_key())
    first = case.first
    may_answer = asyncio.Event()
    if name == "a hedge that loses":
        monkeypatch.setattr(
            upstreams.anthropic,
            "answer_to",
            lambda request: Answer(text=f"Done: {said_to(request)}", hold=may_answer),
        )
    else:
        monkeypatch.setattr(upstreams.anthropic, "answer_to", repeating(once(*first)))
    monkeypatch.setattr(upstreams.openai, "answer_to", repeating(once(*case.second)))

    body = asking(style, f"auto:{case.way}", SAID, stream=stream)
    posting = asyncio.ensure_future(caller.post(style, body))
    if name == "a hedge that loses":
        await both_called(upstreams.anthropic, upstreams.openai)
        may_answer.set()
    reply = await posting

    assert reply.status == 200
    assert SAID in told(reply)
    calls = (upstreams.anthropic.calls, upstreams.openai.calls)
    assert (len(calls[0]), len(calls[1])) == case.calls
    assert not leaked(upstreams)
    (veiled,) = {said_to(each) for some in calls for each in some}
    assert veiled != SAID
    assert veiled.startswith("Please register customer ")


async def both_called(*upstreams: RecordingUpstream) -> None:
    async with asyncio.timeout(20):
        while not all(upstream.calls for upstream in upstreams):
            await asyncio.sleep(0.01)
