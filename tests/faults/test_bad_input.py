"""Any bad input of a stranger: an error in the stranger's dialect, recorded, sent nowhere."""

import asyncio
import gzip
import math
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import msgspec
import openai
import pytest
from yarl import URL

from tests.faults.envelopes import (
    LEAK,
    PATHS,
    STYLES,
    Caller,
    Reply,
    Style,
    ask,
    check_envelope,
    check_error,
    only_outcome,
    untouched,
)
from tests.running_gateway import CLAUDE_TARGET, ENGINE_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

SETTINGS = """
[limits]
body_bytes_max = 200000
body_receive_s = 0.5
"""
BODY_BYTES_MAX = 200_000
both = pytest.mark.parametrize("style", STYLES)

GOOD = msgspec.json.encode(ask("openai"))
NOT_ACCEPTABLE: dict[str, bytes] = {
    "an empty body": b"",
    "white space": b" \n",
    "plain text": b"hello",
    "a form": b"model=x&messages=y",
    "half an object": GOOD[:-5],
    "two objects": GOOD + GOOD,
    "an array": b"[" + GOOD + b"]",
    "a text": b'"model"',
    "a number": b"1",
    "null": b"null",
    "not UTF-8": GOOD.replace(b"Good", b"\xff\xfe"),
    "UTF-16": GOOD.decode().encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + GOOD,
    "a model given twice": b'{"model":"a",' + GOOD[1:],
    "a model in other letters": GOOD[:-1] + b',"Model":"claude-opus-5-5"}',
    "a limit in other letters": GOOD[:-1] + b',"MAX_TOKENS":100000}',
    "answers in other letters": GOOD[:-1] + b',"N":64}',
    "a long S for an S": GOOD[:-1] + ',"\u017ftream":true}'.encode(),
    "a kelvin for a K": GOOD[:-1] + b',"max_to\\u212aens":100000}',
    "a role given twice": GOOD.replace(b'"role":"user"', b'"role":"system","role":"user"'),
    "NaN": GOOD[:-1] + b',"temperature":NaN}',
    "infinity": GOOD[:-1] + b',"top_p":-Infinity}',
    "a number beyond a float": GOOD[:-1] + b',"temperature":1e999}',
    "a number of 5000 digits": GOOD[:-1] + b',"seed":' + b"7" * 5000 + b"}",
    "a bomb of arrays": GOOD[:-1] + b',"x":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
    "a bomb of objects": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "half of a surrogate pair": GOOD.replace(b"Good", b"\\ud800"),
    "a control character": GOOD.replace(b"Good", b"a\x00b"),
    "a single quote": GOOD.replace(b'"', b"'"),
    "a comment": GOOD[:-1] + b"/* hello */}",
}

WRONG_EVERYWHERE: dict[str, object] = {
    "model": 5,
    "messages": "hello",
    "stream": "yes",
    "temperature": "hot",
    "top_p": 3,
    "max_tokens": -1,
    "tools": {"name": "x"},
    "tool_choice": 5,
}
WRONG: list[tuple[Style, str, object]] = [
    *((style, name, value) for style in STYLES for name, value in WRONG_EVERYWHERE.items()),
    *(
        (style, name, value)
        for style in STYLES
        for name, value in (
            ("model", None),
            ("model", ""),
            ("model", "x" * 300),
            ("model", ["house-model"]),
            ("model", "house-model\n"),
            ("messages", None),
            ("messages", []),
            ("messages", {}),
            ("messages", [5]),
            ("messages", [{"content": "no role"}]),
            ("messages", [{"role": "king", "content": "hello"}]),
            ("messages", [{"role": "user", "content": 5}]),
            ("messages", [{"role": "user", "content": [5]}]),
            ("messages", [{"role": "user", "content": [{"text": "no type"}]}]),
            ("messages", [{"role": "user", "content": [{"type": "text", "text": 5}]}]),
            ("messages", [{"role": "user"}]),
            ("stream", 1),
            ("stream", {}),
            ("temperature", -1),
            ("max_tokens", 1.5),
            ("max_tokens", 10**30),
            ("tools", [5]),
        )
    ),
    ("openai", "n", 0),
    ("openai", "max_tokens", 0),
    ("openai", "tools", [{"type": "function", "function": {"name": 5}}]),
    ("anthropic", "tools", [{"type": "custom", "name": "look"}]),
    ("openai", "n", 10**6),
    ("openai", "stop", 7),
    ("openai", "stop", ["x"] * 100),
    ("openai", "stream_options", []),
    ("openai", "response_format", "json"),
    ("openai", "response_format", {"type": "json_schema"}),
    ("openai", "max_completion_tokens", 5),
    ("openai", "logprobs", "yes"),
    ("openai", "messages", [{"role": "tool", "content": "no id"}]),
    ("anthropic", "max_tokens", None),
    ("anthropic", "system", 5),
    ("anthropic", "stop_sequences", "x"),
    ("anthropic", "tool_choice", "auto"),
    ("anthropic", "messages", [{"role": "user", "content": [{"type": "tool_result"}]}]),
]


