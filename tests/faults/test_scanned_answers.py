"""A policy that has answers scanned: the outcome counts their findings, and masking hides them."""

import random
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from msgspec.json import encode

from tests.classifiers import samples
from tests.faults.envelopes import STYLES, Caller, Style, ask, only_outcome
from tests.gateway.veiling.answers_in_blocks import in_messages, message
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

POLICY = """
name = "answers"
version = 1
[defaults]
order = ["cheapest"]
[[constraints]]
name = "read-what-comes-back"
scan_output = "{mode}"
"""
CARD = samples.grouped(samples.card(random.Random(5)), " ")
TARGETS = {"openai": GPT_TARGET, "anthropic": CLAUDE_TARGET}
QUESTION = [{"role": "user", "content": "What do you know about the customer?"}]
both = pytest.mark.parametrize("style", STYLES)


@pytest.fixture(params=["count", "mask"])
async def scanning(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    sqlite_url: str,
    own_upstreams: Upstreams,
    http: aiohttp.ClientSession,
) -> AsyncIterator[tuple[str, Caller]]:
    """How an answer is scanned, and who asks for one."""
    (tmp_path / "policy.toml").write_text(POLICY.format(mode=request.param))
    more = f'[policy]\nfile = "{tmp_path / "policy.toml"}"'
    async with RunningGateway(tmp_path, sqlite_url, own_upstreams, more=more) as running:
        yield request.param, Caller(running, http, await running.issue_key())


@both
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_is_counted_and_where_policy_says_masked(
    style: Style,
    stream: bool,
    scanning: tuple[str, Caller],
    own_upstreams: Upstreams,
) -> None:
    mode, caller = scanning
    upstream = own_upstreams.openai if style == "openai" else own_upstreams.anthropic
    upstream.answer(Answer(text=f"The card of the customer is {CARD} , it seems."))

    reply = await caller.post(
        style, ask(style, stream=stream, model=TARGETS[style], messages=QUESTION)
    )

    assert reply.status == 200
    assert (b"[REDACTED:CREDIT_CARD]" in reply.body) is (mode == "mask")
    last_group = CARD.split()[-1].encode()
    if mode == "mask":
        assert b" " + last_group not in reply.body
    outcome = await only_outcome(caller.gateway, reply.request_id, "ok", "")
    assert outcome.output_findings == {"CREDIT_CARD": 1}


@both
@pytest.mark.parametrize("stream", [False, True])
async def test_a_number_in_two_blocks_is_one_number_to_whoever_reads_them_as_one_text(
    style: Style,
    stream: bool,
    scanning: tuple[str, Caller],
    own_upstreams: Upstreams,
) -> None:
    mode, caller = scanning
    blocks = [f"It is {CARD[:9]}", f"{CARD[9:]} , he said."]
    whole = {**message(blocks), "id": "msg_1", "model": "m", "role": "assistant"}
    events = tuple(in_messages([[each] for each in blocks]))
    answer = Answer(events=events) if stream else Answer(body=encode(whole))
    own_upstreams.anthropic.answer(answer)

    body = ask(style, stream=stream, model=CLAUDE_TARGET, messages=QUESTION)
    reply = await caller.post(style, body)

    assert reply.status == 200
    assert (b"[REDACTED:CREDIT_CARD]" in reply.body) is (mode == "mask")
    assert (CARD[9:].strip().encode() in reply.body) is (mode == "count")
    outcome = await only_outcome(caller.gateway, reply.request_id, "ok", "")
    assert outcome.output_findings == {"CREDIT_CARD": 1}
