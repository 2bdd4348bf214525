"""Counting responses: by the vendor that would make them, if policy lets it; else an estimate."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import openai
import pytest
from openai.types.responses import input_token_count_params, response_create_params

from gateway.dialects.openai_responses.counting import UNCOUNTED
from gateway.money.rates import RateLimit
from gateway.store.identity.keys import Place
from tests.faults.envelopes import Caller, Reply, only_outcome, read_to_end, untouched
from tests.faults.test_veiled_requests import POLICY, TEXT, VALUES
from tests.identifiers import aadhaar
from tests.journeys.test_operator_limits_how_fast_a_team_asks import limit
from tests.running_gateway import (
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

ENDPOINT = "/v1/responses/input_tokens"
QUESTION = "How old is the bridge?"
COUNTED = 47
OTHER_PLACE = Place("other", "lab", "thesis")
SPARE_TARGET = "gpt-spare"
PAUSED_TARGET = "gpt-paused"
SETTINGS = f"""
[inspection]
deadline_s = 5.0
[targets.{SPARE_TARGET}]
provider = "openai"
model = "gpt-6.2-sol"
[targets.{PAUSED_TARGET}]
provider = "openai"
model = "gpt-6.2-sol"
"""
FUNCTION: Any = {"type": "function", "name": "age", "parameters": {"type": "object"}}


@pytest.fixture
async def gpt(gateway: RunningGateway, shared_key: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=shared_key, max_retries=0
    ) as client:
        yield client


@pytest.fixture
def counting(upstreams: Upstreams) -> Upstreams:
    """The upstreams, of which OpenAI's counts everything as one odd number."""
    upstreams.openai.answer(Answer(input_tokens=COUNTED))
    return upstreams


async def count(caller: Caller, body: Mapping[str, object] | bytes) -> Reply:
    data = msgspec.json.encode(body) if isinstance(body, Mapping) else body
    url, headers = f"{caller.gateway.url}{ENDPOINT}", caller.headers("openai")
    async with caller._http.post(url, data=data, headers=headers) as response:
        known = {name.lower(): value for name, value in response.headers.items()}
        return Reply(response.status, known, (await read_to_end(response))[0])


def question(model: str = GPT_TARGET, **fields: object) -> dict[str, object]:
    return {"model": model, "input": QUESTION, **fields}


async def test_rule_53_openai_is_asked_for_what_it_would_answer_and_its_number_is_not_flagged(
    gpt: openai.AsyncOpenAI, gateway: RunningGateway, counting: Upstreams
) -> None:
    raw = await gpt.responses.input_tokens.with_raw_response.count(
        model=GPT_TARGET,
        input=[{"role": "user", "content": QUESTION}],
        instructions="Be brief.",
        reasoning={"effort": "low"},
        tools=[FUNCTION],
        text={"verbosity": "low"},
    )

    counted = raw.parse()
    assert (counted.input_tokens, counted.object) == (COUNTED, "response.input_tokens")
    assert "x-gatewright-usage" not in raw.headers
    assert raw.headers["x-gatewright-target"] == GPT_TARGET
    assert raw.headers["x-gatewright-cost-microusd"] == "0"
    (call,) = counting.openai.calls
    assert call.path == ENDPOINT
    assert call.json == {
        "model": GPT_TARGET,
        "input": [{"role": "user", "content": QUESTION}],
        "instructions": "Be brief.",
        "reasoning": {"effort": "low"},
        "tools": [FUNCTION],
        "text": {"verbosity": "low"},
    }
    assert call.headers["authorization"] == f"Bearer {gateway.upstream_key}"


async def test_rule_53_what_is_counted_is_the_response_without_its_limits(
    caller: Caller, counting: Upstreams
) -> None:
    """The vendor refuses fields that a count has not; neither the caller's nor ours get there."""
    body = question(max_output_tokens=5, stream=True, temperature=0.5, metadata={}, new={"a": 1})

    reply = await count(caller, body)

    assert reply.tree == {"object": "response.input_tokens", "input_tokens": COUNTED}
    assert counting.openai.calls[0].json == question(new={"a": 1})


def test_rule_53_the_fields_of_a_response_that_no_count_has_are_those_of_the_sdk() -> None:
    creating = response_create_params.ResponseCreateParamsBase.__annotations__.keys()
    known = input_token_count_params.InputTokenCountParams.__annotations__.keys()
    assert creating - known <= UNCOUNTED
    assert not known & UNCOUNTED


