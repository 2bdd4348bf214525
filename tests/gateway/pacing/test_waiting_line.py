"""One thread for many: askers take turns, and whoever leaves holds up nobody."""

import asyncio
import threading

from hypothesis import given
from hypothesis import strategies as st

from gateway.pacing.waiting_line import WaitingLine


UNHURRIED_S = 20.0


class Work:
    """What many ask for, of which the first is held up until it may go on."""

    def __init__(self) -> None:
        self.line = WaitingLine("test")
        self.gate = threading.Event()
        self.done: list[str] = []

    def ask(self, asker: str, name: str) -> asyncio.Task[str]:
        def work() -> str:
            self.done.append(name)
            self.gate.wait(UNHURRIED_S)
            return name

        return asyncio.create_task(self.line.do(asker, work))

    async def begun(self) -> None:
        async with asyncio.timeout(UNHURRIED_S):
            while not self.done:
                await asyncio.sleep(0)


def test_askers_take_turns_each_in_the_order_they_came() -> None:
    async def live() -> list[str]:
        work = Work()
        asked = [work.ask("a", f"a{number}") for number in range(4)]
        await work.begun()
        asked += [work.ask(name[0], name) for name in ("b0", "c0", "b1", "a4", "b2")]
        await asyncio.sleep(0)
        work.gate.set()
        await asyncio.gather(*asked)
        work.line.threads.shutdown()
        return work.done

    assert asyncio.run(live()) == ["a0", "a1", "b0", "c0", "a2", "b1", "a3", "b2", "a4"]


@given(
    asked=st.lists(st.sampled_from("abc"), min_size=1, max_size=8),
    leaving=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3)), max_size=8),
)
def test_who_leaves_at_any_moment_holds_up_nobody(
    asked: list[str], leaving: list[tuple[int, int]]
) -> None:
    async def live() -> None:
        work = Work()
        tasks = [work.ask(asker, str(number)) for number, asker in enumerate(asked)]
        await work.begun()
        work.gate.set()
        for number, steps in leaving:
            for _ in range(steps):
                await asyncio.sleep(0)
            if number < len(tasks):
                tasks[number].cancel()
        async with asyncio.timeout(UNHURRIED_S):
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            assert await work.ask("z", "later") == "later"
        work.line.threads.shutdown()

        stayed = [each for each in answers if isinstance(each, str)]
        assert set(stayed) <= set(work.done)
        assert len(work.done) == len(set(work.done))
        assert {str(at) for at, each in enumerate(answers) if isinstance(each, str)} == set(stayed)
        assert not work.line._waiting
        assert not work.line._is_taken

    asyncio.run(live())


def test_who_leaves_when_his_turn_has_just_come_passes_it_on() -> None:
    async def live() -> None:
        line = WaitingLine("test")
        await line._turn("a")
        leaving = asyncio.create_task(line.do("b", str))
        await asyncio.sleep(0)
        line._pass_on()
        leaving.cancel()
        async with asyncio.timeout(UNHURRIED_S):
            await asyncio.wait({leaving})
            assert await line.do("c", lambda: "done") == "done"
        line.threads.shutdown()

    asyncio.run(live())
