"""A cascade: the cheap tier answers, the gate reads, and what will not do goes one tier up."""

from collections.abc import Sequence

import msgspec
import pytest

from gateway.clock import StoppedClock
from gateway.dialects.registry import DIALECTS
from gateway.dispatch import cascading
from gateway.dispatch.attempts import CASCADED_CODE, AttemptLog
from gateway.dispatch.cascading import Cascade
from gateway.dispatch.dispatcher import Dispatcher
from gateway.dispatch.health import TargetHealth
from gateway.errors import StreamBroken, UpstreamRefused, UpstreamUnreachable
from gateway.providers.scripted import ScriptedProvider, ScriptedReply
from gateway.tally import Tally
from gateway.types import Candidate, ChatRequest, Delta, Plan, StreamEvent, Tier, Usage
from tests.gateway.providers.samples import HOME, make_target


pytestmark = pytest.mark.anyio

TIERS: dict[str, Tier] = {"a": "cheap", "b": "cheap", "x": "frontier", "y": "frontier"}
GONE = ScriptedReply(refusal=UpstreamUnreachable("gone"))
DONE = b"data: [DONE]\n\n"


def whole(text: str) -> ScriptedReply:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
    }
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    body = {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice]}
    return ScriptedReply(pieces=(msgspec.json.encode({**body, "usage": usage}),))


def streamed(*words: str, ends: bool = True) -> ScriptedReply:
    chunks = [{"choices": [{"index": 0, "delta": {"content": word}}]} for word in words]
    chunks += [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}] if ends else []
    pieces = [b"data: " + msgspec.json.encode({"id": "c", **chunk}) + b"\n\n" for chunk in chunks]
    end = (DONE,) if ends else ()
    broken = None if ends else StreamBroken("It ended before its terminal event.")
    return ScriptedReply(pieces=(*pieces, *end), is_event_stream=True, break_off=broken)


class Doubting:
    """A judge that doubts answers with one word in them."""

    def __init__(self) -> None:
        self.read: list[tuple[str, bool]] = []

    async def doubt(
        self, request: ChatRequest, organisation: str, answer: str, *, calls_tools: bool
    ) -> float:
        assert (request.request_id, organisation) == ("req_1", "acme")
        self.read.append((answer, calls_tools))
        return 0.9 if "perhaps" in answer else 0.2


class World:
    """Two cheap targets and two dear ones."""

    def __init__(self, exploration: float = 0.0) -> None:
        clock = StoppedClock()
        self.providers = {name: ScriptedProvider(name, HOME) for name in TIERS}
        self.judge = Doubting()
        self.log = AttemptLog()
        dispatcher = Dispatcher(self.providers, DIALECTS, TargetHealth(), clock)
        self.cascade = Cascade(dispatcher, self.judge, clock, exploration)

    def replies(self, **replies: Sequence[ScriptedReply]) -> None:
        for name, those in replies.items():
            self.providers[name] = ScriptedProvider(name, HOME, replies=those)
        self.cascade._dispatcher = Dispatcher(
            self.providers, DIALECTS, TargetHealth(), StoppedClock()
        )

    def plan(self, names: str, above: float | None = 0.5) -> Plan:
        candidates = tuple(
            Candidate(
                msgspec.structs.replace(
                    make_target(f"scripted/{name}"), provider=name, tier=TIERS[name]
                ),
                10,
                100,
            )
            for name in names
        )
        return Plan(
            candidates,
            frozenset({HOME}),
            30.0,
            "digest",
            "Because.",
            "none",
            cascade_above=above,
            tenant="acme",
        )

    async def complete(self, names: str = "ax", above: float | None = 0.5) -> str:
        answered = await self.cascade.complete(request(), self.plan(names, above), self.log)
        return answered.completion.text

    async def stream(self, names: str = "ax") -> str:
        live = await self.cascade.open_stream(request(stream=True), self.plan(names), self.log)
        said = ""
        while events := await live.next_batch():
            said += "".join(d.text for e in events for d in e.deltas if d.kind == "text")
        await live.close()
        return said

    @property
    def tried(self) -> str:
        return "".join(attempt.target[-1] for attempt in self.log.as_tuple())

    @property
    def spent(self) -> str:
        """Who is paid beside the answer."""
        bills = self.log.bills(Usage())
        return "".join(each.target.name[-1] for each in bills if each.usage not in (None, Usage()))

    @property
    def end(self) -> str:
        return self.log.cascade.get("cascade", "")


def request(*, stream: bool = False) -> ChatRequest:
    messages = [{"role": "user", "content": "hello"}]
    body = {"model": "auto", "messages": messages, "stream": stream}
    return DIALECTS["openai_chat"].decode_request(msgspec.json.encode(body), "req_1")


async def test_an_answer_that_will_do_is_kept_and_nobody_else_is_asked() -> None:
    world = World()
    world.replies(a=[whole("surely 42")], x=[whole("42")])
    assert await world.complete() == "surely 42"
    assert (world.tried, world.spent, world.end) == ("a", "", "kept")
    assert world.judge.read == [("surely 42", False)]


async def test_an_answer_that_is_doubted_goes_one_tier_up_and_both_are_paid() -> None:
    world = World()
    world.replies(a=[whole("perhaps 41")], b=[whole("b")], x=[whole("It is 42")])
    assert await world.complete("abx") == "It is 42"
    assert (world.tried, world.spent, world.end) == ("ax", "a", "escalated")
    usage = world.log.bills()[0].usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (10, 5)
    assert world.log.cascade["cascade_score_ppm"] == "900000"
    assert world.log.cascade["cascade_propensity_ppm"] == "1000000"
    assert world.log.cascade["cascade_agreement_ppm"] == "0"


