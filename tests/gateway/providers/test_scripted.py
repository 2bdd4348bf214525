"""The scripted provider: replays, records and never poses as a model."""

import pytest

from gateway.errors import ConfigurationInvalid, UpstreamTimeout
from gateway.providers.scripted import CALLS_KEPT, ScriptedProvider, ScriptedReply
from tests.gateway.providers.samples import HOME, make_call, make_target


pytestmark = pytest.mark.anyio


async def test_replies_are_played_in_order_and_then_small_good_ones() -> None:
    provider = ScriptedProvider("s", HOME, replies=[ScriptedReply(pieces=(b"one",))])
    provider.add(ScriptedReply(pieces=(b"t", b"wo"), status=500, gap_s=0.001))
    assert await (await provider.open(make_call())).read() == b"one"
    second = await provider.open(make_call())
    assert (second.status, await second.read()) == (500, b"two")
    assert b"scripted" in await (await provider.open(make_call())).read()
    assert len(provider.calls) == 3
    assert provider.cancelled == 0


async def test_it_does_not_hold_all_that_it_was_ever_asked() -> None:
    provider = ScriptedProvider("s", HOME)
    calls = [make_call() for _ in range(CALLS_KEPT + 2)]
    for call in calls:
        await provider.open(call)
    assert provider.calls == calls[2:]


async def test_a_target_that_is_not_named_scripted_is_refused() -> None:
    provider = ScriptedProvider("s", HOME)
    for name in ("gpt-6-sol", "scripted", "scripted-model", "not/scripted/one"):
        with pytest.raises(ConfigurationInvalid):
            await provider.open(make_call(target=make_target(name)))
    assert provider.calls == []


async def test_pieces_before_a_break_are_delivered() -> None:
    broken = ScriptedReply(pieces=(b"half",), break_off=UpstreamTimeout("late"))
    provider = ScriptedProvider("s", HOME, replies=[broken])
    chunks = (await provider.open(make_call(stream=True))).chunks()
    assert await anext(chunks) == b"half"
    with pytest.raises(UpstreamTimeout):
        await anext(chunks)


async def test_its_probe_says_what_it_was_told() -> None:
    provider = ScriptedProvider("s", HOME)
    assert await provider.probe() == ""
    provider.probe_verdict = "down"
    assert await provider.probe() == "down"
    provider.unavailable_reason = "switched off"
    assert await provider.probe() == "switched off"
