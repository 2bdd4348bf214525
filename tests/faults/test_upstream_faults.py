"""Any upstream fault is told in the caller's own dialect, and no broken answer looks complete."""

import asyncio
from typing import Any

import anthropic
import openai
import pytest

from gateway.types import AuditRecord
from tests.faults.envelopes import (
    DIALECTS,
    LEAK,
    STYLES,
    TERMINALS,
    Caller,
    Reply,
    Style,
    ask,
    check_envelope,
    check_error,
    check_evidence,
    only_outcome,
)
from tests.running_gateway import (
    CLAUDE_TARGET,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer, Fault, RecordingUpstream


pytestmark = pytest.mark.anyio

SETTINGS = """
[limits]
first_byte_s = 0.5
stream_idle_s = 0.5
"""
WORDS = "one two three four five six " * 20
MOST_OF_IT_TOKENS = len(WORDS) // 4 // 3
"""The faults come after half of the events, and a token is about four letters."""
SECRETS = "sk-upstream-4711 at https://10.1.2.3:8443/v1 for org-4711abcdef"
LEAKS = ("sk-upstream", "10.1.2.3", ":8443", "org-4711")  # none that a random id could spell
both = pytest.mark.parametrize("style", STYLES)
whole_and_streamed = pytest.mark.parametrize("stream", [False, True])
targets = pytest.mark.parametrize("target", [CLAUDE_TARGET, GPT_TARGET])

STATUSES: dict[int, dict[Style, tuple[int, str]]] = {
    400: {
        "openai": (400, "invalid_request_error"),
        "anthropic": (400, "invalid_request_error"),
    },
    401: {"openai": (502, "server_error"), "anthropic": (502, "api_error")},
    403: {"openai": (502, "server_error"), "anthropic": (502, "api_error")},
    404: {"openai": (404, "invalid_request_error"), "anthropic": (404, "not_found_error")},
    422: {
        "openai": (422, "invalid_request_error"),
        "anthropic": (422, "invalid_request_error"),
    },
    429: {"openai": (429, "rate_limit_error"), "anthropic": (429, "rate_limit_error")},
    500: {"openai": (500, "server_error"), "anthropic": (500, "api_error")},
    503: {"openai": (503, "server_error"), "anthropic": (529, "overloaded_error")},
    529: {"openai": (503, "server_error"), "anthropic": (529, "overloaded_error")},
}
BEFORE_ANY_ANSWER: dict[Fault, str] = {
    "reset": "no_target_available",
    "hang": "upstream_timeout",
    "slow_headers": "upstream_timeout",
    "bad_head": "upstream_malformed",
    "bad_json": "upstream_malformed",
}
IN_A_WHOLE_BODY: dict[Fault, str] = {
    "mid_reset": "no_target_available",
    "mid_hang": "upstream_timeout",
    "cut": "no_target_available",
    "truncated": "no_target_available",
}
IN_A_STREAM: dict[Fault, str] = {
    "mid_reset": "upstream_unreachable",
    "mid_hang": "upstream_timeout",
    "cut": "upstream_unreachable",
    "truncated": "stream_broken",
}


def upstream_of(upstreams: Upstreams, target: str) -> RecordingUpstream:
    return {
        ENGINE_TARGET: upstreams.engine,
        CLAUDE_TARGET: upstreams.anthropic,
        GPT_TARGET: upstreams.openai,
    }[target]


@both
@whole_and_streamed
@pytest.mark.parametrize(
    "header",
    [("retry-after-ms", "inf"), ("retry-after", "9" * 400), ("retry-after", "99999999999")],
    ids=["endless", "huge", "millennia"],
)
async def test_a_wait_without_end_is_told_as_one_that_ends(
    caller: Caller,
    upstreams: Upstreams,
    style: Style,
    stream: bool,
    header: tuple[str, str],
) -> None:
    upstreams.openai.answer(Answer(status=429, headers=(header,)))
    upstreams.anthropic.answer(Answer(status=429, headers=(header,)))
    target = GPT_TARGET if style == "openai" else CLAUDE_TARGET

    reply = await caller.post(style, ask(style, model=target, stream=stream))

    check_envelope(reply, style)
    assert reply.status == 429
    assert reply.headers["retry-after"] == "86400"
    await only_outcome(caller.gateway, reply.request_id, "failed", "upstream_refused")


@both
@targets
@whole_and_streamed
@pytest.mark.parametrize("status", STATUSES)
async def test_an_upstreams_status_and_retry_after_are_kept(
    caller: Caller, upstreams: Upstreams, style: Style, target: str, stream: bool, status: int
) -> None:
    upstream = upstream_of(upstreams, target)
    body = b'{"error":{"message":"no luck with %b","type":"x"}}' % SECRETS.encode()
    upstream.answer(Answer(status=status, retry_after_s=7, body=body))

    reply = await caller.post(style, ask(style, model=target, stream=stream))

    error = check_envelope(reply, style)
    assert (reply.status, error["type"]) == STATUSES[status][style]
    assert reply.headers["retry-after"] == "7"
    assert not any(word in reply.body.decode() for word in LEAKS)
    assert caller.gateway.upstream_key not in reply.body.decode()
    outcome = await only_outcome(caller.gateway, reply.request_id, "failed", "upstream_refused")
    assert [(a.target, a.status, a.error) for a in outcome.attempts] == [
        (target, status, "upstream_refused")
    ]
    assert outcome.cost_microusd == 0
    assert len(upstream.calls) == 1
    await check_evidence(caller.gateway, reply, outcome)


@both
@targets
@whole_and_streamed
@pytest.mark.parametrize(
    "body", [b"", b"<html><h1>Bad Gateway nginx/1.2</h1>", b"[]", b"\xff" * 99]
)
async def test_an_error_that_is_no_json_says_nothing_of_the_upstream(
    caller: Caller, upstreams: Upstreams, style: Style, target: str, stream: bool, body: bytes
) -> None:
    upstream_of(upstreams, target).answer(
        Answer(status=500, body=body, headers=(("content-type", "text/html"),))
    )

    reply = await caller.post(style, ask(style, model=target, stream=stream))

    assert check_envelope(reply, style)["message"] == "The upstream failed."
    assert reply.status == 500


@both
@targets
@whole_and_streamed
@pytest.mark.parametrize("fault", BEFORE_ANY_ANSWER)
async def test_an_upstream_that_gives_no_answer_is_an_error_with_a_status(
    caller: Caller, upstreams: Upstreams, style: Style, target: str, stream: bool, fault: Fault
) -> None:
    upstream = upstream_of(upstreams, target)
    broken = (b'data: {"broken": \n\n',) if fault == "bad_json" and stream else None
    upstream.answer(Answer(fault=fault, events=broken))
    code = BEFORE_ANY_ANSWER[fault]

    reply = await caller.post(style, ask(style, model=target, stream=stream))

    check_error(reply, style, code)
    outcome = await only_outcome(caller.gateway, reply.request_id, "failed", code)
    tries = 2 if fault == "reset" else 1
    assert len(upstream.calls) == len(outcome.attempts) == tries
    assert outcome.decision
    await check_evidence(caller.gateway, reply, outcome)


@both
@targets
@pytest.mark.parametrize("fault", IN_A_WHOLE_BODY)
async def test_a_whole_answer_that_breaks_off_is_an_error_and_not_tried_twice(
    caller: Caller, upstreams: Upstreams, style: Style, target: str, fault: Fault
) -> None:
    upstream = upstream_of(upstreams, target)
    upstream.answer(Answer(fault=fault))
    code = IN_A_WHOLE_BODY[fault]

    reply = await caller.post(style, ask(style, model=target))

    check_error(reply, style, code)
    outcome = await only_outcome(caller.gateway, reply.request_id, "failed", code)
    assert len(upstream.calls) == len(outcome.attempts) == 1
    assert outcome.attempts[0].status == 200


def check_broken_stream(reply: Reply, style: Style, code: str) -> None:
    """A stream that ends with an error in the caller's dialect and never with its terminal."""
    text = reply.body.decode()
    assert reply.status == 200
    assert TERMINALS[style].decode() not in text
    last = text.rstrip("\n").split("\n\n")[-1]
    if style == "openai":
        assert last.startswith('data: {"error":')
        assert f'"code":"{code}"' in last
    else:
        assert last.startswith("event: error\ndata: ")
        assert reply.request_id in last
    assert LEAK.search(last) is None


@both
@pytest.mark.parametrize("target", [CLAUDE_TARGET, GPT_TARGET, ENGINE_TARGET])
@pytest.mark.parametrize("fault", IN_A_STREAM)
async def test_a_stream_that_breaks_ends_with_an_error_and_is_charged_for_what_came(
    caller: Caller, upstreams: Upstreams, style: Style, target: str, fault: Fault
) -> None:
    upstream = upstream_of(upstreams, target)
    upstream.answer(Answer(fault=fault, text=WORDS))
    code = IN_A_STREAM[fault]

    reply = await caller.post(style, ask(style, model=target, stream=True))

    check_broken_stream(reply, style, code)
    assert "one" in reply.body.decode()
    outcome = await only_outcome(caller.gateway, reply.request_id, "incomplete", code)
    assert len(upstream.calls) == 1
    assert outcome.usage is not None
    # A stream that only lacks its terminal event had said what it counted.
    was_counted = fault == "truncated"
    assert outcome.usage.estimated is not was_counted
    least = Answer().output_tokens if was_counted else MOST_OF_IT_TOKENS
    assert outcome.usage.output_tokens >= least
    assert outcome.usage.input_tokens > 0
    assert (outcome.cost_microusd > 0) == (target != ENGINE_TARGET)


CLAUDE_SAYS = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    b'"delta":{"type":"text_delta","text":"one"}}\n\n'
)
CLAUDE_FAILS = (
    b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error",'
    b'"message":"at 10.0.0.1"}}\n\n'
)
PIECES: dict[str, tuple[bytes, bytes, bytes]] = {
    CLAUDE_TARGET: (
        CLAUDE_SAYS,
        CLAUDE_FAILS,
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    ),
    GPT_TARGET: (
        b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"one"}}]}\n\n',
        b'data: {"error":{"type":"server_error","message":"at 10.0.0.1"}}\n\n',
        b"data: [DONE]\n\n",
    ),
}
"""Of each target's dialect: content, an error, and the terminal event."""


