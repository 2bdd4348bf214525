"""Destinations: what may be configured, and what a host name may turn out to be."""

import asyncio
import ipaddress
import socket
from collections.abc import Mapping

import pytest

from gateway.errors import ConfigurationInvalid, UpstreamTimeout, UpstreamUnreachable
from gateway.providers.egress.client import Egress
from gateway.providers.egress.endpoint import Reach, may_reach, parse_endpoint
from gateway.providers.egress.resolver import GuardedResolver, ask_system
from tests.gateway.providers.samples import HOME, make_call


TRICKS = [
    "",
    "//api.example.com",
    "api.example.com",
    "ftp://api.example.com",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_x",
    "unix:///var/run/docker.sock",
    "javascript:alert(1)",
    "https://",
    "https:///v1",
    "https:/api.example.com",
    "https://user:password@api.example.com",
    "https://user@api.example.com",
    "https://@api.example.com",
    "https://api.example.com@evil.example",
    "https://api.example.com#@evil.example",
    "https://api.example.com?x=1",
    "https://api.example.com#fragment",
    "https://api.example.com\\@evil.example",
    "https:\\\\api.example.com",
    "https://api.example.com/..",
    "https://api.example.com/a/../b",
    "https://api.example.com/./a",
    "https://api.example.com//a",
    "https://api.example.com/a%2fb",
    "https://api.example.com/a b",
    " https://api.example.com",
    "https://api.example.com\n",
    "https://api.example.com\r\nHost: evil.example",
    "https://api.example.com\t",
    "https://api.example.com\0",
    "https://api.example.com:0",
    "https://api.example.com:65536",
    "https://api.example.com:-1",
    "https://api.example.com:443x",
    "https://api.example.com:4 43",
    "https://2130706433",
    "https://0x7f000001",
    "https://0x7f.0.0.1",
    "https://0177.0.0.1",
    "https://127.1",
    "https://1.2.3",
    "https://1.2.3.4.5",
    "https://256.1.1.1",
    "https://[::1",
    "https://::1",
    "https://[::1]extra",
    "https://[fe80::1%25eth0]",
    "https://[::ffff:169.254.169.254]",
    "https://[64:ff9b::a9fe:a9fe]",
    "https://[2002:a9fe:a9fe::1]",
    "https://[ff02::1]",
    "https://[::]",
    "https://0.0.0.0",
    "https://169.254.169.254",
    "https://224.0.0.1",
    "https://255.255.255.255",
    "https://240.0.0.1",
    "https://-api.example.com",
    "https://api..example.com",
    "https://.example.com",
    "https://api_1.example.com:x",
    "https://ap\u0131.example.com",
    "https://ⓔxample.com",
    "https://api.example.com\u3002evil.example",
    "https://exa*mple.com",
    "https://exa$mple.com",
    "http://api.example.com",
    "http://10.0.0.1",
    "http://[2001:db8::1]",
]


@pytest.mark.parametrize("base_url", TRICKS)
def test_tricky_addresses_are_refused_without_repeating_them(base_url: str) -> None:
    with pytest.raises(ConfigurationInvalid) as caught:
        parse_endpoint("somebody", base_url, HOME)
    assert caught.value.key == "base_url"
    if len(base_url) > len("https://"):
        assert base_url not in caught.value.message


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("https://api.example.com", "https://api.example.com/v1/x"),
        ("https://API.Example.com./", "https://api.example.com/v1/x"),
        ("https://api.example.com:8443/base/v2/", "https://api.example.com:8443/base/v2/v1/x"),
        ("http://localhost:8000", "http://localhost:8000/v1/x"),
        ("http://127.0.0.1", "http://127.0.0.1/v1/x"),
        ("http://[::1]:8000", "http://[::1]:8000/v1/x"),
        ("https://[2001:4860:0:0::8888]", "https://[2001:4860::8888]/v1/x"),
    ],
)
def test_plain_addresses_are_accepted(base_url: str, url: str) -> None:
    found = parse_endpoint("somebody", base_url, HOME).url("/v1/x")
    assert str(found.with_port(None) if found.is_default_port() else found) == url


def test_plain_http_beyond_loopback_has_to_be_allowed_by_name() -> None:
    endpoint = parse_endpoint("somebody", "http://10.0.0.1:8000", HOME, allow_plain_http=True)
    assert endpoint.reach == "anywhere"


