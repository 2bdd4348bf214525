"""Names that hang: they hold up nobody who asks for another one, and keep few threads."""

import asyncio
import gc
import socket
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.providers.egress import resolver
from gateway.providers.egress.endpoint import parse_endpoint
from gateway.providers.egress.resolver import AT_ONCE, GuardedResolver, ask_system
from tests.gateway.providers.samples import HOME


pytestmark = pytest.mark.anyio
HANGING = 40
"""More than any pool of threads that a loop has."""


def guarded(*hosts: str, look_up: Any = ask_system) -> GuardedResolver:
    guarded = GuardedResolver(look_up)
    for host in hosts:
        guarded.admit(parse_endpoint("s", f"https://{host}", HOME))
    return guarded


class Silent:
    """A resolver that answers when it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.says: asyncio.Future[Sequence[str]] = asyncio.get_running_loop().create_future()

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        del host, port
        self.asked += 1
        return await asyncio.shield(self.says)


async def test_names_that_hang_hold_up_no_other_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four of them did, for ten seconds each: every other upstream was a 504 meanwhile."""
    go_on, hanging = threading.Event(), threading.Semaphore(0)

    def getaddrinfo(host: str, port: int, *how: int, **more: int) -> list[Any]:
        del how, more
        if host.startswith("slow"):
            hanging.release()
            go_on.wait()
        return [(0, 0, 0, "", ("8.8.8.8", port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    slow = [f"slow{number}.example" for number in range(HANGING)]
    names = guarded("quick.example", *slow)
    waiting = [asyncio.create_task(names.resolve(host, 443)) for host in slow]
    await asyncio.sleep(0)
    try:
        assert await names.resolve("quick.example", 443) == ("8.8.8.8",)
        assert not any(each.done() for each in waiting)
    finally:
        go_on.set()
    assert await asyncio.gather(*waiting) == [("8.8.8.8",)] * HANGING


async def test_who_asks_for_a_name_that_is_asked_for_waits_for_the_same_answer() -> None:
    silent = Silent()
    names = guarded("slow.example", look_up=silent)
    waiting = [asyncio.create_task(names.resolve("slow.example", 443)) for _ in range(9)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.pop(0).cancel()  # The first one leaves, and takes nothing from the others.
    silent.says.set_result(["8.8.8.8"])

    assert await asyncio.gather(*waiting) == [("8.8.8.8",)] * 8
    assert silent.asked == 1
    await names.resolve("slow.example", 443)
    assert silent.asked == 2, "what was found is not remembered"


async def test_a_question_that_takes_too_long_is_asked_again_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resolver, "AGAIN_S", 0.0)
    silent = Silent()
    names = guarded("slow.example", look_up=silent)
    waiting = []
    for _ in range(AT_ONCE + 3):
        waiting.append(asyncio.create_task(names.resolve("slow.example", 443)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert silent.asked == AT_ONCE
    silent.says.set_exception(OSError("nobody knows it"))
    told = await asyncio.gather(*waiting, return_exceptions=True)
    assert {str(each) for each in told} == {"nobody knows it"}


async def test_a_failure_that_nobody_waits_for_any_more_is_not_complained_of() -> None:
    """The loop would say so beside the log, with a trace of the program."""
    complaints: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, said: complaints.append(said["message"]))
    silent = Silent()
    names = guarded("slow.example", look_up=silent)
    left = asyncio.create_task(names.resolve("slow.example", 443))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.gather(left, return_exceptions=True)
    silent.says.set_exception(OSError("nobody knows it"))
    with pytest.raises(OSError, match="nobody knows it"):
        await asyncio.shield(silent.says)
    for _ in range(3):
        await asyncio.sleep(0)
    gc.collect()
    assert complaints == []
    loop.set_exception_handler(None)


async def test_a_question_for_which_there_is_no_memory_has_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four of them without one would keep a name from being asked for ever."""

    def getaddrinfo(*how: object, **more: object) -> list[Any]:
        del how, more
        raise MemoryError

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(OSError, match="no memory"):
        await asyncio.wait_for(guarded("a.example").resolve("a.example", 443), 10)