@both
@targets
@pytest.mark.parametrize("what", ["an error", "junk", "an error and a good end"])
async def test_an_error_inside_a_stream_ends_it(
    caller: Caller, upstreams: Upstreams, style: Style, target: str, what: str
) -> None:
    content, error, terminal = PIECES[target]
    rest = {
        "an error": (error,),
        "junk": (b"data: {]\n\n", terminal),
        "an error and a good end": (error, terminal),
    }[what]
    hold = asyncio.Event()
    upstream_of(upstreams, target).answer(Answer(events=(content, *rest), hold=hold))

    reply = await caller.post(style, ask(style, model=target, stream=True), on_first=hold.set)

    code = "upstream_malformed" if what == "junk" else "stream_broken"
    check_broken_stream(reply, style, code)
    assert b"one" in reply.body
    outcome = await only_outcome(caller.gateway, reply.request_id, "incomplete", code)
    assert outcome.cost_microusd > 0


@both
@targets
async def test_a_whole_stream_ends_with_its_terminal_event_and_receipt(
    caller: Caller, upstreams: Upstreams, style: Style, target: str
) -> None:
    reply = await caller.post(style, ask(style, model=target, stream=True))

    text = reply.body.decode()
    assert text.count(TERMINALS[style].decode()) == (1 if style == "openai" else 2)
    assert text.rstrip().endswith("[DONE]" if style == "openai" else '"message_stop"}')
    outcome = await only_outcome(caller.gateway, reply.request_id, "ok", "")
    assert f"x-gatewright-cost-microusd={outcome.cost_microusd}" in text


