"""Of two attempts at once: whose failure is told, and who is ended for whose sake."""

import asyncio

import pytest

from gateway.dispatch.hedging import HEDGE, race


pytestmark = pytest.mark.anyio


async def keep(_: str) -> None:
    raise AssertionError("there was no answer to give up")


@pytest.mark.parametrize("is_first_late", [False, True])
async def test_where_both_fail_the_second_ones_failure_is_told_whoever_failed_first(
    *, is_first_late: bool
) -> None:
    has_begun, has_failed = asyncio.Event(), asyncio.Event()

    async def first() -> str:
        await (has_failed if is_first_late else has_begun).wait()
        has_failed.set()
        raise ValueError("first")

    async def second() -> str:
        has_begun.set()
        if not is_first_late:
            await has_failed.wait()
        has_failed.set()
        raise ValueError("second")

    with pytest.raises(ValueError, match="second"):
        await race(first, second, 0.0, lambda: True, keep)


async def test_where_the_first_fails_before_any_second_its_failure_is_told() -> None:
    async def first() -> str:
        raise ValueError("first")

    async def second() -> str:
        raise AssertionError("nobody was late")

    with pytest.raises(ValueError, match="first"):
        await race(first, second, 30.0, lambda: True, keep)


async def test_the_slower_one_is_ended_for_the_others_sake_and_a_leaver_for_his_own() -> None:
    reasons: list[tuple[object, ...]] = []
    is_asked = asyncio.Event()

    async def slow() -> str:
        is_asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            reasons.append(error.args)
            raise
        return "never"

    async def prompt() -> str:
        return "prompt"

    assert await race(slow, prompt, 0.0, lambda: True, keep) == "prompt"
    assert reasons == [(HEDGE,)]

    reasons.clear()
    is_asked.clear()
    racing = asyncio.ensure_future(race(slow, slow, 0.0, lambda: True, keep))
    await is_asked.wait()
    await asyncio.sleep(0.01)
    racing.cancel("the worker stops")
    with pytest.raises(asyncio.CancelledError):
        await racing
    assert reasons == [("the worker stops",)] * 2
