"""A policy with a cascade: both answers are charged and recorded, and the caller sees one."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.faults.envelopes import STYLES, Caller, Style, ask, only_outcome
from tests.running_gateway import CHEAP_CLAUDE_TARGET, CLAUDE_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

POLICY = f"""
name = "cascade"
version = 1
[[preferences]]
name = "cheap-first"
targets = ["{CHEAP_CLAUDE_TARGET}", "{CLAUDE_TARGET}"]
order = ["cheap"]
cascade_above_percent = 60
"""
QUESTION = "Ann has 12 apples and buys 3 bags of 4 apples. How many apples has she now?"
GOOD = "She buys 3 * 4 = 12 apples and has 12 + 12 = 24 apples now.\n#### 24"
REFUSAL = "I'm sorry, but I cannot help with that."


@pytest.fixture
async def cascading(
    tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams
) -> AsyncIterator[RunningGateway]:
    (tmp_path / "policy.toml").write_text(POLICY)
    more = f'[policy]\nfile = "{tmp_path / "policy.toml"}"'
    async with RunningGateway(tmp_path, sqlite_url, own_upstreams, more=more) as running:
        yield running


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_refusal_goes_one_tier_up_and_a_sound_answer_does_not(
    style: Style,
    stream: bool,
    cascading: RunningGateway,
    own_upstreams: Upstreams,
    http: aiohttp.ClientSession,
) -> None:
    caller = Caller(cascading, http, await cascading.issue_key())
    messages = [{"role": "user", "content": QUESTION}]
    body = ask(style, stream=stream, model="auto", messages=messages)
    costs = {}
    for cheap_answer, end in ((GOOD, "kept"), (REFUSAL, "escalated")):
        own_upstreams.anthropic.answer_once(Answer(text=cheap_answer))
        own_upstreams.anthropic.answer(Answer(text="She has 24 apples."))
        before = len(own_upstreams.anthropic.calls)

        reply = await caller.post(style, body)

        assert reply.status == 200
        asked = [call.json["model"] for call in own_upstreams.anthropic.calls[before:]]
        outcome = await only_outcome(cascading, reply.request_id, "ok", "")
        assert outcome.detail["cascade"] == end
        assert [attempt.target for attempt in outcome.attempts] == asked
        assert len(asked) == (1 if end == "kept" else 2)
        assert outcome.target == asked[-1]
        assert b"sorry" not in reply.body
        costs[end] = outcome.cost_microusd
        intent = next(r for r in await cascading.records(reply.request_id) if r.stage == "intent")
        assert outcome.cost_microusd <= intent.reserved_microusd
    # The same tokens at the cheap price, and at the cheap and the dear price.
    assert costs["escalated"] > 2 * costs["kept"]