async def test_where_the_dear_tier_does_not_answer_the_cheap_answer_counts_once() -> None:
    world = World()
    world.replies(a=[whole("perhaps 41")], x=[GONE, GONE], y=[GONE, GONE])
    assert await world.complete("axy") == "perhaps 41"
    assert (world.spent, world.end) == ("", "escalation_failed")


async def test_where_no_cheap_target_answers_the_dear_tier_is_asked_unjudged() -> None:
    world = World()
    world.replies(a=[GONE, GONE], b=[GONE, GONE], x=[whole("42")])
    assert await world.complete("abx") == "42"
    assert (world.judge.read, world.spent, world.end) == ([], "", "cheap_failed")


async def test_what_the_caller_did_wrong_is_not_asked_again_one_tier_up() -> None:
    world = World()
    world.replies(a=[ScriptedReply(status=400, pieces=(b"{}",))], x=[whole("42")])
    with pytest.raises(UpstreamRefused):
        await world.complete()
    assert not world.providers["x"].calls


@pytest.mark.parametrize(("names", "above"), [("ax", None), ("ab", 0.5), ("xa", 0.5)])
async def test_without_a_dearer_tier_behind_the_first_there_is_no_cascade(
    names: str, above: float | None
) -> None:
    world = World()
    world.replies(a=[whole("perhaps")], x=[whole("perhaps")])
    assert await world.complete(names, above) == "perhaps"
    assert (len(world.tried), world.judge.read, world.end) == (1, [], "")


async def test_a_stream_is_held_back_until_the_gate_has_spoken() -> None:
    world = World()
    world.replies(a=[streamed("surely", " 42")], x=[streamed("no")])
    assert await world.stream() == "surely 42"
    assert (world.tried, world.spent, world.end) == ("a", "", "kept")
    assert world.judge.read == [("surely 42", False)]


async def test_streams_make_no_pairs_and_record_no_odds() -> None:
    for at in range(100):
        world = World(exploration=0.05)
        world.replies(a=[streamed("surely", " 42")], x=[streamed("no")])
        world.judge.doubt = _never  # type: ignore[method-assign]
        asked = msgspec.structs.replace(request(stream=True), request_id=f"req_{at}")
        live = await world.cascade.open_stream(asked, world.plan("ax"), world.log)
        await live.close()
        assert world.end == "kept"
        assert "cascade_propensity_ppm" not in world.log.cascade


async def test_no_word_of_a_doubted_stream_is_shown() -> None:
    world = World()
    world.replies(a=[streamed("perhaps", " 41")], x=[streamed("It is", " 42")])
    assert await world.stream() == "It is 42"
    assert (world.tried, world.spent, world.end) == ("ax", "a", "escalated")


async def test_a_cheap_stream_that_breaks_is_answered_by_the_dear_tier() -> None:
    world = World()
    world.replies(a=[streamed("sure", ends=False)], x=[streamed("It is 42")])
    assert await world.stream() == "It is 42"
    assert (world.spent, world.end) == ("a", "cheap_failed")


async def test_a_doubted_stream_is_shown_after_all_where_the_dear_tier_does_not_answer() -> None:
    world = World()
    world.replies(a=[streamed("perhaps", " 41")], x=[GONE, GONE])
    assert await world.stream() == "perhaps 41"
    assert (world.spent, world.end) == ("", "escalation_failed")


async def test_a_stream_too_long_to_hold_goes_one_tier_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cascading, "HELD_BYTES_MAX", 200)
    world = World()
    world.replies(a=[streamed(*["surely "] * 50)], x=[streamed("short")])
    assert await world.stream() == "short"
    assert (world.judge.read, world.spent, world.end) == ([], "a", "escalated")
    assert [each.error for each in world.log.as_tuple()] == [CASCADED_CODE, ""]


@pytest.mark.parametrize(
    ("cheap", "said"),
    [
        (streamed("perhaps", " 41"), "perhaps 41"),
        (streamed("surely", " 41", ends=False), "surely 41"),
        (streamed(*["surely "] * 50), "surely " * 14),
    ],
    ids=["doubted", "broken", "too long"],
)
async def test_what_a_cheap_stream_said_is_owed_though_nobody_gets_it(
    cheap: ScriptedReply, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cascading, "HELD_BYTES_MAX", 1000)
    world = World()
    world.replies(a=[cheap], x=[streamed("It is", " 42")])
    assert await world.stream() == "It is 42"
    (owed, _), counted = world.log.bills(), Tally(0)
    counted.add([StreamEvent(b"", (Delta("text", said),))])
    assert owed.usage == counted.usage_so_far(request().input_tokens_estimate)


async def test_explored_answers_are_asked_of_the_dear_tier_with_recorded_odds() -> None:
    odds = set()
    for at in range(400):
        world = World(exploration=0.05)
        world.replies(a=[whole("surely it is 42 miles")], x=[whole("it is surely 42 miles")])
        asked = msgspec.structs.replace(request(), request_id="req_1")
        world.judge.doubt = _never  # type: ignore[method-assign]
        asked = msgspec.structs.replace(asked, request_id=f"req_{at}")
        await world.cascade.complete(asked, world.plan("ax"), world.log)
        note = world.log.cascade
        odds.add((note["cascade"], note["cascade_propensity_ppm"], note.get("cascade_explored")))
        assert ("cascade_agreement_ppm" in note) is (note["cascade"] == "escalated")
    assert odds == {("kept", "950000", None), ("escalated", "50000", "yes")}


async def _never(*_: object, **__: object) -> float:
    return 0.1
