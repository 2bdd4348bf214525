"""Answers that end with an error: charged as counted, and reported as the error they state."""

import aiohttp
import msgspec
import pytest

from gateway.money.catalogue import cost
from gateway.types import AuditRecord, Usage
from tests.faults.envelopes import Caller, Reply, ask
from tests.running_gateway import ENGINE_TARGET, GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

COUNT = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
WORD = {"index": 0, "delta": {"content": "Half of"}, "finish_reason": None}
END = {"index": 0, "delta": {}, "finish_reason": "abort"}
DONE = b"data: [DONE]\n\n"
PAY = {"message": "Pay.", "type": "insufficient_quota", "code": "insufficient_quota"}


def chunk(*choices: object, **more: object) -> bytes:
    return b"data: " + msgspec.json.encode({"id": "c", "choices": choices, **more}) + b"\n\n"


def failed(error: object) -> bytes:
    return b"data: " + msgspec.json.encode({"error": error}) + b"\n\n"


STREAMS = {
    "counted in the same chunk": (chunk(WORD), chunk(END, usage=COUNT), DONE),
    "counted behind it": (chunk(WORD), chunk(END), chunk(usage=COUNT), DONE),
    "counted, and nothing said": (chunk(END), chunk(usage=COUNT), DONE),
}


@pytest.fixture(autouse=True)
def _well(gateway: RunningGateway) -> None:
    """What targets did in earlier tests is forgotten."""
    gateway.plane._health.breakers._states.clear()
    gateway.plane._health.accounts._pauses.clear()


async def asked(caller: Caller, answer: Answer, upstreams: Upstreams, *, stream: bool) -> Reply:
    upstreams.openai.answer(answer)
    return await caller.post("openai", ask("openai", model=GPT_TARGET, stream=stream))


async def outcome_of(caller: Caller, reply: Reply) -> AuditRecord:
    return (await caller.gateway.records(reply.request_id))[-1]


def check_counted(gateway: RunningGateway, outcome: AuditRecord) -> None:
    target = gateway.plane.snapshots.current().board.targets[GPT_TARGET]
    (attempt,) = outcome.attempts
    exact = cost(target.price, Usage(9, 4))
    assert (attempt.cost_microusd, attempt.estimated) == (exact, False), attempt
    assert outcome.cost_microusd == exact


@pytest.mark.parametrize("events", STREAMS.values(), ids=STREAMS)
async def test_a_stream_that_was_given_up_costs_what_was_counted(
    caller: Caller, upstreams: Upstreams, events: tuple[bytes, ...]
) -> None:
    reply = await asked(caller, Answer(events=events), upstreams, stream=True)

    outcome = await outcome_of(caller, reply)
    assert b"[DONE]" not in reply.body
    assert outcome.error == "stream_broken"
    check_counted(caller.gateway, outcome)


async def test_an_answer_that_was_given_up_costs_what_was_counted(
    caller: Caller, upstreams: Upstreams
) -> None:
    choice = {"index": 0, "message": {"content": "Half of"}, "finish_reason": "abort"}
    body = msgspec.json.encode({"id": "c", "model": "m", "choices": [choice], "usage": COUNT})
    reply = await asked(caller, Answer(body=body), upstreams, stream=False)

    outcome = await outcome_of(caller, reply)
    assert outcome.error == "upstream_failed"
    check_counted(caller.gateway, outcome)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_one_that_was_given_up_uncounted_is_estimated(
    caller: Caller, upstreams: Upstreams, stream: bool
) -> None:
    choice = {"index": 0, "message": {"content": "Half of"}, "finish_reason": "abort"}
    body = msgspec.json.encode({"id": "c", "model": "m", "choices": [choice]})
    answer = Answer(events=(chunk(WORD), chunk(END), DONE)) if stream else Answer(body=body)
    reply = await asked(caller, answer, upstreams, stream=stream)

    (attempt,) = (await outcome_of(caller, reply)).attempts
    assert attempt.estimated
    assert attempt.cost_microusd > 0


