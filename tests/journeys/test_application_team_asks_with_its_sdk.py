"""An application team changes a base URL and a key; its SDK works at once."""

from typing import Any

import anthropic
import openai
import pytest
from anyio import to_thread

from tests.running_gateway import (
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

CHOSEN = ["auto", "auto:cheap", "auto:quality", "auto:in-house"]
"""Names under which the shipped policy chooses."""
QUESTION: Any = [{"role": "user", "content": "What does a receipt prove?"}]


async def test_openai_sdk_gets_a_plain_answer_on_each_database(
    gateway_on_each_database: RunningGateway, upstreams: Upstreams
) -> None:
    gateway = gateway_on_each_database
    upstreams.engine.answer(Answer(text="That it was written down."))
    key = await gateway.issue_key()
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client:
        raw = await client.chat.completions.with_raw_response.create(
            model=ENGINE_TARGET, messages=QUESTION
        )
    completion = raw.parse()

    assert completion.choices[0].message.content == "That it was written down."
    assert completion.usage is not None
    assert completion.usage.completion_tokens == 7
    assert raw.headers["x-gatewright-target"] == ENGINE_TARGET
    assert raw.headers["x-request-id"].startswith("req_")
    stages = [record.stage for record in await gateway.records(raw.headers["x-request-id"])]
    assert stages == ["intent", "outcome"]


@pytest.mark.parametrize("target", [ENGINE_TARGET, CLAUDE_TARGET, GPT_TARGET])
async def test_openai_sdk_streams_from_every_kind_of_target(
    gateway: RunningGateway, upstreams: Upstreams, target: str
) -> None:
    for upstream in (upstreams.engine, *upstreams.managed):
        upstream.answer(Answer(text="one two three four"))
    key = await gateway.issue_key()
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client:
        stream = await client.chat.completions.create(
            model=target, messages=QUESTION, stream=True, stream_options={"include_usage": True}
        )
        text, usage, finish = "", None, None
        async for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                finish = choice.finish_reason or finish

    assert text == "one two three four"
    assert finish == "stop"
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (11, 7)


@pytest.mark.parametrize("target", [ENGINE_TARGET, CLAUDE_TARGET, GPT_TARGET])
async def test_anthropic_sdk_streams_from_every_kind_of_target(
    gateway: RunningGateway, upstreams: Upstreams, target: str
) -> None:
    for upstream in (upstreams.engine, *upstreams.managed):
        upstream.answer(Answer(text="one two three four"))
    key = await gateway.issue_key()
    async with (
        anthropic.AsyncAnthropic(base_url=gateway.url, api_key=key) as client,
        client.messages.stream(model=target, max_tokens=50, messages=QUESTION) as stream,
    ):
        text = "".join([piece async for piece in stream.text_stream])
        message = await stream.get_final_message()

    assert text == "one two three four"
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens == 7


@pytest.mark.parametrize("target", [ENGINE_TARGET, CLAUDE_TARGET, GPT_TARGET])
async def test_synchronous_sdks_get_plain_answers(
    gateway: RunningGateway, upstreams: Upstreams, target: str
) -> None:
    key = await gateway.issue_key()

    def ask() -> tuple[str | None, str]:
        with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client:
            first = client.chat.completions.create(model=target, messages=QUESTION)
        with anthropic.Anthropic(base_url=gateway.url, api_key=key) as client:
            second = client.messages.create(model=target, max_tokens=50, messages=QUESTION)
        block = second.content[0]
        assert block.type == "text"
        return first.choices[0].message.content, block.text

    first, second = await to_thread.run_sync(ask)

    assert first == second == "Hello from the upstream."


async def test_auto_sends_a_simple_question_to_the_cheapest_tier(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    key = await gateway.issue_key()
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client:
        raw = await client.chat.completions.with_raw_response.create(
            model="auto", messages=[{"role": "user", "content": "Say hello."}]
        )

    assert raw.headers["x-gatewright-target"] == ENGINE_TARGET
    assert not upstreams.anthropic.requests
    assert not upstreams.openai.requests


async def test_upstream_sees_our_credential_and_never_the_callers(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    key = await gateway.issue_key()
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client:
        for target in (CLAUDE_TARGET, GPT_TARGET):
            await client.chat.completions.create(model=target, messages=QUESTION)

    for upstream in upstreams.managed:
        (request,) = upstream.requests
        assert gateway.upstream_key in " ".join(request.headers.values())
        assert key not in str(request)


async def test_both_sdks_list_the_models_of_a_key(gateway: RunningGateway) -> None:
    key = await gateway.issue_key(models=[ENGINE_TARGET, CLAUDE_TARGET])
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client:
        names = [model.id async for model in client.models.list()]
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=key) as claude:
        also = [model.id async for model in claude.models.list()]
        one = await claude.models.retrieve(CLAUDE_TARGET)

    assert names == also == [*CHOSEN, ENGINE_TARGET, CLAUDE_TARGET]
    assert one.id == CLAUDE_TARGET


async def test_anthropics_sdk_gets_models_in_pages_of_the_length_it_asks_for(
    gateway: RunningGateway,
) -> None:
    key = await gateway.issue_key(models=[ENGINE_TARGET, CLAUDE_TARGET])
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=key) as claude:
        first = await claude.models.list(limit=2)
        every = [model.id async for model in claude.models.list(limit=1)]
        before = await claude.models.list(limit=1, before_id=CLAUDE_TARGET)
        with pytest.raises(anthropic.BadRequestError, match="no such model"):
            await claude.models.list(after_id=GPT_TARGET)

    assert ([model.id for model in first.data], first.has_more) == (CHOSEN[:2], True)
    assert every == [*CHOSEN, ENGINE_TARGET, CLAUDE_TARGET]
    assert ([model.id for model in before.data], before.has_more) == ([ENGINE_TARGET], True)


async def test_anthropics_sdk_is_told_that_its_files_are_not_kept_here(
    gateway: RunningGateway,
) -> None:
    """What it got were OpenAI's file objects, with fields that its own have in another form."""
    key = await gateway.issue_key()
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=key) as claude:
        for asked in (claude.beta.files.list(), claude.beta.files.retrieve_metadata("file_1")):
            with pytest.raises(anthropic.NotFoundError, match="Anthropic's are not kept"):
                await asked


async def test_unknown_fields_and_key_order_reach_a_same_dialect_upstream(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    key = await gateway.issue_key()
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client:
        await client.chat.completions.create(
            model=GPT_TARGET, messages=QUESTION, extra_body={"brand_new_field": {"b": 1, "a": [2]}}
        )

    (request,) = upstreams.openai.requests
    assert b'"brand_new_field":{"b":1,"a":[2]}' in request.body
    assert request.json["model"] == GPT_TARGET