JUNK: dict[str, bytes] = {
    "an HTML page": b"<html><body>Welcome to nginx at 10.0.0.1</body></html>",
    "no choices": b'{"id":"x","choices":[],"content":[],"model":"m"}',
    "null": b"null",
    "choices of another type": b'{"choices":"none","content":"none","type":"message"}',
    "nothing": b"",
    "deep nesting": b"[" * 100_000,
}
NEGATIVE_USAGE = (
    b'{"id":"x","type":"message","model":"m","content":[{"type":"text","text":"a"}],'
    b'"choices":[{"index":0,"message":{"role":"assistant","content":"a"}}],"usage":'
    b'{"prompt_tokens":-5,"completion_tokens":-7,"input_tokens":-5,"output_tokens":-7}}'
)


@both
@targets
@pytest.mark.parametrize("name", JUNK)
async def test_a_good_status_with_junk_is_a_malformed_answer(
    caller: Caller, upstreams: Upstreams, style: Style, target: str, name: str
) -> None:
    upstream_of(upstreams, target).answer(Answer(body=JUNK[name]))

    reply = await caller.post(style, ask(style, model=target))

    if name == "no choices" and target == CLAUDE_TARGET:
        assert reply.status in (200, 502)
        return
    check_error(reply, style, "upstream_malformed")
    await only_outcome(caller.gateway, reply.request_id, "failed", "upstream_malformed")


