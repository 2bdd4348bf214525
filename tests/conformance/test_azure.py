"""Azure OpenAI's client at a gateway: its paths are other names, and its deployments are models."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import openai
import pytest

from tests.faults.envelopes import Caller, Reply, ask, check_error, only_outcome, untouched
from tests.identifiers import aadhaar
from tests.running_gateway import (
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer, reply_of


pytestmark = pytest.mark.anyio

VERSION = "2024-10-21"
QUESTION: Any = [{"role": "user", "content": "How old is the bridge?"}]
TOOL: Any = {
    "type": "function",
    "function": {"name": "age", "parameters": {"type": "object", "properties": {}}},
}
SETTINGS = """
[targets.embedder]
provider = "openai"
model = "text-embedding-3-small"
[targets."meta/llama"]
provider = "engine"
model = "fake-model"
catalogue = "in-house"
"""


@pytest.fixture
async def azure(gateway: RunningGateway, shared_key: str) -> AsyncIterator[openai.AsyncAzureOpenAI]:
    async with client_of(gateway, shared_key) as client:
        yield client


def client_of(gateway: RunningGateway, key: str, **more: Any) -> openai.AsyncAzureOpenAI:
    return openai.AsyncAzureOpenAI(
        azure_endpoint=gateway.url,
        api_key=key,
        max_retries=0,
        **{"api_version": VERSION} | more,
    )


@pytest.mark.parametrize("target", [ENGINE_TARGET, CLAUDE_TARGET, GPT_TARGET, "meta/llama", "auto"])
async def test_the_official_client_gets_whole_answers_and_streams(
    azure: openai.AsyncAzureOpenAI, gateway: RunningGateway, upstreams: Upstreams, target: str
) -> None:
    raw = await azure.chat.completions.with_raw_response.create(model=target, messages=QUESTION)
    stream = await azure.chat.completions.create(
        model=target, messages=QUESTION, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]

    assert raw.parse().choices[0].message.content == "Hello from the upstream."
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "Hello from the upstream."
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 18
    assert target in ("auto", raw.headers["x-gatewright-target"])
    records = await gateway.records(raw.headers["x-request-id"])
    assert [record.stage for record in records] == ["intent", "outcome"]
    assert {record.model_requested for record in records} == {target}
    assert {record.endpoint for record in records} == {"/v1/chat/completions"}


async def test_the_official_client_gets_calls_of_tools(
    azure: openai.AsyncAzureOpenAI, upstreams: Upstreams
) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "age", "input": {"of": "it"}}
    message = reply_of(Answer(stop="tool_use"), CLAUDE_TARGET, "anthropic_messages")
    upstreams.anthropic.answer(Answer(body=msgspec.json.encode(message | {"content": [call]})))
    answer = await azure.chat.completions.create(
        model=CLAUDE_TARGET, messages=QUESTION, tools=[TOOL]
    )

    calls = answer.choices[0].message.tool_calls
    assert calls is not None
    asked = calls[0]
    assert isinstance(asked, openai.types.chat.ChatCompletionMessageFunctionToolCall)
    assert asked.function.name == "age"
    assert msgspec.json.decode(asked.function.arguments) == {"of": "it"}


async def test_the_official_client_embeds(
    azure: openai.AsyncAzureOpenAI, upstreams: Upstreams
) -> None:
    vectors = [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}]
    usage = {"prompt_tokens": 3, "total_tokens": 3}
    tree = {"object": "list", "data": vectors, "model": "text-embedding-3-small", "usage": usage}
    upstreams.openai.answer(Answer(body=msgspec.json.encode(tree)))

    answer = await azure.embeddings.create(model="embedder", input="one")

    assert answer.data[0].embedding == [0.5, -0.25]
    assert upstreams.openai.calls[0].json["model"] == "text-embedding-3-small"


async def test_a_client_of_one_deployment_reaches_all_that_has_none(
    gateway: RunningGateway, upstreams: Upstreams, shared_key: str
) -> None:
    async with client_of(gateway, shared_key, azure_deployment=GPT_TARGET) as azure:
        answer = await azure.chat.completions.create(model=GPT_TARGET, messages=QUESTION)
        response = await azure.responses.create(model=ENGINE_TARGET, input="How old?")
        kept = await azure.responses.retrieve(response.id)
        counted = await azure.responses.input_tokens.count(model=ENGINE_TARGET, input="How old?")
        talk = await azure.conversations.create()
        turn = await azure.responses.create(model=ENGINE_TARGET, input="Old", conversation=talk.id)
        said = [item.id async for item in azure.conversations.items.list(talk.id)]
        models = [model.id async for model in azure.models.list()]
        one = await azure.models.retrieve(ENGINE_TARGET)
        batches = [batch async for batch in azure.batches.list()]

    assert answer.choices[0].message.content == kept.output_text == "Hello from the upstream."
    assert counted.input_tokens > 0
    assert said[0] == turn.output[0].id
    assert {"auto", one.id, "meta/llama"} <= {*models}
    assert batches == []


async def test_the_paths_without_dates_are_openais_own(
    gateway: RunningGateway, upstreams: Upstreams, shared_key: str
) -> None:
    """What Azure's guide tells everybody to use now: OpenAI's plain client, at another base URL."""
    url = f"{gateway.url}/openai/v1/"
    async with openai.AsyncOpenAI(base_url=url, api_key=shared_key, max_retries=0) as client:
        answer = await client.chat.completions.create(
            model=ENGINE_TARGET, messages=QUESTION, extra_query={"api-version": "preview"}
        )
        stream = await client.responses.create(model=ENGINE_TARGET, input="How old?", stream=True)
        kinds = [event.type async for event in stream]
        models = [model.id async for model in client.models.list()]
        file = await client.files.create(file=b"{}\n", purpose="batch")
        assert (await client.files.content(file.id)).content == b"{}\n"
        await client.files.delete(file.id)

    assert answer.choices[0].message.content == "Hello from the upstream."
    assert kinds[-1] == "response.completed"
    assert ENGINE_TARGET in models


async def test_errors_are_those_that_the_client_knows(
    azure: openai.AsyncAzureOpenAI, gateway: RunningGateway, upstreams: Upstreams
) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        await azure.chat.completions.create(model="nothing-of-ours", messages=QUESTION)
    with pytest.raises(openai.BadRequestError) as invalid:
        await azure.chat.completions.create(model=GPT_TARGET, messages=[])
    text: Any = [{"role": "user", "content": f"It is {aadhaar(5)}."}]
    answered = await azure.chat.completions.with_raw_response.create(
        model=CLAUDE_TARGET, messages=text
    )
    narrow = client_of(gateway, await gateway.issue_key(models=[CLAUDE_TARGET]))
    with pytest.raises(openai.PermissionDeniedError) as closed:
        await narrow.chat.completions.create(model=CLAUDE_TARGET, messages=text)
    async with client_of(gateway, "gw_live_nobody") as stranger:
        with pytest.raises(openai.AuthenticationError) as refused:
            await stranger.chat.completions.create(model=GPT_TARGET, messages=QUESTION)
        with pytest.raises(openai.AuthenticationError):
            await stranger.models.list()
    await narrow.close()

    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    assert invalid.value.param == "messages"
    assert answered.headers["x-gatewright-target"] == ENGINE_TARGET
    assert closed.value.code == "no_permitted_target"
    assert refused.value.code == "invalid_api_key"
    assert not any(upstream.calls for upstream in upstreams.managed)


async def test_a_model_in_the_body_that_is_not_the_deployment_is_refused(
    gateway: RunningGateway, upstreams: Upstreams, shared_key: str
) -> None:
    async with client_of(gateway, shared_key, azure_deployment=ENGINE_TARGET) as azure:
        with pytest.raises(openai.BadRequestError, match="another model than the path") as caught:
            await azure.chat.completions.create(model=GPT_TARGET, messages=QUESTION)

    assert (caught.value.code, caught.value.param) == ("invalid_request", "model")
    request_id = caught.value.response.headers["x-request-id"]
    await only_outcome(gateway, request_id, "refused", "invalid_request")
    assert untouched(upstreams)


async def sent(
    caller: Caller, http: aiohttp.ClientSession, path: str, body: object = None, **more: str
) -> Reply:
    """A request by a path exactly as it is written here."""
    del http
    host, port = urlsplit(caller.gateway.url).netloc.split(":")
    data = body if isinstance(body, bytes) else msgspec.json.encode(body or nameless())
    headers = {"host": host, "api-key": caller.key, "connection": "close"} | more
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST {path} HTTP/1.1\r\n{lines}content-length: {len(data)}\r\n\r\n"
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(head.encode("latin-1") + data)
        raw = await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()
    top, _, rest = raw.partition(b"\r\n\r\n")
    status, *told = top.decode("latin-1").split("\r\n")
    known = dict(line.lower().split(": ", 1) for line in told)
    return Reply(int(status.split()[1]), known, rest)


def nameless() -> dict[str, object]:
    """A body as other clients of Azure's send it: the path alone names the model."""
    body = ask("openai")
    del body["model"]
    return body


