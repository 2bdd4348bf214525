"""Tunnels through HTTP forward proxies, opened with CONNECT and used only once established.

A proxy's answer is bounded: its head in bytes, the whole in time by whoever waits, and a body is
never read. TLS begins inside the tunnel, with the upstream's own name: a proxy sees that name, and
no byte of a request.
"""

import asyncio
import re
import socket
from typing import Final

from gateway.providers.egress.endpoint import Endpoint
from gateway.providers.egress.way_out import Proxy


HEAD_BYTES_MAX: Final = 8 * 1024
_READ_BYTES: Final = 2048
_END: Final = b"\r\n\r\n"
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n]*)?\r\n")
_OPEN: Final = 2
PROXY_DENIED: Final = 407


class ProxyFault(OSError):
    """A proxy did not open a tunnel; the message is ours, without an address.

    `status` is the proxy's HTTP status, or 0 if its answer was not HTTP.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


async def open_tunnel(address: str, proxy: Proxy, endpoint: Endpoint) -> socket.socket:
    """A connected, non-blocking socket whose other end is the endpoint, as the proxy says.

    `address` is the proxy's, and was checked.

    Raises:
        ProxyFault: the proxy opened no tunnel.
        OSError: the proxy itself could not be connected to.
    """
    loop = asyncio.get_running_loop()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    connected = socket.socket(family, socket.SOCK_STREAM)
    try:
        connected.setblocking(False)  # noqa: FBT003 - the standard library's
        await loop.sock_connect(connected, (address, proxy.port))
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await loop.sock_sendall(connected, _question(proxy, endpoint))
            await _through(loop, connected)
        except ConnectionError:
            raise ProxyFault("the proxy before the upstream broke off") from None
    except BaseException:
        connected.close()
        raise
    return connected


async def _through(loop: asyncio.AbstractEventLoop, connected: socket.socket) -> None:
    head = b""
    while _END not in head:
        if len(head) > HEAD_BYTES_MAX:
            raise ProxyFault("the proxy before the upstream answered at too great length")
        piece = await loop.sock_recv(connected, _READ_BYTES)
        if not piece:
            raise ProxyFault("the proxy before the upstream closed without an answer")
        head += piece
    examine(head)


def examine(head: bytes) -> None:
    """Check that the answer to a CONNECT opens the tunnel.

    Raises:
        ProxyFault: it does not, or bytes follow that cannot be the upstream's.
    """
    found = _STATUS.match(head)
    if found is None:
        raise ProxyFault("the proxy before the upstream did not answer in HTTP")
    status = int(found[1])
    if status == PROXY_DENIED:
        message = "the proxy before the upstream wants other credentials (HTTP 407)"
        raise ProxyFault(message, status)
    if status // 100 != _OPEN:
        raise ProxyFault(f"the proxy before the upstream refused (HTTP {status})", status)
    if not head.endswith(_END) or head.index(_END) + len(_END) != len(head):
        # In TLS the client speaks first: these bytes are the proxy's own.
        raise ProxyFault("the proxy before the upstream sent more than its answer")


def _question(proxy: Proxy, endpoint: Endpoint) -> bytes:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    place = f"{host}:{endpoint.port}"
    lines = [f"CONNECT {place} HTTP/1.1", f"host: {place}", "user-agent: gatewright"]
    if proxy.authorization is not None:
        lines.append(f"proxy-authorization: {proxy.authorization.reveal()}")
    return "\r\n".join((*lines, "", "")).encode("ascii")