def test_an_in_house_upstream_must_have_a_private_address() -> None:
    assert parse_endpoint("e", "https://10.1.2.3", HOME, in_house=True).reach == "private"
    with pytest.raises(ConfigurationInvalid, match="a server elsewhere is of kind openai_compat"):
        parse_endpoint("e", "https://8.8.8.8", HOME, in_house=True)


@pytest.mark.parametrize("in_house", [True, False])
def test_where_nothing_is_connected_to_no_other_kind_is_advised(in_house: bool) -> None:
    with pytest.raises(ConfigurationInvalid, match="which nothing is ever connected to"):
        parse_endpoint("e", "https://169.254.169.254", HOME, in_house=in_house)


def test_an_upstream_without_a_jurisdiction_is_refused() -> None:
    with pytest.raises(ConfigurationInvalid) as caught:
        parse_endpoint("e", "https://api.example.com", "")
    assert caught.value.key == "jurisdiction"


@pytest.mark.parametrize(
    ("address", "reaches"),
    [
        ("127.0.0.1", {"loopback", "private", "anywhere"}),
        ("::ffff:127.0.0.1", {"loopback", "private", "anywhere"}),
        ("10.0.0.1", {"private", "anywhere"}),
        ("192.168.1.1", {"private", "anywhere"}),
        ("100.64.0.1", {"private", "anywhere"}),
        ("fd00::1", {"private", "anywhere"}),
        ("8.8.8.8", {"anywhere"}),
        ("2001:4860::8888", {"anywhere"}),
        ("169.254.169.254", set()),
        ("fe80::1", set()),
        ("::ffff:169.254.169.254", set()),
        ("64:ff9b::169.254.169.254", set()),
        ("64:ff9b::10.0.0.1", {"private", "anywhere"}),
        ("::", set()),
        ("255.255.255.255", set()),
        ("::169.254.169.254", set()),
        ("::ffff:0:169.254.169.254", set()),
        ("64:ff9b:1::a9fe:a9fe", set()),
        ("2002:a9fe:a9fe::1", set()),
        ("2002:808:808::1", {"anywhere"}),
        ("2001:0:4136:e378:8000:63bf:f7f7:f7f7", {"anywhere"}),
        ("2001:0:4136:e378:8000:63bf:5601:5601", set()),
        ("2001:db8::1", {"anywhere"}),
        ("2002:7f00:1::1", set()),
        ("2002:a00:1::1", {"anywhere"}),
        ("2001:0:4136:e378:8000:63bf:80ff:fffe", set()),
        ("2001:0:4136:e378:8000:63bf:f5ff:fffe", {"anywhere"}),
        ("64:ff9b::127.0.0.1", set()),
        ("fe80::1%eth0", set()),
        ("::ffff:169.254.169.254%1", set()),
        ("fd00:ec2::254", set()),
        ("fd00:ec2::254%1", set()),
        ("fd20:ce::254", set()),
        ("100.100.100.200", set()),
        ("::ffff:100.100.100.200", set()),
        ("168.63.129.16", set()),
    ],
)
def test_each_reach_includes_its_addresses_only(address: str, reaches: set[Reach]) -> None:
    every: tuple[Reach, ...] = ("loopback", "private", "anywhere")
    parsed = ipaddress.ip_address(address)
    assert {reach for reach in every if may_reach(parsed, reach)} == reaches


