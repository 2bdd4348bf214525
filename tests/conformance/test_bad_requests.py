"""What is invalid in its dialect: 400 in that dialect, with the path, at every endpoint."""

import gzip
import zlib
from collections.abc import Mapping
from typing import Any

import aiohttp
import anthropic
import msgspec
import openai
import pytest

from tests.faults.envelopes import Caller, untouched
from tests.running_gateway import CLAUDE_TARGET, RunningGateway, Upstreams


pytestmark = pytest.mark.anyio

TURNS: Any = [{"role": "user", "content": [{"type": "text", "text": 7}]}]
GOOD_TURNS: Any = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
ENDPOINTS: Mapping[str, tuple[dict[str, object], str]] = {
    "/v1/chat/completions": ({"messages": TURNS}, "messages[0].content[0].text"),
    "/v1/responses": (
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": 7}]}]},
        "input[0].content[0].text",
    ),
    "/v1/responses/input_tokens": (
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": 7}]}]},
        "input[0].content[0].text",
    ),
    "/v1/embeddings": ({"input": ["a", {}]}, "input[1]"),
    "/v1/completions": ({"prompt": "a", "stop": [7]}, "stop[0]"),
    "/v1/messages": ({"max_tokens": 9, "messages": TURNS}, "messages[0].content[0].text"),
    "/v1/messages/count_tokens": ({"messages": TURNS}, "messages[0].content[0].text"),
}
each_endpoint = pytest.mark.parametrize("endpoint", ENDPOINTS)


async def post(
    caller: Caller, endpoint: str, body: bytes, headers: Mapping[str, str] | None = None
) -> tuple[int, Any, Mapping[str, str]]:
    sent = caller.headers("anthropic") | dict(headers or {})
    url = caller.gateway.url + endpoint
    async with aiohttp.ClientSession() as http, http.post(url, data=body, headers=sent) as response:
        return response.status, msgspec.json.decode(await response.read()), response.headers


def check_path(endpoint: str, tree: Any, path: str) -> None:
    """The error is in the endpoint's dialect and says where the flaw is."""
    error = tree["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith(f"{path}: ")
    if endpoint.startswith("/v1/messages"):
        assert tree["type"] == "error"
        assert tree["request_id"].startswith("req_")
    else:
        assert (error["param"], tree.keys()) == (path, {"error"})


@each_endpoint
async def test_a_wrong_value_is_named_by_its_path_in_the_endpoints_dialect(
    caller: Caller, upstreams: Upstreams, endpoint: str
) -> None:
    fields, path = ENDPOINTS[endpoint]

    status, tree, _ = await post(
        caller, endpoint, msgspec.json.encode({"model": CLAUDE_TARGET, **fields})
    )

    assert status == 400
    check_path(endpoint, tree, path)
    assert untouched(upstreams)


@each_endpoint
async def test_broken_json_is_named_by_line_column_and_path(
    caller: Caller, upstreams: Upstreams, endpoint: str
) -> None:
    body = b'{"model": "m",\n"messages": [{"role": "user", "content": [{"text": tru}]}]}'

    status, tree, headers = await post(caller, endpoint, body)

    assert (status, headers["x-should-retry"]) == (400, "false")
    check_path(endpoint, tree, "messages[0].content[0].text")
    column = body.index(b"tru") - body.index(b"\n")
    assert tree["error"]["message"].endswith(f"error at line 2, column {column}.")
    assert untouched(upstreams)


@each_endpoint
async def test_a_body_in_an_encoding_that_is_not_opened_says_which_are(
    caller: Caller, upstreams: Upstreams, endpoint: str
) -> None:
    status, tree, headers = await post(caller, endpoint, b"x", {"content-encoding": "zstd"})

    assert (status, headers["accept-encoding"]) == (415, "gzip, deflate")
    assert tree["error"]["type"] == "invalid_request_error"
    assert untouched(upstreams)


@each_endpoint
async def test_another_method_is_told_which_one_is_allowed(caller: Caller, endpoint: str) -> None:
    async with (
        aiohttp.ClientSession() as http,
        http.get(caller.gateway.url + endpoint, headers=caller.headers("openai")) as response,
    ):
        assert (response.status, response.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_compressed_bodies_are_read_at_every_endpoint_that_answers(
    caller: Caller, upstreams: Upstreams, encoding: str
) -> None:
    body = msgspec.json.encode({"model": CLAUDE_TARGET, "max_tokens": 9, "messages": GOOD_TURNS})
    packed = gzip.compress(body) if encoding == "gzip" else zlib.compress(body)

    for endpoint in ("/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"):
        assert (await post(caller, endpoint, packed, {"content-encoding": encoding}))[0] == 200
    assert all(b'"a"' in call.body for call in upstreams.anthropic.calls)


async def test_official_clients_raise_bad_request_with_the_path(
    gateway: RunningGateway, shared_key: str, upstreams: Upstreams
) -> None:
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=shared_key) as gpt:
        with pytest.raises(openai.BadRequestError) as first:
            await gpt.chat.completions.create(model=CLAUDE_TARGET, messages=TURNS)
        assert first.value.param == "messages[0].content[0].text"
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=shared_key) as claude:
        with pytest.raises(anthropic.BadRequestError) as second:
            await claude.messages.create(model=CLAUDE_TARGET, max_tokens=9, messages=TURNS)
        assert "messages[0].content[0].text: " in second.value.message
    assert untouched(upstreams)
