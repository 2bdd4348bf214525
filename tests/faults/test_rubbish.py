"""Rubbish in every field of every endpoint: an error in the caller's words, never our defect.

Each field of a rich request is replaced by each of many wrong values, and complete bodies are
damaged byte by byte. `GATEWRIGHT_FAULT_CASES` says how many cases an endpoint gets; they are the
same ones every time.
"""

import asyncio
import json
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import pytest
from structlog.testing import capture_logs
from yarl import URL

from tests.conformance.strict_types import whole_flaws
from tests.faults.envelopes import LEAK
from tests.running_gateway import (
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

CASES = int(os.environ.get("GATEWRIGHT_FAULT_CASES", "400"))
AT_ONCE = 8
SETTINGS = """
[inspection]
deadline_s = 5.0
tolerated_opaque = ["image", "document", "binary", "unknown"]
[targets.embedder]
provider = "openai"
model = "text-embedding-3-small"
"""
PNG = "data:image/png;base64,iVBORw0KGgo="
SCHEMA: Any = {"type": "object", "properties": {"a": {"type": "string", "enum": ["x"]}}}
CHAT: Any = {
    "model": GPT_TARGET,
    "messages": [
        {
            "role": "system",
            "content": [{"type": "text", "text": "S", "cache_control": {"ttl": "1h"}}],
        },
        {
            "role": "user",
            "name": "ann",
            "content": [
                {"type": "text", "text": "Hi"},
                {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
                {"type": "file", "file": {"filename": "a.txt", "file_data": PNG}},
            ],
        },
        {
            "role": "assistant",
            "content": "I look.",
            "refusal": "No.",
            "thinking_blocks": [{"type": "thinking", "thinking": "Hm", "signature": "c2ln"}],
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "ok"},
        {"role": "user", "content": "And?"},
    ],
    "tools": [
        {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}}
    ],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "parallel_tool_calls": False,
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "s", "schema": SCHEMA, "strict": True},
    },
    "stream": False,
    "stream_options": {"include_usage": True},
    "max_completion_tokens": 50,
    "temperature": 0.5,
    "top_p": 0.5,
    "n": 1,
    "stop": ["END"],
    "seed": 7,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "logit_bias": {"5": 1},
    "logprobs": False,
    "top_logprobs": 0,
    "reasoning_effort": "low",
    "user": "ann",
    "service_tier": "auto",
    "metadata": {"a": "b"},
    "modalities": ["text"],
}
MESSAGES: Any = {
    "model": CLAUDE_TARGET,
    "max_tokens": 2000,
    "system": [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
                },
                {
                    "type": "document",
                    "title": "T",
                    "source": {"type": "text", "media_type": "text/plain", "data": "D"},
                    "citations": {"enabled": True},
                },
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "b3Bh"},
                {"type": "tool_use", "id": "a", "name": "f", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "a",
                    "is_error": True,
                    "content": [{"type": "text", "text": "ok"}],
                }
            ],
        },
    ],
    "tools": [{"name": "f", "description": "D", "input_schema": SCHEMA, "strict": True}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
    "stop_sequences": ["END"],
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 5,
    "metadata": {"user_id": "ann"},
    "service_tier": "auto",
    "stream": False,
    "cache_control": {"type": "ephemeral"},
    "mcp_servers": [],
    "container": None,
}
RESPONSES: Any = {
    "model": GPT_TARGET,
    "instructions": "S",
    "input": [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Hi"},
                {"type": "input_image", "image_url": PNG, "detail": "low"},
                {"type": "input_file", "filename": "a.txt", "file_data": PNG},
            ],
        },
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Hm"}],
            "encrypted_content": "gAAA",
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
        },
        {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "ok"},
        {
            "type": "computer_call_output",
            "call_id": "b",
            "output": {"type": "computer_screenshot", "image_url": PNG},
        },
    ],
    "tools": [{"type": "function", "name": "f", "parameters": SCHEMA, "strict": True}],
    "tool_choice": {"type": "function", "name": "f"},
    "text": {"format": {"type": "json_schema", "name": "s", "schema": SCHEMA}, "verbosity": "low"},
    "reasoning": {"effort": "low", "summary": "auto"},
    "max_output_tokens": 50,
    "temperature": 0.5,
    "top_p": 0.5,
    "top_logprobs": 0,
    "include": ["reasoning.encrypted_content"],
    "store": False,
    "stream": False,
    "previous_response_id": None,
    "metadata": {"a": "b"},
    "user": "ann",
    "truncation": "auto",
    "parallel_tool_calls": True,
}
EMBEDDINGS: Any = {
    "model": "embedder",
    "input": ["a"],
    "encoding_format": "float",
    "dimensions": 3,
    "user": "ann",
}
COUNTED = {name: MESSAGES[name] for name in ("model", "messages", "system", "tools", "tool_choice")}
COUNTED_RESPONSE = {
    name: RESPONSES[name]
    for name in ("model", "instructions", "input", "tools", "tool_choice", "text", "reasoning")
}
COMPLETIONS: Any = {
    "model": ENGINE_TARGET,
    "prompt": ["Once upon a time"],
    "stream": False,
    "stream_options": {"include_usage": True},
    "max_tokens": 50,
    "temperature": 0.5,
    "top_p": 0.5,
    "n": 1,
    "best_of": 1,
    "echo": False,
    "suffix": None,
    "logprobs": None,
    "stop": ["END"],
    "seed": 7,
    "presence_penalty": 0.5,
    "frequency_penalty": 0.5,
    "logit_bias": {"5": 1},
    "user": "ann",
}
ENDPOINTS: Mapping[str, Any] = {
    "/v1/chat/completions": CHAT,
    "/v1/messages": MESSAGES,
    "/v1/messages/count_tokens": COUNTED,
    "/v1/responses": RESPONSES,
    "/v1/responses/input_tokens": COUNTED_RESPONSE,
    "/v1/embeddings": EMBEDDINGS,
    "/v1/completions": COMPLETIONS,
}
MODELS = (GPT_TARGET, CLAUDE_TARGET, ENGINE_TARGET, "auto")


