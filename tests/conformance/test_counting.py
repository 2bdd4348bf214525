"""Counting tokens: by the target that would answer, if it counts; else an estimate, flagged."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import msgspec
import pytest
from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_count_tokens_params as beta_count_params
from anthropic.types.beta import message_create_params as beta_create_params

from gateway.dialects.anthropic_messages.counting import UNCOUNTED
from gateway.money.rates import RateLimit
from gateway.store.identity.keys import Place
from tests.faults.envelopes import Caller, Reply, ask, only_outcome, read_to_end, untouched
from tests.faults.test_veiled_requests import POLICY, TEXT, VALUES
from tests.identifiers import aadhaar
from tests.journeys.test_operator_limits_how_fast_a_team_asks import limit
from tests.running_gateway import (
    CHEAP_CLAUDE_TARGET,
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

QUESTION: Any = [{"role": "user", "content": "How old is the bridge?"}]
COUNTED = 47
OTHER_PLACE = Place("other", "lab", "thesis")
SPARE_CLAUDE_TARGET = "claude-spare"
PAUSED_CLAUDE_TARGET = "claude-paused"
SETTINGS = f"""
[targets.{SPARE_CLAUDE_TARGET}]
provider = "anthropic"
model = "claude-opus-5-5"
[targets.{PAUSED_CLAUDE_TARGET}]
provider = "anthropic"
model = "claude-opus-5-5"
"""


@pytest.fixture
def counting(upstreams: Upstreams) -> Upstreams:
    """The upstreams, of which Anthropic's counts everything as one odd number."""
    upstreams.anthropic.answer(Answer(input_tokens=COUNTED))
    return upstreams


async def count(
    caller: Caller, body: Mapping[str, object] | bytes, headers: Mapping[str, str] | None = None
) -> Reply:
    url = f"{caller.gateway.url}/v1/messages/count_tokens"
    sent = caller.headers("anthropic") | dict(headers or {})
    data = msgspec.json.encode(body) if isinstance(body, Mapping) else body
    async with caller._http.post(url, data=data, headers=sent) as response:
        known = {name.lower(): value for name, value in response.headers.items()}
        return Reply(response.status, known, (await read_to_end(response))[0])


def question(model: str = CLAUDE_TARGET, **fields: object) -> dict[str, object]:
    return {"model": model, "messages": QUESTION, **fields}


async def test_rule_53_a_target_that_counts_is_asked_and_its_number_is_not_flagged(
    claude: anthropic.AsyncAnthropic, gateway: RunningGateway, counting: Upstreams
) -> None:
    raw = await claude.messages.with_raw_response.count_tokens(
        model=CLAUDE_TARGET,
        messages=QUESTION,
        system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        thinking={"type": "adaptive"},
        extra_headers={
            "anthropic-version": "2023-06-01",
            "anthropic-beta": "context-1m-2025-08-07",
        },
    )

    counted = await raw.parse()
    assert counted.input_tokens == COUNTED
    assert "x-gatewright-usage" not in raw.headers
    assert raw.headers["x-gatewright-target"] == CLAUDE_TARGET
    assert raw.headers["x-gatewright-cost-microusd"] == "0"
    (call,) = counting.anthropic.calls
    assert call.path == "/v1/messages/count_tokens"
    assert call.json == {
        "model": CLAUDE_TARGET,
        "messages": QUESTION,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "thinking": {"type": "adaptive"},
    }
    assert call.headers["anthropic-version"] == "2023-06-01"
    assert call.headers["authorization"] == f"Bearer {gateway.upstream_key}"


async def test_rule_53_what_is_counted_is_the_message_without_its_limits(
    caller: Caller, counting: Upstreams
) -> None:
    """An upstream refuses fields of a message that a count has not; ours are never added."""
    body = question(
        max_tokens=10, stream=True, temperature=0.5, stop_sequences=["x"], metadata={}, new={"a": 1}
    )

    reply = await count(caller, body)

    assert reply.tree == {"input_tokens": COUNTED}
    assert counting.anthropic.calls[0].json == question(new={"a": 1})


async def test_rule_53_the_fields_of_a_message_that_no_count_has_are_those_of_the_sdk() -> None:
    for creating, counted in (
        (message_create_params.MessageCreateParamsBase, message_count_tokens_params),
        (beta_create_params.MessageCreateParamsBase, beta_count_params),
    ):
        known = counted.MessageCountTokensParams.__annotations__.keys()
        assert creating.__annotations__.keys() - known <= UNCOUNTED
        assert not known & UNCOUNTED


async def test_rule_53_more_than_the_number_is_passed_on(
    caller: Caller, counting: Upstreams
) -> None:
    body = b'{"input_tokens": 12, "context_management": {"original_input_tokens": 40}}'
    counting.anthropic.answer(Answer(body=body))

    assert (await count(caller, question())).body == body