async def test_rule_53_instructions_alone_are_counted_as_the_vendor_lets_them(
    gpt: openai.AsyncOpenAI, counting: Upstreams
) -> None:
    """Its SDK asks for nothing: neither for an input nor for a model, which policy chooses."""
    for given in ({}, {"input": None}, {"input": ""}):
        sent: Any = {"instructions": "Be brief.", **given}
        counted = await gpt.responses.input_tokens.count(model=GPT_TARGET, **sent)
        assert counted.input_tokens == COUNTED
        assert counting.openai.calls[-1].json == {"model": GPT_TARGET, **sent}
    raw = await gpt.responses.input_tokens.with_raw_response.count(input=QUESTION)
    assert raw.parse().input_tokens >= 5
    bare = await gpt.responses.input_tokens.count(model=ENGINE_TARGET, instructions="Be brief.")
    assert 1 <= bare.input_tokens <= 20
    with pytest.raises(openai.BadRequestError, match="rule 4"):
        # Nobody can ask Claude for that, so there is nothing to count.
        await gpt.responses.input_tokens.count(model=CLAUDE_TARGET, instructions="Be brief.")


async def test_rule_53_a_counted_response_is_recorded_like_one_and_costs_nothing(
    gateway: RunningGateway, caller: Caller, counting: Upstreams
) -> None:
    await gateway.limit("org:acme", 10**9)
    left = gateway.budget_left(("org:acme",))

    reply = await count(caller, question())

    intent, outcome = await gateway.records(reply.request_id)
    assert (intent.stage, intent.target, intent.reserved_microusd) == ("intent", GPT_TARGET, 0)
    assert intent.endpoint == outcome.endpoint == ENDPOINT
    assert intent.dialect == "openai_responses"
    assert (outcome.status, outcome.target, outcome.cost_microusd) == ("ok", GPT_TARGET, 0)
    assert [(each.target, each.status) for each in outcome.attempts] == [(GPT_TARGET, 200)]
    assert outcome.detail["counted"] == "upstream"
    assert outcome.usage is None
    assert gateway.budget_left(("org:acme",)) == left


async def test_rule_53_the_intent_is_durable_before_a_response_to_count_leaves(
    gateway: RunningGateway, caller: Caller, counting: Upstreams
) -> None:
    hold = asyncio.Event()
    counting.openai.answer(Answer(hold=hold, input_tokens=COUNTED))
    before = len(await gateway.records())

    asking = asyncio.create_task(count(caller, question()))
    await counting.openai.called()
    stages = [record.stage for record in (await gateway.records())[before:]]
    hold.set()

    assert stages == ["intent"]
    assert (await asking).tree["input_tokens"] == COUNTED


@pytest.mark.parametrize("model", [GPT_TARGET, "auto", "auto:quality", None])
@pytest.mark.parametrize(
    "place",
    [
        lambda value: {"input": f"It is {value}."},
        lambda value: {"instructions": f"The customer is {value}."},
        lambda value: {"instructions": f"The customer is {value}.", "input": None},
        lambda value: (
            {"input": [{"type": "function_call_output", "call_id": "a", "output": value}]}
            | {"tools": [FUNCTION]}
        ),
        lambda value: {"tools": [FUNCTION | {"description": f"Of {value}."}]},
    ],
)
async def test_rule_53_sovereign_data_reaches_no_vendor_by_a_counted_response(
    gateway: RunningGateway, caller: Caller, counting: Upstreams, model: str | None, place: Any
) -> None:
    """A result without its call is refused; that too happens here, and nothing leaves."""
    reply = await count(caller, question() | {"model": model} | place(aadhaar(7)))

    assert untouched(counting)
    if reply.status == 200:
        assert reply.headers["x-gatewright-usage"] == "estimated"
        assert 1 <= reply.tree["input_tokens"] < 100
        intent, outcome = await gateway.records(reply.request_id)
        assert intent.data_class == "S3"
        assert "us" not in intent.clearance
        assert (outcome.target, outcome.attempts) == ("", ())
        assert outcome.detail["counted"] == "estimate"
    else:
        assert (reply.status, reply.tree["error"]["code"]) == (400, "unsupported_parameter")


