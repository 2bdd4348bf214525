"""Text completions: a bare prompt, continued as it is or not at all, through the whole journey."""

from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import openai
import pytest

from tests.conformance.test_chosen_embeddings import explained
from tests.faults.envelopes import LEAK, only_outcome, untouched
from tests.gateway.pool.test_exact import listening
from tests.identifiers import aadhaar
from tests.local_engine.conftest import TOOL_TEMPLATE
from tests.local_engine.models import tiny_spec, write_model_directory
from tests.local_engine.served import served
from tests.running_gateway import (
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

PROMPT = "Once upon a time"
TOLD = "Hello from the upstream."
SETTINGS = """
[inspection]
deadline_s = 5.0
[targets.priced]
provider = "engine"
model = "fake-model"
catalogue = "gatewright-demo"
"""
REAL_ENGINE = """
[inspection]
deadline_s = 5.0
[providers.real]
kind = "engine"
base_url = "{url}"
jurisdiction = "in-house"
[targets.tiny-house]
provider = "real"
model = "tiny"
catalogue = "in-house"
"""
POLICY = """
name = "obliged"
version = 1
[defaults]
order = ["cheapest"]
[[constraints]]
name = "no-names-outside"
{obligation}
"""


@pytest.mark.parametrize("prompt", [PROMPT, [PROMPT]])
@pytest.mark.parametrize("model", [ENGINE_TARGET, "auto", "auto:in-house"])
async def test_the_official_client_gets_the_prompt_continued_as_it_is(
    gpt: openai.AsyncOpenAI,
    gateway: RunningGateway,
    upstreams: Upstreams,
    model: str,
    prompt: str | list[str],
) -> None:
    raw = await gpt.completions.with_raw_response.create(model=model, prompt=prompt, stop=["END"])
    answer = raw.parse()

    assert (answer.object, answer.choices[0].text) == ("text_completion", TOLD)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 18
    (call,) = upstreams.engine.calls
    sent = {"model": "fake-model", "prompt": PROMPT, "stop": ["END"], "max_tokens": 16}
    assert (call.path, call.json) == ("/v1/completions", sent)
    assert not any(upstream.calls for upstream in upstreams.managed)
    assert raw.headers["x-gatewright-target"] in (ENGINE_TARGET, "priced")
    intent, outcome = await gateway.records(raw.headers["x-request-id"])
    assert (intent.stage, outcome.stage, outcome.status) == ("intent", "outcome", "ok")
    assert {intent.endpoint, outcome.endpoint} == {"/v1/completions"}
    assert intent.dialect == "openai_completions"
    assert outcome.usage is not None
    assert outcome.usage.output_tokens == 7
    assert raw.headers["x-gatewright-receipt"].startswith("w0.")


@pytest.mark.parametrize("wants_usage", [True, False])
async def test_the_official_client_gets_streams(
    gpt: openai.AsyncOpenAI, upstreams: Upstreams, *, wants_usage: bool
) -> None:
    options: Any = {"stream_options": {"include_usage": True}} if wants_usage else {}
    stream = await gpt.completions.create(
        model=ENGINE_TARGET, prompt=PROMPT, max_tokens=30, stream=True, **options
    )
    pieces = [piece async for piece in stream]

    assert "".join(piece.choices[0].text for piece in pieces if piece.choices) == TOLD
    reasons = [piece.choices[0].finish_reason for piece in pieces if piece.choices]
    assert reasons == [None] * (len(reasons) - 1) + ["stop"]
    assert (pieces[-1].usage is not None) == wants_usage
    assert upstreams.engine.calls[0].json["stream_options"] == {"include_usage": True}
    assert upstreams.engine.calls[0].json["max_tokens"] == 30


async def test_where_an_upstream_counts_nothing_usage_is_estimated_and_flagged(
    gpt: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    choice = {"index": 0, "text": TOLD, "finish_reason": "length", "logprobs": None}
    tree = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m"}
    upstreams.engine.answer(Answer(body=msgspec.json.encode(tree | {"choices": [choice]})))

    raw = await gpt.completions.with_raw_response.create(model=ENGINE_TARGET, prompt=PROMPT)

    usage = raw.parse().usage
    assert usage is not None
    assert usage.prompt_tokens > 0
    assert usage.completion_tokens > 0
    assert raw.headers["x-gatewright-usage"] == "estimated"


@pytest.mark.parametrize(
    ("fields", "at"),
    [
        ({"prompt": [PROMPT, ""]}, "prompt[1]"),
        ({"prompt": [PROMPT, 7]}, "prompt"),
        ({"prompt": [PROMPT] * 65}, "prompt"),
        ({"prompt": [1, 2, 3]}, "prompt"),
        ({"prompt": [[1, 2], [3]]}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": {"text": PROMPT}}, "prompt"),
        ({"n": 17}, "n"),
        ({"n": 0}, "n"),
        ({"best_of": 3}, "best_of"),
        ({"n": 2, "best_of": 1}, "best_of"),
        ({"suffix": "The end."}, "suffix"),
        ({"logprobs": -1}, "logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"extra_body": {"prompt_logprobs": 1}}, "prompt_logprobs"),
        ({"temperature": 3}, "temperature"),
        ({"extra_body": {"prompt_embeds": "AAAA"}}, "prompt_embeds"),
        ({"extra_body": {"use_beam_search": True}}, "use_beam_search"),
        ({"extra_body": {"kv_transfer_params": {"remote_host": "h"}}}, "kv_transfer_params"),
    ],
)
async def test_rule_24_what_would_not_be_done_is_refused_with_its_name(
    gpt: openai.AsyncOpenAI,
    gateway: RunningGateway,
    upstreams: Upstreams,
    fields: dict[str, Any],
    at: str,
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await gpt.completions.create(**{"model": ENGINE_TARGET, "prompt": PROMPT} | fields)

    assert caught.value.param == at
    assert caught.value.code in ("unsupported_parameter", "invalid_request")
    assert LEAK.search(caught.value.message) is None
    request_id = caught.value.response.headers["x-request-id"]
    await only_outcome(gateway, request_id, "refused", str(caught.value.code))
    assert untouched(upstreams)


async def test_values_that_ask_for_nothing_are_let_through(
    gpt: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    """What frameworks send with every request."""
    nothing: Any = {"n": 1, "best_of": 1, "echo": False, "logprobs": None, "suffix": None}
    answer = await gpt.completions.create(model=ENGINE_TARGET, prompt=PROMPT, **nothing)

    assert answer.choices[0].text == TOLD


async def test_no_chat_model_is_chosen_for_bare_text_and_the_explanation_says_why(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    key = await gateway.issue_key(models=[CLAUDE_TARGET, GPT_TARGET])
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client:
        turns: Any = [{"role": "user", "content": PROMPT}]
        # The same needs but for the endpoint, before and behind: nothing of one is remembered.
        await client.chat.completions.create(model="auto", messages=turns)
        with pytest.raises(openai.BadRequestError, match="it lacks completions") as caught:
            await client.completions.create(model="auto", prompt=PROMPT)
        await client.chat.completions.create(model="auto", messages=turns)
        told = await explained(gateway, client, caught.value.response.headers["x-request-id"])

    assert caught.value.code == "unsupported_parameter"
    against = {
        target["name"]: [each["reason"] for each in target["exclusions"]]
        for target in told["explanation"]["targets"]
    }
    assert "it lacks completions" in against[CLAUDE_TARGET]
    assert "it lacks completions" in against[GPT_TARGET]
    assert "it lacks completions" not in against[ENGINE_TARGET]


async def test_what_a_prompt_contains_decides_as_in_any_request(
    gpt: openai.AsyncOpenAI, gateway: RunningGateway, upstreams: Upstreams
) -> None:
    for prompt in (f"It is {aadhaar(6)}.", [f"It is {aadhaar(6)}."]):
        raw = await gpt.completions.with_raw_response.create(model="auto", prompt=prompt)
        intent = (await gateway.records(raw.headers["x-request-id"]))[0]
        assert intent.data_class == "S3"
        assert intent.findings
        assert intent.complexity_ppm > 0
    assert not any(upstream.calls for upstream in upstreams.managed)


async def test_a_completion_costs_and_a_budget_holds_it(
    gateway: RunningGateway, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    key = await gateway.issue_key()
    url, headers = f"{gateway.url}/v1/completions", {"authorization": f"Bearer {key}"}
    body = {"model": "priced", "prompt": PROMPT, "max_tokens": 400}
    async with http.post(url, json=body, headers=headers) as paid:
        assert paid.status == 200
        assert int(paid.headers["x-gatewright-cost-microusd"]) > 0
    await gateway.limit(f"key:{key.split('_')[2]}", 1)
    async with http.post(url, json=body, headers=headers) as refused:
        error = (await refused.json())["error"]

    assert (refused.status, error["code"]) == (429, "insufficient_quota")
    assert len(upstreams.engine.calls) == 1


async def test_azures_client_completes_by_its_own_paths(
    gateway: RunningGateway, upstreams: Upstreams, shared_key: str
) -> None:
    async with openai.AsyncAzureOpenAI(
        azure_endpoint=gateway.url, api_key=shared_key, api_version="2024-10-21"
    ) as azure:
        answer = await azure.completions.create(model=ENGINE_TARGET, prompt=PROMPT)
        stream = await azure.completions.create(model="auto", prompt=PROMPT, stream=True)
        text = "".join([piece.choices[0].text async for piece in stream if piece.choices])

    assert answer.choices[0].text == text == TOLD


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("obligation", ["pseudonymise = true", "redact = true"])
async def test_values_stay_where_policy_says_so_and_come_back(
    tmp_path: Path,
    sqlite_url: str,
    own_upstreams: Upstreams,
    obligation: str,
    *,
    stream: bool,
) -> None:
    (tmp_path / "policy.toml").write_text(POLICY.format(obligation=obligation))
    more = f'[policy]\nfile = "{tmp_path / "policy.toml"}"'
    prompt = "Please write to Ingrid Halvorsen at ingrid@corp-mail.no about her card."
    async with RunningGateway(tmp_path, sqlite_url, own_upstreams, more=more) as running:
        key = await running.issue_key()
        async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key=key) as client:
            await client.completions.create(model=ENGINE_TARGET, prompt=prompt)
            said = str(own_upstreams.engine.calls[-1].json["prompt"])
            surrogate = said.split("write to ")[1].split(" at ", maxsplit=1)[0]
            own_upstreams.engine.answer(Answer(text=f"I wrote to {surrogate} today."))
            text = await continued(client, prompt, stream=stream)
            await continued(client, "What is a ledger?", stream=stream)
        outcomes = [each for each in await running.records() if each.stage == "outcome"]

    sent = "blackened" if obligation.startswith("redact") else "surrogates"
    said_to_be = [each.detail.get("sent", "") for each in outcomes]
    assert said_to_be == [sent, sent, ""]
    assert not any(b"Halvorsen" in call.body for call in own_upstreams.engine.calls)
    came_back = "[REDACTED:PERSON]" if obligation.startswith("redact") else "Ingrid Halvorsen"
    assert text == f"I wrote to {came_back} today."


async def continued(
    client: openai.AsyncOpenAI, prompt: str, *, stream: bool, model: str = ENGINE_TARGET
) -> str:
    if not stream:
        whole = await client.completions.create(model=model, prompt=prompt)
        return whole.choices[0].text
    pieces = await client.completions.create(model=model, prompt=prompt, stream=True)
    return "".join([piece.choices[0].text async for piece in pieces if piece.choices])


async def test_the_engine_of_this_repository_continues_bare_text_and_no_chat(
    tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams
) -> None:
    write_model_directory(tmp_path / "tiny", tiny_spec(context_window=2048))
    (tmp_path / "tiny" / "chat_template.jinja").write_text(TOOL_TEMPLATE)
    asked: Any = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0, "seed": 1}
    async with served(tmp_path / "tiny") as place, listening(place) as url:
        more = REAL_ENGINE.format(url=url)
        async with (
            RunningGateway(tmp_path, sqlite_url, own_upstreams, more=more) as running,
            openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as direct,
            openai.AsyncOpenAI(
                base_url=f"{running.url}/v1", api_key=await running.issue_key(), max_retries=0
            ) as client,
        ):
            own = await direct.completions.create(model="tiny", **asked)
            ours = await client.completions.create(model="tiny-house", **asked)
            stream = await client.completions.create(model="tiny-house", stream=True, **asked)
            streamed = "".join([piece.choices[0].text async for piece in stream if piece.choices])
            short = await client.completions.create(model="tiny-house", prompt=PROMPT)
            with pytest.raises(openai.BadRequestError) as caught:
                await client.completions.create(
                    model="tiny-house", prompt=PROMPT, stop=["x" * 1000]
                )

    assert ours.choices[0].text == own.choices[0].text == streamed
    assert ours.choices[0].finish_reason == own.choices[0].finish_reason == "length"
    assert ours.usage is not None
    assert own.usage is not None
    # A chat's template would have added tokens of its own.
    assert ours.usage.prompt_tokens == own.usage.prompt_tokens
    assert short.usage is not None
    assert short.usage.completion_tokens <= 16
    assert caught.value.param == "stop"
