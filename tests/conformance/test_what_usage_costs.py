"""From what a vendor counted, as its SDK shows it, to micro-dollars that were added by hand.

Claude Opus 5.5 costs $4 a million tokens read and $20 written, $0.20 from the cache, $5 into it for
five minutes and $8 for an hour. GPT-6.2 Sol costs $2 and $10, $0.10 from the cache, $2.50 into it
for half an hour and $5 for twelve; twice as much in the faster tier, and half in the slower one.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from msgspec import Struct
from openai import AsyncOpenAI

from gateway.types import AuditRecord
from tests.faults.envelopes import only_outcome
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio
Tree = dict[str, Any]
CLAUDE_KEPT: Tree = {
    "input_tokens": 1_000,
    "output_tokens": 300,
    "cache_read_input_tokens": 50_000,
    "cache_creation_input_tokens": 9_000,
    "cache_creation": {"ephemeral_5m_input_tokens": 4_000, "ephemeral_1h_input_tokens": 5_000},
}
CLAUDE_KEPT_MICROUSD = 1_000 * 4 + 300 * 20 + 50_000 // 5 + 4_000 * 5 + 5_000 * 8
CHAT: Tree = {
    "prompt_tokens": 30_000,
    "completion_tokens": 500,
    "total_tokens": 30_500,
    "prompt_tokens_details": {"cached_tokens": 20_000, "cache_write_tokens": 4_000},
    "completion_tokens_details": {"reasoning_tokens": 200},
}
CHAT_MICROUSD = 6_000 * 2 + 20_000 // 10 + 4_000 * 5 // 2 + 500 * 10
RESPONSE: Tree = {
    "input_tokens": 30_000,
    "input_tokens_details": {
        "cached_tokens": 20_000,
        "cache_write_tokens": 6_000,
        "cache_write_tokens_details": {"ttl_12h_tokens": 4_000, "ttl_30m_tokens": 2_000},
    },
    "output_tokens": 500,
    "output_tokens_details": {"reasoning_tokens": 200},
    "total_tokens": 30_500,
}
RESPONSE_MICROUSD = 4_000 * 2 + 20_000 // 10 + 2_000 * 5 // 2 + 4_000 * 5 + 500 * 10


class Said(Struct):
    """What an SDK got: its request's id, and the usage that it shows."""

    request_id: str
    usage: Tree


Ask = Callable[[str, str, str, Tree], Awaitable[Said]]
"""A gateway, a key, a model and further fields."""


def sse(*events: Tree) -> tuple[bytes, ...]:
    return tuple(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events)


def message(usage: Tree) -> Tree:
    said = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "usage": usage}
    return said | {"content": [{"type": "text", "text": "Yes."}], "stop_reason": "end_turn"}


def message_events(usage: Tree, last: Tree) -> tuple[bytes, ...]:
    start = message(usage | {"output_tokens": 1}) | {"content": [], "stop_reason": None}
    block = {"type": "content_block_start", "index": 0}
    return sse(
        {"type": "message_start", "message": start},
        block | {"content_block": {"type": "text", "text": ""}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "Yes."},
        },
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last},
        {"type": "message_stop"},
    )


def chat(usage: Tree, **more: str) -> Tree:
    choice = {"index": 0, "message": {"role": "assistant", "content": "Yes."}}
    said = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
    return said | {"choices": [choice | {"finish_reason": "stop"}], "usage": usage} | more


def chat_events(usage: Tree) -> tuple[bytes, ...]:
    said = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    delta = {"index": 0, "delta": {"role": "assistant", "content": "Yes."}}
    trees = [
        said | {"choices": [delta | {"finish_reason": "stop"}], "usage": None},
        said | {"choices": [], "usage": usage},
    ]
    return (*(f"data: {json.dumps(each)}\n\n".encode() for each in trees), b"data: [DONE]\n\n")