class Raw(str):
    """JSON that no encoder would write."""

    __slots__ = ()


WRONG: tuple[object, ...] = (
    *(None, True, False, 0, -1, 1, 3, 2**31, 2**63, 2**64, -(2**70), 0.5, -0.0, 1e308),
    *("", " ", "x", "\x00", "x" * 5000, "\u2028", "\ufeff", "😀", "data:,", "data:;base64,"),
    *([], [[]], [None], ["x"], [{}], {}, {"type": "x"}, {"": ""}, {"type": None}, {"a": [{}]}),
    *("auto", "text", "json_object", "function", "tool", "image", "assistant", "system", "max"),
    *("http://127.0.0.1/", "file:///etc/passwd", "../../etc/passwd", "{{7*7}}", "'; DROP TABLE"),
    Raw("1" * 400),
    Raw("1e400"),
    Raw("-1e-400"),
    Raw("NaN"),
    Raw("Infinity"),
    Raw('"\\ud800"'),
    Raw('"\\udc00\\ud800"'),
    Raw('{"a":1,"a":2}'),
    Raw("[" * 100 + "]" * 100),
    Raw('{"a":' * 100 + "1" + "}" * 100),
    Raw("[" * 5000 + "]" * 5000),
    Raw("01"),
    Raw("'x'"),
    Raw("undefined"),
    Raw('"\t"'),
    Raw(""),
)


def written(node: object) -> str:
    if isinstance(node, Raw):
        return str(node)
    if isinstance(node, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{written(v)}" for k, v in node.items()) + "}"
    if isinstance(node, list):
        return "[" + ",".join(map(written, node)) + "]"
    return json.dumps(node)


