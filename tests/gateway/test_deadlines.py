"""Late callbacks ring in order, once, and not at all where they were removed."""

import asyncio

import pytest

from gateway.api.deadlines import Deadlines


pytestmark = pytest.mark.anyio


async def test_each_rings_once_in_order_unless_it_was_removed() -> None:
    deadlines, rung = Deadlines(0.02), list[str]()
    for name in "abcd":
        deadlines.add(name, lambda name=name: rung.append(name))  # type: ignore[misc]
    deadlines.remove("b")
    deadlines.remove("nobody")
    await asyncio.sleep(0.01)
    deadlines.add("e", lambda: rung.append("e"))
    while "e" not in rung:
        await asyncio.sleep(0.005)

    assert rung == ["a", "c", "d", "e"]


async def test_it_can_be_used_again_after_it_was_empty() -> None:
    deadlines, rung = Deadlines(0.005), asyncio.Event()
    deadlines.add(1, rung.set)
    deadlines.remove(1)
    await asyncio.sleep(0.03)
    assert not rung.is_set()

    deadlines.add(2, rung.set)
    async with asyncio.timeout(10):
        await rung.wait()
