"""What is set aside for a request covers the dearest answer that its upstream may give it.

Of every probe, from each dialect to each, at several kinds of prices: the body that is sent is read
as its vendor reads it, and answered in that vendor's words with all that it allows. What no body
asks for, such as another tier than its own, may cost more, and is told.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from msgspec import structs

from gateway.admission.plausible_counts import believed
from gateway.dialects.registry import DIALECTS
from gateway.errors import GatewrightError
from gateway.money.catalogue import PARAMETERS, cost
from gateway.price import PLAIN_TIERS, Price
from gateway.routing.planning import _candidate
from gateway.types import ChatRequest, DialectName, Target
from policies.decision import Decision, Obligations
from tests.conformance.probes import ABLE, BASES, PROBES, Row, read, rows
from tests.gateway.dialects.samples import target


Json = dict[str, Any]
ALLOWED = Decision("allow", None, "", (), Obligations(), (), None, (), "", 0, "")
DEFAULT_TOKENS = 4096
SEARCHES = 10
"""What is assumed of a request that names no bound."""
SEARCH_MICROUSD = 10_000
PLAIN = Price(1_000_000, 5_000_000, 100_000, 1_000_000, 1_000_000, 50, "", "")
PRICES: Mapping[str, Price] = {
    "one price for all input": PLAIN,
    "dear to keep": structs.replace(
        PLAIN, cache_write_microusd_per_mtok=1_250_000, cache_write_1h_microusd_per_mtok=2_000_000
    ),
    "dear to read again": structs.replace(PLAIN, cache_read_microusd_per_mtok=3_000_000),
    "tiers": structs.replace(PLAIN, priority_percent=250, flex_percent=50),
    "one country": structs.replace(PLAIN, us_percent=110, priority_percent=250),
    "long": structs.replace(
        *(PLAIN,), long_from_tokens=20, long_input_percent=200, long_output_percent=150
    ),
    "searches": structs.replace(PLAIN, web_search_microusd=SEARCH_MICROUSD),
}
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
NAMED = ("n", "service_tier", "inference_geo")
FOR_LONG = ('"1h"', '"12h"', '"24h"')
PAID: Mapping[DialectName, Mapping[str, Json]] = {
    "openai_chat": {
        "several": {"n": 4, "max_completion_tokens": 900},
        "several, with much thought": {"n": 3, "reasoning_effort": "high"},
        "kept for long": {"prompt_cache_options": {"ttl": "12h"}},
        "kept for a day": {"prompt_cache_retention": "24h"},
        "faster": {"service_tier": "priority"},
        "faster, in a newer word": {"service_tier": "fast"},
        "slower": {"service_tier": "flex"},
    },
    "openai_completions": {
        "several": {"n": 3, "max_tokens": 700},
        "all of the best": {"n": 4, "best_of": 4, "max_tokens": 700},
        "several prompts": {"prompt": ["Hi", "Ho", "Ha"], "n": 2, "max_tokens": 500},
    },
    "openai_responses": {
        "much thought": {"reasoning": {"effort": "high"}, "max_output_tokens": 5000},
        "searches": {"tools": [{"type": "web_search"}]},
        "searches, bounded": {"tools": [{"type": "web_search"}], "max_tool_calls": 25},
        "kept for a day": {"prompt_cache_retention": "24h"},
        "faster": {"service_tier": "priority"},
    },
    "anthropic_messages": {
        "much thought": {
            "max_tokens": 6000,
            "thinking": {"type": "enabled", "budget_tokens": 5000},
        },
        "kept for an hour": {"cache_control": {"type": "ephemeral", "ttl": "1h"}},
        "searches": {
            "tools": [{"type": "web_search_20260209", "name": "web_search", "max_uses": 30}]
        },
        "in one country": {"inference_geo": "us"},
        "searches of two tools": {
            "tools": [
                {"type": "web_search_20260209", "name": "web_search", "max_uses": 3},
                {"type": "web_search_20250305", "name": "search_again"},
            ]
        },
    },
}


def cases() -> Iterator[tuple[Row, Json]]:
    """Every probe with its fields, and what is paid otherwise besides."""
    for row in rows():
        yield row, PROBES[row.source][row.probe]
    for row in {(each.source, each.wanted, each.is_able): each for each in rows()}.values():
        for name, fields in PAID[row.source].items():
            yield structs.replace(row, probe=name), fields


@pytest.mark.parametrize("price", PRICES.values(), ids=PRICES)
def test_no_answer_that_a_request_allows_costs_more_than_was_set_aside(price: Price) -> None:
    tried: set[str] = set()
    for row, fields in cases():
        chosen = _chosen(row, price)
        try:
            request = read(row.source, BASES[row.source] | fields)
            candidate = _candidate(chosen, ALLOWED, request, DEFAULT_TOKENS)
            upstream = DIALECTS[row.wanted].encode_request(
                request, chosen, candidate.output_tokens_cap
            )
        except GatewrightError:
            continue
        for told in _answers(row.wanted, json.loads(upstream.body), request):
            usage = DIALECTS[row.wanted].decode_reply(json.dumps(told).encode()).usage
            usage = believed(request, candidate, usage)
            assert not usage.disbelieved, (row, told)
            tried |= {usage.service_tier, usage.inference_geo}
            assert cost(price, usage) <= candidate.worst_cost_microusd, (row, told)
            assert cost(price, usage, is_batch=True) <= candidate.worst_cost_microusd, (row, told)
    assert ("priority" in tried) == (price.priority_percent > 0)
    assert ("us" in tried) == (price.us_percent > 0)


def test_the_table_reaches_what_it_looks_at() -> None:
    """Every kind of bound is in a body that is sent: otherwise it would be true of nothing."""
    seen: set[str] = set()
    for row, fields in cases():
        price = structs.replace(PRICES["searches"], priority_percent=250, us_percent=110)
        chosen = _chosen(row, price)
        try:
            request = read(row.source, BASES[row.source] | fields)
            upstream = DIALECTS[row.wanted].encode_request(request, chosen, 4000)
        except GatewrightError:
            continue
        body = json.loads(upstream.body)
        seen |= {name for name in (*LIMITS, *NAMED) if body.get(name)}
        seen |= {word for word in FOR_LONG if word in upstream.body.decode()}
        seen |= {"searches"} if _searches(body) else set()
    assert seen == {*LIMITS, *NAMED, *FOR_LONG, "searches"}


def _chosen(row: Row, price: Price) -> Target:
    stance = "yes" if row.is_able else "no"
    parameters = dict.fromkeys(PARAMETERS, stance) | {"effort_none": "yes"}
    chosen = target(*(ABLE if row.is_able else ()), parameters=parameters)
    return structs.replace(chosen, price=price, jurisdiction="us")


def _answers(dialect: DialectName, body: Json, request: ChatRequest) -> Iterator[Json]:
    """The longest answers to a body; its input new, read again, or kept for short or long."""
    read_tokens = max(request.input_tokens_most, request.input_tokens_estimate)
    (limit,) = [body[name] for name in LIMITS if body.get(name) is not None]
    prompts = body.get("prompt")
    answers = (len(prompts) if isinstance(prompts, list) else 1) * (body.get("n") or 1)
    assert "best_of" not in body
    kinds = ["new", "read", "short"]
    if any(word in json.dumps(body) for word in FOR_LONG):
        kinds.append("long")
    asked = str(body.get("service_tier") or "")
    tier = "default" if asked in PLAIN_TIERS else {"fast": "priority"}.get(asked, asked)
    for kind in kinds:
        counted = {each: read_tokens if each == kind else 0 for each in kinds}
        told = _told(dialect, counted, limit * answers, _searches(body), tier)
        if body.get("inference_geo") is not None:
            told["usage"]["inference_geo"] = body["inference_geo"]
        yield told


def _searches(body: Json) -> int:
    tools = [
        each for each in body.get("tools") or () if str(each.get("type")).startswith("web_search")
    ]
    if tools and body.get("max_tool_calls") is not None:
        return int(body["max_tool_calls"])
    return sum(each.get("max_uses") or SEARCHES for each in tools)


def _told(
    dialect: DialectName, counted: Mapping[str, int], written: int, searches: int, tier: str
) -> Json:
    """A vendor's whole answer."""
    if dialect == "anthropic_messages":
        usage: Json = {
            "input_tokens": counted["new"],
            "cache_read_input_tokens": counted["read"],
            "cache_creation_input_tokens": counted["short"] + counted.get("long", 0),
            "cache_creation": {
                "ephemeral_5m_input_tokens": counted["short"],
                "ephemeral_1h_input_tokens": counted.get("long", 0),
            },
            "output_tokens": written,
            "server_tool_use": {"web_search_requests": searches},
            "service_tier": {"default": "standard"}.get(tier, tier),
        }
        said = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
        block = {"type": "text", "text": "Yes."}
        return said | {"content": [block], "stop_reason": "end_turn", "usage": usage}
    details = {
        "cached_tokens": counted["read"],
        "cache_write_tokens": counted["short"] + counted.get("long", 0),
        "cache_write_tokens_details": {
            "ttl_12h_tokens": counted.get("long", 0),
            "ttl_30m_tokens": counted["short"],
        },
    }
    if dialect == "openai_responses":
        return _response(sum(counted.values()), details, written, searches, tier)
    usage = {
        "prompt_tokens": sum(counted.values()),
        "completion_tokens": written,
        "total_tokens": sum(counted.values()) + written,
        "prompt_tokens_details": details,
        "completion_tokens_details": {"reasoning_tokens": written},
    }
    chat: Json = {"id": "c_1", "created": 1, "model": "m", "service_tier": tier, "usage": usage}
    words: Json = {"message": {"role": "assistant", "content": "Yes."}}
    if dialect == "openai_completions":
        words = {"text": "Yes."}
    return chat | {"choices": [{"index": 0, "finish_reason": "stop"} | words]}