def places(node: object, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a tree, the tree itself first."""
    yield place
    inner: Iterable[tuple[Any, Any]] = enumerate(node) if isinstance(node, list) else ()
    if isinstance(node, dict):
        inner = node.items()
    for key, each in inner:
        yield from places(each, (*place, key))


def replaced(node: Any, place: tuple[Any, ...], value: object) -> Any:
    """The tree with one value in it changed."""
    if not place:
        return value
    copy = dict(node) if isinstance(node, dict) else list(node)
    copy[place[0]] = replaced(node[place[0]], place[1:], value)
    return copy


def cases(body: dict[str, Any], count: int) -> list[bytes]:
    """Wrong values everywhere, then damaged bytes; as many as asked for, spread over all."""
    draw = random.Random(20261122)
    whole = list(places(body))
    wrong = [(place, value) for place in whole for value in WRONG]
    chosen = draw.sample(wrong, min(len(wrong), count))
    made = []
    for place, value in chosen:
        model = draw.choice(MODELS) if body["model"] != "embedder" else "embedder"
        tree = replaced(body | {"model": model}, place, value)
        if draw.random() < 0.2 and isinstance(tree, dict):
            tree |= {"stream": True}
        made.append(written(tree).encode("utf-8", "surrogatepass"))
    plain = written(body).encode()
    made += [_damaged(plain, draw) for _ in range(count // 4)]
    return made


def _damaged(plain: bytes, draw: random.Random) -> bytes:
    """A few bytes changed, left out, put in or given twice."""
    data = bytearray(plain)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(data) or 1)
        kind = draw.randrange(5)
        if kind == 0:
            data[at : at + 1] = bytes([draw.randrange(256)])
        elif kind == 1:
            del data[at : at + draw.randint(1, 40)]
        elif kind == 2:
            data[at:at] = draw.choice(
                [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\x00", b'"', b"{", b"}"]
            )
        elif kind == 3:
            data[at:at] = data[at : at + draw.randint(1, 60)]
        else:
            del data[at:]
    return bytes(data)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_rubbish_is_told_in_the_callers_words_and_is_never_a_defect_of_ours(
    gateway: RunningGateway, shared_key: str, upstreams: Upstreams, endpoint: str
) -> None:
    vectors = {"object": "embedding", "index": 0, "embedding": [0.5]}
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    if endpoint == "/v1/embeddings":
        body = {"object": "list", "data": [vectors], "model": "m", "usage": usage}
        upstreams.openai.answer(Answer(body=msgspec.json.encode(body)))
    kind = "anthropic_error" if endpoint.startswith("/v1/messages") else "openai_error"
    headers = {"authorization": f"Bearer {shared_key}", "content-type": "application/json"}
    waiting = iter(cases(ENDPOINTS[endpoint], CASES))
    statuses: dict[int, int] = {}
    wrong: list[tuple[object, ...]] = []

    async def ask(http: aiohttp.ClientSession) -> None:
        for body in waiting:
            async with http.post(gateway.url + endpoint, data=body, headers=headers) as reply:
                status, raw = reply.status, await reply.read()
            statuses[status] = statuses.get(status, 0) + 1
            if flaw := _flaw(kind, status, raw, body):
                wrong.append((flaw, status, body[:2000], raw[:400]))

    with capture_logs() as logged:
        async with aiohttp.ClientSession() as http:
            await asyncio.gather(*(ask(http) for _ in range(AT_ONCE)))

    assert wrong == []
    assert [entry for entry in logged if entry.get("code") == "internal_error"] == []
    assert statuses.get(400, 0) > sum(statuses.values()) // 3, statuses
    assert statuses.get(200, 0) > 0, statuses


def _flaw(kind: str, status: int, raw: bytes, body: bytes) -> str:
    """What is wrong with an answer; empty for an honest one."""
    if status == 200:
        return ""
    # On a machine that is very busy the audit log may be late, which is told as 503 or 529.
    if status not in {400, 403, 404, 413, 503, 529}:
        return "status"
    try:
        found = whole_flaws(kind, raw)
    except (msgspec.MsgspecError, ValueError) as error:
        return f"no error of this dialect: {error}"
    if found:
        return str(found)
    leaks = LEAK.findall(raw.decode())
    # A model that nobody knows is called by its name.
    return "leak" if b"Traceback" in raw or any(each.encode() not in body for each in leaks) else ""


NUL = quote("batch_a\x00b", safe="")
NAMED_WITH_NUL = (
    *("/v1/decisions/{}", "/v1/files/{}", "/v1/files/{}/content", "/v1/files?after={}"),
    *("/v1/batches/{}", "/v1/batches?after={}", "/v1/messages/batches/{}"),
    *("/v1/messages/batches/{}/results", "/v1/messages/batches?after_id={}"),
)


@pytest.mark.postgres
async def test_a_name_that_no_database_keeps_names_nothing_and_is_no_outage(
    tmp_path: Path,
    upstreams: Upstreams,
    http: aiohttp.ClientSession,
    database_maker: Callable[[str], tuple[str, Callable[[], None]]],
) -> None:
    """PostgreSQL has no NUL in texts: callers were told to come again, which would never help."""
    url, end = database_maker("postgresql")
    async with RunningGateway(tmp_path, url, upstreams) as gateway:
        headers = {"authorization": f"Bearer {await gateway.issue_key()}"}
        asked: list[tuple[str, str, bytes | None]] = [
            (path, path.format(NUL), None) for path in NAMED_WITH_NUL
        ]
        order = {"input_file_id": "a\x00b", "endpoint": "/v1/chat/completions"}
        made = msgspec.json.encode(order | {"completion_window": "24h"})
        kept = {"model": ENGINE_TARGET, "input": "hi", "previous_response_id": "resp_\x00"}
        asked.append(("a batch", "/v1/batches", made))
        asked.append(("a response", "/v1/responses", msgspec.json.encode(kept)))
        for name, path, body in asked:
            target = URL(f"{gateway.url}{path}", encoded=True)
            method = "GET" if body is None else "POST"
            async with http.request(method, target, headers=headers, data=body) as answer:
                assert 400 <= answer.status < 500, (name, answer.status)
    end()