async def test_a_stream_that_begins_with_an_empty_account_is_asked_of_another(
    caller: Caller, upstreams: Upstreams
) -> None:
    bill = {"type": "error", "error": {"type": "billing_error", "message": "Pay."}}
    event = b"event: error\ndata: " + msgspec.json.encode(bill) + b"\n\n"
    upstreams.anthropic.answer(Answer(events=(event,)))
    upstreams.openai.answer(Answer(events=(failed(PAY),)))
    reply = await caller.post("openai", ask("openai", model="auto:quality", stream=True))

    outcome = await outcome_of(caller, reply)
    assert outcome.target == ENGINE_TARGET
    assert {each.error for each in outcome.attempts} == {"upstream_unpaid", ""}
    assert {each.cost_microusd for each in outcome.attempts if each.error} == {0}


async def test_an_account_that_ran_empty_amid_an_answer_is_passed_over(
    caller: Caller, upstreams: Upstreams
) -> None:
    answer = Answer(events=(chunk(WORD), failed(PAY)))
    reply = await asked(caller, answer, upstreams, stream=True)

    outcome = await outcome_of(caller, reply)
    assert outcome.error == "stream_broken"
    assert outcome.cost_microusd > 0
    assert b"insufficient_quota" not in reply.body, "nobody takes it for a budget of ours"
    health, now_s = caller.gateway.plane._health, caller.gateway.plane._clock.monotonic_s()
    assert health.place(GPT_TARGET, now_s) == 2
    assert health.accounts.is_paused("openai", now_s)


async def test_a_prompt_that_is_too_long_is_told_so_though_a_stream_had_begun(
    caller: Caller, upstreams: Upstreams
) -> None:
    """So do OpenAI's responses; clients go by the code, and shorten the conversation."""
    error = {"message": "Too long.", "code": "context_length_exceeded"}
    reply = await asked(caller, Answer(events=(failed(error),)), upstreams, stream=True)

    assert reply.status == 400
    assert b"context_length_exceeded" in reply.body
    assert len(upstreams.openai.calls) == 1
    assert (await outcome_of(caller, reply)).cost_microusd == 0


async def test_a_limit_of_rate_in_a_stream_pauses_its_target(
    caller: Caller, upstreams: Upstreams
) -> None:
    error = {"message": "Slow down.", "code": "rate_limit_exceeded"}
    reply = await asked(caller, Answer(events=(failed(error),)), upstreams, stream=True)

    assert reply.status == 429
    clock = caller.gateway.plane._clock
    assert caller.gateway.plane._health.place(GPT_TARGET, clock.monotonic_s()) == 2


RESPONSE = {"id": "r", "object": "response", "status": "in_progress", "model": "m", "output": []}
TOO_LONG = {"type": "error", "code": "context_length_exceeded", "message": "Too long."}


def event(**fields: object) -> bytes:
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def response_failed(code: str, **more: object) -> tuple[bytes, ...]:
    failure = {"status": "failed", "error": {"code": code, "message": "m"}, **more}
    begun = event(type="response.created", response=RESPONSE)
    return begun, event(type="response.failed", response=RESPONSE | failure)


COUNTED = {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}
RESPONSES = {
    "empty": (response_failed("insufficient_quota"), 503, b"upstream_unpaid", False),
    "empty, at once": ((event(type="error", error=PAY),), 503, b"upstream_unpaid", False),
    "too long": ((event(**TOO_LONG),), 400, b"context_length_exceeded", False),
    "busy": (response_failed("rate_limit_exceeded"), 429, b"rate_limit", False),
    "counted": (response_failed("server_error", usage=COUNTED), 500, b"upstream_refused", True),
}


@pytest.mark.parametrize("case", RESPONSES)
async def test_a_response_that_fails_before_a_word_is_told_and_charged_as_it_says(
    caller: Caller, http: aiohttp.ClientSession, upstreams: Upstreams, case: str
) -> None:
    events, status, word, is_counted = RESPONSES[case]
    upstreams.openai.answer(Answer(events=events))
    body = {"model": GPT_TARGET, "input": "Hi", "stream": True, "max_output_tokens": 50}
    url, headers = f"{caller.gateway.url}/v1/responses", caller.headers("openai")
    async with http.post(url, json=body, headers=headers) as reply:
        said = await reply.read()

    assert (reply.status, word in said) == (status, True), said
    outcome = (await caller.gateway.records(reply.headers["x-request-id"]))[-1]
    if is_counted:
        check_counted(caller.gateway, outcome)
    else:
        assert outcome.cost_microusd == 0