CHAT = "/openai/deployments/{}/chat/completions?api-version=2024-10-21"


@pytest.mark.parametrize(
    ("path", "target"),
    {
        CHAT.format(ENGINE_TARGET): ENGINE_TARGET,
        CHAT.format("house%2Dmodel"): ENGINE_TARGET,
        CHAT.format("meta%2Fllama"): "meta/llama",
        CHAT.format("auto%3Ain-house"): "",
        f"/openai/deployments/{ENGINE_TARGET}/chat/completions": ENGINE_TARGET,
        CHAT.format(ENGINE_TARGET).replace("2024-10-21", "2031-01-01-preview"): ENGINE_TARGET,
        CHAT.format(ENGINE_TARGET) + f"&model={GPT_TARGET}&deployment={GPT_TARGET}": ENGINE_TARGET,
    }.items(),
)
async def test_the_path_names_the_model_where_the_body_names_none(
    caller: Caller, http: aiohttp.ClientSession, upstreams: Upstreams, path: str, target: str
) -> None:
    reply = await sent(caller, http, path)

    assert reply.status == 200, reply
    assert reply.headers["x-gatewright-target"] == target or not target
    assert upstreams.engine.calls[0].json["model"] == "fake-model"
    assert not any(upstream.calls for upstream in upstreams.managed)


