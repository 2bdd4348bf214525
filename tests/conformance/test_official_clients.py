"""The official Python clients at a gateway, each against every kind of target."""

from typing import Any

import anthropic
import msgspec
import openai
import pytest
from anthropic import beta_tool
from anyio import to_thread
from pydantic import BaseModel

from tests.running_gateway import (
    CLAUDE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

TARGETS = [CLAUDE_TARGET, GPT_TARGET]
QUESTION: Any = [{"role": "user", "content": "How old is the bridge?"}]
FACT = '{"age":120,"name":"Old Bridge"}'
SETTINGS = """
[inspection]
deadline_s = 5.0
[targets.embedder]
provider = "openai"
model = "text-embedding-3-small"
"""


class Fact(BaseModel):
    age: int
    name: str


def saying(upstreams: Upstreams, text: str) -> None:
    for upstream in (upstreams.engine, *upstreams.managed):
        upstream.answer(Answer(text=text))


@pytest.mark.parametrize("target", TARGETS)
async def test_openai_chat_stream_helper_gathers_a_whole_completion(
    gpt: openai.AsyncOpenAI, upstreams: Upstreams, target: str
) -> None:
    async with gpt.chat.completions.stream(
        model=target, messages=QUESTION, stream_options={"include_usage": True}
    ) as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_completion()

    assert "content.done" in kinds
    assert final.choices[0].message.content == "Hello from the upstream."
    assert final.choices[0].finish_reason == "stop"
    assert final.usage is not None
    assert final.usage.total_tokens == 18


@pytest.mark.parametrize("target", TARGETS)
async def test_openai_chat_parse_gives_a_typed_answer(
    gpt: openai.AsyncOpenAI, upstreams: Upstreams, target: str
) -> None:
    saying(upstreams, FACT)
    parsed = await gpt.chat.completions.parse(model=target, messages=QUESTION, response_format=Fact)

    assert parsed.choices[0].message.parsed == Fact(age=120, name="Old Bridge")


@pytest.mark.parametrize("target", TARGETS)
async def test_openai_responses_parse_gives_a_typed_answer(
    gpt: openai.AsyncOpenAI, upstreams: Upstreams, target: str
) -> None:
    saying(upstreams, FACT)
    parsed = await gpt.responses.parse(model=target, input="How old?", text_format=Fact)

    assert parsed.output_parsed == Fact(age=120, name="Old Bridge")


@pytest.mark.parametrize("target", TARGETS)
async def test_anthropic_parse_gives_a_typed_answer(
    claude: anthropic.AsyncAnthropic, upstreams: Upstreams, target: str
) -> None:
    saying(upstreams, FACT)
    parsed = await claude.messages.parse(
        model=target, max_tokens=100, messages=QUESTION, output_format=Fact
    )

    assert parsed.parsed_output == Fact(age=120, name="Old Bridge")


@pytest.mark.parametrize("target", TARGETS)
async def test_anthropic_stream_helper_gathers_a_whole_message(
    claude: anthropic.AsyncAnthropic, upstreams: Upstreams, target: str
) -> None:
    async with claude.messages.stream(model=target, max_tokens=100, messages=QUESTION) as stream:
        text = "".join([piece async for piece in stream.text_stream])
        final = await stream.get_final_message()

    assert text == "Hello from the upstream."
    assert (final.stop_reason, final.usage.output_tokens) == ("end_turn", 7)


def tool_answers(target: str) -> tuple[Answer, ...]:
    """A call of `age_of`, in the words of the upstream behind each target."""
    arguments = '{"name":"Old Bridge"}'
    if target == CLAUDE_TARGET:
        use = {
            "type": "tool_use",
            "id": "toolu_1",
            "name": "age_of",
            "input": {"name": "Old Bridge"},
        }
        shell = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
        usage = {"input_tokens": 5, "output_tokens": 5}
        tree = shell | {"content": [use], "stop_reason": "tool_use", "usage": usage}
    else:
        call = {"type": "function_call", "id": "fc_1", "call_id": "toolu_1", "name": "age_of"}
        made = {"id": "resp_1", "object": "response", "model": "m", "status": "completed"}
        output = [call | {"arguments": arguments}]
        return (
            Answer(body=msgspec.json.encode({**made, "created_at": 1, "output": output})),
            Answer(text="It is 120."),
        )
    return Answer(body=msgspec.json.encode(tree)), Answer(text="It is 120.")


@pytest.mark.parametrize("target", TARGETS)
async def test_the_synchronous_tool_runner_calls_a_tool_and_comes_back(
    gateway: RunningGateway, shared_key: str, upstreams: Upstreams, target: str
) -> None:
    upstream = upstreams.anthropic if target == CLAUDE_TARGET else upstreams.openai
    upstream.answer_once(*tool_answers(target))

    @beta_tool
    def age_of(name: str) -> str:
        """Say how old a bridge is."""
        return f"{name}: 120"

    def run() -> Any:
        with anthropic.Anthropic(base_url=gateway.url, api_key=shared_key) as client:
            runner = client.beta.messages.tool_runner(
                model=target, max_tokens=100, tools=[age_of], messages=QUESTION
            )
            return runner.until_done()

    final = await to_thread.run_sync(run)

    assert final.content[0].text == "It is 120."
    assert b"Old Bridge: 120" in upstream.calls[-1].body


@pytest.mark.parametrize("target", TARGETS)
async def test_the_synchronous_clients_ask_and_stream_in_every_dialect(
    gateway: RunningGateway, shared_key: str, upstreams: Upstreams, target: str
) -> None:
    hello = "Hello from the upstream."

    def run() -> list[str | None]:
        said: list[str | None] = []
        url = f"{gateway.url}/v1"
        with openai.OpenAI(base_url=url, api_key=shared_key, max_retries=0) as gpt:
            made = gpt.chat.completions.create(model=target, messages=QUESTION)
            said.append(made.choices[0].message.content)
            chunks = gpt.chat.completions.create(model=target, messages=QUESTION, stream=True)
            said.append("".join(chunk.choices[0].delta.content or "" for chunk in chunks))
            said.append(gpt.responses.create(model=target, input="x").output_text)
            with gpt.responses.stream(model=target, input="x") as events:
                said.append(events.get_final_response().output_text)
        with anthropic.Anthropic(base_url=gateway.url, api_key=shared_key) as claude:
            whole = claude.messages.create(model=target, max_tokens=50, messages=QUESTION)
            said.append(getattr(whole.content[0], "text", None))
            with claude.messages.stream(model=target, max_tokens=50, messages=QUESTION) as pieces:
                said.append(pieces.get_final_text())
        return said

    assert await to_thread.run_sync(run) == [hello] * 6


async def test_openai_embeddings_come_as_floats_and_as_base64(
    gpt: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    vectors = [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}]
    usage = {"prompt_tokens": 3, "total_tokens": 3}
    body = {"object": "list", "data": vectors, "model": "m", "usage": usage}
    upstreams.openai.answer(Answer(body=msgspec.json.encode(body)))

    # The client asks for base64 by itself, and unpacks it; the upstream here knows floats only.
    packed = await gpt.embeddings.create(model="embedder", input=["one"])
    plain = await gpt.embeddings.create(model="embedder", input="one", encoding_format="float")

    assert packed.data[0].embedding == plain.data[0].embedding == [0.5, -0.25]
    assert packed.usage.prompt_tokens == 3
    assert [call.path for call in upstreams.openai.calls] == ["/v1/embeddings"] * 2
    assert upstreams.openai.calls[0].json["model"] == "text-embedding-3-small"


@pytest.mark.parametrize("given", [[1, 2, 3], [[1, 2], [3]]])
async def test_token_numbers_are_refused_because_nobody_can_read_them(
    gpt: openai.AsyncOpenAI, upstreams: Upstreams, given: Any
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await gpt.embeddings.create(model="embedder", input=given)

    assert caught.value.param == "input[0]"
    assert not upstreams.openai.calls


async def test_models_are_called_for_what_they_are_for(
    gpt: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    with pytest.raises(openai.BadRequestError, match="embeddings"):
        await gpt.chat.completions.create(model="embedder", messages=QUESTION)
    with pytest.raises(openai.BadRequestError, match="answers"):
        await gpt.embeddings.create(model=GPT_TARGET, input="x")
    assert not upstreams.openai.calls


@pytest.mark.parametrize(
    ("status", "ours", "theirs"),
    [
        (400, openai.BadRequestError, anthropic.BadRequestError),
        (401, openai.InternalServerError, anthropic.InternalServerError),
        (404, openai.NotFoundError, anthropic.NotFoundError),
        (413, openai.APIStatusError, anthropic.RequestTooLargeError),
        (429, openai.RateLimitError, anthropic.RateLimitError),
        (500, openai.InternalServerError, anthropic.InternalServerError),
        (529, openai.InternalServerError, anthropic.OverloadedError),
    ],
)
@pytest.mark.parametrize("target", TARGETS)
async def test_rule_59_clients_raise_the_errors_they_know(
    gpt: openai.AsyncOpenAI,
    claude: anthropic.AsyncAnthropic,
    upstreams: Upstreams,
    status: int,
    ours: type[Exception],
    theirs: type[Exception],
    target: str,
) -> None:
    for upstream in upstreams.managed:
        upstream.answer(Answer(status=status, retry_after_s=3))

    with pytest.raises(ours) as first:
        await gpt.chat.completions.create(model=target, messages=QUESTION)
    with pytest.raises(theirs) as second:
        await claude.messages.create(model=target, max_tokens=9, messages=QUESTION)
    with pytest.raises(ours):
        await gpt.responses.create(model=target, input="x", max_output_tokens=20)
    for caught in (first, second):
        response: Any = caught.value
        assert response.response.headers["retry-after"] == "3"
