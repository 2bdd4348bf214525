"""What a path takes is told as HTTP wants it, and what leads nowhere is told so that it helps."""

import asyncio
from typing import Any

import aiohttp
import anthropic
import msgspec
import openai
import pytest

from tests.faults.envelopes import Caller, untouched
from tests.running_gateway import ENGINE_TARGET, RunningGateway, Upstreams


pytestmark = pytest.mark.anyio

QUESTION: Any = [{"role": "user", "content": "Hi"}]
TAKEN = {
    "/health/live": "GET, HEAD",
    "/health/ready": "GET, HEAD",
    "/metrics": "GET, HEAD",
    "/v1/models": "GET, HEAD",
    "/v1/models/auto": "GET, HEAD",
    "/v1/models/a/model/with/slashes": "GET, HEAD",
    "/v1/decisions/req_1": "GET, HEAD",
    "/v1/files": "GET, HEAD, POST",
    "/v1/files/file_1": "DELETE, GET, HEAD",
    "/v1/files/file_1/content": "GET, HEAD",
    "/v1/batches": "GET, HEAD, POST",
    "/v1/batches/batch_1/cancel": "POST",
    "/v1/messages/batches": "GET, HEAD, POST",
    "/v1/messages/batches/batch_1": "DELETE, GET, HEAD",
    "/v1/responses/resp_1": "DELETE, GET, HEAD",
    "/v1/responses/resp_1/input_items": "GET, HEAD",
    "/v1/responses/resp_1/cancel": "POST",
}


@pytest.mark.parametrize("path", TAKEN)
async def test_a_method_that_a_path_does_not_take_is_refused_with_those_that_it_does(
    caller: Caller, http: aiohttp.ClientSession, path: str
) -> None:
    url, headers = caller.gateway.url + path, caller.headers("openai")
    async with http.request("PATCH", url, headers=headers) as refused:
        assert (refused.status, refused.headers["allow"]) == (405, TAKEN[path])
        error = (await refused.json())["error"]
        assert error["code"] == "method_not_allowed"
    async with http.options(url, headers=headers) as told:
        assert (told.status, told.headers["allow"], await told.read()) == (204, TAKEN[path], b"")


@pytest.mark.parametrize("path", [path for path, taken in TAKEN.items() if "HEAD" in taken])
async def test_head_is_answered_as_get_is_without_the_body(
    caller: Caller, http: aiohttp.ClientSession, path: str
) -> None:
    """Load balancers ask so whether a worker lives; they got a 405 even from `/health/live`."""
    url, headers = caller.gateway.url + path, caller.headers("openai")
    async with http.get(url, headers=headers) as whole, http.head(url, headers=headers) as head:
        assert head.status == whole.status
        assert head.headers["content-type"] == whole.headers["content-type"]
        assert await head.read() == b""
        assert await whole.read() != b""


async def test_after_a_head_the_connection_goes_on(gateway: RunningGateway) -> None:
    """A body that nobody expects would be taken for the next answer."""
    host, port = gateway._socket.getsockname()
    reader, writer = await asyncio.open_connection(host, port)
    first = b"HEAD /health/live HTTP/1.1\r\nhost: x\r\n\r\n"
    second = b"GET /health/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    writer.write(first)
    head = await reader.readuntil(b"\r\n\r\n")
    writer.write(second)
    rest = await reader.read()
    writer.close()
    await writer.wait_closed()

    assert head.startswith(b"HTTP/1.1 200 ")
    assert rest.startswith(b"HTTP/1.1 200 ")
    assert rest.endswith(b'{"status":"live"}')


async def test_head_needs_a_key_where_get_does(
    gateway: RunningGateway, http: aiohttp.ClientSession
) -> None:
    for path in ("/v1/models", "/v1/files", "/v1/responses/resp_1"):
        async with http.head(gateway.url + path) as refused:
            assert (refused.status, await refused.read()) == (401, b"")