@both
@pytest.mark.parametrize("name", NOT_ACCEPTABLE)
async def test_a_body_with_no_single_meaning_is_refused(
    caller: Caller, upstreams: Upstreams, style: Style, name: str
) -> None:
    await caller.refused(style, NOT_ACCEPTABLE[name], "invalid_request")

    assert untouched(upstreams)


@pytest.mark.parametrize(("style", "field", "value"), WRONG)
async def test_a_field_of_a_wrong_type_is_refused(
    caller: Caller, upstreams: Upstreams, style: Style, field: str, value: object
) -> None:
    body = ask(style) | {field: value}

    await caller.refused(style, body, "invalid_request")

    assert untouched(upstreams)


@both
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "model",
    ["gpt-nope", "auto:nope", "auto:", "HOUSE-MODEL", "../house-model", "http://10.0.0.1/v1"],
)
async def test_an_unknown_model_or_route_is_not_found(
    caller: Caller, upstreams: Upstreams, style: Style, stream: bool, model: str
) -> None:
    reply = await caller.post(style, ask(style, stream=stream, model=model))

    leak_free = msgspec.structs.replace(reply, body=reply.body.replace(model.encode(), b"model"))
    check_error(leak_free, style, "model_not_found")
    outcome = await only_outcome(caller.gateway, reply.request_id, "refused", "model_not_found")
    assert outcome.model_requested == model
    assert untouched(upstreams)


@both
async def test_a_body_that_says_it_is_too_long_is_not_read(
    caller: Caller, upstreams: Upstreams, style: Style
) -> None:
    await caller.refused(style, b"x" * (BODY_BYTES_MAX + 1), "request_too_large")

    assert untouched(upstreams)