@both
@targets
async def test_an_answer_whose_usage_is_no_count_is_given_and_estimated(
    caller: Caller, upstreams: Upstreams, style: Style, target: str
) -> None:
    upstream_of(upstreams, target).answer(Answer(body=NEGATIVE_USAGE))

    reply = await caller.post(style, ask(style, model=target))

    assert reply.status == 200
    outcome = (await caller.gateway.records(reply.request_id))[-1]
    assert (outcome.stage, outcome.status, outcome.error) == ("outcome", "ok", "")
    assert outcome.usage is not None
    assert outcome.usage.output_tokens > 0


@both
@targets
async def test_a_whole_answer_where_a_stream_was_asked_for_is_an_error(
    caller: Caller, upstreams: Upstreams, style: Style, target: str
) -> None:
    upstream_of(upstreams, target).answer(Answer(body=b"<html>hello</html>"))

    reply = await caller.post(style, ask(style, model=target, stream=True))

    assert reply.status == 502
    check_envelope(reply, style)
    outcome = (await caller.gateway.records(reply.request_id))[-1]
    assert (outcome.stage, outcome.status) == ("outcome", "failed")


@both
@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_redirects_are_not_followed(
    caller: Caller, upstreams: Upstreams, style: Style, status: int
) -> None:
    elsewhere = f"{upstreams.openai.url}/v1/chat/completions"
    upstreams.anthropic.answer(Answer(status=status, body=b"", headers=(("location", elsewhere),)))

    reply = await caller.post(style, ask(style, model=CLAUDE_TARGET))

    check_error(reply, style, "upstream_malformed")
    assert not upstreams.openai.requests


@pytest.fixture
async def all_alive(caller: Caller, upstreams: Upstreams) -> None:
    """No breaker is open any more from the tests before: one good answer closes it."""
    # A pause that an upstream asked for outlives good answers; here it ends with the test. So does
    # the memory of one that was slow, as on a busy machine: it would be asked later than in order.
    health = caller.gateway.plane._health
    health.breakers._states.clear()
    health._speeds.clear()
    for target in (ENGINE_TARGET, CLAUDE_TARGET, GPT_TARGET):
        # A busy machine may let one of them, or a probe, run into a deadline of the tests before:
        # then nothing is tried until the next probe.
        async with asyncio.timeout(60):
            while (await caller.post("openai", ask("openai", model=target))).status != 200:
                await asyncio.sleep(0.05)
    for upstream in (upstreams.engine, *upstreams.managed):
        upstream.forget()


async def candidates_of(caller: Caller, style: Style, model: str) -> tuple[str, ...]:
    reply = await caller.post(style, ask(style, model=model))
    intent: AuditRecord = (await caller.gateway.records(reply.request_id))[0]
    return intent.candidates


FALLBACKS: list[Answer] = [
    Answer(status=500),
    Answer(status=429),
    Answer(status=401),
    Answer(fault="reset"),
    Answer(fault="hang"),
    Answer(fault="bad_head"),
    Answer(events=(b'data: {"choices": [{"index":0,"delta":{"role":"assistant"}}]}\n\n',)),
]


@both
@whole_and_streamed
@pytest.mark.usefixtures("all_alive")
@pytest.mark.parametrize("answer", FALLBACKS, ids=lambda a: f"{a.status}{a.fault}")
async def test_another_candidate_is_tried_while_the_caller_has_seen_nothing(
    caller: Caller, upstreams: Upstreams, style: Style, stream: bool, answer: Answer
) -> None:
    order = await candidates_of(caller, style, "auto:cheap")
    assert order[0] == ENGINE_TARGET
    for upstream in (upstreams.engine, *upstreams.managed):
        upstream.forget()
    upstreams.engine.answer(answer)

    reply = await caller.post(style, ask(style, model="auto:cheap", stream=stream))

    assert reply.status == 200
    assert reply.headers["x-gatewright-target"] == order[1]
    outcome = await only_outcome(caller.gateway, reply.request_id, "ok", "")
    assert outcome.target == order[1]
    assert [attempt.target for attempt in outcome.attempts][-1] == order[1]
    assert outcome.attempts[0].target == ENGINE_TARGET
    assert outcome.attempts[0].error


