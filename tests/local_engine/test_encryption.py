"""The engine's own TLS: who is shown what, and what happens while files are replaced."""

import asyncio
import datetime as dt
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import pytest
from cryptography import x509

from local_engine.serve.clock import unix_time_s
from local_engine.serve.connections.crowd import Crowd
from local_engine.serve.encryption import CertificateRefused, Encryption
from local_engine.serve.options import CertificateFiles
from tests.certificates import HOUR, Authority, Pair, newer_default_context


pytestmark = pytest.mark.anyio


def files_of(pair: Pair, client_ca: Path | None = None) -> CertificateFiles:
    return CertificateFiles(certificate=pair.chain, key=pair.key, client_ca=client_ca)


def serial_in(file: Path) -> int:
    return x509.load_pem_x509_certificate(file.read_bytes()).serial_number


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The engine's own event loop."""
    return "asyncio", {"use_uvloop": True}


class Echo(asyncio.Protocol):
    """Each connection gets its own words back."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.data_received = cast(asyncio.Transport, transport).write  # type: ignore[method-assign]


class Connection:
    """One of a caller's, over which words are sent now and then."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @property
    def serial(self) -> int:
        """Of the certificate that was shown."""
        shown = self._writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return x509.load_der_x509_certificate(shown).serial_number

    async def says(self, words: bytes) -> bytes:
        self._writer.write(words + b"\n")
        return (await self._reader.readline()).rstrip()

    async def close(self) -> None:
        self._writer.close()
        with suppress(ssl.SSLError, ConnectionError):
            await self._writer.wait_closed()


class Door:
    """A listener that says what it hears, and those who came in."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.callers: list[Connection] = []

    async def let_in(self, trusting: ssl.SSLContext) -> Connection:
        streams = await asyncio.open_connection("127.0.0.1", self.port, ssl=trusting)
        self.callers.append(Connection(*streams))
        return self.callers[-1]

    async def is_open(self, trusting: ssl.SSLContext) -> bool:
        """With TLS 1.3 a client hears only afterwards that its certificate was not wanted."""
        try:
            return await (await self.let_in(trusting)).says(b"hello") == b"hello"
        except (ssl.SSLError, ConnectionError):
            return False


@asynccontextmanager
async def listening(encryption: Encryption) -> AsyncIterator[Door]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(encryption.over(Echo, Crowd(64), 10.0), "127.0.0.1", 0)
    door = Door(server.sockets[0].getsockname()[1])
    try:
        yield door
    finally:
        server.close()
        for caller in door.callers:
            await caller.close()


def events(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()]


async def test_new_connections_get_the_newest_certificate_and_open_ones_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue()
    encryption = Encryption(files_of(pair))
    async with listening(encryption) as door:
        former = serial_in(pair.chain)
        before = await door.let_in(authority.trusting())
        authority.issue()
        encryption.look()
        assert (await door.let_in(authority.trusting())).serial == former  # Not at rest yet.
        encryption.look()
        for _ in range(2):
            encryption.look()
        after = await door.let_in(authority.trusting())

        assert before.serial == former
        assert after.serial == serial_in(pair.chain) != former
        assert (await before.says(b"still here"), await after.says(b"me too")) == (
            b"still here",
            b"me too",
        )
    assert events(capsys) == ["engine.certificate_renewed"]


async def test_files_that_do_not_fit_together_leave_the_pair_before_in_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue()
    encryption = Encryption(files_of(pair))
    async with listening(encryption) as door:
        former = serial_in(pair.chain)
        authority.issue("another").chain.replace(pair.chain)
        for _ in range(4):
            encryption.look()
        assert (await door.let_in(authority.trusting())).serial == former
        assert events(capsys) == ["engine.certificate_refused"]  # Once, not at every look.

        (tmp_path / "another.key").replace(pair.key)
        for _ in range(2):
            encryption.look()
        assert (await door.let_in(authority.trusting())).serial == serial_in(pair.chain)
    assert events(capsys) == ["engine.certificate_renewed"]


async def test_callers_are_those_of_the_authority_in_the_file_as_it_is_now(tmp_path: Path) -> None:
    authority, former, present = (Authority(tmp_path, name) for name in ("house", "old", "new"))
    client_ca = tmp_path / "callers.pem"
    client_ca.write_bytes(former.file.read_bytes())
    encryption = Encryption(files_of(authority.issue(), client_ca))
    of_former = authority.trusting(former.issue("former"))
    of_present = authority.trusting(present.issue("present"))
    async with listening(encryption) as door:
        assert await door.is_open(of_former)
        assert not await door.is_open(of_present)
        assert not await door.is_open(authority.trusting())

        client_ca.write_bytes(present.file.read_bytes())
        for _ in range(2):
            encryption.look()
        assert await door.is_open(of_present)
        assert not await door.is_open(of_former)
        assert not await door.is_open(authority.trusting())


async def test_newer_pythons_believe_the_same_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    house = Authority(tmp_path, "house", tells_use=False)
    caller = house.issue("caller")
    client_ca = tmp_path / "callers.pem"
    client_ca.write_bytes(house.file.read_bytes())
    trusting = authority.trusting(caller)
    monkeypatch.setattr(ssl, "create_default_context", newer_default_context)
    async with listening(Encryption(files_of(authority.issue(), client_ca))) as door:
        assert await door.is_open(trusting)

    client_ca.write_bytes(caller.chain.read_bytes())
    async with listening(Encryption(files_of(authority.issue(), client_ca))) as door:
        assert not await door.is_open(trusting)


@pytest.mark.filterwarnings("ignore:.*TLSv?1_1.* is deprecated:DeprecationWarning")
async def test_versions_of_tls_before_1_2_are_turned_away(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    encryption = Encryption(files_of(authority.issue()))
    older = authority.trusting()
    older.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    older.maximum_version = ssl.TLSVersion.TLSv1_1
    older.set_ciphers("ALL:@SECLEVEL=0")
    async with listening(encryption) as door:
        assert await door.is_open(authority.trusting())
        assert not await door.is_open(older)
    assert encryption._newest.context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_an_end_that_comes_near_is_told_of_once_a_day(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 30 days, the last six."""
    pair = Authority(tmp_path).issue(begins=dt.timedelta(0), ends=dt.timedelta(days=30))
    encryption = Encryption(files_of(pair))
    begun_s = unix_time_s()
    told: list[int] = []
    for hour in range(0, 31 * 24, 3):
        now_s = begun_s + hour * 3600
        monkeypatch.setattr(f"{Encryption.__module__}.unix_time_s", lambda now_s=now_s: now_s)
        encryption.look()
        told += [hour for event in events(capsys) if event == "engine.certificate_ends"]
    assert told == [24 * day for day in range(24, 31)]
    assert encryption.left_s() < 0
    assert b"gatewright_engine_certificate_seconds_left -" in encryption.metrics()