async def test_rule_53_a_kept_response_is_counted_with_what_it_continues(
    gpt: openai.AsyncOpenAI, gateway: RunningGateway, counting: Upstreams
) -> None:
    made = await gpt.responses.create(model=GPT_TARGET, input="Good morning")
    counting.openai.forget()

    counted = await gpt.responses.input_tokens.with_raw_response.count(
        model=GPT_TARGET, previous_response_id=made.id, input=QUESTION
    )
    bare = await gpt.responses.input_tokens.count(model=GPT_TARGET, previous_response_id=made.id)

    assert counted.parse().input_tokens == bare.input_tokens == COUNTED
    first, second = (call.json for call in counting.openai.calls)
    said: Any = first["input"]
    assert [item["role"] for item in said] == ["user", "assistant", "user"]
    assert second["input"] == said[:2]
    assert first.keys() == second.keys() == {"model", "input"}
    with pytest.raises(openai.BadRequestError) as unknown:
        await gpt.responses.input_tokens.count(model=GPT_TARGET, previous_response_id="resp_none")
    assert unknown.value.code == "previous_response_not_found"
    kept = await gateway.records(counted.headers["x-request-id"])
    assert [record.stage for record in kept] == ["intent", "outcome"]


async def test_rule_53_a_thread_that_was_sovereign_is_counted_at_home(
    gpt: openai.AsyncOpenAI, counting: Upstreams
) -> None:
    """Also where the new words are harmless: the thread keeps its class."""
    made = await gpt.responses.create(model="auto", input=f"The number is {aadhaar(4)}.")
    counting.openai.forget()

    raw = await gpt.responses.input_tokens.with_raw_response.count(
        model=GPT_TARGET, previous_response_id=made.id, input=QUESTION
    )

    assert raw.headers["x-gatewright-usage"] == "estimated"
    assert not counting.openai.calls
    assert not counting.anthropic.calls


@pytest.mark.parametrize("model", [ENGINE_TARGET, CLAUDE_TARGET])
async def test_rule_53_targets_that_count_no_responses_are_estimated_and_nothing_leaves(
    gpt: openai.AsyncOpenAI, counting: Upstreams, model: str
) -> None:
    short = await gpt.responses.input_tokens.with_raw_response.count(model=model, input=QUESTION)
    words = "The bridge was built by masons from the next valley. " * 100
    long = await gpt.responses.input_tokens.count(model=model, instructions=words, input=QUESTION)

    assert 5 <= short.parse().input_tokens <= 20
    assert short.parse().object == "response.input_tokens"
    assert short.headers["x-gatewright-usage"] == "estimated"
    assert 900 <= long.input_tokens <= 1500
    assert untouched(counting)


async def test_rule_53_a_bare_text_is_estimated_as_the_turn_that_it_is(
    gpt: openai.AsyncOpenAI,
) -> None:
    turn: Any = [{"role": "user", "content": QUESTION}]
    bare = await gpt.responses.input_tokens.count(model=ENGINE_TARGET, input=QUESTION)
    whole = await gpt.responses.input_tokens.count(model=ENGINE_TARGET, input=turn)

    assert bare.input_tokens == whole.input_tokens


FAILURES = [
    Answer(status=403),
    Answer(status=404),
    Answer(status=500),
    Answer(fault="reset"),
    Answer(fault="bad_json"),
    Answer(fault="cut"),
    Answer(fault="hang"),
    Answer(body=b"{}"),
    Answer(body=b'{"object": "response.input_tokens", "input_tokens": -1}'),
    Answer(body=b'{"object": "response.input_tokens", "input_tokens": "many"}'),
]


