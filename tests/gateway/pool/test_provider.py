"""The pool as one provider: members are chosen, counted, compared and given up."""

from collections.abc import Sequence

import msgspec
import pytest

from gateway.clock import StoppedClock
from gateway.errors import (
    ConfigurationInvalid,
    PoolBusy,
    RequestInvalid,
    SovereigntyViolation,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.pool.provider import PoolProvider
from gateway.ports import UpstreamCall
from gateway.providers.engine import EngineModel
from gateway.providers.scripted import ScriptedProvider, ScriptedReply
from tests.gateway.providers.samples import HOME, make_call


pytestmark = pytest.mark.anyio
GONE = ScriptedReply(refusal=UpstreamUnreachable("gone"))


def with_body(body: bytes) -> UpstreamCall:
    return msgspec.structs.replace(make_call(), body=body)


class Host(ScriptedProvider):
    """A scripted engine that says what it serves."""

    def __init__(self, name: str, jurisdiction: str = HOME, digest: str = "d1") -> None:
        super().__init__(name, jurisdiction)
        self.models: Sequence[EngineModel] = (EngineModel("fake-model", digest),)

    async def list_models(self) -> Sequence[EngineModel]:
        return self.models


class Pool:
    def __init__(self, *hosts: Host) -> None:
        self.clock = StoppedClock()
        self.hosts = {host.name: host for host in hosts or (Host("a"), Host("b"), Host("c"))}
        self.provider = PoolProvider("house", self.hosts, self.clock.monotonic_s)

    @property
    def calls(self) -> int:
        return sum(member.calls for member in self.provider.router.members)


def test_a_pool_is_of_one_jurisdiction_and_has_members() -> None:
    with pytest.raises(ConfigurationInvalid, match="one jurisdiction"):
        Pool(Host("a"), Host("b", "elsewhere"))
    with pytest.raises(ConfigurationInvalid, match="has members"):
        PoolProvider("house", {}, StoppedClock().monotonic_s)


async def test_load_counts_from_the_choice_to_the_close() -> None:
    pool = Pool()
    reply = await pool.provider.open(make_call())
    assert pool.calls == 1
    assert await reply.read()
    await reply.close()
    await reply.close()
    assert pool.calls == 0


async def test_the_clearance_is_checked_at_the_member_and_nothing_is_counted() -> None:
    pool = Pool()
    with pytest.raises(SovereigntyViolation):
        await pool.provider.open(make_call(clearance=frozenset({"elsewhere"})))
    assert pool.calls == 0
    assert not any(host.calls for host in pool.hosts.values())


async def test_a_member_that_failed_is_avoided_and_one_that_is_gone_is_down() -> None:
    pool = Pool(Host("a"), Host("b"))
    for host in pool.hosts.values():
        host.add(GONE)
    with pytest.raises(UpstreamUnreachable):
        await pool.provider.open(make_call())
    assert [member.is_up for member in pool.provider.router.members].count(False) == 1
    with pytest.raises(UpstreamUnreachable):
        await pool.provider.open(with_body(b'{"messages":["another"]}'))
    with pytest.raises(PoolBusy):
        await pool.provider.open(with_body(b'{"messages":["a third"]}'))
    assert await pool.provider.probe() == ""
    assert (await pool.provider.open(with_body(b'{"messages":["x"]}'))).status == 200
    assert pool.calls == 1


async def test_what_killed_two_members_is_refused() -> None:
    pool = Pool()
    for host in pool.hosts.values():
        host.add(GONE)
    for _ in range(2):
        with pytest.raises(UpstreamUnreachable):
            await pool.provider.open(make_call())
        await pool.provider.probe()
    with pytest.raises(RequestInvalid, match="Two engines died"):
        await pool.provider.open(make_call())


async def test_a_stream_tells_how_fast_its_member_is_and_a_broken_one_gives_its_load_back() -> None:
    pool = Pool(Host("a"))
    pool.hosts["a"].add(ScriptedReply(pieces=(b"1", b"2", b"3"), is_event_stream=True))
    reply = await pool.provider.open(make_call())
    async for _ in reply.chunks():
        pool.clock.advance(0.5)
    await reply.close()
    assert pool.provider.speeds._token_ms == {"a": 750.0}

    cut = ScriptedReply(pieces=(b"1",), is_event_stream=True, break_off=UpstreamTimeout("late"))
    pool.hosts["a"].add(cut)
    reply = await pool.provider.open(make_call())
    with pytest.raises(UpstreamTimeout):
        async for _ in reply.chunks():
            pass
    await reply.close()
    assert pool.calls == 0


async def test_members_with_other_weights_than_most_get_nothing() -> None:
    pool = Pool(Host("a"), Host("b", digest="d2"), Host("c"))
    assert await pool.provider.probe() == ""
    assert [member.is_up for member in pool.provider.router.members] == [True, False, True]
    assert (await pool.provider.list_models())[0].digest == "d1"
    for host in pool.hosts.values():
        host.probe_verdict = "it is not ready"
    assert await pool.provider.probe() == "it is not ready"
    assert list(await pool.provider.list_models()) == []


async def test_a_draining_member_gets_nothing_new() -> None:
    pool = Pool(Host("a"), Host("b"))
    pool.provider.drain("a")
    for number in range(6):
        await pool.provider.open(with_body(b'{"messages":["%d"]}' % number))
    assert not pool.hosts["a"].calls
    pool.provider.drain("a", is_draining=False)
    for number in range(6):
        await pool.provider.open(with_body(b'{"messages":["%d"]}' % number))
    assert pool.hosts["a"].calls
    assert pool.provider.unavailable_reason == ""
    await pool.provider.close()
