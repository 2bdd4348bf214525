"""Streams cut, sliced and stalled anywhere: complete text or an error, never half as complete.

Over sockets for what an upstream does with its connection; in one process, through the real
dispatcher and dialects, for ten thousand ways to slice a body (`make faults`; the suite takes a
share of them).
"""

import asyncio
import os
import random

import msgspec
import pytest

from gateway.clock import StoppedClock
from gateway.dialects.registry import DIALECTS as GATEWAY_DIALECTS
from gateway.dispatch.attempts import AttemptLog
from gateway.dispatch.dispatcher import Dispatcher
from gateway.dispatch.health import TargetHealth
from gateway.errors import GatewrightError
from gateway.providers.scripted import ScriptedProvider, ScriptedReply
from gateway.types import Candidate, DialectName, Plan
from tests.faults.envelopes import STYLES, TERMINALS, Caller, Style, ask, only_outcome
from tests.gateway.providers.samples import HOME, make_target
from tests.running_gateway import CLAUDE_TARGET, ENGINE_TARGET, Upstreams
from tests.upstreams import Answer, events_of


pytestmark = pytest.mark.anyio

SETTINGS = """
[limits]
first_byte_s = 0.5
stream_idle_s = 0.5
"""
CASES = int(os.environ.get("GATEWRIGHT_FAULT_CASES", "400"))
NAMES: tuple[DialectName, ...] = ("openai_chat", "anthropic_messages")
LETTERS = 'aé漢🙂\u2028\x85 \t"\\{}'
both = pytest.mark.parametrize("style", STYLES)


@pytest.fixture(autouse=True)
async def all_alive(caller: Caller, upstreams: Upstreams) -> None:
    """Nobody is out because of the test before."""
    caller.gateway.plane._health.breakers._states.clear()
    for upstream in (upstreams.engine, *upstreams.managed):
        upstream.forget()


@both
async def test_silence_after_the_head_of_a_stream_is_tried_elsewhere_once(
    caller: Caller, upstreams: Upstreams, style: Style
) -> None:
    upstreams.engine.answer(Answer(fault="silent"))
    for upstream in upstreams.managed:
        upstream.answer(Answer(text="said exactly once"))

    reply = await caller.post(style, ask(style, model="auto:cheap", stream=True))

    text = reply.body.decode()
    assert reply.status == 200
    assert reply.headers["x-gatewright-target"] != ENGINE_TARGET
    assert TERMINALS[style].decode() in text
    assert text.count("exactly") == 1
    outcome = await only_outcome(caller.gateway, reply.request_id, "ok", "")
    assert [each.error for each in outcome.attempts] == ["upstream_timeout", ""]
    assert sum(len(upstream.calls) for upstream in upstreams.managed) == 1


@both
async def test_silence_after_the_first_words_is_an_error_and_nobody_says_them_again(
    caller: Caller, upstreams: Upstreams, style: Style
) -> None:
    upstreams.engine.answer(Answer(fault="mid_hang", text="said exactly once and more of it"))

    reply = await caller.post(style, ask(style, model="auto:cheap", stream=True))

    text = reply.body.decode()
    assert reply.headers["x-gatewright-target"] == ENGINE_TARGET
    assert TERMINALS[style].decode() not in text
    assert text.count("exactly") <= 1
    await only_outcome(caller.gateway, reply.request_id, "incomplete", "upstream_timeout")
    assert not any(upstream.calls for upstream in upstreams.managed)


@both
async def test_an_event_without_end_is_refused_within_the_limit(
    caller: Caller, upstreams: Upstreams, style: Style
) -> None:
    endless = b'data: {"choices":[{"index":0,"delta":{"content":"' + b"x" * (3 << 20)
    upstreams.engine.answer(Answer(events=(endless,)))

    reply = await caller.post(style, ask(style, model=ENGINE_TARGET, stream=True))

    assert reply.status == 502
    assert len(reply.body) < 10_000
    await only_outcome(caller.gateway, reply.request_id, "failed", "upstream_malformed")