@pytest.mark.parametrize("answer", FAILURES, ids=lambda answer: f"{answer.status} {answer.fault}")
async def test_rule_53_where_openai_fails_it_is_asked_once_and_the_rest_is_an_estimate(
    gateway: RunningGateway,
    caller: Caller,
    counting: Upstreams,
    answer: Answer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if answer.fault == "hang":
        monkeypatch.setattr("gateway.counting.COUNT_S", 0.05)
    counting.openai.answer_once(answer)

    reply = await count(caller, question())

    assert (reply.status, reply.headers["x-gatewright-usage"]) == (200, "estimated")
    assert reply.tree["object"] == "response.input_tokens"
    assert 5 <= reply.tree["input_tokens"] <= 20
    assert len(counting.openai.calls) == 1
    _, outcome = await gateway.records(reply.request_id)
    assert (outcome.status, outcome.target, outcome.detail["counted"]) == ("ok", "", "estimate")
    (attempt,) = outcome.attempts
    assert attempt.target == GPT_TARGET
    assert attempt.error.startswith("upstream_")
    assert (await count(caller, question())).tree["input_tokens"] == COUNTED


async def test_rule_53_a_vendor_that_wants_a_pause_gets_it_and_responses_do_not_suffer(
    caller: Caller, gpt: openai.AsyncOpenAI, counting: Upstreams
) -> None:
    counting.openai.answer_once(Answer(status=429, retry_after_s=60))

    for _ in range(3):
        reply = await count(caller, question(PAUSED_TARGET))
        assert reply.headers["x-gatewright-usage"] == "estimated"

    assert len(counting.openai.calls) == 1
    made = await gpt.responses.create(model=PAUSED_TARGET, input=QUESTION)
    assert made.output_text == "Hello from the upstream."


async def test_rule_53_what_openai_finds_wrong_with_a_response_is_told(
    gateway: RunningGateway, gpt: openai.AsyncOpenAI, counting: Upstreams
) -> None:
    counting.openai.answer_once(Answer(status=400))

    with pytest.raises(openai.BadRequestError) as caught:
        await gpt.responses.input_tokens.count(model=SPARE_TARGET, input=QUESTION)

    request_id = caught.value.response.headers["x-request-id"]
    await only_outcome(gateway, request_id, "failed", "upstream_refused")


async def test_rule_53_counting_responses_needs_a_key_and_a_model_like_any_call(
    gateway: RunningGateway, gpt: openai.AsyncOpenAI, counting: Upstreams
) -> None:
    counts = gpt.responses.input_tokens
    with pytest.raises(openai.NotFoundError):
        await counts.count(model="nobody", input=QUESTION)
    with pytest.raises(openai.BadRequestError) as empty:
        await counts.count(model=GPT_TARGET, input=[])
    assert empty.value.param == "input"
    with pytest.raises(openai.NotFoundError) as held:
        await counts.count(model=GPT_TARGET, input=QUESTION, conversation="conv_1")
    assert (held.value.code, held.value.param) == ("conversation_not_found", "conversation")
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="wrong") as nobody:
        with pytest.raises(openai.AuthenticationError):
            await nobody.responses.input_tokens.count(model=GPT_TARGET, input=QUESTION)
    key = await gateway.issue_key(models=[GPT_TARGET])
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as scoped:
        with pytest.raises(openai.PermissionDeniedError):
            await scoped.responses.input_tokens.count(model=GPT_TARGET, input=aadhaar(3))
    assert untouched(counting)


async def test_rule_53_a_counted_response_is_a_request_of_its_key_and_uses_up_no_tokens(
    gateway: RunningGateway, http: aiohttp.ClientSession, counting: Upstreams
) -> None:
    caller = Caller(gateway, http, await gateway.issue_key(OTHER_PLACE))
    await limit(gateway, RateLimit("ws:other/lab", requests_per_minute=2, tokens_per_minute=1))

    statuses = [(await count(caller, question())).status for _ in range(3)]

    assert statuses == [200, 200, 429]
    assert len(counting.openai.calls) == 2


async def test_rule_53_whoever_has_used_up_a_budget_may_still_count_responses(
    gateway: RunningGateway, counting: Upstreams
) -> None:
    key = await gateway.issue_key(Place("poor", "lab", "thesis"))
    await gateway.limit("org:poor", 1)

    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=0) as poor:
        with pytest.raises(openai.RateLimitError) as spent:
            await poor.responses.create(model=GPT_TARGET, input=QUESTION)
        assert spent.value.code == "insufficient_quota"
        counted = await poor.responses.input_tokens.count(model=GPT_TARGET, input=QUESTION)
    assert counted.input_tokens == COUNTED


async def test_rule_53_pseudonyms_of_a_response_are_counted_and_not_what_they_stand_for(
    tmp_path: Path, sqlite_url: str, counting: Upstreams, http: aiohttp.ClientSession
) -> None:
    (tmp_path / "policy.toml").write_text(POLICY.format(obligation="pseudonymise"))
    more = f'[policy]\nfile = "{tmp_path / "policy.toml"}"'
    async with RunningGateway(tmp_path, sqlite_url, counting, more=more) as obliged:
        caller = Caller(obliged, http, await obliged.issue_key())
        reply = await count(caller, question(input=TEXT))

    assert reply.tree["input_tokens"] == COUNTED
    (call,) = counting.openai.calls
    assert call.json.keys() == {"model", "input"}
    assert not any(value in call.body for value in VALUES)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_a_count_is_asked_for_by_post_only(caller: Caller, method: str) -> None:
    """The path is no kept response's, though it looks like one's."""
    url, headers = f"{caller.gateway.url}{ENDPOINT}", caller.headers("openai")
    async with caller._http.request(method, url, headers=headers) as response:
        assert (response.status, response.headers["allow"]) == (405, "POST")