class FixedAddresses:
    """Says what it is told about every name."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> tuple[str, ...]:
        self.asked.append(host)
        return self.addresses


@pytest.mark.anyio
async def test_a_name_that_resolves_to_a_metadata_service_is_never_connected_to() -> None:
    egress = Egress(resolver=GuardedResolver(FixedAddresses("169.254.169.254")))
    endpoint = parse_endpoint("s", "https://metadata.example", HOME)
    with pytest.raises(UpstreamUnreachable):
        await egress.open(egress.route(endpoint, "/", {}), make_call())
    await egress.close()


@pytest.mark.anyio
async def test_addresses_out_of_reach_are_dropped_and_the_stricter_rule_holds() -> None:
    guarded = GuardedResolver(FixedAddresses("8.8.8.8", "10.0.0.7"))
    guarded.admit(parse_endpoint("a", "https://engine.example", HOME))
    assert await guarded.resolve("engine.example", 443) == ("8.8.8.8", "10.0.0.7")
    guarded.admit(parse_endpoint("b", "https://engine.example", HOME, in_house=True))
    guarded.admit(parse_endpoint("c", "https://engine.example", HOME))
    assert await guarded.resolve("engine.example", 443) == ("10.0.0.7",)
    nowhere = GuardedResolver(FixedAddresses("169.254.169.254"))
    nowhere.admit(parse_endpoint("a", "https://engine.example", HOME))
    with pytest.raises(OSError, match="no address that it may have"):
        await nowhere.resolve("engine.example", 443)


@pytest.mark.anyio
@pytest.mark.parametrize("is_plain_first", [True, False])
async def test_plain_http_stays_on_this_machine_whatever_else_has_its_name(
    is_plain_first: bool,
) -> None:
    guarded = GuardedResolver(FixedAddresses("127.0.0.1", "10.0.0.7"))
    plain = parse_endpoint("a", "http://localhost:8090", HOME)
    at_home = parse_endpoint("b", "https://localhost:8443", HOME, in_house=True)
    for endpoint in (plain, at_home) if is_plain_first else (at_home, plain):
        guarded.admit(endpoint)
    assert await guarded.resolve("localhost", 8090) == ("127.0.0.1",)


@pytest.mark.anyio
async def test_a_host_that_no_endpoint_has_is_not_even_looked_up() -> None:
    inner = FixedAddresses("8.8.8.8")
    with pytest.raises(OSError, match="no endpoint"):
        await GuardedResolver(inner).resolve("evil.example", 443)
    assert inner.asked == []


@pytest.mark.anyio
async def test_a_name_that_is_not_answered_for_is_waited_for_no_longer_than_a_connection() -> None:
    async def unanswered(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    egress = Egress(resolver=GuardedResolver(unanswered))
    endpoint = parse_endpoint("s", "https://slow.example", HOME)
    route = egress.route(endpoint, "/", {}, connect_timeout_s=0.01)
    with pytest.raises(UpstreamTimeout, match="name"):
        await egress.open(route, make_call(deadline_s=1.0))
    await egress.close()


@pytest.mark.anyio
async def test_the_system_knows_its_own_name_and_says_so_of_one_nobody_has() -> None:
    assert set(await ask_system("localhost", 80)) == {"127.0.0.1"}
    with pytest.raises(OSError, match=r"."):
        await ask_system("nobody.invalid", 80)


class Names:
    """A system that knows names of one family, or none of them now."""

    def __init__(
        self, known: Mapping[tuple[str, int], str], errno: int = socket.EAI_NONAME
    ) -> None:
        self.known = known
        self.errno = errno
        self.asked: list[int] = []

    def getaddrinfo(
        self, host: str, port: int, family: int, kind: int, *, flags: int
    ) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        del flags
        self.asked.append(family)
        if (host, family) not in self.known:
            raise socket.gaierror(self.errno, "no such name")
        return [(family, kind, 0, "", (self.known[host, family], port))]


@pytest.mark.anyio
async def test_a_host_with_an_address_of_ipv6_alone_is_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    greeted = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        greeted.set()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "::1", 0)
    port = server.sockets[0].getsockname()[1]
    names = Names({("six.example", socket.AF_INET6): "::1"})
    monkeypatch.setattr(socket, "getaddrinfo", names.getaddrinfo)
    egress = Egress()
    endpoint = parse_endpoint(
        "s", f"http://six.example:{port}", HOME, allow_plain_http=True, in_house=True
    )

    reply = await egress.open(egress.route(endpoint, "/", {}), make_call())

    assert (reply.status, greeted.is_set()) == (200, True)
    assert names.asked == [socket.AF_INET, socket.AF_INET6]
    await egress.close()
    server.close()


@pytest.mark.anyio
async def test_ipv6_is_asked_for_only_where_a_name_has_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known: dict[tuple[str, int], str] = {
        ("both.example", socket.AF_INET): "8.8.8.8",
        ("both.example", socket.AF_INET6): "::1",
    }
    names = Names(known, socket.EAI_AGAIN)
    monkeypatch.setattr(socket, "getaddrinfo", names.getaddrinfo)

    assert await ask_system("both.example", 443) == ["8.8.8.8"]
    with pytest.raises(socket.gaierror):
        await ask_system("later.example", 443)
    assert names.asked == [socket.AF_INET] * 2