def response(usage: Tree) -> Tree:
    part = {"type": "output_text", "text": "Yes.", "annotations": [], "logprobs": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    said = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "tools": []}
    ended = {"status": "completed", "parallel_tool_calls": True, "tool_choice": "auto"}
    return said | ended | {"output": [item | {"content": [part]}], "usage": usage}


def response_events(usage: Tree) -> tuple[bytes, ...]:
    begun = response(usage) | {"status": "in_progress", "output": [], "usage": None}
    return sse(
        {"type": "response.created", "sequence_number": 0, "response": begun},
        {"type": "response.completed", "sequence_number": 1, "response": response(usage)},
    )


async def ask_claude(url: str, key: str, model: str, more: Tree) -> Said:
    stream = more.pop("stream", False)
    asked: Tree = {"model": model, "max_tokens": 2_000, **more}
    asked["messages"] = [{"role": "user", "content": "Is it?"}]
    async with AsyncAnthropic(base_url=url, api_key=key, max_retries=0) as sdk:
        if not stream:
            raw = await sdk.messages.with_raw_response.create(**asked)
            usage = (await raw.parse()).usage
            return Said(raw.headers["x-request-id"], usage.model_dump())
        async with sdk.messages.stream(**asked) as coming:
            request_id = coming.response.headers["x-request-id"]
            return Said(request_id, (await coming.get_final_message()).usage.model_dump())


async def ask_chat(url: str, key: str, model: str, more: Tree) -> Said:
    asked: Tree = {"model": model, **more}
    asked["messages"] = [{"role": "user", "content": "Is it?"}]
    if more.get("stream"):
        asked["stream_options"] = {"include_usage": True}
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as sdk:
        raw = await sdk.chat.completions.with_raw_response.create(**asked)
        told: Any = raw.parse()
        usages = [each.usage async for each in told] if more.get("stream") else [told.usage]
        (usage,) = [each for each in usages if each is not None]
        return Said(raw.headers["x-request-id"], usage.model_dump())


async def ask_responses(url: str, key: str, model: str, more: Tree) -> Said:
    asked: Tree = {"model": model, "input": "Is it?", **more}
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as sdk:
        raw = await sdk.responses.with_raw_response.create(**asked)
        told: Any = raw.parse()
        if more.get("stream"):
            events = [each async for each in told]
            told = events[-1].response
        return Said(raw.headers["x-request-id"], told.usage.model_dump())


def shown_input(usage: Tree) -> int:
    """All input that an SDK's usage shows; Anthropic's counts what a cache holds beside it."""
    if "input_tokens_details" in usage or "prompt_tokens" in usage:
        return int(usage.get("prompt_tokens") or usage["input_tokens"])
    kinds = sum((usage["cache_creation"] or {}).values())
    kept = max(usage["cache_creation_input_tokens"] or 0, kinds)
    return int(usage["input_tokens"] + (usage["cache_read_input_tokens"] or 0) + kept)


def changed(usage: Tree, **more: Any) -> Tree:
    return {**usage, **more}