def another_key(folder: Path, authority: Authority, pair: Pair) -> str:
    authority.issue("another").key.replace(pair.key)
    return f"listener.crt: is no certificate for {pair.key} (key values mismatch)"


def no_certificate(folder: Path, authority: Authority, pair: Pair) -> str:
    pair.chain.write_text("nothing")
    return "listener.crt: holds no certificate in PEM"


def no_key(folder: Path, authority: Authority, pair: Pair) -> str:
    pair.key.write_text("nothing")
    return "listener.crt: is no certificate for "


def missing_certificate(folder: Path, authority: Authority, pair: Pair) -> str:
    pair.chain.unlink()
    return "listener.crt: cannot be read (No such file or directory)"


def missing_key(folder: Path, authority: Authority, pair: Pair) -> str:
    pair.key.unlink()
    return "listener.key: cannot be read (No such file or directory)"


def readable_key(folder: Path, authority: Authority, pair: Pair) -> str:
    pair.key.chmod(0o644)
    return "listener.key: can be read by others (mode 0644)"


def folder_for_a_key(folder: Path, authority: Authority, pair: Pair) -> str:
    pair.key.unlink()
    pair.key.mkdir(mode=0o700)
    return "listener.key: is not a regular file"


def locked_key(folder: Path, authority: Authority, pair: Pair) -> str:
    authority.issue(passphrase=folder.name)
    return "listener.key: is locked with a passphrase"


def expired(folder: Path, authority: Authority, pair: Pair) -> str:
    authority.issue(begins=HOUR * -2, ends=HOUR * -1)
    return "listener.crt: holds a certificate that has ended or has not begun"


def to_come(folder: Path, authority: Authority, pair: Pair) -> str:
    authority.issue(begins=HOUR, ends=HOUR * 2)
    return "listener.crt: holds a certificate that has ended or has not begun"


def no_authority(folder: Path, authority: Authority, pair: Pair) -> str:
    (folder / "callers.pem").write_text("nothing")
    return "callers.pem: holds no certificate in PEM"


@pytest.mark.parametrize(
    "broken",
    [
        *(another_key, no_certificate, no_key, missing_certificate, missing_key, readable_key),
        *(folder_for_a_key, locked_key, expired, to_come, no_authority),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_name(
    broken: Callable[[Path, Authority, Pair], str], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue()
    (tmp_path / "callers.pem").write_bytes(authority.file.read_bytes())
    reason = broken(tmp_path, authority, pair)
    with pytest.raises(CertificateRefused) as refused:
        Encryption(files_of(pair, tmp_path / "callers.pem"))
    assert reason in str(refused.value)


def test_a_key_that_a_group_may_read_is_that_of_a_secret_volume(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue()
    pair.key.chmod(0o640)
    assert Encryption(files_of(pair)).left_s() > 0


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_session_from_before_lets_nobody_in_whose_authority_is_gone(
    version: ssl.TLSVersion, tmp_path: Path
) -> None:
    authority, former, present = (Authority(tmp_path, name) for name in ("house", "old", "new"))
    client_ca = tmp_path / "callers.pem"
    client_ca.write_bytes(former.file.read_bytes())
    encryption = Encryption(files_of(authority.issue(), client_ca))
    caller = authority.trusting(former.issue("former"))
    caller.maximum_version = version

    def says_hello(session: ssl.SSLSession | None) -> tuple[bytes, ssl.SSLSession | None]:
        with (
            socket.create_connection(("127.0.0.1", door.port), timeout=5) as plain,
            caller.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as tls,
        ):
            tls.sendall(b"hello\n")
            return tls.recv(16), tls.session

    async with listening(encryption) as door:
        said, session = await asyncio.to_thread(says_hello, None)
        assert (said, session is not None) == (b"hello\n", True)
        client_ca.write_bytes(present.file.read_bytes())
        for _ in range(2):
            encryption.look()
        answer = b""
        with suppress(ssl.SSLError, ConnectionError):
            answer, _ = await asyncio.to_thread(says_hello, session)
        assert answer == b""