@both
@pytest.mark.parametrize("target", [CLAUDE_TARGET, ENGINE_TARGET])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1024])
async def test_slices_on_the_wire_are_put_together_again(
    caller: Caller, upstreams: Upstreams, style: Style, target: str, size: int
) -> None:
    text = "漢字 und 🙂 é " * 5
    upstream = upstreams.anthropic if target == CLAUDE_TARGET else upstreams.engine
    whole = Answer(text=text)
    upstream.answer(whole)
    expected = await caller.post(style, ask(style, model=target, stream=True))
    name: DialectName = "anthropic_messages" if target == CLAUDE_TARGET else "openai_chat"
    body = b"".join(events_of(whole, upstream.calls[-1].json, name))
    slices = tuple(body[at : at + size] for at in range(0, len(body), size))
    upstream.answer(Answer(events=slices))

    reply = await caller.post(style, ask(style, model=target, stream=True))

    assert said(reply.body, style) == said(expected.body, style) == text
    assert TERMINALS[style] in reply.body
    await only_outcome(caller.gateway, reply.request_id, "ok", "")


def said(body: bytes, style: Style) -> str:
    """The text of a stream in the caller's dialect."""
    decoder = GATEWAY_DIALECTS[NAMES[STYLES.index(style)]].stream_decoder()
    events = [*decoder.feed(body), *decoder.close()]
    return "".join(d.text for event in events for d in event.deltas if d.kind == "text")


class Heard(msgspec.Struct):
    """What a caller saw of one stream."""

    text: str = ""
    ended: bool = False
    error: str = ""


async def heard(pieces: tuple[bytes, ...], name: DialectName) -> Heard:
    """Through the dispatcher, as a caller of the same dialect."""
    target = msgspec.structs.replace(make_target("scripted/one"), provider="one")
    provider = ScriptedProvider("one", HOME, name)
    provider.add(ScriptedReply(pieces=pieces, is_event_stream=True))
    dispatcher = Dispatcher({"one": provider}, GATEWAY_DIALECTS, TargetHealth(), StoppedClock())
    body = {"model": "auto", "max_tokens": 9, "stream": True, "messages": QUESTION}
    request = GATEWAY_DIALECTS[name].decode_request(msgspec.json.encode(body), "req_1")
    plan = Plan((Candidate(target, 10, 100),), frozenset({HOME}), 30.0, "d", "r", "none")
    found = Heard()
    try:
        live = await dispatcher.open_stream(request, plan, AttemptLog())
        try:
            while events := await live.next_batch():
                for event in events:
                    found.text += "".join(d.text for d in event.deltas if d.kind == "text")
                    found.ended = found.ended or event.is_terminal
        finally:
            await live.close()
    except GatewrightError as error:
        found.error = error.code
    return found


QUESTION = [{"role": "user", "content": "Hello"}]


def body_of(draw: random.Random, name: DialectName) -> tuple[str, bytes]:
    """A good stream's text and bytes, with line ends of any kind."""
    text = "".join(draw.choices(LETTERS, k=draw.randint(1, 40)))
    events = events_of(Answer(text=text), {"model": "m", "stream": True}, name)
    ends = draw.choice([(b"\n",), (b"\r\n",), (b"\r",), (b"\n", b"\r\n")])
    parts = b"".join(events).split(b"\n")
    return text, b"".join(part + draw.choice(ends) for part in parts[:-1]) + parts[-1]


def sliced(draw: random.Random, body: bytes) -> tuple[bytes, ...]:
    size = draw.choice([1, 2, 5, 40])
    pieces, at = [], 0
    while at < len(body):
        step = draw.randint(1, size)
        pieces.append(body[at : at + step])
        at += step
    return tuple(pieces)


async def test_a_stream_sliced_anywhere_is_whole_and_a_cut_one_is_an_error() -> None:
    draw = random.Random(27)
    for case in range(CASES):
        name = NAMES[case % 2]
        text, body = body_of(draw, name)
        whole = await heard(sliced(draw, body), name)
        assert whole == Heard(text, ended=True), (case, name)

        # What the terminal event has come of is no end yet; from its last line on it is one.
        cut = draw.randrange(len(body.rstrip(b"\r\n")) - 3)
        broken = await heard(sliced(draw, body[:cut]), name)
        assert not broken.ended, (case, name, cut)
        assert broken.error, (case, name, cut)
        assert text.startswith(broken.text), (case, name, cut)
        if case % 100 == 0:
            await asyncio.sleep(0)