NOWHERE = (
    f"/openai/deployments/{GPT_TARGET}/../{ENGINE_TARGET}/chat/completions",
    f"/openai/deployments/{GPT_TARGET}/{ENGINE_TARGET}/chat/completions",
    f"/openai/deployments/{GPT_TARGET}/deployments/{ENGINE_TARGET}/chat/completions",
    "/openai/deployments//chat/completions",
    "/openai/deployments/meta/llama/chat/completions",
    f"/openai/deployments/{ENGINE_TARGET}%2Fchat%2Fcompletions",
    f"/openai/deployments/{ENGINE_TARGET}/chat%2Fcompletions",
    f"/openai%2Fdeployments/{ENGINE_TARGET}/chat/completions",
    f"/OpenAI/deployments/{ENGINE_TARGET}/chat/completions",
    f"/openai/deployments/{ENGINE_TARGET}/extensions/chat/completions",
    f"/openai/deployments/{ENGINE_TARGET}/images/generations",
    f"/openai/deployments/{ENGINE_TARGET}/responses",
    "/openai/v1/messages",
    "/openai/v1/models/../chat/completions",
    "/openai/chat/completions",
    "/openai/v1",
    "/openai/",
)


@pytest.mark.parametrize("path", NOWHERE)
async def test_what_only_looks_like_such_a_path_leads_nowhere(
    caller: Caller, http: aiohttp.ClientSession, upstreams: Upstreams, path: str
) -> None:
    reply = await sent(caller, http, path, ask("openai"))

    assert reply.status in (404, 405), reply
    assert reply.tree["error"]["code"] in ("unknown_url", "method_not_allowed")
    assert untouched(upstreams)


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "%2e%2e",
        ".",
        "%252e%252e",
        f"..%2F{ENGINE_TARGET}",
        f"{ENGINE_TARGET}%2F..%2F{GPT_TARGET}",
        f"{ENGINE_TARGET}%00",
        f"{ENGINE_TARGET}%0d%0ahost:evil",
        f"{ENGINE_TARGET}%3Fmodel={GPT_TARGET}",
        f"{ENGINE_TARGET};{GPT_TARGET}",
        f"%20{ENGINE_TARGET}",
        f"{ENGINE_TARGET}+",
        "auto%253Acheap",
        "auto:nowhere",
        "%ff%fe",
        "%zz",
        "x" * 300,
    ],
)
async def test_a_deployment_is_a_name_and_nothing_else(
    caller: Caller, http: aiohttp.ClientSession, upstreams: Upstreams, name: str
) -> None:
    reply = await sent(caller, http, CHAT.format(name))

    code = reply.tree["error"]["code"]
    check_error(reply, "openai", code)
    assert code in ("model_not_found", "invalid_request")
    await only_outcome(caller.gateway, reply.request_id, "refused", code)
    assert untouched(upstreams)


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"%b","model":"%b","messages":[]}',
        b'{"mod\\u0065l":"%b","model":"%b","messages":[]}',
        b'{"model":["%b","%b"],"messages":[]}',
        b'["%b","%b"]',
        b"",
    ],
)
async def test_a_body_beside_a_deployment_has_one_meaning(
    caller: Caller, http: aiohttp.ClientSession, upstreams: Upstreams, body: bytes
) -> None:
    names = (ENGINE_TARGET.encode(), GPT_TARGET.encode())
    filled = body % names if b"%" in body else body

    reply = await sent(caller, http, CHAT.format(ENGINE_TARGET), filled or b" ")

    check_error(reply, "openai", "invalid_request")
    assert untouched(upstreams)