async def test_rule_53_a_count_is_recorded_like_a_message_and_costs_nothing(
    gateway: RunningGateway, caller: Caller, counting: Upstreams
) -> None:
    await gateway.limit("org:acme", 10**9)
    left = gateway.budget_left(("org:acme",))

    reply = await count(caller, question())

    intent, outcome = await gateway.records(reply.request_id)
    assert (intent.stage, intent.target, intent.reserved_microusd) == ("intent", CLAUDE_TARGET, 0)
    assert intent.endpoint == outcome.endpoint == "/v1/messages/count_tokens"
    assert (outcome.status, outcome.target, outcome.cost_microusd) == ("ok", CLAUDE_TARGET, 0)
    assert [(each.target, each.status) for each in outcome.attempts] == [(CLAUDE_TARGET, 200)]
    assert outcome.detail["counted"] == "upstream"
    assert outcome.usage is None
    assert gateway.budget_left(("org:acme",)) == left


async def test_rule_53_the_intent_is_durable_before_a_count_leaves(
    gateway: RunningGateway, caller: Caller, counting: Upstreams
) -> None:
    hold = asyncio.Event()
    counting.anthropic.answer(Answer(hold=hold, input_tokens=COUNTED))
    before = len(await gateway.records())

    asking = asyncio.create_task(count(caller, question()))
    await counting.anthropic.called()
    stages = [record.stage for record in (await gateway.records())[before:]]
    hold.set()

    assert stages == ["intent"]
    assert (await asking).tree == {"input_tokens": COUNTED}


@pytest.mark.parametrize("model", [CLAUDE_TARGET, "auto", "auto:quality"])
@pytest.mark.parametrize(
    "place",
    [
        lambda value: {"messages": [{"role": "user", "content": f"It is {value}."}]},
        lambda value: {"system": f"The customer is {value}."},
        lambda value: {"messages": [*QUESTION, {"role": "assistant", "content": value}, *QUESTION]},
    ],
)
async def test_rule_53_sovereign_data_reaches_no_managed_target_by_being_counted(
    gateway: RunningGateway, caller: Caller, counting: Upstreams, model: str, place: Any
) -> None:
    reply = await count(caller, question(model) | place(aadhaar(7)))

    assert (reply.status, reply.headers["x-gatewright-usage"]) == (200, "estimated")
    assert 1 <= reply.tree["input_tokens"] < COUNTED
    assert untouched(counting)
    intent, outcome = await gateway.records(reply.request_id)
    assert intent.data_class == "S3"
    assert "us" not in intent.clearance
    assert (outcome.target, outcome.attempts) == ("", ())
    assert outcome.detail["counted"] == "estimate"


@pytest.mark.parametrize("model", [ENGINE_TARGET, GPT_TARGET])
async def test_rule_53_targets_that_do_not_count_are_estimated_and_nothing_leaves(
    claude: anthropic.AsyncAnthropic, counting: Upstreams, model: str
) -> None:
    short = await claude.messages.with_raw_response.count_tokens(model=model, messages=QUESTION)
    words = "The bridge was built by masons from the next valley. " * 100
    long = await claude.messages.count_tokens(
        model=model, system=words, messages=QUESTION, tools=[]
    )

    assert 5 <= (await short.parse()).input_tokens <= 20
    assert short.headers["x-gatewright-usage"] == "estimated"
    assert 900 <= long.input_tokens <= 1500
    assert untouched(counting)


FAILURES = [
    Answer(status=403),
    Answer(status=404),
    Answer(status=500),
    Answer(fault="reset"),
    Answer(fault="bad_head"),
    Answer(fault="bad_json"),
    Answer(fault="cut"),
    Answer(fault="hang"),
    Answer(body=b"{}"),
    Answer(body=b'{"input_tokens": -1}'),
    Answer(body=b'{"input_tokens": "many"}'),
    Answer(body=b"<html>"),
]


