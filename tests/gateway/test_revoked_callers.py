"""Callers whose certificates were revoked: looked up as hands are shaken, and let go after it."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from gateway.configuration.settings import Limits
from gateway.secrets.certificates import KeptCertificate
from tests.certificates import HOUR, Authority, Hours, Pair
from tests.gateway.listening import kept, listening


pytestmark = pytest.mark.anyio

GOOD = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"
WAITING = GOOD.replace(b"/ ", b"/waiting ")
CLOSING = GOOD.replace(b"here", b"here\r\nconnection: close")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return ("asyncio", {"use_uvloop": True})


class House:
    """A listener's certificate, and an authority of its callers with a list."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.own, self.teams = Authority(folder), Authority(folder, "teams")
        self.authorities, self.lists = folder / "callers.pem", folder / "revoked.pem"
        self.authorities.write_bytes(self.teams.file.read_bytes())
        self.lists.write_bytes(self.teams.revoke())
        self.clock = Hours()

    def kept(self) -> KeptCertificate:
        return kept(self.own.issue(), self.authorities, self.clock, self.lists)

    def caller(self, pair: Pair) -> ssl.SSLContext:
        return self.own.trusting(pair)

    def revoke(self, *pairs: Pair, **more: Any) -> None:
        """Another list takes the place of the one before."""
        new = self.lists.with_suffix(".new")
        new.write_bytes(self.teams.revoke(*(each.chain for each in pairs), **more))
        new.replace(self.lists)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


async def _look_twice(certificate: KeptCertificate) -> None:
    """What changed is taken once it has rested for a look."""
    for _ in range(2):
        await certificate.tend()


class Answering:
    """An application that answers, at one path only when it is told to."""

    def __init__(self) -> None:
        self.is_asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        del receive
        if scope["path"] == "/waiting":
            self.is_asked.set()
            await self.may_answer.wait()
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
        )
        await send({"type": "http.response.body", "body": b"ok"})


async def _is_answered(port: int, tls: ssl.SSLContext) -> bool:
    writer = None
    try:
        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
            writer.write(CLOSING)
            return (await reader.read()).endswith(b"ok")
    except (ConnectionError, ssl.SSLError):
        return False
    finally:
        if writer is not None:
            writer.close()


async def test_who_is_on_the_list_is_not_let_in_and_the_others_are(house: House) -> None:
    good, bad = house.teams.issue("good"), house.teams.issue("bad")
    house.revoke(bad)
    async with listening(Answering(), Limits(), certificate=house.kept()) as port:
        assert await _is_answered(port, house.caller(good))
        assert not await _is_answered(port, house.caller(bad))


async def test_a_new_list_counts_without_a_restart(house: House) -> None:
    pair = house.teams.issue("caller")
    certificate = house.kept()
    async with listening(Answering(), Limits(), certificate=certificate) as port:
        assert await _is_answered(port, house.caller(pair))
        house.revoke(pair)
        await _look_twice(certificate)
        assert not await _is_answered(port, house.caller(pair))


async def test_whom_a_revoked_authority_vouched_for_is_not_let_in(house: House) -> None:
    below = Authority(house.folder, "below", below=house.teams)
    pair = below.issue("caller")
    pair.chain.write_bytes(pair.chain.read_bytes() + below.file.read_bytes())

    def list_of_both(*revoked: Path) -> None:
        house.lists.write_bytes(house.teams.revoke(*revoked) + below.revoke())

    list_of_both()
    async with listening(Answering(), Limits(), certificate=house.kept()) as port:
        assert await _is_answered(port, house.caller(pair))
    list_of_both(below.file)
    async with listening(Answering(), Limits(), certificate=house.kept()) as port:
        assert not await _is_answered(port, house.caller(pair))


async def test_whose_authority_has_no_list_is_not_let_in(house: House) -> None:
    """It is below one that has: nobody knows of it before a caller shows it."""
    below = Authority(house.folder, "below", below=house.teams)
    pair = below.issue("caller")
    pair.chain.write_bytes(pair.chain.read_bytes() + below.file.read_bytes())
    async with listening(Answering(), Limits(), certificate=house.kept()) as port:
        assert not await _is_answered(port, house.caller(pair))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_session_from_before_lets_nobody_in_who_was_revoked(
    house: House, version: ssl.TLSVersion
) -> None:
    pair, certificate = house.teams.issue("caller"), house.kept()
    tls = house.caller(pair)
    tls.maximum_version = version

    def said(session: ssl.SSLSession | None) -> tuple[bytes, ssl.SSLSession | None]:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=5) as plain,
            tls.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as caller,
        ):
            caller.sendall(GOOD)
            return caller.recv(512), caller.session

    async with listening(Answering(), Limits(), certificate=certificate) as port:
        answer, session = await asyncio.to_thread(said, None)
        assert (answer.startswith(b"HTTP/1.1 200"), session is not None) == (True, True)
        house.revoke(pair)
        await _look_twice(certificate)
        answer = b""
        with suppress(ssl.SSLError, ConnectionError):
            answer, _ = await asyncio.to_thread(said, session)
        assert answer == b""