@both
async def test_no_other_candidate_is_tried_after_content(
    caller: Caller, upstreams: Upstreams, style: Style
) -> None:
    upstreams.engine.answer(Answer(fault="mid_reset", text=WORDS))

    reply = await caller.post(style, ask(style, model="auto:in-house", stream=True))

    check_broken_stream(reply, style, "upstream_unreachable")
    assert not any(upstream.calls for upstream in upstreams.managed)


@both
@pytest.mark.usefixtures("all_alive")
@pytest.mark.parametrize("status", [400, 413, 422])
async def test_what_the_caller_got_wrong_is_not_tried_elsewhere(
    caller: Caller, upstreams: Upstreams, style: Style, status: int
) -> None:
    upstreams.engine.answer(Answer(status=status))

    reply = await caller.post(style, ask(style, model="auto:cheap"))

    assert reply.status == status
    assert not any(upstream.calls for upstream in upstreams.managed)


@both
async def test_failures_in_a_row_do_not_close_the_last_target(
    caller: Caller, upstreams: Upstreams, style: Style
) -> None:
    upstreams.anthropic.answer(Answer(status=500))
    for _ in range(8):
        assert (await caller.post(style, ask(style, model=CLAUDE_TARGET))).status == 500
    upstreams.anthropic.answer(Answer())

    reply = await caller.post(style, ask(style, model=CLAUDE_TARGET))

    assert reply.status == 200
    assert len(upstreams.anthropic.calls) == 9


OPENAI_RAISES: dict[int, type[openai.APIStatusError]] = {
    400: openai.BadRequestError,
    401: openai.InternalServerError,
    404: openai.NotFoundError,
    429: openai.RateLimitError,
    500: openai.InternalServerError,
    529: openai.InternalServerError,
}
ANTHROPIC_RAISES: dict[int, type[anthropic.APIStatusError]] = {
    400: anthropic.BadRequestError,
    401: anthropic.InternalServerError,
    404: anthropic.NotFoundError,
    429: anthropic.RateLimitError,
    500: anthropic.InternalServerError,
    529: anthropic.InternalServerError,
}
QUESTION: Any = [{"role": "user", "content": "Good morning"}]


@whole_and_streamed
@pytest.mark.parametrize("status", OPENAI_RAISES)
async def test_the_openai_sdk_raises_its_own_class(
    gateway: RunningGateway, upstreams: Upstreams, shared_key: str, stream: bool, status: int
) -> None:
    upstreams.anthropic.answer(Answer(status=status))
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=shared_key, max_retries=0
    ) as client:
        with pytest.raises(OPENAI_RAISES[status]) as caught:
            await client.chat.completions.create(
                model=CLAUDE_TARGET, messages=QUESTION, stream=stream
            )

    assert caught.value.request_id is not None
    assert caught.value.request_id.startswith("req_")


@whole_and_streamed
@pytest.mark.parametrize("status", ANTHROPIC_RAISES)
async def test_the_anthropic_sdk_raises_its_own_class(
    gateway: RunningGateway, upstreams: Upstreams, shared_key: str, stream: bool, status: int
) -> None:
    upstreams.openai.answer(Answer(status=status))
    async with anthropic.AsyncAnthropic(
        base_url=gateway.url, api_key=shared_key, max_retries=0
    ) as client:
        with pytest.raises(ANTHROPIC_RAISES[status]) as caught:
            await client.messages.create(
                model=GPT_TARGET, max_tokens=50, messages=QUESTION, stream=stream
            )

    assert caught.value.request_id is not None
    assert caught.value.request_id.startswith("req_")


async def test_both_sdks_raise_when_a_stream_breaks(
    gateway: RunningGateway, upstreams: Upstreams, shared_key: str
) -> None:
    for upstream in upstreams.managed:
        upstream.answer(Answer(fault="truncated", text=WORDS))
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=shared_key) as client:
        chunks = await client.chat.completions.create(
            model=CLAUDE_TARGET, messages=QUESTION, stream=True
        )
        with pytest.raises(openai.APIError):
            async for _ in chunks:
                pass
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=shared_key) as claude:
        events = await claude.messages.create(
            model=GPT_TARGET, max_tokens=50, messages=QUESTION, stream=True
        )
        with pytest.raises(anthropic.APIError):
            async for _ in events:
                pass


def test_the_styles_of_these_tests_are_the_gateways_dialects() -> None:
    assert set(DIALECTS) == set(STYLES)
