"""Endpoints: the address of an upstream, built from settings and checked before first use.

Nothing in a request may name a destination; the egress connects to an `Endpoint` and to nothing
else. The parser is deliberately narrow: a URL that two parsers could read in two ways is refused.
"""

import ipaddress
import re
from typing import Literal

from msgspec import Struct
from yarl import URL

from gateway.errors import ConfigurationInvalid
from gateway.providers.egress.way_out import Proxy, WayOut
from gateway.secrets.secret import Secret


Reach = Literal["loopback", "private", "anywhere"]
"""Which addresses a host name may resolve to."""

_HOST_NAME = re.compile(r"(?!-)[a-z0-9-]{1,63}(?:\.(?!-)[a-z0-9-]{1,63})*")
_BASE_URL = re.compile(
    r"(?P<scheme>https?)://"
    r"(?P<host>\[[0-9a-f:.]+\]|[a-z0-9.-]+)"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>(?:/[a-z0-9_~-][a-z0-9._~-]*)*)/?",
    re.ASCII | re.IGNORECASE,
)
_PROXY_URL = re.compile(
    r"http://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9.-]+):(?P<port>[0-9]{1,5})/?", re.ASCII | re.IGNORECASE
)
_PORT_MAX = 65535
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_SHARED = ipaddress.IPv4Network("100.64.0.0/10")
_UNIQUE_LOCAL = ipaddress.IPv6Network("fc00::/7")

Place = tuple[str, str, int, WayOut | None]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_OF_CLOUDS: frozenset[Address] = frozenset(
    map(
        ipaddress.ip_address,
        ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    )
)
"""Metadata services of clouds that are not link-local: AWS, Google, Alibaba, Azure, Oracle."""


class Endpoint(Struct, frozen=True):
    """A checked place to connect to, with the jurisdiction that the egress compares."""

    name: str
    jurisdiction: str
    scheme: Literal["http", "https"]
    host: str
    port: int
    base_path: str
    """Empty, or starts with a slash and ends without one."""
    reach: Reach
    way_out: WayOut | None = None
    """How its connections leave, if not directly and under the system's authorities."""

    @property
    def proxy(self) -> Proxy | None:
        """The proxy that is connected to instead, and looks up the endpoint's name."""
        return None if self.way_out is None else self.way_out.proxy

    @property
    def first_hop(self) -> tuple[str, int]:
        """Host and port that connections are made to: its proxy's, or its own."""
        proxy = self.proxy
        return (self.host, self.port) if proxy is None else (proxy.host, proxy.port)

    @property
    def place(self) -> Place:
        """The key under which connections to it are kept.

        Its way out is part of it: a connection made with other trust, another certificate or
        through another proxy belongs to another place.
        """
        return self.scheme, self.host, self.port, self.way_out

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def url(self, path: str) -> URL:
        """The full URL of a path of ours; computed once per provider, not per request."""
        return URL(f"{self.origin}{self.base_path}{path}", encoded=True)


def parse_endpoint(
    name: str,
    base_url: str,
    jurisdiction: str,
    *,
    allow_plain_http: bool = False,
    in_house: bool = False,
    way_out: WayOut | None = None,
) -> Endpoint:
    """Check a configured base URL.

    Plain http is for loopback unless it is allowed by name. An in-house endpoint must have a
    loopback or private address, because its jurisdiction label claims that data stays home; behind
    a proxy only a literal address can prove that, since the proxy resolves names.

    Raises:
        ConfigurationInvalid: naming the provider, the key and the reason, never the URL.
    """
    source = f"providers.{name}"
    if not jurisdiction:
        raise ConfigurationInvalid(source, "jurisdiction", "is empty")
    try:
        scheme, host, port, base_path = _split(base_url)
        address = _parse_host(host)
        host = str(address or host)
        reach: Reach = "private" if in_house else "anywhere"
        if scheme == "http" and not allow_plain_http:
            reach = "loopback"
            if not (host == "localhost" or (address is not None and address.is_loopback)):
                raise ValueError("is plain http beyond loopback; allow_plain_http permits it")
        if address is not None and not may_reach(address, reach):
            raise ValueError(_out_of_bounds(address))
        if way_out is not None and scheme == "http":
            raise ValueError("is plain http: no proxy, ca_file or client_certificate is for that")
    except ValueError as error:
        raise ConfigurationInvalid(source, "base_url", str(error)) from None
    endpoint = Endpoint(name, jurisdiction, scheme, host, port, base_path, reach, way_out)
    _check_proxy(endpoint, source, is_name=address is None)
    return endpoint


