"""Errors with status 200: reported and judged as the error they state, and free of charge."""

import msgspec
import pytest

from gateway.dispatch.breaker import judge
from gateway.dispatch.refusals import SAID_BYTES_MAX, status_said
from gateway.errors import UpstreamRefused
from tests.faults.envelopes import (
    STYLES,
    Caller,
    Style,
    ask,
    check_envelope,
    only_outcome,
)
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

TOO_MANY = b'{"error":{"message":"Provider returned error","code":429}}'
WRONG = b'{"error":{"message":"No endpoints found that support image input","code":400}}'


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("target", [CLAUDE_TARGET, GPT_TARGET])
async def test_it_is_told_as_the_status_that_it_says(
    target: str,
    style: Style,
    stream: bool,
    caller: Caller,
    gateway: RunningGateway,
    upstreams: Upstreams,
) -> None:
    for upstream in upstreams.managed:
        upstream.answer(Answer(body=WRONG))

    reply = await caller.post(style, ask(style, model=target, stream=stream))

    assert reply.status == 400
    assert b"No endpoints found that support image input" in reply.body
    check_envelope(reply, style)
    outcome = await only_outcome(gateway, reply.request_id, "failed", "upstream_refused")
    assert (outcome.cost_microusd, outcome.usage) == (0, None)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("style", STYLES)
async def test_one_that_says_no_status_is_a_failure_of_the_upstreams_and_tells_no_place(
    style: Style, stream: bool, caller: Caller, gateway: RunningGateway, upstreams: Upstreams
) -> None:
    upstreams.openai.answer(Answer(body=b'{"error":{"message":"quota at https://10.0.0.1"}}'))

    reply = await caller.post(style, ask(style, model=GPT_TARGET, stream=stream))

    assert reply.status == 502
    assert b"10.0.0.1" not in reply.body
    check_envelope(reply, style)
    outcome = await only_outcome(gateway, reply.request_id, "failed", "upstream_refused")
    assert outcome.cost_microusd == 0


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_one_that_has_too_much_to_do_is_throttled_and_not_broken(
    stream: bool, caller: Caller, gateway: RunningGateway, upstreams: Upstreams
) -> None:
    upstreams.openai.answer(Answer(body=TOO_MANY))

    reply = await caller.post("openai", ask("openai", model=GPT_TARGET, stream=stream))

    error = check_envelope(reply, "openai")
    assert (reply.status, error["type"]) == (429, "rate_limit_error")
    refused = UpstreamRefused("", upstream_status=status_said(TOO_MANY))
    assert judge(refused) == "throttled"


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"error": {"message": "m", "code": 503}}, 503),
        ({"error": {"message": "m", "code": "429"}}, 429),
        ({"error": {"message": "m", "code": 200, "status": 504}}, 504),
        ({"error": {"message": "m", "code": True}}, 502),
        ({"error": {"message": "m", "code": "4290"}}, 502),
        ({"error": {"message": "m", "type": "overloaded_error"}, "type": "error"}, 529),
        ({"error": {"message": "m", "type": "x", "code": "insufficient_quota"}}, 429),
        ({"type": "error", "code": "context_length_exceeded", "message": "m"}, 400),
        ({"error": {"code": "server_error"}, "status": "failed", "output": []}, 500),
        ({"error": {"code": "server_error"}, "status": "failed", "output": [{}]}, 0),
        ({"error": "model not loaded"}, 502),
        ({"error": "model not loaded", "code": 404}, 404),
        ({"object": "error", "code": 404, "message": "m"}, 404),
        ({"error": None, "choices": []}, 0),
        ({"error": {}, "choices": []}, 0),
        ({"choices": [], "code": 404}, 0),
        (["error"], 0),
        ({"error": "x" * SAID_BYTES_MAX}, 0),
    ],
)
def test_a_body_is_an_error_only_where_it_says_so(said: object, status: int) -> None:
    assert status_said(msgspec.json.encode(said)) == status


@pytest.mark.parametrize("raw", [b"", b"<html>", b'{"error":', b"\xff"])
def test_what_is_no_json_says_nothing(raw: bytes) -> None:
    assert status_said(raw) == 0
