"""Turns at an origin: never more than there are, none lost, first come first served."""

import asyncio
from collections.abc import Callable

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.providers.egress.endpoint import parse_endpoint
from gateway.providers.egress.pool import Origin


TURNS = 2

steps = st.lists(
    st.tuples(
        st.sampled_from(["ask", "end", "leave", "rest", "beside", "end beside"]), st.integers(0, 9)
    ),
    max_size=40,
)


class World:
    """Callers who ask, wait, leave while they wait, and end their turns."""

    def __init__(self) -> None:
        endpoint = parse_endpoint("up", "http://127.0.0.1:9", "us")
        self.origin = Origin(endpoint, TURNS)
        self.holding: list[int] = []
        self.besides = 0
        self.asked: list[asyncio.Task[None]] = []
        self.served: list[int] = []
        """Those who had to wait, as their turns came; who finds one free may pass a turn that is
        handed over and not yet taken up."""

    async def hold(self, number: int) -> None:
        has_to_wait = self.origin.free <= 0
        await self.origin.wait_for_turn()
        self.holding.append(number)
        if has_to_wait:
            self.served.append(number)

    def ask(self) -> None:
        self.asked.append(asyncio.ensure_future(self.hold(len(self.asked))))

    def end(self, which: int) -> None:
        if self.holding:
            self.holding.pop(which % len(self.holding))
            self.origin.end_turn()

    def beside(self) -> None:
        """Somebody comes who does not wait."""
        self.origin.take_beside()
        self.besides += 1

    def end_beside(self) -> None:
        if self.besides:
            self.besides -= 1
            self.origin.end_turn()

    def leave(self, which: int) -> None:
        waiting = [task for task in self.asked if not task.done()]
        if waiting:
            waiting[which % len(waiting)].cancel()


async def play(plan: list[tuple[str, int]]) -> None:
    world = World()
    steps_taken: dict[str, Callable[[int], None]] = {
        "ask": lambda _: world.ask(),
        "end": world.end,
        "leave": world.leave,
        "beside": lambda _: world.beside(),
        "end beside": lambda _: world.end_beside(),
    }
    for step, which in plan:
        if step in steps_taken:
            steps_taken[step](which)
        else:
            for _ in range(3):
                await asyncio.sleep(0)
        assert len(world.holding) <= TURNS
    while world.besides:
        world.end_beside()
    while any(not task.done() for task in world.asked):
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(world.holding) <= TURNS
        world.end(0)
    while world.holding:
        world.end(0)

    assert all(task.cancelled() or task.exception() is None for task in world.asked)
    assert world.origin.free == TURNS
    assert not world.origin.waiting
    assert world.served == sorted(world.served)


@given(steps)
@example([("ask", 0), ("ask", 0), ("ask", 0), ("rest", 0), ("ask", 0), ("end", 0), ("end", 0)])
@example([("ask", 0), ("ask", 0), ("ask", 0), ("rest", 0), ("leave", 0), ("end", 0), ("rest", 0)])
def test_no_schedule_loses_or_doubles_a_turn(plan: list[tuple[str, int]]) -> None:
    asyncio.run(play(plan))
