"""The dispatcher walks a plan: in order, once each, and stops where trying on would be wrong."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from gateway.clock import StoppedClock
from gateway.dialects.registry import DIALECTS
from gateway.dispatch.attempts import AttemptLog
from gateway.dispatch.breaker import BreakerRules, Breakers
from gateway.dispatch.dispatcher import Dispatcher
from gateway.dispatch.health import TargetHealth
from gateway.dispatch.live_stream import LiveStream
from gateway.errors import (
    FeatureUnsupported,
    GatewrightError,
    NoTargetAvailable,
    SovereigntyViolation,
    StreamBroken,
    UpstreamMalformed,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.ports import UpstreamCall
from gateway.providers.scripted import ScriptedProvider, ScriptedReply, ScriptedUpstreamReply
from gateway.tally import read_tokens
from gateway.types import Candidate, ChatRequest, Plan
from tests.gateway.providers.samples import HOME, make_target


pytestmark = pytest.mark.anyio

BAD = ScriptedReply(status=500, pieces=(b"{}",))
GONE = ScriptedReply(refusal=UpstreamUnreachable("gone"))
LATE = ScriptedReply(refusal=UpstreamTimeout("late"))
JUNK = ScriptedReply(pieces=(b"junk",))
ROLE = b'data: {"id":"x","choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n'
WORD = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"one"}}]}\n\n'
STOP = b'data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error":{"message":"x"}}\n\n'


def streamed(*pieces: bytes, break_off: GatewrightError | None = None) -> ScriptedReply:
    return ScriptedReply(pieces=pieces, is_event_stream=True, break_off=break_off)  # type: ignore[arg-type]


def refusing(status: int) -> ScriptedReply:
    return ScriptedReply(status=status, pieces=(b"{}",), retry_after_s=7.0)


class Stage:
    """Targets a, b, c, each at a provider of its own, and a plan over some of them."""

    def __init__(self, *, clearance: frozenset[str] = frozenset({HOME})) -> None:
        self.clock = StoppedClock()
        self.breakers = Breakers(BreakerRules(failures_in_a_row=2, open_s=60.0))
        self.providers = {name: ScriptedProvider(name, HOME) for name in "abc"}
        self.log = AttemptLog()
        self.clearance = clearance
        self.health = TargetHealth(self.breakers)
        self.dispatcher = Dispatcher(self.providers, DIALECTS, self.health, self.clock)

    def plan(self, names: Sequence[str], deadline_s: float = 30.0) -> Plan:
        candidates = tuple(
            Candidate(
                msgspec.structs.replace(make_target(f"scripted/{name}"), provider=name), 10, 100
            )
            for name in names
        )
        return Plan(candidates, self.clearance, deadline_s, "digest", "Because.", "none")

    async def complete(self, names: str = "abc", deadline_s: float = 30.0) -> str:
        plan = self.plan(names, deadline_s)
        answered = await self.dispatcher.complete(request(), plan, self.log)
        return answered.candidate.target.name[-1]

    async def stream(self, names: str = "abc") -> list[bytes]:
        live = await self.dispatcher.open_stream(request(stream=True), self.plan(names), self.log)
        try:
            raws: list[bytes] = []
            while events := await live.next_batch():
                raws += [event.raw for event in events]
            return raws
        finally:
            await live.close()

    @property
    def tried(self) -> str:
        return "".join(attempt.target[-1] for attempt in self.log.as_tuple())

    @property
    def errors(self) -> list[str]:
        return [attempt.error for attempt in self.log.as_tuple()]


def request(*, stream: bool = False) -> ChatRequest:
    messages = [{"role": "user", "content": "hello"}]
    body = {"model": "auto", "messages": messages, "stream": stream}
    return DIALECTS["openai_chat"].decode_request(msgspec.json.encode(body), "req_1")


async def test_the_first_candidate_that_answers_is_the_answer() -> None:
    stage = Stage()

    assert await stage.complete() == "a"
    assert (stage.tried, stage.errors) == ("a", [""])
    assert not stage.providers["b"].calls


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (BAD, "upstream_refused"),
        (refusing(401), "upstream_refused"),
        (refusing(404), "upstream_refused"),
        (refusing(429), "upstream_refused"),
        (LATE, "upstream_timeout"),
        (JUNK, "upstream_malformed"),
    ],
)
async def test_a_failed_candidate_is_tried_once_and_then_the_next(
    reply: ScriptedReply, code: str
) -> None:
    stage = Stage()
    stage.providers["a"].add(reply)
    stage.providers["b"].add(reply)

    assert await stage.complete() == "c"
    assert (stage.tried, stage.errors) == ("abc", [code, code, ""])


async def test_only_a_connection_that_failed_before_any_header_is_tried_again() -> None:
    stage = Stage()
    stage.providers["a"].add(GONE)
    assert await stage.complete() == "a"
    assert stage.errors == ["upstream_unreachable", ""]

    stage = Stage()
    stage.providers["a"].add(GONE, GONE)
    assert await stage.complete() == "b"
    assert stage.tried == "aab"

    stage = Stage()
    stage.providers["a"].add(ScriptedReply(pieces=(b"{",), break_off=UpstreamUnreachable("cut")))
    assert await stage.complete() == "b"
    assert stage.tried == "ab"


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_what_the_caller_got_wrong_is_told_at_once(status: int) -> None:
    stage = Stage()
    stage.providers["a"].add(refusing(status))

    with pytest.raises(UpstreamRefused) as refused:
        await stage.complete()

    assert (refused.value.http_status, refused.value.retry_after_s) == (status, 7.0)
    assert stage.tried == "a"


async def test_the_last_failure_is_what_the_caller_is_told() -> None:
    stage = Stage()
    stage.providers["a"].add(BAD)
    stage.providers["b"].add(refusing(429))
    with pytest.raises(UpstreamRefused) as refused:
        await stage.complete("ab")
    assert (refused.value.http_status, refused.value.retry_after_s) == (429, 7.0)

    stage = Stage()
    stage.providers["a"].add(GONE, GONE)
    said = r"\(tried: scripted/a\)\. The decision was: Because"
    with pytest.raises(NoTargetAvailable, match=said):
        await stage.complete("a")

    stage = Stage()
    stage.providers["a"].add(LATE)
    with pytest.raises(UpstreamTimeout, match="No permitted target"):
        await stage.complete("a")


async def test_no_candidate_is_tried_after_the_deadline() -> None:
    stage = Stage()

    class Slow(ScriptedProvider):
        async def open(self, call: UpstreamCall) -> ScriptedUpstreamReply:
            stage.clock.advance(call.deadline_s)
            raise UpstreamTimeout("late")

    stage.providers["a"] = Slow("a", HOME)
    stage.dispatcher = Dispatcher(stage.providers, DIALECTS, stage.health, stage.clock)

    with pytest.raises(UpstreamTimeout):
        await stage.complete("ab", deadline_s=2.0)

    assert stage.tried == "a"


async def test_each_attempt_gets_what_is_left_of_the_deadline() -> None:
    stage = Stage()

    class Slow(ScriptedProvider):
        async def open(self, call: UpstreamCall) -> ScriptedUpstreamReply:
            stage.clock.advance(3.0)
            raise UpstreamTimeout("late")

    stage.providers["a"] = Slow("a", HOME)
    stage.dispatcher = Dispatcher(stage.providers, DIALECTS, stage.health, stage.clock)

    await stage.complete("ab", deadline_s=10.0)

    assert stage.providers["b"].calls[0].deadline_s == 7.0
    assert stage.log.as_tuple()[0].duration_us == 3_000_000


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_says_all_that_decides_whose_it_is_and_where_it_may_go(
    *, stream: bool
) -> None:
    """By tenant and class an engine keeps prefixes apart that may not meet."""
    stage = Stage()
    plan = msgspec.structs.replace(
        stage.plan("a"), tenant="acme", data_class="S3", service_tier="priority"
    )
    asked = msgspec.structs.replace(request(stream=stream), version="2023-06-01", betas=("one",))
    if stream:
        await (await stage.dispatcher.open_stream(asked, plan, stage.log)).close()
    else:
        await stage.dispatcher.complete(asked, plan, stage.log)
    (call,) = stage.providers["a"].calls
    assert (call.tenant, call.data_class, call.service_tier) == ("acme", "S3", "priority")
    assert (call.clearance, call.stream, call.request_id) == (stage.clearance, stream, "req_1")
    assert (call.dialect, call.version, call.betas) == ("openai_chat", "2023-06-01", ("one",))
    assert call.target == plan.candidates[0].target


async def test_a_call_in_another_dialect_says_no_version_of_the_callers() -> None:
    stage = Stage()
    stage.providers["a"].dialect = "anthropic_messages"
    asked = msgspec.structs.replace(request(), version="2023-06-01", betas=("one",))
    await stage.dispatcher.complete(asked, stage.plan("a"), stage.log)
    (call,) = stage.providers["a"].calls
    assert (call.dialect, call.version, call.betas) == ("anthropic_messages", "", ())


async def test_candidates_with_an_open_breaker_come_last_but_come() -> None:
    stage = Stage()
    stage.providers["a"].add(BAD, BAD)
    assert [await stage.complete("ab") for _ in range(2)] == ["b", "b"]

    assert await stage.complete("ab") == "b"
    assert stage.tried == "ababb"
    assert await stage.complete("a") == "a"


async def test_the_clearance_of_a_forged_plan_is_checked_again_at_the_way_out() -> None:
    for clearance in (frozenset[str](), frozenset({"elsewhere"})):
        stage = Stage(clearance=clearance)
        with pytest.raises(SovereigntyViolation):
            await stage.complete()
        with pytest.raises(SovereigntyViolation):
            await stage.stream()
        assert stage.tried == "aa"
        assert not any(provider.calls for provider in stage.providers.values())


async def test_a_request_one_dialect_cannot_say_goes_to_the_next_candidate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    dialect = DIALECTS["openai_chat"]
    encode = dialect.encode_request

    def picky(asked: ChatRequest, target: Any, cap: int) -> Any:
        if target.provider == "a":
            raise FeatureUnsupported("cannot say that")
        return encode(asked, target, cap)

    monkeypatch.setattr(type(dialect), "encode_request", lambda _, *rest: picky(*rest))

    assert await stage.complete() == "b"
    assert not stage.providers["a"].calls


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (streamed(ROLE), "stream_broken"),
        (streamed(ROLE, ERROR), "stream_broken"),
        (streamed(ROLE, break_off=UpstreamTimeout("late")), "upstream_timeout"),
        (streamed(b"data: {]\n\n"), "upstream_malformed"),
        (BAD, "upstream_refused"),
    ],
)
async def test_a_stream_without_content_so_far_may_come_from_another_candidate(
    reply: ScriptedReply, code: str
) -> None:
    stage = Stage()
    stage.providers["a"].add(reply)
    stage.providers["b"].add(streamed(ROLE, WORD, STOP, DONE))

    assert await stage.stream() == [ROLE, WORD, STOP, DONE]
    assert (stage.tried, stage.errors) == ("ab", [code, ""])


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (streamed(WORD), StreamBroken),
        (streamed(WORD, ERROR, DONE), StreamBroken),
        (streamed(WORD, b"data: {]\n\n"), UpstreamMalformed),
        (streamed(WORD, break_off=UpstreamTimeout("late")), UpstreamTimeout),
        (streamed(WORD, break_off=UpstreamUnreachable("cut")), UpstreamUnreachable),
    ],
)
async def test_a_stream_that_breaks_after_content_is_broken(
    reply: ScriptedReply, error: type[GatewrightError]
) -> None:
    stage = Stage()
    stage.providers["a"].add(reply, reply)

    for _ in range(2):
        with pytest.raises(error):
            await stage.stream("ab")

    assert stage.tried == "aa"
    assert stage.breakers.position("scripted/a", 0.0) == "open"


async def test_nothing_after_the_terminal_event_is_read() -> None:
    stage = Stage()
    stage.providers["a"].add(streamed(WORD, STOP, DONE, ERROR, break_off=UpstreamTimeout("late")))

    assert await stage.stream() == [WORD, STOP, DONE]


async def test_who_said_why_a_stream_stopped_and_does_not_now_was_cut_short() -> None:
    stage = Stage()
    stage.providers["a"].add(streamed(ROLE, WORD, DONE))
    assert await stage.stream() == [ROLE, WORD, DONE], "some servers never say why"
    stage.providers["a"].add(streamed(ROLE, WORD, STOP, DONE))
    assert await stage.stream() == [ROLE, WORD, STOP, DONE]
    stage.providers["a"].add(streamed(ROLE, WORD, DONE))
    with pytest.raises(StreamBroken, match="before its answers"):
        await stage.stream()

    stage.providers["a"].add(streamed(ROLE, DONE))
    stage.providers["b"].add(streamed(ROLE, WORD, DONE))
    assert await stage.stream() == [ROLE, WORD, DONE], "nothing was shown yet; b is another"


async def test_content_that_came_in_one_read_with_an_error_is_shown_before_it() -> None:
    stage = Stage()
    stage.providers["a"].add(streamed(ROLE + WORD + ERROR + WORD))
    live = await stage.dispatcher.open_stream(request(stream=True), stage.plan("ab"), stage.log)

    assert [event.raw for event in await live.next_batch()] == [ROLE, WORD]
    with pytest.raises(StreamBroken):
        await live.next_batch()
    await live.close()
    assert (stage.tried, stage.errors) == ("a", ["stream_broken"])


async def test_an_error_in_one_read_with_nothing_to_see_may_still_fall_back() -> None:
    stage = Stage()
    stage.providers["a"].add(streamed(ROLE + ERROR))
    stage.providers["b"].add(streamed(ROLE, WORD, STOP, DONE))

    assert await stage.stream() == [ROLE, WORD, STOP, DONE]
    assert stage.tried == "ab"


async def opened(stage: Stage, *pieces: bytes) -> LiveStream:
    stage.providers["a"].add(streamed(*pieces))
    return await stage.dispatcher.open_stream(request(stream=True), stage.plan("ab"), stage.log)


async def test_a_stream_that_is_left_is_cut_at_its_upstream() -> None:
    stage = Stage()
    live = await opened(stage, WORD, WORD, STOP, DONE)
    await live.next_batch()
    await live.close()
    assert stage.providers["a"].cancelled == 1


async def test_an_error_behind_content_in_one_read_breaks_the_stream_whatever_follows() -> None:
    stage = Stage()
    live = await opened(stage, WORD + ERROR, DONE)
    assert [event.raw for event in await live.next_batch()] == [WORD]
    with pytest.raises(StreamBroken, match="reported an error"):
        await live.next_batch()
    await live.close()
    assert (stage.tried, stage.errors) == ("a", [StreamBroken.code])


async def test_an_upstream_that_only_ever_says_hello_is_let_through() -> None:
    stage = Stage()
    stage.providers["a"].add(streamed(*[ROLE] * 200, break_off=UpstreamTimeout("stalled")))
    plan = stage.plan("ab")
    live = await stage.dispatcher.open_stream(request(stream=True), plan, stage.log)
    assert live.candidate.target.name == "scripted/a"
    assert len(await live.next_batch()) < 200
    await live.close()


async def test_a_stream_that_began_with_an_error_is_owed_nothing_an_unread_answer_is() -> None:
    stage = Stage()
    live = await opened(stage, ROLE, ERROR)
    await live.close()
    refused, _ = stage.log.bills()
    assert (refused.target.name, refused.usage) == ("scripted/a", None)

    stage = Stage()
    stage.providers["a"].add(ScriptedReply(pieces=(b"junk" * 4,)))
    assert await stage.complete("ab") == "b"
    unread, _ = stage.log.bills()
    assert unread.usage is not None
    assert (unread.usage.output_tokens, unread.usage.estimated) == (4, True)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_where_an_answer_was_due_is_a_refusal_and_owed_nothing(
    *, stream: bool
) -> None:
    stage = Stage()
    said = b'{"error":{"message":"Provider returned error","code":429}}'
    stage.providers["a"].add(ScriptedReply(pieces=(said,)))
    if stream:
        assert await stage.stream("ab")
    else:
        assert await stage.complete("ab") == "b"
    assert stage.errors == ["upstream_refused", ""]
    assert stage.log.bills()[0].usage is None


@pytest.mark.parametrize(
    ("counted", "owed"),
    [((70, 9), (70, 9)), ((0, 9), (None, 9)), ((10**9, 9), (None, 9))],
    ids=["counted", "in part", "beyond all that can be"],
)
async def test_an_answer_that_was_given_up_is_owed_as_it_was_counted(
    counted: tuple[int, int], owed: tuple[int | None, int]
) -> None:
    choice = {"index": 0, "message": {"content": "one"}, "finish_reason": "error"}
    usage = dict(zip(("prompt_tokens", "completion_tokens"), counted, strict=True))
    body = {"id": "c", "model": "m", "choices": [choice], "usage": usage}
    stage = Stage()
    stage.providers["a"].add(ScriptedReply(pieces=(msgspec.json.encode(body),)))
    assert await stage.complete("ab") == "b"
    told = stage.log.bills()[0].usage
    assert told is not None
    read = read_tokens(request(), "")
    assert (told.input_tokens, told.output_tokens) == (owed[0] or read, owed[1])
    assert told.estimated is (owed[0] is None)
