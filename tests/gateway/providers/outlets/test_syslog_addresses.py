"""Where records are sent by syslog: to no address that an upstream may not have either."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from gateway.errors import ConfigurationInvalid
from gateway.providers.egress.resolver import GuardedResolver
from gateway.providers.outlets.sinks import SyslogSink


pytestmark = pytest.mark.anyio

LINES = [{"organisation": "acme", "sequence": 1, "utc_us": 1}]


class Collector:
    """Takes what comes on every address of this machine."""

    def __init__(self) -> None:
        self.got = bytearray()
        self._server: asyncio.Server

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "0.0.0.0", 0)  # noqa: S104

    async def stop(self) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(4096):
            self.got.extend(piece)
        writer.close()


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    collector = Collector()
    await collector.start()
    yield collector
    await collector.stop()


def names(*addresses: str) -> GuardedResolver:
    """A resolver that gives every host these."""

    async def look_up(host: str, port: int) -> Sequence[str]:
        assert (host, port > 0) == ("siem.example", True)
        return addresses

    return GuardedResolver(look_up)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "169.254.169.254", "fd00:ec2::254"])  # noqa: S104
async def test_a_name_that_leads_to_no_upstreams_address_is_not_connected_to(
    collector: Collector, address: str
) -> None:
    """0.0.0.0 is this machine to a system that connects there; the others are clouds' metadata."""
    url = f"tcp://siem.example:{collector.port}"
    sink = SyslogSink("siem", url, allow_plain=True, resolver=names(address))

    assert not await sink.deliver(LINES)
    assert sink.problem == "the host has no address that it may have"
    assert collector.got == b""


async def test_of_a_names_addresses_the_next_is_tried(collector: Collector) -> None:
    url = f"tcp://siem.example:{collector.port}"
    resolver = names("169.254.1.1", "127.0.0.2", "127.0.0.1")
    sink = SyslogSink("siem", url, allow_plain=True, resolver=resolver)

    assert await sink.deliver(LINES)
    assert b'organisation="acme"' in collector.got


async def test_what_may_be_on_this_machine_only_is_looked_for_nowhere_else() -> None:
    async def look_up(host: str, port: int) -> Sequence[str]:
        del port
        assert host == "localhost"
        return ("10.1.2.3",)

    sink = SyslogSink(
        "siem", "tcp://localhost:514", allow_plain=False, resolver=GuardedResolver(look_up)
    )

    assert not await sink.deliver(LINES)
    assert sink.problem == "the host has no address that it may have"


@pytest.mark.parametrize(
    "url",
    [
        "tcp://0.0.0.0:514",
        "tls://169.254.169.254:6514",
        "tls://[fe80::1]:6514",
        "tls://[::ffff:169.254.169.254]:6514",
        "tls://user@siem.example:6514",
        "tls://0x7f.1:6514",
        "tls://2130706433:6514",
        "tls://siem.example:0",
        "tls://siem example:6514",
    ],
)
def test_an_address_that_no_upstream_may_have_stops_the_start(url: str) -> None:
    with pytest.raises(ConfigurationInvalid) as refused:
        SyslogSink("sinks.siem", url, allow_plain=True)
    assert (refused.value.source, refused.value.key) == ("sinks.siem", "url")
