"""Whatever is asked in whatever order, a kept answer is given only where it would be made again.

Two workers share a place. The upstream's answers say in which world they were made, so that each
that comes back can be held against the one in which it is given.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, structs

from gateway.caching.answering import CachingAnswers
from gateway.caching.likeness import Vector, is_comparable, question_of, vector_of
from gateway.caching.response_cache import CLOCKS_APART_US, KeptReply, ResponseCache
from gateway.clock import SECOND_US, StoppedClock
from gateway.configuration.sections import ResponseCacheSettings
from gateway.configuration.settings import Limits
from gateway.dispatch.attempts import AttemptLog
from gateway.dispatch.dispatcher import Answered
from gateway.identity import KeyTable
from gateway.metrics import Metrics
from gateway.passage import Arrival, Passage
from gateway.rollout.versions import PolicySet
from gateway.routing.board import TargetBoard
from gateway.routing.planning import Ruling, gather, rule
from gateway.snapshot import Snapshot
from gateway.types import ChatRequest, Completion, Plan, Usage
from tests.gateway.batching.parking_lot import DIALECT, ENDPOINT, INSPECTION, LIMIT, PRINCIPAL
from tests.gateway.providers.samples import make_target
from tests.policies.worlds import document


NOTHING: Any = None
KEEPS_S = 100
APART_S = CLOCKS_APART_US // SECOND_US + 1
DEFAULTS = {"order": ["cheapest"], "cache_s": KEEPS_S, "cache_like_percent": 50.0}
SETS = tuple(
    PolicySet(each)
    for each in (
        document(defaults=DEFAULTS),
        document({"when": "true", "audit_content": "encrypted"}, defaults=DEFAULTS),
        document({"when": 'data_class >= "S2"', "no_cache": True}, defaults=DEFAULTS),
        document(defaults={"order": ["cheapest"]}),
    )
)
CLOSED = 3
"""The document that lets nothing be given again; of the one before, from this class on."""
CLOSED_FROM = "S2"
QUESTIONS = (
    "what do cats eat in the long winter",
    "in the long cold winter what is it that cats eat",
    "what do cats eat in the long winter of 1947",
    "what do cats not eat in the long winter",
)
PRICED = (1, 2)


class World(Struct, frozen=True):
    """All that an answer depends on."""

    organisation: str
    project: str
    policies: int
    data_class: str
    price: int
    system: str
    question: str
    end_user: str


class Said(Struct, frozen=True):
    world: World
    made_s: float


USUAL = World("acme", "x", 0, "S0", 1, "", QUESTIONS[0], "")
TWISTS: tuple[dict[str, Any], ...] = (
    {},
    {"organisation": "rival"},
    {"project": "y"},
    *({"policies": number} for number in range(1, len(SETS))),
    {"policies": CLOSED - 1, "data_class": CLOSED_FROM},
    {"data_class": CLOSED_FROM},
    {"price": PRICED[1]},
    {"system": "Be brief."},
    *({"question": each} for each in QUESTIONS[1:]),
    {"end_user": "ann"},
)
"""Worlds that differ in one thing are those that might be taken for each other."""
WORLDS = st.sampled_from([structs.replace(USUAL, **twist) for twist in TWISTS])
ASKED = st.tuples(st.just("ask"), st.sampled_from([0, 1]), WORLDS)
STEPS = st.lists(
    ASKED
    | ASKED
    | st.tuples(st.just("wait"), st.sampled_from([1, 40, 101]))
    | st.tuples(st.just("erase"), st.sampled_from(["acme", "rival"])),
    min_size=10,
    max_size=40,
)


class Shared:
    """A place that loses nothing."""

    def __init__(self) -> None:
        self.replies: dict[tuple[str, bytes], KeptReply] = {}

    async def find(self, organisation: str, key: bytes) -> KeptReply | None:
        return self.replies.get((organisation, key))

    def keep(self, organisation: str, key: bytes, reply: KeptReply, keeps_s: int) -> None:
        self.replies[organisation, key] = reply

    async def close(self) -> None:
        pass


class Alike:
    """To whom all questions point the same way: nothing but the rules keeps them apart."""

    async def vector(self, passage: Passage, text: str) -> Vector | None:
        return vector_of([1.0, 2.0])


class Upstream:
    """Says in which world it was asked."""

    def __init__(self, clock: StoppedClock) -> None:
        self._clock = clock
        self.world: Any = None

    async def complete(self, sent: object, plan: Plan, *_: object) -> Answered:
        said = msgspec.json.encode(Said(self.world, self._clock.monotonic_s()))
        completion = Completion(
            said, "m", "model", "", (), "end", None, Usage(), is_repeatable=True
        )
        return Answered(plan.candidates[0], "openai_chat", completion, ())


class SlowUpstream(Upstream):
    """Answers all at once, when it is told to; by then it knows many worlds."""

    def __init__(self, clock: StoppedClock) -> None:
        super().__init__(clock)
        self.worlds: dict[str, World] = {}
        self.asked: list[World] = []
        self.plans: list[Plan] = []
        self.answers = asyncio.Event()

    async def complete(self, sent: object, plan: Plan, *_: object) -> Answered:
        assert isinstance(sent, ChatRequest)
        world = self.worlds[sent.request_id]
        self.asked.append(world)
        self.plans.append(plan)
        await self.answers.wait()
        self.world = world
        return await super().complete(sent, plan)


class Installation:
    """Two workers, and when each organisation was erased last."""

    def __init__(self, made: type[Upstream] = Upstream) -> None:
        self.clock, self.shared = StoppedClock(), Shared()
        self.upstream = made(self.clock)
        settings = ResponseCacheSettings(1 << 20, 1 << 20, 1 << 20)
        self.caches = [ResponseCache(settings, self.shared) for _ in range(2)]
        self.workers = [
            CachingAnswers(self.upstream, cache, Alike(), self.clock, Metrics())  # type: ignore[arg-type]
            for cache in self.caches
        ]
        self.erased_s: dict[str, float] = {}
        self._erased_us: dict[str, int] = {}

    def erase(self, organisation: str) -> None:
        self.erased_s[organisation] = self.clock.monotonic_s()
        self._erased_us[organisation] = self.clock.utc_us()
        for cache in self.caches:
            cache.forget_erased(dict(self._erased_us), [organisation])

    async def ask(self, worker: int, world: World) -> tuple[Said, Mapping[str, str]]:
        """What comes back, and what the caller hears of the cache."""
        self.upstream.world = world
        log = AttemptLog()
        answered = await self.workers[worker].complete(self._passage(world), log)
        assert answered.candidate.target.price.input_microusd_per_mtok == world.price
        return msgspec.json.decode(answered.completion.raw, type=Said), log.told

    def _passage(self, world: World, request_id: str = "req_1") -> Passage:
        policies, now_us = SETS[world.policies], self.clock.utc_us()
        target = make_target()
        price = structs.replace(target.price, input_microusd_per_mtok=world.price)
        board = TargetBoard({target.name: structs.replace(target, price=price)}, {})
        principal = structs.replace(
            PRINCIPAL, organisation=world.organisation, project=world.project
        )
        inspection = structs.replace(INSPECTION, data_class=world.data_class)
        request = DIALECT.decode_request(body_of(world), request_id)
        facts = gather(request, principal, inspection, LIMIT, now_us, board)
        ruling = rule(policies.base, facts, request, board, Limits())
        assert isinstance(ruling, Ruling)
        snapshot = Snapshot("s1", KeyTable(1, {}), policies, board)
        arrival = Arrival("req_1", ENDPOINT, DIALECT, [], now_us, snapshot)
        nobody = (NOTHING, NOTHING)
        whose = world.end_user
        return Passage(arrival, principal, request, inspection, ruling, *nobody, subject=whose)


def body_of(world: World) -> bytes:
    system = [{"role": "system", "content": world.system}] if world.system else []
    messages = [*system, {"role": "user", "content": world.question}]
    return msgspec.json.encode({"model": "auto", "messages": messages})


def is_kept(world: World) -> bool:
    is_closed = world.policies == CLOSED - 1 and world.data_class >= CLOSED_FROM
    return not (world.end_user or world.policies == CLOSED or is_closed)


def are_comparable(one: World, other: World) -> bool:
    first, second = (question_of(msgspec.json.decode(body_of(each)), b"") for each in (one, other))
    assert first is not None
    assert second is not None
    return first.family == second.family and is_comparable(first, second)


@given(STEPS)
def test_no_history_gives_an_answer_of_another_world(steps: list[tuple[Any, ...]]) -> None:
    asyncio.run(_lived_through(steps))


async def _lived_through(steps: list[tuple[Any, ...]]) -> None:
    there = Installation()
    for kind, *given_ in steps:
        if kind == "wait":
            there.clock.advance(given_[0])
        elif kind == "erase":
            there.erase(given_[0])
        else:
            await _asked(there, *given_)


async def _asked(there: Installation, worker: int, world: World) -> None:
    said, told = await there.ask(worker, world)
    now_s = there.clock.monotonic_s()
    if told.get("x-gatewright-cache", "miss") == "miss":
        assert said == Said(world, now_s)
        return
    assert structs.replace(said.world, question=world.question) == world
    assert said.world.question == world.question or are_comparable(said.world, world)
    assert is_kept(world)
    assert now_s - said.made_s <= KEEPS_S
    assert said.made_s > there.erased_s.get(world.organisation, float("-inf"))


async def _twice(*between: tuple[Any, ...]) -> list[str]:
    """What two workers say of their caches: asked the same, here and there, and in other words."""
    there = Installation()
    there.clock.advance(1)
    await _asked(there, 0, USUAL)
    await _lived_between(there, *between)
    others = [(0, QUESTIONS[0]), (1, QUESTIONS[0]), (0, QUESTIONS[1]), (0, QUESTIONS[2])]
    told = []
    for worker, question in others:
        _, heard = await there.ask(worker, structs.replace(USUAL, question=question))
        told.append(heard["x-gatewright-cache"].partition(";")[0])
    return told


async def _lived_between(there: Installation, *steps: tuple[Any, ...]) -> None:
    for kind, given_ in steps:
        if kind == "erase":
            there.erase(given_)
        there.clock.advance(APART_S)


def test_the_same_world_gives_it_again_and_an_erased_one_does_not() -> None:
    """So the property above is not one of a cache that never gives anything."""
    again = asyncio.run(_twice(("erase", "rival")))
    assert again == ["hit", "hit", "like", "miss"]
    gone = asyncio.run(_twice(("erase", "acme")))
    assert gone[0] == "miss"
    assert gone[1:] == ["hit", "like", "miss"], "of what was asked anew since"


@pytest.mark.parametrize("twist", TWISTS, ids=str)
@pytest.mark.parametrize("worker", [0, 1])
def test_what_differs_in_one_thing_is_asked_anew(worker: int, twist: dict[str, Any]) -> None:
    """Whichever of the two came first, and whichever worker is asked second."""
    is_the_same = not twist or (twist == {"question": QUESTIONS[1]} and worker == 0)

    async def asked(*worlds: World) -> None:
        there = Installation()
        there.clock.advance(1)
        await _asked(there, 0, worlds[0])
        _, told = await there.ask(worker, worlds[1])
        heard = told.get("x-gatewright-cache", "none").partition(";")[0]
        assert (heard in ("hit", "like")) == is_the_same

    other = structs.replace(USUAL, **twist)
    asyncio.run(asked(USUAL, other))
    asyncio.run(asked(other, USUAL))


@pytest.mark.anyio
async def test_nobody_waits_into_the_answer_of_another_world() -> None:
    """All of them at once, each three times, whoever of them comes first."""
    for first in range(len(TWISTS)):
        there = Installation(SlowUpstream)
        upstream = there.upstream
        assert isinstance(upstream, SlowUpstream)
        worlds = [structs.replace(USUAL, **twist) for twist in TWISTS]
        worlds = (worlds[first:] + worlds[:first]) * 3
        upstream.worlds = {f"req_{at}": world for at, world in enumerate(worlds)}
        cached = there.workers[0]
        asked = [
            asyncio.ensure_future(cached.complete(there._passage(world, request_id), AttemptLog()))
            for request_id, world in upstream.worlds.items()
        ]
        while there.caches[0].leads.waiting + len(upstream.asked) < len(worlds):
            await asyncio.sleep(0)
        upstream.answers.set()

        answers = [(await each).completion.raw for each in asked]
        said = [msgspec.json.decode(answer, type=Said).world for answer in answers]
        assert [structs.replace(each, question="") for each in said] == [
            structs.replace(each, question="") for each in worlds
        ]
        assert all(are_comparable(*pair) for pair in zip(said, worlds, strict=True))
        assert upstream.asked.count(worlds[0]) == (1 if is_kept(worlds[0]) else 3)


@pytest.mark.anyio
async def test_who_waited_in_vain_has_the_rest_of_its_time_and_who_wants_nothing_kept_all() -> None:
    there = Installation(SlowUpstream)
    upstream = there.upstream
    assert isinstance(upstream, SlowUpstream)
    upstream.worlds = {f"req_{at}": USUAL for at in range(3)}
    passages = [there._passage(USUAL, request_id) for request_id in upstream.worlds]
    headers = [(b"cache-control", b"no-cache")]
    unwilling = structs.replace(passages[2].arrival, headers=headers)
    passages[2] = structs.replace(passages[2], arrival=unwilling)
    complete, leads = there.workers[0].complete, there.caches[0].leads

    first, second, third = (
        asyncio.ensure_future(complete(each, AttemptLog())) for each in passages
    )
    while leads.waiting + len(upstream.asked) < len(passages):
        await asyncio.sleep(0)
    assert (leads.waiting, len(upstream.asked)) == (1, 2), "the third asks for itself"
    there.clock.advance(7)
    first.cancel()
    while leads.waiting or len(upstream.asked) < len(passages):
        await asyncio.sleep(0)
    upstream.answers.set()
    await asyncio.gather(second, third)

    whole_s = passages[0].ruling.plan.deadline_s
    assert [each.deadline_s for each in upstream.plans] == [whole_s, whole_s, whole_s - 7]
    assert passages[1].ruling.plan.deadline_s == whole_s