@pytest.mark.parametrize("answer", FAILURES, ids=lambda answer: f"{answer.status} {answer.fault}")
async def test_rule_53_an_upstream_that_fails_is_asked_once_and_the_rest_is_an_estimate(
    gateway: RunningGateway,
    caller: Caller,
    counting: Upstreams,
    answer: Answer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if answer.fault == "hang":
        monkeypatch.setattr("gateway.counting.COUNT_S", 0.05)
    counting.anthropic.answer_once(answer)

    reply = await count(caller, question())

    assert (reply.status, reply.headers["x-gatewright-usage"]) == (200, "estimated")
    assert 5 <= reply.tree["input_tokens"] <= 20
    assert len(counting.anthropic.calls) == 1
    _, outcome = await gateway.records(reply.request_id)
    assert (outcome.status, outcome.target, outcome.detail["counted"]) == ("ok", "", "estimate")
    (attempt,) = outcome.attempts
    assert attempt.target == CLAUDE_TARGET
    assert attempt.error.startswith("upstream_")
    assert (await count(caller, question())).tree == {"input_tokens": COUNTED}


@pytest.mark.parametrize("status", [429, 529])
async def test_rule_53_an_upstream_that_wants_a_pause_gets_it_and_messages_do_not_suffer(
    caller: Caller, counting: Upstreams, status: int
) -> None:
    counting.anthropic.answer_once(Answer(status=status, retry_after_s=60))
    model = {429: CHEAP_CLAUDE_TARGET, 529: PAUSED_CLAUDE_TARGET}[status]

    for _ in range(3):
        reply = await count(caller, question(model))
        assert reply.headers["x-gatewright-usage"] == "estimated"

    assert len(counting.anthropic.calls) == 1
    assert (await caller.post("anthropic", ask("anthropic", model=model))).status == 200


async def test_rule_53_what_an_upstream_finds_wrong_with_a_request_is_told(
    gateway: RunningGateway, claude: anthropic.AsyncAnthropic, upstreams: Upstreams
) -> None:
    upstreams.anthropic.answer_once(Answer(status=400))

    with pytest.raises(anthropic.BadRequestError) as caught:
        await claude.messages.count_tokens(model=SPARE_CLAUDE_TARGET, messages=QUESTION)

    request_id = caught.value.response.headers["x-request-id"]
    await only_outcome(gateway, request_id, "failed", "upstream_refused")


async def test_rule_53_a_caller_who_leaves_cancels_the_count(
    gateway: RunningGateway, caller: Caller, counting: Upstreams
) -> None:
    counting.anthropic.answer_once(Answer(fault="hang"))
    before = len(await gateway.records())

    asking = asyncio.create_task(count(caller, question(SPARE_CLAUDE_TARGET)))
    await counting.anthropic.called()
    asking.cancel()
    await counting.anthropic.aborted()

    while len(records := (await gateway.records())[before:]) < 2:
        await asyncio.sleep(0.01)
    assert (records[1].status, records[1].cost_microusd) == ("cancelled", 0)


async def test_rule_53_counting_needs_a_key_and_a_model_like_any_call(
    gateway: RunningGateway, claude: anthropic.AsyncAnthropic, counting: Upstreams
) -> None:
    with pytest.raises(anthropic.NotFoundError):
        await claude.messages.count_tokens(model="nobody", messages=QUESTION)
    with pytest.raises(anthropic.BadRequestError):
        await claude.messages.count_tokens(model=CLAUDE_TARGET, messages=[])
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key="wrong") as nobody:
        with pytest.raises(anthropic.AuthenticationError):
            await nobody.messages.count_tokens(model=CLAUDE_TARGET, messages=QUESTION)
    key = await gateway.issue_key(models=[CLAUDE_TARGET])
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=key) as scoped:
        with pytest.raises(anthropic.PermissionDeniedError):
            await scoped.messages.count_tokens(
                model=CLAUDE_TARGET, messages=[{"role": "user", "content": aadhaar(3)}]
            )
    assert untouched(counting)


async def test_rule_53_a_count_is_a_request_of_its_key_and_uses_up_no_tokens(
    gateway: RunningGateway, http: aiohttp.ClientSession, counting: Upstreams
) -> None:
    caller = Caller(gateway, http, await gateway.issue_key(OTHER_PLACE))
    await limit(gateway, RateLimit("ws:other/lab", requests_per_minute=2, tokens_per_minute=1))

    statuses = [(await count(caller, question())).status for _ in range(3)]

    assert statuses == [200, 200, 429]
    assert len(counting.anthropic.calls) == 2


async def test_rule_53_whoever_has_used_up_a_budget_may_still_count(
    gateway: RunningGateway, http: aiohttp.ClientSession, counting: Upstreams
) -> None:
    caller = Caller(gateway, http, await gateway.issue_key(Place("poor", "lab", "thesis")))
    await gateway.limit("org:poor", 1)

    assert (await caller.post("anthropic", ask("anthropic", model=CLAUDE_TARGET))).status == 402
    assert (await count(caller, question())).status == 200


async def test_rule_53_pseudonyms_are_counted_and_not_what_they_stand_for(
    tmp_path: Path, sqlite_url: str, counting: Upstreams, http: aiohttp.ClientSession
) -> None:
    (tmp_path / "policy.toml").write_text(POLICY.format(obligation="pseudonymise"))
    more = f'[policy]\nfile = "{tmp_path / "policy.toml"}"'
    async with RunningGateway(tmp_path, sqlite_url, counting, more=more) as obliged:
        caller = Caller(obliged, http, await obliged.issue_key())
        messages = [{"role": "user", "content": TEXT}]
        reply = await count(caller, question(messages=messages))

    assert reply.tree == {"input_tokens": COUNTED}
    (call,) = counting.anthropic.calls
    assert call.json.keys() == {"model", "messages"}
    assert not any(value in call.body for value in VALUES)
