"""Claude at clouds by a whole gateway: both vendors' clients, refusals, rotation, jurisdictions."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import msgspec
import openai
import pytest

from tests.cloud_upstreams import (
    ACCOUNT,
    PROJECT,
    ROLE,
    BedrockUpstream,
    TokenServer,
    VertexUpstream,
)
from tests.running_gateway import RunningGateway, Upstreams
from tests.upstream_messages import anthropic_events
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

MORE = """
[providers.bedrock]
kind = "bedrock"
base_url = "{bedrock}"
jurisdiction = "eu"
region = "eu-central-1"
identity = "access_key"
credential = {{ file = "var/aws.key" }}
[providers.vertex]
kind = "vertex"
base_url = "{vertex}"
jurisdiction = "eu"
region = "europe-west4"
project = "{project}"
token_url = "{token_url}"
credential = {{ file = "var/google.json" }}
[targets."bedrock-opus"]
provider = "bedrock"
model = "anthropic.claude-opus-5-5"
catalogue = "claude-opus-5-5"
[targets."vertex-opus"]
provider = "vertex"
model = "claude-opus-5-5@20261001"
catalogue = "claude-opus-5-5"
[secrets]
refresh_s = 1
"""
TARGETS = pytest.mark.parametrize("target", ["bedrock-opus", "vertex-opus"])
MODEL = "claude-opus-5-5"
OWN_BUSINESS = {"bedrock-opus": ROLE, "vertex-opus": f"{ROLE} {PROJECT}"}
"""What a cloud may say of us that nobody else is told."""
QUESTION: list[Any] = [{"role": "user", "content": "How old?"}]
TOOL: dict[str, Any] = {
    "name": "age",
    "description": "An age",
    "input_schema": {"type": "object", "properties": {"of": {"type": "string"}}},
}


class Clouds:
    """The clouds of one gateway, and the secrets that it proves itself with."""

    def __init__(self) -> None:
        self.bedrock, self.vertex = BedrockUpstream(), VertexUpstream()
        self.tokens = TokenServer(self.vertex)
        self.secrets: list[str] = []

    def rotate(self, folder: Path) -> None:
        """Put another access key in the place of the one before, which is good no more."""
        self.bedrock.access_keys.clear()
        key = self.bedrock.new_access_key(is_temporary=True)
        self._put(folder / "aws.key", f"{key.access_key}:{key.secret_key}:{key.token}")
        self.secrets += [key.access_key, key.secret_key, key.token or ""]

    def put_google(self, folder: Path) -> None:
        self._put(folder / "google.json", self.tokens.key())
        self.secrets += [self.tokens.email, PROJECT]

    def at(self, target: str) -> BedrockUpstream | VertexUpstream:
        return self.bedrock if target.startswith("bedrock") else self.vertex

    @staticmethod
    def _put(file: Path, text: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        file.write_text(text)


@pytest.fixture
async def clouds() -> AsyncIterator[Clouds]:
    made = Clouds()
    async with made.bedrock, made.vertex, made.tokens:
        yield made


@pytest.fixture
async def gateway(tmp_path: Path, clouds: Clouds) -> AsyncIterator[RunningGateway]:
    clouds.rotate(tmp_path / "var")
    clouds.put_google(tmp_path / "var")
    more = MORE.format(
        bedrock=clouds.bedrock.url,
        vertex=clouds.vertex.url,
        token_url=clouds.tokens.token_url,
        project=PROJECT,
    )
    database = f"sqlite+aiosqlite:///{tmp_path / 'gateway.db'}"
    async with (
        Upstreams() as upstreams,
        RunningGateway(tmp_path, database, upstreams, more=more) as running,
    ):
        yield running


@pytest.fixture
async def claude(gateway: RunningGateway) -> AsyncIterator[anthropic.AsyncAnthropic]:
    key = await gateway.issue_key()
    async with anthropic.AsyncAnthropic(api_key=key, base_url=gateway.url, max_retries=0) as client:
        yield client


@pytest.fixture
async def gpt(gateway: RunningGateway) -> AsyncIterator[openai.AsyncOpenAI]:
    key = await gateway.issue_key()
    async with openai.AsyncOpenAI(
        api_key=key, base_url=f"{gateway.url}/v1", max_retries=0
    ) as client:
        yield client


@TARGETS
async def test_anthropics_client_gets_answers_streams_tools_and_counts(
    claude: anthropic.AsyncAnthropic, clouds: Clouds, target: str
) -> None:
    answer = await claude.messages.create(
        model=target,
        max_tokens=20,
        messages=QUESTION,
        tools=[TOOL],  # type: ignore[list-item]
    )
    assert answer.content[0].text == "Hello from the upstream."  # type: ignore[union-attr]
    async with claude.messages.stream(model=target, max_tokens=20, messages=QUESTION) as stream:
        assert await stream.get_final_text() == "Hello from the upstream."
    counted = await claude.messages.count_tokens(model=target, messages=QUESTION)
    assert counted.input_tokens == 11
    first, second, third = clouds.at(target).calls
    assert first.json["tools"] == [TOOL]
    assert second.json["stream"] is True
    assert "count" in third.path


@TARGETS
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("status", [200, 400, 503])
async def test_what_the_cloud_calls_a_call_stands_beside_the_attempt(
    gateway: RunningGateway, clouds: Clouds, target: str, stream: bool, status: int
) -> None:
    name = "x-amzn-RequestId" if target.startswith("bedrock") else "request-id"
    clouds.at(target).answer(Answer(status=status, headers=((name, "req_cloud-1"),)))
    sent = {"x-api-key": await gateway.issue_key(), "anthropic-version": "2023-06-01"}
    body = {"model": target, "max_tokens": 20, "messages": QUESTION, "stream": stream}
    async with httpx2.AsyncClient(base_url=gateway.url, headers=sent) as http:
        reply = await http.post("/v1/messages", json=body)
    assert "req_cloud-1" not in f"{reply.headers} {reply.text}"
    (*_, outcome) = await gateway.records(reply.headers["x-request-id"])
    assert {(each.status, each.upstream_ids) for each in outcome.attempts} == {
        (status, ("req_cloud-1",))
    }


@TARGETS
async def test_thinking_comes_back_and_goes_out_again_with_its_signature(
    claude: anthropic.AsyncAnthropic, clouds: Clouds, target: str
) -> None:
    thought = {"type": "thinking", "thinking": "So old.", "signature": "c2VhbGVk"}
    history = [
        *QUESTION,
        {"role": "assistant", "content": [thought, {"type": "text", "text": "Old."}]},
        *QUESTION,
    ]
    await claude.messages.create(model=target, max_tokens=20, messages=history)
    told: Any = clouds.at(target).calls[-1].json["messages"]
    assert told[1]["content"][0] == thought


@TARGETS
async def test_openais_client_gets_answers_streams_and_tools(
    gpt: openai.AsyncOpenAI, clouds: Clouds, target: str
) -> None:
    tool: Any = {"type": "function", "function": {"name": "age", "parameters": {"type": "object"}}}
    answer = await gpt.chat.completions.create(model=target, messages=QUESTION, tools=[tool])
    assert answer.choices[0].message.content == "Hello from the upstream."
    stream = await gpt.chat.completions.create(model=target, messages=QUESTION, stream=True)
    pieces = [each.choices[0].delta.content or "" async for each in stream if each.choices]
    assert "".join(pieces) == "Hello from the upstream."
    response = await gpt.responses.create(model=target, input="How old?")
    assert response.output_text == "Hello from the upstream."
    sent: Any = clouds.at(target).calls[0].json["tools"]
    assert sent[0]["name"] == "age"


@pytest.mark.parametrize(
    ("target", "status", "tree"),
    [
        (
            "bedrock-opus",
            429,
            {"__type": "ThrottlingException", "message": f"Too many for {ACCOUNT}"},
        ),
        (
            "bedrock-opus",
            403,
            {"__type": "AccessDeniedException", "message": f"User: {ROLE} may not"},
        ),
        (
            "vertex-opus",
            429,
            {"error": {"status": "RESOURCE_EXHAUSTED", "message": f"projects/{PROJECT}/x"}},
        ),
        (
            "vertex-opus",
            403,
            {"error": {"status": "PERMISSION_DENIED", "message": f"projects/{PROJECT}/x"}},
        ),
    ],
)
async def test_refusals_reach_both_clients_in_their_words_without_the_installations_business(
    claude: anthropic.AsyncAnthropic,
    gpt: openai.AsyncOpenAI,
    gateway: RunningGateway,
    clouds: Clouds,
    caplog: pytest.LogCaptureFixture,
    *,
    target: str,
    status: int,
    tree: dict[str, Any],
) -> None:
    clouds.at(target).answer(Answer(status=status, body=msgspec.json.encode(tree)))
    with caplog.at_level(logging.DEBUG):
        with pytest.raises(anthropic.APIStatusError) as theirs:
            await claude.messages.create(model=target, max_tokens=20, messages=QUESTION)
        with pytest.raises(openai.APIStatusError) as others:
            await gpt.chat.completions.create(model=target, messages=QUESTION)
    told = theirs.value.response.text + others.value.response.text + caplog.text
    async with httpx2.AsyncClient() as client:
        told += (await client.get(f"{gateway.url}/metrics")).text
    assert "gatewright_" in told
    for own in (ACCOUNT, PROJECT, "arn:", "gateway-of-a-bank", *clouds.secrets):
        assert own not in told
    if status == 429:
        assert (theirs.value.status_code, others.value.status_code) == (429, 429)


@TARGETS
@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize("word", ["overloaded_error", "invalid_request_error"])
async def test_an_error_in_a_stream_tells_nobody_what_the_cloud_said_of_us(
    claude: anthropic.AsyncAnthropic,
    gpt: openai.AsyncOpenAI,
    clouds: Clouds,
    *,
    target: str,
    has_begun: bool,
    word: str,
) -> None:
    said = {"type": word, "message": OWN_BUSINESS[target]}
    told = {"type": "error", "error": said}
    body = b"event: error\ndata: " + msgspec.json.encode(told) + b"\n\n"
    begun = anthropic_events(Answer(), {"model": MODEL})[:5] if has_begun else []
    clouds.at(target).answer(Answer(events=(*begun, body)))
    seen = ""
    with pytest.raises(anthropic.APIError) as theirs:
        async with claude.messages.stream(model=target, max_tokens=20, messages=QUESTION) as stream:
            await stream.get_final_text()
    seen += str(theirs.value)
    with pytest.raises(openai.APIError) as others:
        async for _ in await gpt.chat.completions.create(
            model=target, messages=QUESTION, stream=True
        ):
            pass
    seen += str(others.value)
    assert ROLE not in seen
    assert PROJECT not in seen


@TARGETS
@pytest.mark.parametrize("is_vendors", [False, True])
async def test_an_error_behind_a_good_status_tells_nobody_what_the_cloud_said_of_us(
    claude: anthropic.AsyncAnthropic, clouds: Clouds, *, target: str, is_vendors: bool
) -> None:
    word = {"type": "invalid_request_error"} if is_vendors else {"status": "INVALID_ARGUMENT"}
    told = {"type": "error", "error": {**word, "code": 400, "message": OWN_BUSINESS[target]}}
    clouds.at(target).answer(Answer(body=msgspec.json.encode(told)))
    with pytest.raises(anthropic.APIStatusError) as caught:
        await claude.messages.create(model=target, max_tokens=20, messages=QUESTION)
    assert caught.value.status_code == 400
    assert ROLE not in str(caught.value)
    assert PROJECT not in str(caught.value)


async def test_a_replaced_access_key_is_used_without_a_restart(
    claude: anthropic.AsyncAnthropic, gateway: RunningGateway, clouds: Clouds
) -> None:
    async def answered() -> bool:
        try:
            await claude.messages.create(model="bedrock-opus", max_tokens=20, messages=QUESTION)
        except anthropic.APIStatusError:
            return False
        return True

    assert await answered()
    clouds.rotate(gateway.folder / "var")
    await gateway.does(gateway.plane._rotation.refresh())
    assert await answered()


@pytest.fixture
async def without_tokens(clouds: Clouds) -> None:
    clouds.tokens.is_down = True


@pytest.mark.usefixtures("without_tokens")
async def test_a_cloud_that_gives_no_token_is_passed_over_and_says_why(
    gateway: RunningGateway, claude: anthropic.AsyncAnthropic, clouds: Clouds
) -> None:
    while not gateway.plane.snapshots.board.unavailable.get("vertex-opus"):
        await asyncio.sleep(0.05)
    reason = gateway.plane.snapshots.board.unavailable["vertex-opus"]
    assert reason.startswith("no access token (")
    with pytest.raises(anthropic.APIStatusError):
        await claude.messages.create(model="vertex-opus", max_tokens=20, messages=QUESTION)
    assert clouds.vertex.calls == []
    await claude.messages.create(model="bedrock-opus", max_tokens=20, messages=QUESTION)
    clouds.tokens.is_down = False
    while gateway.plane.snapshots.board.unavailable.get("vertex-opus"):
        await asyncio.sleep(0.05)
    await claude.messages.create(model="vertex-opus", max_tokens=20, messages=QUESTION)


async def test_what_stays_at_home_goes_to_no_cloud(
    claude: anthropic.AsyncAnthropic, clouds: Clouds
) -> None:
    card = "My card is 4111 1111 1111 1111, and my IBAN DE89 3704 0044 0532 0130 00."
    for target in ("bedrock-opus", "vertex-opus"):
        await claude.messages.create(
            model=target, max_tokens=20, messages=[{"role": "user", "content": card}]
        )
    assert clouds.bedrock.calls == clouds.vertex.calls == []
