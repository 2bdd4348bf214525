"""Our account at a vendor has no money left: no caller waits for it, and none is blamed."""

import anthropic
import openai
import pytest

from tests.faults.envelopes import STYLES, Caller, Style, ask, check_error, only_outcome
from tests.running_gateway import (
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

QUOTA = Answer(
    status=429,
    retry_after_s=3,
    body=b'{"error":{"message":"You exceeded your current quota, please check your plan and '
    b'billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}',
)
CREDIT = Answer(
    status=400,
    body=b'{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance '
    b'is too low to access the Anthropic API. Please go to Plans & Billing to upgrade."}}',
)
BALANCE = Answer(status=402, body=b'{"error":{"message":"Insufficient Balance"}}')
SAID = Answer(
    body=b'{"error":{"message":"Pay","type":"insufficient_quota","code":"insufficient_quota"}}'
)
empty_accounts = pytest.mark.parametrize(
    "answer", [QUOTA, CREDIT, BALANCE, SAID], ids=["quota", "credit", "402", "behind a 200"]
)


async def test_another_permitted_target_answers(caller: Caller, upstreams: Upstreams) -> None:
    for upstream in upstreams.managed:
        upstream.answer(CREDIT)

    reply = await caller.post("openai", ask("openai", model="auto:quality"))

    assert reply.status == 200, reply.body
    records = await caller.gateway.records(reply.request_id)
    (outcome,) = [each for each in records if each.stage == "outcome"]
    attempts = [(each.target, each.error) for each in outcome.attempts]
    assert attempts[-1] == (ENGINE_TARGET, "")
    assert {error for _, error in attempts[:-1]} == {"upstream_unpaid"}


@empty_accounts
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_callers_hear_whose_account_it_is_and_are_not_told_to_come_back(
    answer: Answer, style: Style, stream: bool, caller: Caller, upstreams: Upstreams
) -> None:
    for upstream in upstreams.managed:
        upstream.answer(answer)

    reply = await caller.post(style, ask(style, model=GPT_TARGET, stream=stream))

    check_error(reply, style, "upstream_unpaid")
    assert reply.headers["x-should-retry"] == "false"
    assert "retry-after" not in reply.headers
    assert b"gateway's account" in reply.body
    assert not any(word in reply.body for word in (b"billing", b"credit balance", b"Balance"))
    outcome = await only_outcome(caller.gateway, reply.request_id, "failed", "upstream_unpaid")
    assert (outcome.cost_microusd, outcome.usage) == (0, None)


async def test_no_official_client_asks_an_empty_account_twice(
    gateway: RunningGateway, shared_key: str, upstreams: Upstreams
) -> None:
    upstreams.openai.answer(QUOTA)
    upstreams.anthropic.answer(CREDIT)
    question = [{"role": "user", "content": "Good morning"}]
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=shared_key) as client:
        with pytest.raises(openai.InternalServerError) as refused:
            await client.chat.completions.create(model=GPT_TARGET, messages=question)  # type: ignore[arg-type]
    assert refused.value.code == "upstream_unpaid"
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=shared_key) as claude:
        with pytest.raises(anthropic.InternalServerError):
            await claude.messages.create(
                model=CLAUDE_TARGET,
                max_tokens=9,
                messages=question,  # type: ignore[arg-type]
            )

    assert [len(each.calls) for each in upstreams.managed] == [1, 1]
