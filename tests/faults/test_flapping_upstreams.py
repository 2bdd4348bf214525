"""An upstream that goes up and down every second: callers hardly notice, and stay where they are.

Five minutes pass on a clock of the test's own.
"""

import itertools

import pytest

from gateway.dispatch.health import TargetHealth
from gateway.dispatch.retrying import RetryBudget, RetryRules
from gateway.errors import GatewrightError, UpstreamUnreachable
from gateway.ports import UpstreamCall
from gateway.providers.scripted import ScriptedProvider, ScriptedUpstreamReply
from tests.gateway.dispatch.test_walking import World
from tests.gateway.providers.samples import HOME


pytestmark = pytest.mark.anyio

REQUESTS_PER_S = 20
SECONDS = 300


class Flapping(ScriptedProvider):
    """Up in even seconds."""

    def __init__(self, world: World) -> None:
        super().__init__("a", HOME)
        self._world = world
        self.refused = 0

    async def open(self, call: UpstreamCall) -> ScriptedUpstreamReply:
        if int(self._world.clock.monotonic_s()) % 2:
            self.refused += 1
            raise UpstreamUnreachable("down")
        return await super().open(call)


async def test_callers_of_a_flapping_upstream_are_served_and_do_not_swing_with_it() -> None:
    world = World()
    world.health = TargetHealth()
    world.budget = RetryBudget(RetryRules(backoff_s=0.0))
    world.providers["a"] = flapping = Flapping(world)
    served: list[str] = []
    for _ in range(SECONDS * REQUESTS_PER_S):
        world.clock.advance(1 / REQUESTS_PER_S)
        try:
            served.append(await world.ask("ab"))
        except GatewrightError:
            served.append("")
    failed = served.count("")
    swings = sum(one != other for one, other in itertools.pairwise(served))
    assert failed <= 0.01 * len(served)
    # A breaker that forgot at once would swing back and forth every few seconds.
    assert swings <= 30
    assert flapping.refused <= 100
