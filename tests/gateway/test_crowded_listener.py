"""Who only opens connections takes none away from who asks for something."""

import asyncio
import resource
from contextlib import suppress
from typing import Any

import pytest

from gateway.api.crowd import connections_permitted
from gateway.configuration.settings import Limits
from tests.gateway.listening import anyio_backend, connect, is_encrypted, listening, wire


__all__ = ["anyio_backend", "is_encrypted", "wire"]
pytestmark = pytest.mark.anyio

MOST = 6
GOOD = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


async def _opened(port: int, number: int, said: bytes = b"") -> list[Ends]:
    ends = [await connect(port) for _ in range(number)]
    for _, writer in ends:
        writer.write(said)
    await asyncio.sleep(0.1)
    return ends


async def _is_open(ends: Ends) -> bool:
    try:
        async with asyncio.timeout(0.05):
            await ends[0].read(1)
    except TimeoutError:
        return True
    except ConnectionError:
        pass
    return False


async def _closed(*ends: Ends) -> None:
    for _, writer in ends:
        writer.close()


async def test_the_oldest_that_asked_for_nothing_makes_room() -> None:
    async with listening(_answer, Limits(), MOST) as port:
        silent = await _opened(port, MOST, GOOD[:10])
        ((reader, writer),) = await _opened(port, 1, GOOD)

        assert (await reader.read(4096)).startswith(b"HTTP/1.1 200")
        assert [await _is_open(each) for each in silent] == [False] + [True] * (MOST - 1)
        await _closed(*silent, (reader, writer))


async def test_who_rests_between_requests_goes_after_them_and_the_longest_first() -> None:
    async with listening(_answer, Limits(), MOST) as port:
        resting = await _opened(port, MOST - 1, GOOD)
        for reader, _ in resting:
            assert (await reader.read(4096)).startswith(b"HTTP/1.1 200")
        silent = await _opened(port, 2)
        assert [await _is_open(each) for each in silent] == [False, True]
        newer = await _opened(port, 1, GOOD)
        assert not await _is_open(silent[1])
        newer += await _opened(port, 1, GOOD)
        assert [await _is_open(each) for each in resting] == [False] + [True] * (MOST - 2)
        await _closed(*silent, *resting, *newer)


async def test_nobody_who_is_served_makes_room_and_the_newcomer_is_sent_away() -> None:
    go_on = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await go_on.wait()
        await _answer(scope, receive, send)

    async with listening(slow, Limits(), MOST) as port:
        served = await _opened(port, MOST, GOOD)
        newcomers: list[Ends] = []
        with suppress(ConnectionError):  # Over TLS he is sent away before hands are shaken.
            newcomers = await _opened(port, 1, GOOD)
        assert not any([await _is_open(each) for each in newcomers])
        go_on.set()
        for reader, _ in served:
            assert (await reader.read(4096)).startswith(b"HTTP/1.1 200")
        await _closed(*served, *newcomers)


def test_files_are_left_for_what_is_no_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def limited(files: int) -> int:
        monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
        return connections_permitted()

    assert limited(1024) == 768
    assert limited(128) == 64
    assert limited(resource.RLIM_INFINITY) == 0