@both
async def test_a_chunked_body_is_cut_off_at_the_limit(
    caller: Caller, upstreams: Upstreams, style: Style
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(BODY_BYTES_MAX // 1000 + 2):
            yield b" " * 1000

    await caller.refused(style, pieces(), "request_too_large")

    assert untouched(upstreams)


@both
async def test_a_chunked_body_within_the_limit_is_served(
    caller: Caller, upstreams: Upstreams, style: Style
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        body = msgspec.json.encode(ask(style))
        for byte in range(0, len(body), 7):
            yield body[byte : byte + 7]

    reply = await caller.post(style, pieces())

    assert reply.status == 200
    assert len(upstreams.engine.calls) == 1


@both
@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "x-snappy"])
async def test_a_body_compressed_in_a_way_that_cannot_be_bounded_is_refused_unopened(
    caller: Caller, upstreams: Upstreams, style: Style, encoding: str
) -> None:
    headers = caller.headers(style) | {"content-encoding": encoding}

    reply = await caller.post(style, gzip.compress(bytes(50_000)), headers)

    check_error(reply, style, "unsupported_encoding")
    assert reply.headers["accept-encoding"] == "gzip, deflate"
    await only_outcome(caller.gateway, reply.request_id, "refused", "unsupported_encoding")
    assert untouched(upstreams)


@both
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_compressed_body_is_served_like_a_plain_one(
    caller: Caller, upstreams: Upstreams, style: Style, encoding: str
) -> None:
    plain = msgspec.json.encode(ask(style))
    body = gzip.compress(plain) if encoding == "gzip" else zlib.compress(plain)
    headers = caller.headers(style) | {"content-encoding": encoding}

    assert (await caller.post(style, body, headers)).status == 200
    assert b"Good morning" in upstreams.engine.calls[0].body


@both
async def test_a_bomb_is_put_down_at_the_limit_and_a_strangers_is_never_opened(
    caller: Caller, upstreams: Upstreams, style: Style
) -> None:
    bomb = gzip.compress(GOOD[:-1] + b',"x":"' + b"x" * 50 * BODY_BYTES_MAX + b'"}')
    assert len(bomb) < BODY_BYTES_MAX // 10
    headers = caller.headers(style) | {"content-encoding": "gzip"}

    await caller.refused(style, bomb, "request_too_large", headers)
    await caller.with_key("wrong").refused(
        style, bomb, "invalid_api_key", caller.with_key("wrong").headers(style) | headers_of("gzip")
    )
    assert untouched(upstreams)


def headers_of(encoding: str) -> dict[str, str]:
    return {"content-encoding": encoding}


PATHS_OF_FLAWS: dict[str, tuple[bytes, str]] = {
    "a key twice": (GOOD.replace(b'"role":"user"', b'"role":"a","role":"b"'), "messages[0].role"),
    "a number that is none": (GOOD[:-1] + b',"tools":[{"name":NaN}]}', "tools[0].name"),
    "a number beyond a float": (GOOD[:-1] + b',"temperature":1e999}', "temperature"),
    "half of a pair": (GOOD.replace(b"Good", b"\\ud800"), "messages[0].content"),
    "a key that may be content": (GOOD[:-1] + b',"metadata":{"Ann":1,"Ann":2}}', "metadata.*"),
    "too deep": (GOOD[:-1] + b',"stop":' + b"[" * 99 + b"]" * 99 + b"}", "stop" + "[0]" * 63),
    "too many messages": (
        msgspec.json.encode(ask("openai", messages=[{"role": "user", "content": "x"}] * 2001)),
        "messages",
    ),
}


@pytest.mark.parametrize("name", PATHS_OF_FLAWS)
async def test_what_is_wrong_is_told_by_its_path(
    caller: Caller, upstreams: Upstreams, name: str
) -> None:
    body, path = PATHS_OF_FLAWS[name]
    reply = await caller.post("openai", body)

    assert reply.status == 400
    assert reply.tree["error"]["param"] == path
    assert reply.tree["error"]["message"].startswith(f"{path}: ")
    other = await caller.post("anthropic", body)
    assert other.status == 400
    assert other.tree["error"]["message"].startswith(f"{path}: ")
    assert untouched(upstreams)


@both
@pytest.mark.parametrize("begun", [b"", b'{"model":'], ids=["no byte", "half a body"])
async def test_a_body_that_does_not_come_is_not_waited_for(
    caller: Caller, upstreams: Upstreams, style: Style, begun: bytes
) -> None:
    reply = await half_request(caller, style, begun)

    check_error(reply, style, "invalid_request")
    await only_outcome(caller.gateway, reply.request_id, "refused", "invalid_request")
    assert untouched(upstreams)


async def half_request(caller: Caller, style: Style, begun: bytes) -> Reply:
    """A request of which the body's end never comes, and what is answered to it."""
    host, _, port = caller.gateway.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        lines = [f"POST {PATHS[style]} HTTP/1.1", "host: gateway", "content-length: 100"]
        lines += [f"{name}: {value}" for name, value in caller.headers(style).items()]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + begun)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *rest = head.strip().split("\r\n")
        headers = {
            name.lower(): value.strip() for name, _, value in (h.partition(":") for h in rest)
        }
        body = await reader.readexactly(int(headers["content-length"]))
        return Reply(int(first.split(" ")[1]), headers, body)
    finally:
        writer.close()
        await writer.wait_closed()


@both
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_another_method_is_refused_in_the_dialect_of_the_path(
    gateway: RunningGateway,
    upstreams: Upstreams,
    http: aiohttp.ClientSession,
    style: Style,
    method: str,
) -> None:
    async with http.request(method, gateway.url + PATHS[style]) as response:
        headers = {name.lower(): value for name, value in response.headers.items()}
        reply = Reply(response.status, headers, await response.read())

    check_error(reply, style, "method_not_allowed")
    assert untouched(upstreams)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v1/edits",
        "/v1/images/generations",
        "/v1/messages/other",
        "/v1/proxy/x",
        "/v2/chat/completions",
        "/config/update",
        "/admin",
        "/v1/chat/completions/..%2f..%2fetc",
        "/%00",
        "/docs",
        "/schema/openapi.json",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_nothing_is_at_any_other_path(
    gateway: RunningGateway,
    upstreams: Upstreams,
    http: aiohttp.ClientSession,
    path: str,
    method: str,
) -> None:
    async with http.request(method, gateway.url + path) as response:
        headers = {name.lower(): value for name, value in response.headers.items()}
        reply = Reply(response.status, headers, await response.read())

    assert reply.status in (404, 405)
    check_envelope(reply, "openai")
    assert untouched(upstreams)


async def test_unknown_models_are_not_listed(
    gateway: RunningGateway, shared_key: str, http: aiohttp.ClientSession
) -> None:
    headers = {"authorization": f"Bearer {shared_key}"}
    for name in ("nope", "a/b/c", "etc%3Fpasswd", "x" * 2000):
        async with http.get(f"{gateway.url}/v1/models/{name}", headers=headers) as response:
            assert response.status == 404
            assert (await response.json())["error"]["code"] == "model_not_found"
    climbing = URL(f"{gateway.url}/v1/models/%2e%2e%2fetc%2fpasswd", encoded=True)
    async with http.get(climbing, headers=headers) as response:
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "unknown_url"
    async with http.get(f"{gateway.url}/v1/models") as response:
        assert response.status == 401
        assert LEAK.search(await response.text()) is None