@pytest.mark.parametrize(
    "query",
    [
        "api-version=banana",
        "api-version=",
        "api-version=2024-10-21%0d%0ax",
        "api-version=2024-10-21&api-version=2023-05-15",
        "API-Version=2024-10-21&api-version=preview",
        "&".join(f"a{number}=1" for number in range(40)),
    ],
)
@pytest.mark.parametrize("start", [f"/openai/deployments/{ENGINE_TARGET}", "/openai/v1"])
async def test_a_version_that_is_none_or_two_is_refused_in_words(
    caller: Caller, http: aiohttp.ClientSession, upstreams: Upstreams, start: str, query: str
) -> None:
    reply = await sent(caller, http, f"{start}/chat/completions?{query}", ask("openai"))
    stranger = await sent(
        caller, http, f"{start}/chat/completions?{query}", ask("openai"), **{"api-key": "x"}
    )

    check_error(reply, "openai", "invalid_request")
    assert reply.tree["error"]["param"] == "api-version"
    check_error(stranger, "openai", "invalid_api_key")
    assert untouched(upstreams)


async def test_keys_that_contradict_each_other_are_refused_here_as_well(
    caller: Caller, http: aiohttp.ClientSession, upstreams: Upstreams
) -> None:
    other = await caller.gateway.issue_key()
    path = CHAT.format(ENGINE_TARGET)

    same = await sent(caller, http, path, authorization=f"Bearer {caller.key}")
    unlike = await sent(caller, http, path, authorization=f"Bearer {other}")
    third = await sent(caller, http, path, **{"x-api-key": other})

    assert (same.status, unlike.status, third.status) == (200, 401, 401)


@pytest.mark.parametrize("field", ["data_sources"])
@pytest.mark.parametrize("target", [ENGINE_TARGET, CLAUDE_TARGET, GPT_TARGET])
async def test_rule_56_places_to_search_that_a_request_names_are_refused(
    caller: Caller, http: aiohttp.ClientSession, upstreams: Upstreams, target: str, field: str
) -> None:
    """A compatible upstream that obeyed would be sent to an address, with a credential."""
    parameters = {"endpoint": "https://evil.example", "index_name": "x"}
    sources = [{"type": "azure_search", "parameters": parameters}]

    reply = await sent(caller, http, CHAT.format(target), nameless() | {field: sources})

    check_error(reply, "openai", "unsupported_parameter")
    assert reply.tree["error"]["param"] == field
    assert untouched(upstreams)


@asynccontextmanager
async def pointed_at(url: str, key: str) -> AsyncIterator[openai.AsyncAzureOpenAI]:
    async with openai.AsyncAzureOpenAI(
        azure_endpoint=url, api_key=key, api_version=VERSION, max_retries=0
    ) as client:
        yield client


async def test_a_client_with_another_endpoint_is_told_which_one_is_right(
    gateway: RunningGateway, shared_key: str
) -> None:
    for wrong in ("/v1", "/openai", "/openai/v1"):
        async with pointed_at(gateway.url + wrong, shared_key) as azure:
            with pytest.raises(openai.NotFoundError, match="bare address as their endpoint"):
                await azure.chat.completions.create(model=ENGINE_TARGET, messages=QUESTION)
    for wrong, told in (
        ("/openai", "end the base URL with /openai/v1 or /v1"),
        (f"/deployments/{ENGINE_TARGET}", "begins with /openai/deployments/"),
        (f"/v1/deployments/{ENGINE_TARGET}", "begins with /openai/deployments/"),
    ):
        url = gateway.url + wrong
        async with openai.AsyncOpenAI(base_url=url, api_key=shared_key) as plain:
            with pytest.raises(openai.NotFoundError, match=told):
                await plain.chat.completions.create(model=ENGINE_TARGET, messages=QUESTION)


async def test_other_methods_are_refused_with_those_that_there_are(
    caller: Caller, http: aiohttp.ClientSession
) -> None:
    url, headers = caller.gateway.url, {"api-key": caller.key}
    for path, taken in {
        CHAT.format(ENGINE_TARGET): "POST",
        "/openai/v1/chat/completions": "POST",
        "/openai/models": "GET, HEAD",
        "/openai/v1/models/auto": "GET, HEAD",
        "/openai/files?api-version=2024-10-21": "GET, HEAD, POST",
        "/openai/responses/resp_1": "DELETE, GET, HEAD",
    }.items():
        async with http.request("PATCH", url + path, headers=headers) as refused:
            assert (refused.status, refused.headers["allow"]) == (405, taken), path
    async with http.head(f"{url}/openai/v1/models", headers=headers) as head:
        assert (head.status, await head.read()) == (200, b"")
