"""Destinations that records are delivered to: a file, a syslog server, an HTTP collector.

Only the settings can name one. A delivery that was not confirmed is made again: the receiver
recognises copies by organisation and sequence.
"""

import asyncio
import ipaddress
import os
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from gateway.audit.disk import Disk
from gateway.errors import ConfigurationInvalid
from gateway.oversight.exporting import Line, as_json_lines, as_syslog
from gateway.providers.egress.endpoint import Endpoint, parse_endpoint
from gateway.providers.egress.resolver import GuardedResolver
from gateway.providers.egress.way_out import require_verifying, verifying
from gateway.providers.outlets.pause import Pause
from gateway.providers.outlets.webhook import WebHook


DEADLINE_S = 10.0
_DRAIN_BYTES = 65536
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class FileSink:
    """JSON lines at the end of a file, synced; the file may be rotated away at any time."""

    takes_checkpoints = True

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self._path = path
        self._disk = disk or Disk()
        self.problem = ""

    async def deliver(self, lines: Sequence[Line]) -> bool:
        return await asyncio.to_thread(self._append, lines)

    def _append(self, lines: Sequence[Line]) -> bool:
        try:
            self._disk.make_folder(self._path.parent)
            # A kill or a full disk left half a line: new lines must not be appended to it.
            start = b"\n" if _is_cut(self._path) else b""
            self._disk.append_durably(self._path, start + as_json_lines(lines))
        except OSError as error:
            self.problem = error.strerror or "it cannot be written"
            return False
        self.problem = ""
        return True


def _is_cut(path: Path) -> bool:
    """Whether a file ends within a line; False for a pipe, say, which cannot be checked."""
    if not path.is_file() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


class HttpSink:
    """JSON lines, posted through the one egress; 2xx confirms."""

    takes_checkpoints = True

    def __init__(self, hook: WebHook, pause: Pause) -> None:
        self._hook = hook
        self._pause = pause

    @property
    def problem(self) -> str:
        return self._hook.problem

    async def deliver(self, lines: Sequence[Line]) -> bool:
        if self._pause.is_on:
            return False
        is_taken = await self._hook.post(await asyncio.to_thread(as_json_lines, lines))
        self._pause.begin(self._hook.retry_after_s)
        return is_taken


class SyslogSink:
    """RFC 5424 over TCP or TLS, one connection for each batch.

    Syslog confirms nothing, so the batch counts as taken if the server closes its stream without an
    error after we closed ours.
    """

    takes_checkpoints = True

    def __init__(
        self,
        name: str,
        url: str,
        *,
        allow_plain: bool,
        resolver: GuardedResolver | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Raises ConfigurationInvalid unless it is `tls://HOST:PORT`, or `tcp://` if allowed."""
        parts, port = urlsplit(""), None
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            pass  # No number for a port, or half a pair of brackets.
        if parts.scheme not in ("tls", "tcp") or not parts.hostname or port is None:
            raise ConfigurationInvalid(name, "url", "must be tls://HOST:PORT or tcp://HOST:PORT")
        if parts.scheme == "tcp" and not (allow_plain or parts.hostname in _LOOPBACK):
            reason = "is plain tcp beyond loopback; see allow_plain_http"
            raise ConfigurationInvalid(name, "url", reason)
        if parts.scheme == "tcp" and tls is not None:
            # An operator who names them believes that the connection is encrypted.
            reason = "is plain tcp: no ca_file or client_certificate is for that"
            raise ConfigurationInvalid(name, "url", reason)
        is_near = parts.scheme == "tcp" and not allow_plain
        self._endpoint = _checked(name, parts.netloc, is_near=is_near)
        self._resolver = resolver or GuardedResolver()
        self._resolver.admit(self._endpoint)
        require_verifying(tls)
        self._tls = (tls or verifying()) if parts.scheme == "tls" else None
        self._own_name = socket.gethostname() or "-"
        self.problem = ""

    async def deliver(self, lines: Sequence[Line]) -> bool:
        body = await asyncio.to_thread(as_syslog, lines, self._own_name)
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self._send(body)
        except TimeoutError:
            self.problem = f"it did not end its side within {DEADLINE_S:.0f} s"
            return False
        except OSError as error:
            self.problem = error.strerror or str(error) or "the connection was lost"
            return False
        self.problem = ""
        return True

    async def _send(self, body: bytes) -> None:
        reader, writer = await self._connect()
        try:
            writer.write(body)
            await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
                while await reader.read(_DRAIN_BYTES):
                    pass
        finally:
            writer.close()
        await writer.wait_closed()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the first address that answers; raises OSError if none does."""
        host, port = self._endpoint.host, self._endpoint.port
        name = host if self._tls is not None else None
        failure = OSError("the host has no address")
        for address in await self._addresses():
            try:
                return await asyncio.open_connection(
                    address, port, ssl=self._tls, server_hostname=name
                )
            except OSError as error:
                failure = error
        raise failure

    async def _addresses(self) -> Sequence[str]:
        """A name's addresses are checked between resolving and connecting, as in the egress."""
        try:
            return (str(ipaddress.ip_address(self._endpoint.host)),)
        except ValueError:
            return await self._resolver.resolve(self._endpoint.host, self._endpoint.port)


def _checked(name: str, place: str, *, is_near: bool) -> Endpoint:
    """HOST:PORT as an endpoint of the egress, or as one on this machine only."""
    scheme = "http" if is_near else "https"
    try:
        return parse_endpoint(name, f"{scheme}://{place}", "operator")
    except ConfigurationInvalid as error:
        raise ConfigurationInvalid(name, "url", error.reason) from None
