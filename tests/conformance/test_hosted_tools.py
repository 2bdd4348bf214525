"""Searches by a vendor's own tool, over HTTP: in the cost and the record, never without a price."""

import json
from typing import Any

import openai
import pytest

from gateway.types import AuditRecord
from tests.faults.envelopes import Caller, Reply, ask, only_outcome, untouched
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

SEARCH = {"type": "web_search_20260209", "name": "web_search", "max_uses": 5}
SEARCH_MICROUSD = 10_000
USAGE = {"input_tokens": 11, "output_tokens": 7}
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "Found."}],
    "stop_reason": "end_turn",
    "usage": USAGE | {"server_tool_use": {"web_search_requests": 3, "web_fetch_requests": 2}},
}


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind} | fields)}\n\n".encode()


STREAM = (
    event("message_start", message=MESSAGE | {"content": [], "usage": USAGE}),
    event("content_block_start", index=0, content_block={"type": "text", "text": "Found."}),
    event("content_block_stop", index=0),
    event("message_delta", delta={"stop_reason": "end_turn"}, usage=MESSAGE["usage"]),
    event("message_stop"),
)


def whole(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer).encode()


def response(*actions: dict[str, Any]) -> dict[str, Any]:
    calls = [
        {"type": "web_search_call", "id": f"ws_{at}", "status": "completed", "action": action}
        for at, action in enumerate(actions)
    ]
    said = {"type": "output_text", "text": "Found.", "annotations": []}
    return {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "model": "m",
        "output": [*calls, {"type": "message", "role": "assistant", "content": [said]}],
        "usage": USAGE,
    }


async def outcome_of(gateway: RunningGateway, reply: Reply) -> AuditRecord:
    return await only_outcome(gateway, reply.headers["x-request-id"], "ok", "")


@pytest.mark.parametrize("stream", [False, True])
async def test_rule_19_what_a_vendor_searched_is_part_of_what_a_message_cost(
    gateway: RunningGateway, caller: Caller, upstreams: Upstreams, *, stream: bool
) -> None:
    plain = await caller.post("anthropic", ask("anthropic", model=CLAUDE_TARGET))
    upstreams.anthropic.answer(Answer(events=STREAM) if stream else Answer(body=whole(MESSAGE)))
    asked = ask("anthropic", model=CLAUDE_TARGET, tools=[SEARCH], stream=stream)
    outcome = await outcome_of(gateway, await caller.post("anthropic", asked))

    assert outcome.usage is not None
    assert outcome.usage.web_searches == 3
    bare = int(plain.headers["x-gatewright-cost-microusd"])
    assert outcome.cost_microusd == bare + 3 * SEARCH_MICROUSD


@pytest.mark.parametrize("stream", [False, True])
async def test_rule_19_of_a_response_each_query_is_paid_for_and_no_page_that_was_opened(
    gateway: RunningGateway, shared_key: str, upstreams: Upstreams, *, stream: bool
) -> None:
    said = response(
        {"type": "search", "query": "a"},
        {"type": "search", "query": "b", "queries": ["b", "c"]},
        {"type": "open_page", "url": "https://docs.example.com"},
    )
    events = (event("response.created", response=said), event("response.completed", response=said))
    upstreams.openai.answer(Answer(events=events) if stream else Answer(body=whole(said)))
    url = f"{gateway.url}/v1"
    tools: Any = [{"type": "web_search"}]
    async with openai.AsyncOpenAI(base_url=url, api_key=shared_key, max_retries=0) as client:
        raw = await client.responses.with_raw_response.create(
            model=GPT_TARGET, input="Look it up.", tools=tools, stream=stream
        )
        await raw.http_response.aread()
    outcome = await only_outcome(gateway, raw.headers["x-request-id"], "ok", "")

    assert outcome.usage is not None
    assert outcome.usage.web_searches == 3
    assert outcome.cost_microusd > 3 * SEARCH_MICROUSD


async def test_rule_19_a_search_that_a_message_showed_before_it_broke_is_booked_as_an_estimate(
    gateway: RunningGateway, caller: Caller, upstreams: Upstreams
) -> None:
    asks = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "a"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    shown = (
        event("content_block_start", index=1, content_block=asks),
        event("content_block_stop", index=1),
        event("content_block_start", index=2, content_block=found),
    )
    costs = []
    for more in ((), shown):
        upstreams.anthropic.answer(Answer(events=(*STREAM[:3], *more)))
        asked = ask("anthropic", model=CLAUDE_TARGET, tools=[SEARCH], stream=True)
        reply = await caller.post("anthropic", asked)
        request_id = reply.headers["x-request-id"]
        outcome = await only_outcome(gateway, request_id, "incomplete", "stream_broken")
        assert outcome.usage is not None
        assert (outcome.usage.web_searches, outcome.usage.estimated) == (bool(more), True)
        costs.append(outcome.cost_microusd)
    assert costs[1] == costs[0] + SEARCH_MICROUSD


async def test_rule_19_a_tool_that_nobody_can_bill_is_refused_before_anything_leaves(
    caller: Caller, upstreams: Upstreams
) -> None:
    runs = {"type": "code_execution_20260120", "name": "code_execution"}
    body = ask("anthropic", model=CLAUDE_TARGET, tools=[runs])

    await caller.refused("anthropic", body, "unsupported_parameter")
    assert untouched(upstreams)
