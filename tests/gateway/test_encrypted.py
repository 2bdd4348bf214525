"""TLS on our own listeners: what holds before hands were shaken, and who may shake them at all.

That every bound of the protocol holds over TLS as in clear is tried where each of them is tested.
"""

import asyncio
import logging
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.configuration.settings import Limits, Listener, Settings
from gateway.secrets.certificates import trusting
from tests.certificates import HOUR, Authority
from tests.gateway.listening import kept, listening


pytestmark = pytest.mark.anyio

MOST = 3
GOOD = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"
CLOSING = GOOD.replace(b"here", b"here\r\nconnection: close")


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return ("asyncio", {"use_uvloop": True})


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def _scheme(scope: Any, receive: Any, send: Any) -> None:
    del receive
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["scheme"].encode()})


async def _said(port: int, tls: ssl.SSLContext | None, sent: bytes = CLOSING) -> bytes:
    """What comes back until the end; nothing where the connection is reset."""
    writer = None
    try:
        async with asyncio.timeout(10):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
            writer.write(sent)
            return await reader.read()
    except (ConnectionError, ssl.SSLError):
        return b""
    finally:
        if writer is not None:
            writer.close()


async def test_an_answer_over_tls_knows_that_it_is(authority: Authority) -> None:
    async with listening(_scheme, Limits(), certificate=kept(authority.issue())) as port:
        assert b"https" in await _said(port, authority.trusting())


@pytest.mark.filterwarnings("ignore:.*TLSv?1_1.* is deprecated:DeprecationWarning")
async def test_who_offers_another_protocol_gets_this_one_and_an_old_tls_gets_none(
    authority: Authority,
) -> None:
    newer, older = authority.trusting(), authority.trusting()
    newer.set_alpn_protocols(["h2", "http/1.1"])
    older.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    older.maximum_version = ssl.TLSVersion.TLSv1_1
    older.set_ciphers("ALL:@SECLEVEL=0")
    certificate = kept(authority.issue())
    assert certificate.context.minimum_version == ssl.TLSVersion.TLSv1_2  # not what the system says
    async with listening(_scheme, Limits(), certificate=certificate) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=newer)
        chosen = writer.get_extra_info("ssl_object")
        writer.close()
        assert await _said(port, older) == b""

    assert chosen.selected_alpn_protocol() == "http/1.1"
    assert chosen.version() == "TLSv1.3"


async def test_plain_http_ends_at_once_and_says_nothing_in_the_log(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    loop = asyncio.get_running_loop()
    raised: list[Any] = []
    loop.set_exception_handler(lambda _, context: raised.append(context))
    try:
        async with listening(_scheme, Limits(), certificate=kept(authority.issue())) as port:
            said = await _said(port, None)
    finally:
        loop.set_exception_handler(None)

    assert b"HTTP" not in said
    assert raised == []
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "a piece"])
async def test_who_does_not_shake_hands_is_cut_off_like_who_sends_no_head(
    authority: Authority, sent: bytes
) -> None:
    limits = Limits(header_receive_s=0.2)
    async with listening(_scheme, limits, certificate=kept(authority.issue())) as port:
        assert await _said(port, None, sent) == b""


async def test_who_does_not_shake_hands_makes_room_for_who_does(authority: Authority) -> None:
    certificate = kept(authority.issue())
    async with listening(_scheme, Limits(), MOST, certificate) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MOST + 1)]
        with suppress(ConnectionError):
            async with asyncio.timeout(10):
                assert await silent[0][0].read() == b""
        assert b"https" in await _said(port, authority.trusting())
        for _, writer in silent:
            writer.close()


async def test_a_listener_ends_while_hands_are_being_shaken(authority: Authority) -> None:
    async with asyncio.timeout(10):
        async with listening(_scheme, Limits(), certificate=kept(authority.issue())) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"\x16")
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()