def _response(read_tokens: int, details: Json, written: int, searches: int, tier: str) -> Json:
    usage = {
        "input_tokens": read_tokens,
        "input_tokens_details": details,
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": written},
        "total_tokens": read_tokens + written,
    }
    part = {"type": "output_text", "text": "Yes.", "annotations": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    call = {"type": "web_search_call", "status": "completed", "action": {"type": "search"}}
    output: list[Json] = [call | {"id": f"ws_{each}"} for each in range(searches)]
    output.append(item | {"content": [part]})
    said = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "tools": []}
    ended = {"status": "completed", "output": output, "usage": usage, "service_tier": tier}
    return said | ended


def test_vectors_cost_no_more_than_was_set_aside() -> None:
    dialect = DIALECTS["openai_embeddings"]
    for price in PRICES.values():
        chosen = structs.replace(target("embeddings"), price=price)
        for texts in ("Hi", ["Hi", "Ho " * 500, "Ha"]):
            body = json.dumps({"model": "m", "input": texts}).encode()
            request = dialect.decode_request(body, "req_1")
            candidate = _candidate(chosen, ALLOWED, request, DEFAULT_TOKENS)
            counted = {"prompt_tokens": request.input_tokens_most}
            vector = {"object": "embedding", "index": 0, "embedding": [0.5]}
            told = {"object": "list", "data": [vector], "model": "m", "usage": counted}
            usage = dialect.decode_reply(json.dumps(told).encode()).usage
            assert 0 < cost(price, usage) <= candidate.worst_cost_microusd


def test_what_a_vendor_counts_is_what_the_table_reads_of_it() -> None:
    """The answers above say in every dialect what they are meant to."""
    counted = {"new": 1, "read": 20, "short": 300, "long": 4000}
    for dialect in PAID:
        searches = 0 if dialect in {"openai_chat", "openai_completions"} else 5
        told = _told(dialect, counted, 7, searches, "default")
        usage = DIALECTS[dialect].decode_reply(json.dumps(told).encode()).usage
        kept = (usage.cache_read_tokens, usage.cache_write_tokens, usage.cache_write_1h_tokens)
        assert (usage.input_tokens, *kept) == (4321, 20, 300, 4000), dialect
        assert (usage.output_tokens, usage.web_searches) == (7, searches), dialect
