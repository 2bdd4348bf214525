"""What is refused for a part that can go is sent once more without it: paid, told and bounded."""

import json
from typing import Any

import msgspec
import pytest

from gateway.dialects.registry import DIALECTS
from gateway.dispatch.attempts import Extra
from gateway.dispatch.walking import MENDS_MAX
from gateway.errors import UpstreamRefused
from gateway.ports import UpstreamBody, UpstreamCall
from gateway.providers.scripted import ScriptedProvider, ScriptedReply, ScriptedUpstreamReply
from tests.gateway.dispatch.test_dispatcher import request
from tests.gateway.dispatch.test_walking import World
from tests.gateway.providers.samples import HOME


pytestmark = pytest.mark.anyio

A = "scripted/a"


def refusing(field: str, code: str = "unsupported_parameter") -> ScriptedReply:
    said = {"error": {"message": "no", "param": field, "code": code}}
    return ScriptedReply(status=400, pieces=(json.dumps(said).encode(),))


class Mending(World):
    """Any field that is refused can go; those that begin with `x` are missed by somebody."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
        super().__init__(**more)
        self.made = super().dispatcher
        chat = type(DIALECTS["openai_chat"])
        monkeypatch.setattr(chat, "mend_request", lambda _, *asked: self.mend(*asked))

    @property
    def dispatcher(self) -> Any:
        """The same one for every request: it learns."""
        return self.made

    @staticmethod
    def mend(body: bytes, error: UpstreamRefused) -> UpstreamBody | None:
        code = error.upstream_code
        field = error.upstream_parameter or (code if code in {"y1", "y2"} else "")
        if not field:
            return None
        mended = {**msgspec.json.decode(body), f"without_{field}": True}
        return UpstreamBody(msgspec.json.encode(mended), (field,) if field[0] == "x" else ())

    @property
    def without(self) -> list[set[str]]:
        """What each call to a went without."""
        trees = [msgspec.json.decode(call.body) for call in self.providers["a"].calls]
        return [{name[-2:] for name in tree if name.startswith("without_")} for tree in trees]


async def test_a_part_that_was_refused_is_left_out_and_that_is_told_and_paid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Mending(monkeypatch, share=0.0, reserve=3.0)
    world.providers["a"].add(refusing("x1"), refusing("x2"))
    answered = await world.dispatcher.complete(request(), world.plan("a"), world.log)
    assert answered.dropped == ("x1", "x2")
    assert world.without == [set(), {"x1"}, {"x1", "x2"}]
    assert world.log.extra == (Extra("mend", A, "upstream_refused"),) * 2
    assert sum(iter(world.budget.spend, False)) == 1
    assert [bill.usage is None for bill in world.log.bills()] == [True, True, False]


async def test_only_what_nobody_misses_is_left_out_the_next_time_before_it_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Mending(monkeypatch)
    world.providers["a"].add(refusing("y1"), refusing("x1"), refusing("y2"))
    for _ in range(2):
        assert await world.ask("a") == "a"
    assert world.without[-1] == {"y1", "y2"}
    assert world.log.extra == ()
    world.providers["b"].add(ScriptedReply(status=500))
    assert await world.ask("ba") == "a"
    sent = msgspec.json.decode(world.providers["b"].calls[0].body)
    assert not any(name.startswith("without_") for name in sent), "b refused none of it"


async def test_what_two_refusals_say_by_their_codes_alone_is_remembered_of_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Mending(monkeypatch)
    world.providers["a"].add(refusing("", "y1"), refusing("", "y2"))
    for _ in range(2):
        assert await world.ask("a") == "a"
    assert world.without == [set(), {"y1"}, {"y1", "y2"}, {"y1", "y2"}]


@pytest.mark.parametrize(
    ("field", "more", "reserve"),
    [("", {}, 9.0), ("y1", {}, 0.0), ("x1", {"translation": "strict"}, 9.0)],
    ids=["nothing can go", "no budget", "a key that leaves nothing out"],
)
async def test_a_refusal_that_cannot_be_mended_is_told(
    field: str, more: dict[str, Any], reserve: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Mending(monkeypatch, share=0.0, reserve=reserve)
    world.providers["a"].add(refusing(field))
    with pytest.raises(UpstreamRefused):
        await world.ask("a", **more)
    assert len(world.providers["a"].calls) == 1
    withheld = Extra("mend", A, "upstream_refused", was_made=False)
    assert world.log.extra == (() if reserve else (withheld,))


async def test_a_key_that_leaves_nothing_out_is_served_without_what_nobody_misses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Mending(monkeypatch)
    world.providers["a"].add(refusing("y1"))
    assert await world.ask("a", translation="strict") == "a"
    assert world.without == [set(), {"y1"}]


async def test_an_upstream_that_refuses_without_end_is_asked_only_so_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Mending(monkeypatch)
    world.providers["a"].add(*[refusing(f"y{at}") for at in range(9)])
    with pytest.raises(UpstreamRefused):
        await world.ask("a")
    assert len(world.providers["a"].calls) == MENDS_MAX + 1


async def test_after_the_deadline_nothing_is_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(ScriptedProvider):
        async def open(self, call: UpstreamCall) -> ScriptedUpstreamReply:
            world.clock.advance(call.deadline_s)
            return await super().open(call)

    world = Mending(monkeypatch)
    world.providers["a"] = Late("a", HOME, replies=[refusing("y1")])
    with pytest.raises(UpstreamRefused):
        await world.ask("a")
    assert len(world.providers["a"].calls) == 1