@both
async def test_unknown_fields_are_no_error(
    caller: Caller, upstreams: Upstreams, style: Style
) -> None:
    fields: dict[str, Any] = {"brand_new": {"x": [1]}, "another_one": math.pi}

    reply = await caller.post(style, ask(style, **fields))

    assert reply.status == 200
    (call,) = upstreams.engine.calls
    kept = call.json.get("brand_new")
    assert (
        kept == {"x": [1]}
        if style == "openai"
        else "brand_new" in reply.headers["x-gatewright-dropped"]
    )


@both
@pytest.mark.parametrize("stream", [False, True])
async def test_a_context_that_is_too_long_is_refused(
    caller: Caller, upstreams: Upstreams, style: Style, stream: bool
) -> None:
    long = [{"role": "user", "content": "1;" * 60_000}]

    await caller.refused(style, ask(style, stream=stream, messages=long), "context_length_exceeded")

    assert untouched(upstreams)


TOOLS: dict[Style, list[object]] = {
    "openai": [{"type": "function", "function": {"name": "look", "parameters": {}}}],
    "anthropic": [{"name": "look", "input_schema": {"type": "object"}}],
}


@both
async def test_tools_for_a_target_without_tools_are_refused(
    caller: Caller, upstreams: Upstreams, style: Style
) -> None:
    targets = caller.gateway.plane.snapshots.current().board.targets
    assert "tools" not in targets[ENGINE_TARGET].capabilities

    await caller.refused(style, ask(style, tools=TOOLS[style]), "unsupported_parameter")

    assert untouched(upstreams)


@both
async def test_a_key_reaches_only_its_own_models(
    gateway: RunningGateway, upstreams: Upstreams, http: aiohttp.ClientSession, style: Style
) -> None:
    caller = Caller(gateway, http, await gateway.issue_key(models=[ENGINE_TARGET]))
    nobody = Caller(gateway, http, await gateway.issue_key(models=[]))

    reply = await caller.post(style, ask(style, model=CLAUDE_TARGET))
    await nobody.refused(style, ask(style, model="auto"), "no_permitted_target")

    assert reply.status in (200, 403)
    assert not upstreams.anthropic.calls
    if reply.status == 200:
        assert reply.headers["x-gatewright-target"] == ENGINE_TARGET


async def test_both_sdks_raise_the_class_that_says_what_is_wrong(
    gateway: RunningGateway, upstreams: Upstreams, shared_key: str
) -> None:
    question: Any = [{"role": "user", "content": "Good morning"}]
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=shared_key) as client:
        with pytest.raises(openai.BadRequestError) as bad:
            await client.chat.completions.create(
                model=ENGINE_TARGET, messages=question, temperature=9
            )
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.chat.completions.create(model="gpt-nope", messages=question)
        with pytest.raises(openai.APIStatusError, match="longer than") as long:
            await client.chat.completions.create(
                model="x" * BODY_BYTES_MAX, messages=question, stream=True
            )
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=shared_key) as claude:
        with pytest.raises(anthropic.BadRequestError):
            await claude.messages.create(model=ENGINE_TARGET, max_tokens=9, messages=[])
        with pytest.raises(anthropic.NotFoundError):
            await claude.messages.create(model="claude-nope", max_tokens=9, messages=question)

    assert (bad.value.code, bad.value.param) == ("invalid_request", "temperature")
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    assert long.value.status_code == 413
    assert untouched(upstreams)


@both
async def test_a_worker_with_enough_to_do_says_so_at_once(
    tmp_path: Path,
    sqlite_url: str,
    own_upstreams: Upstreams,
    http: aiohttp.ClientSession,
    style: Style,
) -> None:
    hold = asyncio.Event()
    own_upstreams.engine.answer(Answer(hold=hold))
    more = "[limits]\nconcurrent_requests_max = 1\n"
    async with RunningGateway(tmp_path, sqlite_url, own_upstreams, more=more) as running:
        caller = Caller(running, http, await running.issue_key())
        first = asyncio.create_task(caller.post(style, ask(style)))
        while not own_upstreams.engine.calls:
            await asyncio.sleep(0.01)

        second = await caller.post(style, ask(style))
        hold.set()
        served = await first
        third = await caller.post(style, ask(style))

    check_error(second, style, "unavailable")
    assert second.headers["retry-after"] == "1"
    assert (served.status, third.status) == (200, 200)
