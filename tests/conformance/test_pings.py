"""Pings: while an answer pauses, and before it begins. Every pause here is longer than a period."""

import asyncio

import pytest

from tests.faults.envelopes import STYLES, Caller, Style, ask, only_outcome
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

SETTINGS = """
[limits]
ping_every_s = 0.05
[inspection]
deadline_s = 5.0
"""


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("target", [CLAUDE_TARGET, GPT_TARGET])
async def test_pings_are_sent_while_an_answer_pauses(
    caller: Caller, upstreams: Upstreams, style: Style, target: str
) -> None:
    for upstream in upstreams.managed:
        upstream.answer(Answer(text="one two", gap_s=0.3))
    reply = await caller.post(style, ask(style, model=target, stream=True))

    ping = b": ping\n\n" if style == "openai" else b"event: ping\n"
    assert ping in reply.body
    assert reply.body.rstrip().endswith((b"[DONE]", b'{"type":"message_stop"}'))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("target", [CLAUDE_TARGET, GPT_TARGET])
async def test_pings_are_sent_before_an_answer_begins_and_its_target_is_told_at_the_end(
    caller: Caller, upstreams: Upstreams, style: Style, target: str
) -> None:
    hold = asyncio.Event()
    for upstream in upstreams.managed:
        upstream.answer(Answer(text="one two", hold=hold))
    reply = await caller.post(style, ask(style, model=target, stream=True), on_first=hold.set)

    ping = b": ping\n\n" if style == "openai" else b"event: ping\n"
    assert reply.body.startswith(ping)
    assert "x-gatewright-target" not in reply.headers
    assert f" x-gatewright-target={target}\n".encode() in reply.body
    assert reply.body.rstrip().endswith((b"[DONE]", b'{"type":"message_stop"}'))
    assert not reply.is_cut
    await only_outcome(caller.gateway, reply.request_id, "ok", "")


@pytest.mark.parametrize("style", STYLES)
async def test_an_error_after_a_ping_falls_back_and_the_last_one_is_told_inside_the_stream(
    caller: Caller, upstreams: Upstreams, style: Style
) -> None:
    hold = asyncio.Event()
    upstreams.engine.answer_once(Answer(status=500, hold=hold))
    body = ask(style, model="auto", stream=True)
    reply = await caller.post(style, body, on_first=hold.set)
    assert b" x-gatewright-target=claude" in reply.body
    # Good news of the engine, so that its breaker does not keep later tests from it.
    assert (await caller.post(style, ask(style))).status == 200

    late = asyncio.Event()
    upstreams.anthropic.answer(Answer(status=529, hold=late))
    failed = await caller.post(
        style, ask(style, model=CLAUDE_TARGET, stream=True), on_first=late.set
    )
    assert failed.status == 200
    assert failed.body.count(b'"error":{') == 1
    assert b"[DONE]" not in failed.body
    assert b"message_stop" not in failed.body
    assert failed.is_cut == (style == "openai")
    outcome = await only_outcome(caller.gateway, failed.request_id, "failed", "upstream_refused")
    assert outcome.cost_microusd == 0