def _out_of_bounds(address: Address) -> str:
    """Why an upstream is not connected to, and what to configure instead."""
    if may_reach(address, "anywhere"):
        return (
            "is a public address, and kind engine has to be in the house; a server elsewhere is "
            "of kind openai_compatible"
        )
    return "is link-local, reserved or a metadata service's, which nothing is ever connected to"


def _check_proxy(endpoint: Endpoint, source: str, *, is_name: bool) -> None:
    if endpoint.proxy is None:
        return
    if endpoint.reach == "private" and is_name:
        reason = "is a name, which only the proxy looks up: what is in-house needs an address"
        raise ConfigurationInvalid(source, "base_url", reason)
    address = _parse_host(f"[{host}]" if ":" in (host := endpoint.proxy.host) else host)
    if address is not None and not may_reach(address, endpoint.reach):
        reason = f"is an address out of bounds for a proxy that may be {endpoint.reach}"
        raise ConfigurationInvalid(source, "proxy", reason)


def parse_proxy(section: str, url: str, authorization: Secret[str] | None) -> Proxy:
    """Check a section's configured proxy; its address is checked with the section's own.

    Raises:
        ConfigurationInvalid: naming the section, the key and the reason, never the URL.
    """
    try:
        found = _PROXY_URL.fullmatch(url)
        if found is None:
            raise ValueError("must be http://host:port; credentials go into proxy_credential")
        host = found["host"].lower().removesuffix(".")
        port = int(found["port"])
        if not 0 < port <= _PORT_MAX:
            raise ValueError("has no usable port")
        return Proxy(str(_parse_host(host) or host), port, authorization)
    except ValueError as error:
        raise ConfigurationInvalid(section, "proxy", str(error)) from None


def may_reach(address: Address, reach: Reach) -> bool:
    """Whether an address may be connected to.

    Link-local (which is where most cloud metadata services live), unspecified, multicast and
    reserved addresses are never an upstream, not even wrapped into IPv6.
    """
    own, address = address, _unwrap(address)
    if address.is_loopback:
        return _is_ours(own)
    if (
        address.is_link_local
        or address.is_unspecified
        or address.is_multicast
        or address.is_reserved
        or address in _OF_CLOUDS
    ):
        return False
    if reach == "anywhere":
        return True
    return reach == "private" and _is_private(address) and not _is_tunnelled(own)


def _is_ours(loopback: Address) -> bool:
    """Whether it is this machine's own address, not that of a relay that unwraps IPv4 from it."""
    return loopback.is_loopback or getattr(loopback, "ipv4_mapped", None) is not None


def _is_tunnelled(address: Address) -> bool:
    """Whether its packets go through a relay elsewhere, whatever their final address."""
    if isinstance(address, ipaddress.IPv4Address):
        return False
    return address.sixtofour is not None or address.teredo is not None


def _is_private(address: Address) -> bool:
    # In IPv6 more counts as private than stays in a house, such as the ends of tunnels.
    if isinstance(address, ipaddress.IPv6Address):
        return address in _UNIQUE_LOCAL
    return address.is_private or address in _SHARED


def _unwrap(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, if any."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    # Without a zone, with which it would count as a different address.
    return ipaddress.IPv6Address(int(address))


def _split(base_url: str) -> tuple[Literal["http", "https"], str, int, str]:
    """Scheme, host (IPv6 in its brackets), port and base path; ValueError says what is wrong."""
    found = _BASE_URL.fullmatch(base_url)
    if found is None:
        raise ValueError("must be https://host or http://host, with a port and plain path at most")
    scheme: Literal["http", "https"] = "https" if found["scheme"].lower() == "https" else "http"
    port = int(found["port"] or (443 if scheme == "https" else 80))
    if not 0 < port <= _PORT_MAX:
        raise ValueError("has no usable port")
    return scheme, found["host"].lower().removesuffix("."), port, found["path"]


def _parse_host(host: str) -> Address | None:
    """The address, or None for a name; ValueError for anything that only looks like either."""
    try:
        if host.startswith("["):
            return ipaddress.IPv6Address(host[1:-1])
        return ipaddress.IPv4Address(host)
    except ValueError:
        # A last label that begins with a digit is an address in disguise, like 127.1 or 0x7f.1.
        if _HOST_NAME.fullmatch(host) and not host.rpartition(".")[2][:1].isdigit():
            return None
        raise ValueError("has no usable host name or address") from None