@pytest.mark.parametrize("path", [*TAKEN, "/v1/nowhere"])
async def test_every_answer_names_its_request_for_both_clients(
    caller: Caller, http: aiohttp.ClientSession, path: str
) -> None:
    """OpenAI's client reads the one header, Anthropic's the other; both were missing here."""
    url = caller.gateway.url + path
    headers = {**caller.headers("anthropic"), "anthropic-version": "2023-06-01"}
    for method in ("GET", "OPTIONS"):
        async with http.request(method, url, headers=headers) as answer:
            assert answer.headers.getall("x-request-id") == answer.headers.getall("request-id")
            assert answer.headers["request-id"].startswith("req_")
            if answer.status >= 400:
                assert answer.headers["request-id"] in await answer.text()


async def test_the_id_that_clients_show_is_the_one_in_the_records(
    gateway: RunningGateway, shared_key: str, upstreams: Upstreams
) -> None:
    async with (
        openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=shared_key) as gpt,
        anthropic.AsyncAnthropic(base_url=gateway.url, api_key=shared_key) as claude,
    ):
        model = await gpt.models.retrieve("auto")
        message = await claude.messages.create(model=ENGINE_TARGET, max_tokens=9, messages=QUESTION)
        async with claude.messages.stream(
            model=ENGINE_TARGET, max_tokens=9, messages=QUESTION
        ) as stream:
            await stream.until_done()
    assert model._request_id is not None
    for request_id in (message._request_id, stream.request_id):
        assert request_id is not None
        assert {record.request_id for record in await gateway.records(request_id)} == {request_id}


async def test_what_may_be_asked_for_as_a_model_is_listed(
    gateway: RunningGateway, shared_key: str
) -> None:
    """Routes were not: a name that worked was unknown to who looked it up."""
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=shared_key) as gpt:
        listed = [each.id async for each in gpt.models.list()]
        routes = [name for name in listed if name.startswith("auto:")]
        for name in routes:
            assert (await gpt.models.retrieve(name)).owned_by == "gatewright"
            await gpt.chat.completions.create(model=name, messages=QUESTION)

        assert routes == ["auto:cheap", "auto:quality", "auto:in-house"]
        assert listed.index("auto:in-house") < listed.index(ENGINE_TARGET)
        with pytest.raises(
            openai.NotFoundError, match=r"no route `auto:nope`\. It has `auto:cheap`, `auto:q"
        ):
            await gpt.chat.completions.create(model="auto:nope", messages=QUESTION)


async def test_metrics_say_once_how_their_letters_are_written(
    gateway: RunningGateway, http: aiohttp.ClientSession
) -> None:
    """A parameter that stands twice makes a media type that strict readers refuse."""
    async with http.get(f"{gateway.url}/metrics") as metrics:
        kind, *parameters = metrics.headers["content-type"].split("; ")
    assert kind == "text/plain"
    assert sorted(each.partition("=")[0] for each in parameters) == ["charset", "version"]


async def test_a_path_that_is_none_takes_nothing(
    caller: Caller, http: aiohttp.ClientSession
) -> None:
    for method in ("OPTIONS", "HEAD", "PATCH", "POST"):
        url = caller.gateway.url + "/v1/nowhere"
        async with http.request(method, url, headers=caller.headers("openai")) as refused:
            assert refused.status == 404
            assert "allow" not in refused.headers


async def test_clients_with_the_others_base_url_are_told_so(
    gateway: RunningGateway, shared_key: str, upstreams: Upstreams
) -> None:
    async with (
        openai.AsyncOpenAI(base_url=gateway.url, api_key=shared_key) as gpt,
        anthropic.AsyncAnthropic(base_url=f"{gateway.url}/v1", api_key=shared_key) as claude,
    ):
        with pytest.raises(openai.NotFoundError, match="ends with /v1") as bare:
            await gpt.chat.completions.create(model=ENGINE_TARGET, messages=QUESTION)
        with pytest.raises(openai.NotFoundError, match="ends with /v1"):
            await gpt.responses.input_tokens.count(model=ENGINE_TARGET, input="Hi")
        with pytest.raises(openai.NotFoundError, match="ends with /v1"):
            await gpt.models.list()
        with pytest.raises(openai.NotFoundError, match="ends with /v1"):
            await gpt.responses.retrieve("resp_1")
        with pytest.raises(anthropic.NotFoundError, match="/v1 twice"):
            await claude.models.list()
        with pytest.raises(anthropic.NotFoundError, match="/v1 twice"):
            await claude.messages.create(model=ENGINE_TARGET, max_tokens=9, messages=QUESTION)
        with pytest.raises(openai.NotFoundError) as other:
            await gpt.get("/nowhere", cast_to=object)
        # As DSPy asks for messages, at an address to which it adds no version.
        with pytest.raises(openai.NotFoundError, match="base URL of this client ends with /v1"):
            await gpt.post("/messages", cast_to=object, body={})
    assert bare.value.code == "unknown_url"
    assert other.value.body["message"] == "There is nothing at this path."  # type: ignore[index]
    assert untouched(upstreams)