WITHOUT_KINDS = {name: value for name, value in CLAUDE_KEPT.items() if name != "cache_creation"}
WITHOUT_SUM = changed(CLAUDE_KEPT, cache_creation_input_tokens=None)
XAI = {
    "prompt_tokens": 1_000,
    "completion_tokens": 100,
    "total_tokens": 1_500,
    "completion_tokens_details": {"reasoning_tokens": 400},
}
SPOKEN = {
    "prompt_tokens": 1_000,
    "completion_tokens": 100,
    "total_tokens": 1_100,
    "prompt_tokens_details": {"audio_tokens": 300, "image_tokens": 200, "text_tokens": 500},
    "completion_tokens_details": {"audio_tokens": 60, "rejected_prediction_tokens": 20},
}
COMPACTING: Tree = {"context_management": {"edits": [{"type": "compact_20260112"}]}}
COMPACTED: Tree = {
    "input_tokens": 23_000,
    "output_tokens": 1_000,
    "iterations": [
        {
            "type": "compaction",
            "input_tokens": 60_000,
            "output_tokens": 3_500,
            "cache_read_input_tokens": 20_000,
            "cache_creation_input_tokens": 10_000,
            "cache_creation": {
                "ephemeral_5m_input_tokens": 4_000,
                "ephemeral_1h_input_tokens": 6_000,
            },
        },
        {"type": "message", "input_tokens": 23_000, "output_tokens": 1_000},
    ],
}
"""As on Anthropic's page on compaction: a summary is in no figure but its own."""
COMPACTED_MICROUSD = (23_000 + 60_000) * 4 + 4_500 * 20 + 20_000 // 5 + 4_000 * 5 + 6_000 * 8
TABLE: dict[str, tuple[Ask, str, Tree, Answer, int]] = {
    "Claude, kept for five minutes and an hour": (
        *(ask_claude, CLAUDE_TARGET, {}),
        Answer(body=json.dumps(message(CLAUDE_KEPT)).encode()),
        CLAUDE_KEPT_MICROUSD,
    ),
    "Claude, without the sum of what was kept": (
        *(ask_claude, CLAUDE_TARGET, {}),
        Answer(body=json.dumps(message(WITHOUT_SUM)).encode()),
        CLAUDE_KEPT_MICROUSD,
    ),
    "Claude, streamed: the end repeats the sum alone": (
        *(ask_claude, CLAUDE_TARGET, {"stream": True}),
        Answer(events=message_events(CLAUDE_KEPT, WITHOUT_KINDS)),
        CLAUDE_KEPT_MICROUSD,
    ),
    "Claude, streamed: the end has the output alone": (
        *(ask_claude, CLAUDE_TARGET, {"stream": True}),
        Answer(events=message_events(CLAUDE_KEPT, {"output_tokens": 300})),
        CLAUDE_KEPT_MICROUSD,
    ),
    "Claude, streamed to OpenAI's SDK": (
        *(ask_chat, CLAUDE_TARGET, {"stream": True}),
        Answer(events=message_events(CLAUDE_KEPT, WITHOUT_KINDS)),
        CLAUDE_KEPT_MICROUSD,
    ),
    "Claude, in its own priority tier, which is paid by contract": (
        *(ask_claude, CLAUDE_TARGET, {}),
        Answer(body=json.dumps(message(changed(CLAUDE_KEPT, service_tier="priority"))).encode()),
        CLAUDE_KEPT_MICROUSD,
    ),
    "Claude, asked to stay in one country": (
        *(ask_claude, CLAUDE_TARGET, {"inference_geo": "us"}),
        Answer(body=json.dumps(message(changed(CLAUDE_KEPT, inference_geo="us"))).encode()),
        CLAUDE_KEPT_MICROUSD * 110 // 100,
    ),
    "Claude, in a workspace that stays in one country": (
        *(ask_claude, CLAUDE_TARGET, {"stream": True}),
        Answer(events=message_events(changed(CLAUDE_KEPT, inference_geo="us"), WITHOUT_KINDS)),
        CLAUDE_KEPT_MICROUSD * 110 // 100,
    ),
    "Claude, in such a workspace, to OpenAI's SDK": (
        *(ask_chat, CLAUDE_TARGET, {"stream": True}),
        Answer(events=message_events(changed(CLAUDE_KEPT, inference_geo="us"), WITHOUT_KINDS)),
        CLAUDE_KEPT_MICROUSD * 110 // 100,
    ),
    "Claude, anywhere": (
        *(ask_claude, CLAUDE_TARGET, {"inference_geo": "global"}),
        Answer(body=json.dumps(message(changed(CLAUDE_KEPT, inference_geo="global"))).encode()),
        CLAUDE_KEPT_MICROUSD,
    ),
    "Claude, where no place can be named": (
        *(ask_claude, CLAUDE_TARGET, {}),
        Answer(
            body=json.dumps(message(changed(CLAUDE_KEPT, inference_geo="not_available"))).encode()
        ),
        CLAUDE_KEPT_MICROUSD,
    ),
    "Claude, which summed up first": (
        *(ask_claude, CLAUDE_TARGET, {"extra_body": COMPACTING}),
        Answer(body=json.dumps(message(COMPACTED)).encode()),
        COMPACTED_MICROUSD,
    ),
    "Claude, which summed up first, streamed": (
        *(ask_claude, CLAUDE_TARGET, {"extra_body": COMPACTING, "stream": True}),
        Answer(events=message_events({"input_tokens": 23_000}, COMPACTED)),
        COMPACTED_MICROUSD,
    ),
    "GPT": (
        *(ask_chat, GPT_TARGET, {}),
        Answer(body=json.dumps(chat(CHAT)).encode()),
        CHAT_MICROUSD,
    ),
    "GPT, streamed": (
        *(ask_chat, GPT_TARGET, {"stream": True}),
        Answer(events=chat_events(CHAT)),
        CHAT_MICROUSD,
    ),
    "GPT, to Anthropic's SDK": (
        *(ask_claude, GPT_TARGET, {}),
        Answer(body=json.dumps(chat(CHAT)).encode()),
        CHAT_MICROUSD,
    ),
    "GPT, served faster": (
        *(ask_chat, GPT_TARGET, {"service_tier": "priority"}),
        Answer(body=json.dumps(chat(CHAT, service_tier="priority")).encode()),
        2 * CHAT_MICROUSD,
    ),
    "GPT, asked to be faster and served as usual": (
        *(ask_chat, GPT_TARGET, {"service_tier": "priority"}),
        Answer(body=json.dumps(chat(CHAT, service_tier="default")).encode()),
        CHAT_MICROUSD,
    ),
    "GPT, served slower": (
        *(ask_chat, GPT_TARGET, {"service_tier": "flex"}),
        Answer(body=json.dumps(chat(CHAT, service_tier="flex")).encode()),
        CHAT_MICROUSD // 2,
    ),
    "thinking that only the total counts": (
        *(ask_chat, GPT_TARGET, {}),
        Answer(body=json.dumps(chat(XAI)).encode()),
        1_000 * 2 + (100 + 400) * 10,
    ),
    "sounds, images and predictions, which are tokens": (
        *(ask_chat, GPT_TARGET, {}),
        Answer(body=json.dumps(chat(SPOKEN)).encode()),
        1_000 * 2 + 100 * 10,
    ),
    "GPT, kept for twelve hours": (
        *(ask_responses, GPT_TARGET, {"extra_body": {"prompt_cache_options": {"ttl": "12h"}}}),
        Answer(body=json.dumps(response(RESPONSE)).encode()),
        RESPONSE_MICROUSD,
    ),
    "GPT, kept for twelve hours, streamed": (
        *(ask_responses, GPT_TARGET, {"stream": True}),
        Answer(events=response_events(RESPONSE)),
        RESPONSE_MICROUSD,
    ),
}


@pytest.mark.parametrize("case", TABLE)
async def test_what_an_sdk_shows_to_have_been_counted_costs_what_was_added_by_hand(
    gateway: RunningGateway, upstreams: Upstreams, shared_key: str, case: str
) -> None:
    ask, model, more, answer, expected = TABLE[case]
    for upstream in upstreams.managed:
        upstream.answer(answer)
    said = await ask(gateway.url, shared_key, model, dict(more))

    outcome: AuditRecord = await only_outcome(gateway, said.request_id, "ok", "")
    assert outcome.usage is not None
    assert (outcome.cost_microusd, outcome.usage.estimated) == (expected, False)
    if not outcome.usage.compactions:
        assert shown_input(said.usage) == outcome.usage.input_tokens
