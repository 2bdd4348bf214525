"""Why somebody was asked beside the first is noted, and what had no budget."""

import asyncio
from typing import Any

import pytest
from msgspec import structs

from gateway.dispatch.attempts import Extra
from gateway.dispatch.dispatcher import Dispatcher
from gateway.dispatch.health import RoomRules
from gateway.errors import FeatureUnsupported, NoTargetAvailable, UpstreamRefused
from gateway.ports import UpstreamBody, UpstreamCall
from gateway.providers.scripted import ScriptedProvider, ScriptedReply, ScriptedUpstreamReply
from tests.gateway.dispatch.test_cascading import World as CascadingWorld
from tests.gateway.dispatch.test_cascading import whole
from tests.gateway.dispatch.test_dispatcher import BAD, GONE, request
from tests.gateway.dispatch.test_walking import Held, Unhurried, World
from tests.gateway.providers.samples import HOME


pytestmark = pytest.mark.anyio

THROTTLED = ScriptedReply(status=429, pieces=(b"{}",), retry_after_s=0.01)
A, B = "scripted/a", "scripted/b"


async def test_who_answers_at_once_was_the_only_one() -> None:
    world = World()
    assert await world.ask() == "a"
    assert world.log.extra == ()


@pytest.mark.parametrize(
    ("reply", "names", "noted"),
    [
        (GONE, "a", Extra("retry", A, "upstream_unreachable")),
        (THROTTLED, "a", Extra("retry", A, "upstream_refused")),
        (BAD, "ab", Extra("fallback", A, "upstream_refused")),
    ],
)
async def test_a_failure_is_noted_with_whose_it_was(
    reply: ScriptedReply, names: str, noted: Extra
) -> None:
    world = World()
    world.providers["a"].add(reply)
    assert await world.ask(names) == names[-1]
    assert world.log.extra == (noted,)


async def test_another_pass_is_made_for_who_failed_last() -> None:
    world = World()
    for name in "ab":
        world.providers[name].add(THROTTLED)
    assert await world.ask("ab") == "a"
    assert world.log.extra == (
        Extra("fallback", A, "upstream_refused"),
        Extra("retry", B, "upstream_refused"),
    )


async def test_who_is_the_only_one_is_waited_for_however_late() -> None:
    world = World()
    slow = world.providers["a"] = Held("a")
    asking = asyncio.ensure_future(world.ask("a", hedge_after_s=0.0))
    await slow.asked.wait()
    slow.go.set()
    assert await asking == "a"
    assert world.log.extra == ()


async def test_after_the_last_pass_nobody_waits_or_pays_for_another() -> None:
    world = Unhurried(backoff_s=0.0, share=0.0, reserve=10.0)
    world.providers["a"].add(THROTTLED, THROTTLED)
    with pytest.raises(UpstreamRefused):
        await world.ask("a")
    assert world.slept == [0.01]
    assert world.log.extra == (Extra("retry", A, "upstream_refused"),)
    assert left(world) == 9


async def test_the_last_time_counts_of_whether_a_target_had_begun_to_answer() -> None:
    world = World()
    world.providers["a"].add(THROTTLED, GONE)
    assert await world.ask("a") == "a"
    assert world.errors == ["upstream_refused", "upstream_unreachable", ""]


async def test_what_the_budget_has_no_room_for_was_not_made() -> None:
    world = World(share=0.0, reserve=0.0)
    world.providers["a"].add(BAD)
    with pytest.raises(UpstreamRefused):
        await world.ask("ab")
    assert world.log.extra == (Extra("fallback", A, "upstream_refused", was_made=False),)


class Filling(ScriptedProvider):
    """Throttled, and by then somebody else's requests have filled all the room there is."""

    def __init__(self, world: World) -> None:
        super().__init__("a", HOME)
        self.add(THROTTLED)
        self._world = world

    async def open(self, call: UpstreamCall) -> ScriptedUpstreamReply:
        reply = await super().open(call)
        for _ in range(20):
            self._world.health.began(A)
        return reply


async def test_another_pass_that_finds_all_of_them_busy_is_no_attempt() -> None:
    world = World(room=RoomRules(start=10.0))
    world.providers["a"] = Filling(world)

    with pytest.raises(NoTargetAvailable, match="busy"):
        await world.ask("a")

    assert len(world.log.as_tuple()) == 1
    assert world.log.extra == ()
    assert left(world) == 10


def left(world: World) -> int:
    """How many attempts the retry budget still pays for."""
    return sum(iter(world.budget.spend, False))


async def test_a_target_that_has_no_word_for_a_request_was_not_asked() -> None:
    world = World()
    world.providers["a"].add(BAD)

    def encode(*asked: Any) -> UpstreamBody:
        if asked[2].target.name == B:
            raise FeatureUnsupported("It has no word for that.")
        return Dispatcher._encode(*asked)

    dispatcher = world.dispatcher
    dispatcher._ground = structs.replace(dispatcher._ground, encode=encode)
    answered = await dispatcher.complete(request(), world.plan("abc"), world.log)

    assert answered.candidate.target.name == "scripted/c"
    assert [attempt.target for attempt in world.log.as_tuple()] == [A, "scripted/c"]
    assert world.log.extra == (Extra("fallback", B, FeatureUnsupported.code),)
    assert left(world) == 9


async def test_a_hedge_was_made_for_who_was_late_and_a_fallback_for_who_failed_last() -> None:
    world = World()
    slow = world.providers["a"] = Held("a")
    slow.add(BAD)
    world.providers["b"].add(BAD)
    asking = asyncio.ensure_future(world.ask("abc", hedge_after_s=0.01))
    await asyncio.sleep(0.05)
    slow.go.set()
    assert await asking == "c"
    assert world.log.extra == (
        Extra("hedge", A, "late"),
        Extra("fallback", B, "upstream_refused"),
    )


@pytest.mark.parametrize(
    ("replies", "noted"),
    [
        ({"a": [whole("surely 42")]}, ()),
        (
            {"a": [whole("perhaps 41")], "x": [whole("42")]},
            (Extra("cascade", A, "doubted"),),
        ),
        (
            {"a": [GONE, GONE], "x": [whole("42")]},
            (
                Extra("retry", A, "upstream_unreachable"),
                Extra("fallback", A, "no_target_available"),
            ),
        ),
    ],
)
async def test_a_dearer_answer_is_noted_with_why_it_was_asked_for(
    replies: dict[str, Any], noted: tuple[Extra, ...]
) -> None:
    world = CascadingWorld()
    world.replies(**replies)
    assert await world.complete("ax")
    assert world.log.extra == noted
