"""Everything that a caller gets, validated strictly against his vendor's own types."""

import itertools
import json
from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec
import pytest

from gateway.dialects.registry import DIALECTS
from gateway.errors import StreamBroken, UpstreamTimeout
from gateway.types import ChatRequest, DialectName
from tests.conformance.probes import BASES, NAMES
from tests.conformance.strict_types import event_flaws, whole_flaws
from tests.gateway.dialects.samples import (
    CHAT_TEXT_STREAM,
    CHAT_TOOL_STREAM,
    CHAT_USAGE,
    MESSAGE_START,
    MESSAGE_TEXT_STREAM,
    MESSAGE_TOOL_STREAM,
    block_delta,
    block_start,
    block_stop,
    call_piece,
    charged,
    chunk,
    sse,
)
from tests.running_gateway import (
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

SETTINGS = """
[inspection]
deadline_s = 5.0
[targets.embedder]
provider = "openai"
model = "text-embedding-3-small"
"""
DIALECT_NAMES: tuple[DialectName, ...] = tuple(NAMES)
REASONS = ("stop", "length", "tool_calls", "content_filter", "function_call")
STOPS = ("end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal")


def chat_with_everything(reason: str) -> bytes:
    return (
        chunk({"role": "assistant", "content": ""})
        + chunk({"reasoning_content": "Hm. "})
        + chunk({"content": "Let me look."})
        + chunk(call_piece(0, "", id="call_a", type="function", name="weather"))
        + chunk(call_piece(1, "{}", id="call_b", type="function", name="clock"))
        + chunk(call_piece(0, '{"city":"Bonn"}'))
        + chunk({"refusal": "No more."})
        + chunk({}, reason)
        + chunk(None, usage=CHAT_USAGE)
        + b"data: [DONE]\n\n"
    )


def message_with_everything(reason: str) -> bytes:
    """Signed thinking, a sealed block, text, a call without arguments, and a server tool."""
    return (
        MESSAGE_START
        + sse("ping")
        + block_start(0, type="thinking", thinking="", signature="")
        + block_delta(0, type="thinking_delta", thinking="Hm. ")
        + block_delta(0, type="signature_delta", signature="c2ln")
        + block_stop(0)
        + block_start(1, type="redacted_thinking", data="b3Bh")
        + block_stop(1)
        + block_start(2, type="text", text="")
        + block_delta(2, type="text_delta", text="Let me look.")
        + block_stop(2)
        + block_start(3, type="tool_use", id="toolu_1", name="clock", input={})
        + block_stop(3)
        + block_start(4, type="server_tool_use", id="srv_1", name="web_search", input={})
        + block_stop(4)
        + sse(
            "message_delta",
            delta={"stop_reason": reason, "stop_sequence": None},
            usage={"output_tokens": 9},
        )
        + sse("message_stop")
    )


def request_of(dialect: DialectName) -> ChatRequest:
    body = BASES[dialect] | {"stream": True}
    if dialect == "openai_chat":
        body |= {"stream_options": {"include_usage": True}}
    return DIALECTS[dialect].decode_request(json.dumps(body).encode(), "req_0000000003e8abcdef")


def carried(source: DialectName, caller: DialectName, stream: bytes, cut: int = 0) -> bytes:
    """What a caller gets of a stream, or of its first `cut` events and an error after them."""
    decoder = DIALECTS[source].stream_decoder()
    encoder = DIALECTS[caller].stream_encoder(request_of(caller), source)
    events = decoder.feed(stream)
    if cut:
        return encoder.encode(events[:cut]) + encoder.fail(StreamBroken("It broke."), "req_1")
    assert events[-1].is_terminal
    return encoder.encode(events) + encoder.finish("x-a=1", charged(events))


def streams_of(source: DialectName) -> list[bytes]:
    chats = [CHAT_TEXT_STREAM, CHAT_TOOL_STREAM, *map(chat_with_everything, REASONS)]
    if source == "openai_chat":
        return chats
    if source == "anthropic_messages":
        return [MESSAGE_TEXT_STREAM, MESSAGE_TOOL_STREAM, *map(message_with_everything, STOPS)]
    return [carried("openai_chat", "openai_responses", stream) for stream in chats]


SAID: Mapping[DialectName, set[str]] = {
    "openai_chat": {"chat.completion.chunk", "[DONE]", "error"},
    "anthropic_messages": {
        *("message_start", "content_block_start", "content_block_delta", "content_block_stop"),
        *("message_delta", "message_stop", "ping", "error"),
    },
    "openai_responses": {
        *("response.created", "response.in_progress", "response.output_item.added"),
        *("response.content_part.added", "response.output_text.delta", "response.output_text.done"),
        *("response.refusal.delta", "response.refusal.done", "response.content_part.done"),
        *("response.reasoning_summary_part.added", "response.reasoning_summary_text.delta"),
        *("response.reasoning_summary_text.done", "response.reasoning_summary_part.done"),
        *("response.function_call_arguments.delta", "response.function_call_arguments.done"),
        *("response.output_item.done", "response.completed", "response.incomplete"),
        *("response.failed", "error"),
    },
}
"""Every kind of event that we may say to a caller; there are no others."""


@pytest.mark.parametrize("caller", DIALECT_NAMES)
def test_every_event_that_a_caller_gets_is_one_of_his_vendors_to_the_last_field(
    caller: DialectName,
) -> None:
    said: set[str] = set()
    for source in DIALECT_NAMES:
        for stream in streams_of(source):
            whole = carried(source, caller, stream)
            found, kinds = event_flaws(caller, whole)
            assert found == [], whole
            said.update(kinds)
            for cut in range(1, 9):
                found, kinds = event_flaws(caller, carried(source, caller, stream, cut))
                assert found == []
                assert kinds[-1] in {"error", "response.failed"}
                said.update(kinds)
        encoder = DIALECTS[caller].stream_encoder(request_of(caller), source)
        found, kinds = event_flaws(caller, encoder.ping())
        assert found == []
        said.update(kinds)
        found, kinds = event_flaws(caller, encoder.fail(UpstreamTimeout("It is late."), "req_1"))
        assert (found, kinds) == ([], ["error"])

    assert said == SAID[caller]


PATHS: Mapping[DialectName, str] = {
    "openai_chat": "/v1/chat/completions",
    "anthropic_messages": "/v1/messages",
    "openai_responses": "/v1/responses",
}
TARGETS = (CLAUDE_TARGET, GPT_TARGET, ENGINE_TARGET)


class Asking:
    """One HTTP client with a key; every answer must have no flaw."""

    def __init__(self, http: aiohttp.ClientSession, gateway: RunningGateway, key: str) -> None:
        self._http = http
        self._gateway = gateway
        self._headers = {"authorization": f"Bearer {key}"}

    async def ask(
        self, method: str, path: str, body: object = None, status: int = 200, **more: str
    ) -> bytes:
        data = None if body is None else msgspec.json.encode(body)
        url = self._gateway.url + path
        headers = self._headers | {name.replace("_", "-"): value for name, value in more.items()}
        async with self._http.request(method, url, data=data, headers=headers) as reply:
            raw = await reply.read()
            assert reply.status == status, raw
            return raw


@pytest.fixture
async def asking(http: aiohttp.ClientSession, gateway: RunningGateway, shared_key: str) -> Asking:
    return Asking(http, gateway, shared_key)


@pytest.mark.parametrize(("dialect", "target"), list(itertools.product(DIALECT_NAMES, TARGETS)))
async def test_over_http_answers_and_streams_have_no_flaw(
    asking: Asking, upstreams: Upstreams, dialect: DialectName, target: str
) -> None:
    del upstreams
    body = BASES[dialect] | {"model": target}
    assert whole_flaws(dialect, await asking.ask("POST", PATHS[dialect], body)) == []
    streamed = await asking.ask("POST", PATHS[dialect], body | {"stream": True})
    found, kinds = event_flaws(dialect, streamed)
    assert found == []
    assert kinds[-1] in {"[DONE]", "message_stop", "response.completed"}


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
async def test_over_http_errors_have_no_flaw(
    asking: Asking, upstreams: Upstreams, dialect: DialectName
) -> None:
    kind = "anthropic_error" if dialect == "anthropic_messages" else "openai_error"
    body = BASES[dialect]
    unknown = await asking.ask("POST", PATHS[dialect], body | {"model": "nobody"}, 404)
    invalid = await asking.ask("POST", PATHS[dialect], body | {"stream": 7}, 400)
    upstreams.openai.answer_once(Answer(status=400), Answer(status=401))
    asked = body | {"model": GPT_TARGET}
    refused = await asking.ask("POST", PATHS[dialect], asked, 400)
    locked = await asking.ask("POST", PATHS[dialect], asked, 502)
    for raw in (unknown, invalid, refused, locked):
        assert whole_flaws(kind, raw) == []


async def test_over_http_models_counts_vectors_and_kept_responses_have_no_flaw(
    asking: Asking, upstreams: Upstreams
) -> None:
    listed = msgspec.json.decode(await asking.ask("GET", "/v1/models"), type=dict[str, Any])
    for entry in listed["data"]:
        one = await asking.ask("GET", f"/v1/models/{entry['id']}")
        for kind in ("openai_model", "anthropic_model"):
            unknown = {
                flaw.partition(".")[2] for flaw in whole_flaws(kind, one) if "unknown" in flaw
            }
            assert len(unknown) == len(whole_flaws(kind, one)), "nothing is missing or wrong"
    counted = await asking.ask("POST", "/v1/messages/count_tokens", COUNTED)
    assert whole_flaws("count_tokens", counted) == []
    for target in TARGETS:
        asked = BASES["openai_responses"] | {"model": target}
        counted = await asking.ask("POST", "/v1/responses/input_tokens", asked)
        assert whole_flaws("input_tokens", counted) == []
    upstreams.openai.answer_once(Answer(body=msgspec.json.encode(VECTORS)))
    vectors = await asking.ask("POST", "/v1/embeddings", {"model": "embedder", "input": "Hi"})
    assert whole_flaws("openai_embeddings", vectors) == []
    body = BASES["openai_responses"] | {"model": GPT_TARGET}
    made = await asking.ask("POST", "/v1/responses", body)
    identity = msgspec.json.decode(made, type=dict[str, Any])["id"]
    kept = await asking.ask("GET", f"/v1/responses/{identity}")
    assert whole_flaws("openai_responses", kept) == []
    gone = await asking.ask("DELETE", f"/v1/responses/{identity}")
    assert msgspec.json.decode(gone) == {"id": identity, "object": "response", "deleted": True}
    missing = await asking.ask("GET", f"/v1/responses/{identity}", status=404)
    assert whole_flaws("openai_error", missing) == []


@pytest.mark.parametrize("path", ["/v1/models/nobody", "/v1/nowhere"])
async def test_an_error_beside_the_doors_is_in_the_envelope_of_the_client_that_asks(
    asking: Asking, path: str
) -> None:
    assert whole_flaws("openai_error", await asking.ask("GET", path, status=404)) == []
    raw = await asking.ask("GET", path, status=404, anthropic_version="2023-06-01")
    assert whole_flaws("anthropic_error", raw) == []


COUNTED = {"model": CLAUDE_TARGET, "messages": [{"role": "user", "content": "Hi"}]}
VECTORS = {
    "object": "list",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}],
    "model": "m",
    "usage": {"prompt_tokens": 1, "total_tokens": 1},
}