async def test_who_asks_for_what_the_vendor_has_and_the_gateway_has_not_is_told_so(
    gateway: RunningGateway, shared_key: str, upstreams: Upstreams
) -> None:
    said = "not served here; chat completions, messages, responses, completions and embeddings are."
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=shared_key) as gpt:
        with pytest.raises(openai.NotFoundError, match=said):
            await gpt.images.generate(prompt="A bridge")
        with pytest.raises(openai.NotFoundError, match=said):
            await gpt.moderations.create(input="A bridge")
        with pytest.raises(openai.NotFoundError, match=said):
            await gpt.audio.speech.create(input="A bridge", model="m", voice="alloy")
        with pytest.raises(openai.NotFoundError, match=said):
            await gpt.vector_stores.list()
        with pytest.raises(openai.NotFoundError, match=said):
            await gpt.responses.compact(model=ENGINE_TARGET, input="A bridge")
    assert untouched(upstreams)


@pytest.mark.parametrize("body", [b"", b" \n"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/embeddings"])
async def test_an_empty_body_is_called_empty(
    caller: Caller, http: aiohttp.ClientSession, path: str, body: bytes
) -> None:
    url, headers = caller.gateway.url + path, caller.headers("openai")
    async with http.post(url, data=body, headers=headers) as refused:
        assert refused.status == 400
        tree: Any = msgspec.json.decode(await refused.read())
        assert tree["error"]["message"] == "The body is empty: send a JSON object."


@pytest.mark.parametrize("mark", ["utf-8-sig", "utf-16"])
async def test_a_byte_order_mark_is_called_by_its_name(
    caller: Caller, http: aiohttp.ClientSession, mark: str
) -> None:
    """Nobody sees it in an editor, and "no JSON at column 1" helps nobody."""
    url, headers = caller.gateway.url + "/v1/chat/completions", caller.headers("openai")
    async with http.post(url, data='{"model":"auto"}'.encode(mark), headers=headers) as refused:
        tree: Any = msgspec.json.decode(await refused.read())
    assert refused.status == 400
    assert "byte order mark" in tree["error"]["message"]


async def test_a_long_name_of_a_model_is_not_told_again(
    caller: Caller, http: aiohttp.ClientSession
) -> None:
    url, headers = f"{caller.gateway.url}/v1/models/{'a' * 20_000}", caller.headers("openai")
    async with http.get(url, headers=headers) as refused:
        raw = await refused.read()
    assert refused.status == 404
    assert len(raw) < 500


async def sent(gateway: RunningGateway, raw: bytes) -> tuple[bytes, Any]:
    """The status line and the tree of what comes back for these bytes."""
    reader, writer = await asyncio.open_connection(*gateway._socket.getsockname())
    writer.write(raw)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    assert b"content-type: application/json" in head
    return head.split(b"\r\n")[0], msgspec.json.decode(body)


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"GET / HTTP/3.0\r\nhost: x\r\n\r\n", "HTTP/1.1"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 50, "HTTP/1.1"),
        (b"POST /v1/messages HTTP/1.1\r\ngarbage\r\n\r\n", "HTTP/1.1"),
        (b"GET / HTTP/1.1\r\nx-a: " + b"a" * 70_000 + b"\r\n\r\n", "longer than 16384 bytes"),
        (b"GET /v1/models/" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", "HTTP/1.1"),
    ],
)
async def test_what_is_no_request_is_told_so_that_clients_can_show_it(
    gateway: RunningGateway, raw: bytes, told: str
) -> None:
    status, tree = await sent(gateway, raw)

    assert status == b"HTTP/1.1 400 Bad Request"
    assert told in tree["error"]["message"]
    assert (tree["type"], tree["error"]["type"]) == ("error", "invalid_request_error")