async def test_who_does_not_agree_that_it_ended_is_let_go(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS itself would wait for half a minute, and the connection would count as a caller."""
    monkeypatch.setattr("gateway.api.encrypted.LINGER_S", 0.1)
    come, gone = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = authority.trusting().wrap_bio(come, gone, server_hostname="127.0.0.1")
    async with listening(_scheme, Limits(), certificate=kept(authority.issue())) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(gone.read())
                come.write(await reader.read(65536))
        tls.write(CLOSING)
        writer.write(gone.read())
        async with asyncio.timeout(10):
            come.write(await reader.read())
        assert b"https" in tls.read(65536) + tls.read(65536)  # Head and body.
        writer.close()


async def test_our_own_processes_trust_the_very_certificate_and_no_other(
    authority: Authority,
) -> None:
    pair, other = authority.issue(), authority.issue("other")
    listener = Listener(tls_certificate_file=str(pair.chain), tls_key_file=str(pair.key))
    tls = trusting(Settings(source="x.toml", folder="/", data_plane=listener), "data_plane")
    assert tls is not None
    async with listening(_scheme, Limits(), certificate=kept(pair)) as port:
        assert b"https" in await _said(port, tls)
    async with listening(_scheme, Limits(), certificate=kept(other)) as port:
        assert await _said(port, tls) == b""
    assert trusting(Settings(source="x.toml", folder="/"), "admin") is None


async def test_only_who_has_a_certificate_of_the_authority_is_answered(
    authority: Authority, tmp_path: Path
) -> None:
    own, other = Authority(tmp_path, "teams"), Authority(tmp_path, "others")
    certificate = kept(authority.issue(), own.file)
    callers = {
        "ours": authority.trusting(own.issue("ours")),
        "another's": authority.trusting(other.issue("strange")),
        "over": authority.trusting(own.issue("old", begins=HOUR * -2, ends=-HOUR)),
        "none": authority.trusting(),
    }
    async with listening(_scheme, Limits(), certificate=certificate) as port:
        answered = [name for name, tls in callers.items() if await _said(port, tls)]

    assert answered == ["ours"]


async def test_new_connections_get_the_new_certificate_and_old_ones_go_on(
    authority: Authority,
) -> None:
    certificate, trusting = kept(authority.issue()), authority.trusting()

    async def opened(port: int) -> tuple[int, asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        return _serial(writer), reader, writer

    async with listening(_scheme, Limits(), certificate=certificate) as port:
        before, reader, writer = await opened(port)
        authority.issue()
        for _ in range(2):
            await certificate.tend()
        after, _, newer = await opened(port)
        writer.write(CLOSING)
        assert b"https" in await reader.read()
        assert after != before
        writer.close()
        newer.close()


def _serial(writer: asyncio.StreamWriter) -> int:
    return int(writer.get_extra_info("peercert")["serialNumber"], 16)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_session_from_before_lets_nobody_in_whose_authority_is_gone(
    authority: Authority, version: ssl.TLSVersion, tmp_path: Path
) -> None:
    former, present = Authority(tmp_path, "former"), Authority(tmp_path, "present")
    callers = tmp_path / "callers.pem"
    callers.write_bytes(former.file.read_bytes())
    certificate = kept(authority.issue(), callers)
    tls = authority.trusting(former.issue("caller"))
    tls.maximum_version = version

    def said(session: ssl.SSLSession | None) -> tuple[bytes, ssl.SSLSession | None]:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=5) as plain,
            tls.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as caller,
        ):
            caller.sendall(GOOD)
            return caller.recv(512), caller.session

    async with listening(_scheme, Limits(), certificate=certificate) as port:
        answer, session = await asyncio.to_thread(said, None)
        assert (answer.startswith(b"HTTP/1.1 200"), session is not None) == (True, True)
        callers.write_bytes(present.file.read_bytes())
        for _ in range(2):
            await certificate.tend()
        answer = b""
        with suppress(ssl.SSLError, ConnectionError):
            answer, _ = await asyncio.to_thread(said, session)
        assert answer == b""