Change = Callable[[House, Pair], None]


def _revoked(house: House, pair: Pair) -> None:
    house.revoke(pair)


def _without_authority(house: House, _: Pair) -> None:
    other = Authority(house.folder, "others")
    house.lists.write_bytes(other.revoke())
    house.authorities.write_bytes(other.file.read_bytes())


def _out_of_date(house: House, _: Pair) -> None:
    house.clock.later_us = 2 * 3600 * 1_000_000


CHANGES: dict[str, Change] = {
    "revoked": _revoked,
    "its authority is gone": _without_authority,
    "the list is out of date": _out_of_date,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_connection_that_rests_ends_when_its_caller_may_not_come_any_more(
    house: House, change: Change
) -> None:
    pair, certificate = house.teams.issue("caller"), house.kept()
    async with listening(Answering(), Limits(), certificate=certificate) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=house.caller(pair))
        writer.write(GOOD)
        await reader.readuntil(b"ok")
        change(house, pair)
        await _look_twice(certificate)
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()


async def test_a_connection_ends_with_the_certificate_that_it_was_let_in_by(house: House) -> None:
    """A caller who asks every minute would keep it for ever."""
    pair, certificate = house.teams.issue("caller", ends=HOUR / 720), house.kept()
    async with listening(Answering(), Limits(), certificate=certificate) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=house.caller(pair))
        writer.write(GOOD)
        await reader.readuntil(b"ok")
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()


async def test_a_request_under_way_gets_its_answer_and_its_connection_no_other_one(
    house: House,
) -> None:
    pair, certificate, answering = house.teams.issue("caller"), house.kept(), Answering()
    async with listening(answering, Limits(), certificate=certificate) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=house.caller(pair))
        writer.write(WAITING)
        await answering.is_asked.wait()
        house.revoke(pair)
        await _look_twice(certificate)
        writer.write(GOOD)
        answering.may_answer.set()
        async with asyncio.timeout(10):
            said = await reader.read()
        writer.close()

    assert said.count(b"HTTP/1.1 200") == 1
    assert said.endswith(b"ok")


async def test_who_is_shaking_hands_meanwhile_is_not_let_in_by_the_list_before(
    house: House,
) -> None:
    pair, certificate = house.teams.issue("caller"), house.kept()
    come, gone = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = house.caller(pair).wrap_bio(come, gone, server_hostname="127.0.0.1")
    async with listening(Answering(), Limits(), certificate=certificate) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with suppress(ssl.SSLWantReadError):
            tls.do_handshake()
        writer.write(gone.read())
        come.write(await reader.read(65536))  # The listener's part, made by the old context.
        house.revoke(pair)
        await _look_twice(certificate)
        with suppress(ssl.SSLError):
            tls.do_handshake()
            tls.write(CLOSING)
        writer.write(gone.read())
        async with asyncio.timeout(10):
            with suppress(ConnectionError):
                come.write(await reader.read())
        writer.close()
        with pytest.raises(ssl.SSLError):
            tls.read(65536)


async def test_a_list_that_revokes_nobody_new_ends_no_connection(house: House) -> None:
    pair, certificate = house.teams.issue("caller"), house.kept()
    async with listening(Answering(), Limits(), certificate=certificate) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=house.caller(pair))
        former = certificate.context
        house.revoke(ends=HOUR * 5)
        await _look_twice(certificate)
        assert certificate.context is not former
        writer.write(GOOD)
        async with asyncio.timeout(10):
            assert (await reader.readuntil(b"ok")).endswith(b"ok")
        writer.close()


async def test_a_list_that_cannot_be_used_leaves_the_one_before_and_says_why(
    house: House,
) -> None:
    good, bad = house.teams.issue("good"), house.teams.issue("bad")
    house.revoke(bad)
    certificate = house.kept()
    house.lists.write_bytes(b"nothing")
    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            await certificate.tend()
    async with listening(Answering(), Limits(), certificate=certificate) as port:
        assert await _is_answered(port, house.caller(good))
        assert not await _is_answered(port, house.caller(bad))

    (line,) = lines
    assert line["event"] == "certificate:refused"
    assert "data_plane.tls_client_crl_file: must hold lists of revoked" in line["reason"]
