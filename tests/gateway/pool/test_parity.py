"""Replicas of the same weights are asked the same question, wherever they stand."""

from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from gateway.clock import StoppedClock
from gateway.pool.parity import EVERY_S, Parity
from gateway.pool.provider import PoolProvider
from gateway.ports import ServedModel
from gateway.providers.engine import EngineModel
from tests.gateway.pool.test_provider import Host
from tests.gateway.providers.samples import HOME


pytestmark = pytest.mark.anyio


class House:
    """Pools by name, and engines in none, as one worker compares them."""

    def __init__(self, *alone: Host, **pools: Sequence[Host]) -> None:
        self.clock = StoppedClock()
        self.pools = {
            name: PoolProvider(name, {host.name: host for host in hosts}, self.clock.monotonic_s)
            for name, hosts in pools.items()
        }
        self.alone = {host.name: host for host in alone}
        self.is_up = True
        self.parity = Parity(
            list(self.pools.values()), lambda: self.alone, self._serving, self.clock.monotonic_s
        )

    def _serving(self, name: str) -> Sequence[ServedModel]:
        return self.alone[name].models if self.is_up else ()

    async def drifting(self) -> list[tuple[str, str]]:
        """Pool and name of those that are said to drift at the next comparison."""
        for pool in self.pools.values():
            await pool.probe()
        self.clock.advance(EVERY_S)
        with capture_logs() as lines:
            await self.parity.tend()
        found = [
            (line["provider"], line["reason"])
            for line in lines
            if line["event"] == "pool:member_drifts"
        ]
        assert sorted(self.parity.differing) == sorted(member for _, member in found)
        return found


def three() -> list[Host]:
    return [Host("a"), Host("b"), Host("c")]


async def test_replicas_of_the_same_weights_must_give_the_same_greedy_answers() -> None:
    hosts = three()
    house = House(house=hosts)
    assert await house.drifting() == []
    assert [host.asked_greedily for host in hosts] == [1, 1, 1]
    await house.parity.tend()
    assert [host.asked_greedily for host in hosts] == [1, 1, 1], "once a minute"
    hosts[1].greedy_answers = ["six, eight"]
    assert await house.drifting() == [("house", "b")]
    hosts[1].greedy_answers = ["six, seven"]
    assert await house.drifting() == [], "it is well again"


async def test_a_tie_that_fell_the_other_way_once_is_no_drift_and_silence_is_none() -> None:
    hosts = three()
    house = House(house=hosts)
    hosts[1].greedy_answers = ["six eight", "six, seven"]
    hosts[2].greedy_answers = [""]
    assert await house.drifting() == []
    assert [host.asked_greedily for host in hosts] == [2, 2, 1]


async def test_two_that_never_agree_are_both_named() -> None:
    first, second = Host("a"), Host("b")
    second.greedy_answers = ["six, eight"]
    assert await House(house=[first, second]).drifting() == [("house", "a"), ("house", "b")]


async def test_replicas_of_the_same_digest_are_compared_across_pools() -> None:
    home, far = [Host("a"), Host("b")], [Host("d", "elsewhere")]
    far[0].models = (EngineModel("its-own-name", "d1"),)
    house = House(home=home, far=far)
    assert await house.drifting() == []
    assert far[0].asked_models == {"its-own-name"}, "each is asked for what it calls the model"
    far[0].greedy_answers = ["six, eight"]
    assert await house.drifting() == [("far", "d")]
    assert not any(host.calls for host in (*home, *far)), "nothing of any caller went anywhere"
    far[0].models = (EngineModel("its-own-name", "d2"),)
    assert await house.drifting() == [], "other weights may say something else"


async def test_an_engine_in_no_pool_is_compared_while_it_answers() -> None:
    alone = Host("alone")
    alone.greedy_answers = ["six, eight"]
    house = House(alone, house=[Host("a"), Host("b")])
    assert await house.drifting() == [("alone", "alone")]
    house.is_up = False
    assert await house.drifting() == []


async def test_one_that_is_in_two_pools_is_asked_once() -> None:
    shared, other = Host("a"), Host("b")
    house = House(first=[shared, other], second=[shared])
    assert await house.drifting() == []
    assert (shared.asked_greedily, other.asked_greedily) == (1, 1)


async def test_without_a_digest_only_members_of_one_pool_are_taken_for_alike() -> None:
    hosts = [Host(name, HOME, "") for name in "abcd"]
    hosts[3].greedy_answers = ["six, eight"]
    assert await House(first=hosts[:2], second=hosts[2:3], third=hosts[3:]).drifting() == []
    assert [host.asked_greedily for host in hosts] == [1, 1, 0, 0]
    assert await House(first=hosts).drifting() == [("first", "d")]


async def test_other_kinds_and_other_formats_round_otherwise_and_are_not_compared() -> None:
    first, second, third = three()
    second.kind = "vllm"
    third.models = (EngineModel("fake-model", "d1", precision="bfloat16 on cuda"),)
    second.greedy_answers = third.greedy_answers = ["six, eight"]
    house = House(house=[first, second, third])
    assert await house.drifting() == []
    assert first.asked_greedily == 0


async def test_a_drained_member_is_not_asked() -> None:
    hosts = three()
    house = House(house=hosts)
    house.pools["house"].keep_drained({"c"})
    hosts[2].greedy_answers = ["six, eight"]
    assert await house.drifting() == []
    assert hosts[2].asked_greedily == 0
