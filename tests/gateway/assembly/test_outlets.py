"""Collectors of vendors are reached as they want it: headers, a private authority, a proxy."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.assembly.outlets import make_metrics_push, make_shipper
from gateway.assembly.places import make_hook
from gateway.clock import StoppedClock
from gateway.configuration.disclosing import flat
from gateway.configuration.reading import parse_settings
from gateway.configuration.settings import Settings
from gateway.errors import ConfigurationInvalid
from gateway.metrics import Metrics
from gateway.providers.egress.client import Egress
from gateway.store.engine import open_database
from gateway.store.evidence.shipping import Sink
from gateway.telemetry import Event
from tests.certificates import Authority
from tests.forward_proxy import ForwardProxy
from tests.otlp_receiver import OtlpReceiver, Reply, partly


pytestmark = pytest.mark.anyio

OWN_WORD = "what-a-vendor-knows-us-by"
Write = Callable[[str], Settings]


@pytest.fixture
def house(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "house")


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Settings, beside a file and a variable that hold secrets."""
    for name, text in (("vendor.key", OWN_WORD), ("proxy.key", "gateway:its-own-word")):
        tmp_path.joinpath(name).touch(mode=0o600)
        tmp_path.joinpath(name).write_text(text)
    monkeypatch.setenv("GATEWRIGHT_TEST_TENANT", "tenant-7")
    return lambda text: parse_settings(text, "gatewright.toml", tmp_path, {})


@pytest.fixture
async def egress() -> AsyncIterator[Egress]:
    made = Egress()
    yield made
    await made.close()


def refusing(house: Authority) -> ssl.SSLContext:
    """Of a server that wants a certificate of the house from its callers."""
    return house.server("127.0.0.1", wants_from=house)


async def pushed(
    settings: Settings, egress: Egress, metrics: Metrics
) -> list[MutableMapping[str, Any]]:
    """What is logged of one push."""
    with capture_logs() as lines:
        await make_metrics_push(settings, egress, metrics, dict, StoppedClock()).perform()
    return lines


async def test_metrics_go_to_a_private_collector_by_a_proxy_with_a_vendor_s_headers(
    house: Authority, write: Write, egress: Egress
) -> None:
    shown = house.issue("gateway")
    credential = "Basic Z2F0ZXdheTppdHMtb3duLXdvcmQ="
    async with (
        OtlpReceiver(refusing(house)) as receiver,
        ForwardProxy(authorization=credential) as proxy,
    ):
        settings = write(f"""
[metrics]
url = "{receiver.url}/v1/metrics"
ca_file = "{house.file}"
client_certificate = "{shown.chain}"
client_key = "{shown.key}"
proxy = "{proxy.url}"
proxy_credential = {{ file = "proxy.key" }}
environment = "production"
[metrics.headers]
api-key = {{ file = "vendor.key" }}
x-scope-orgid = {{ env = "GATEWRIGHT_TEST_TENANT" }}
""")
        assert await pushed(settings, egress, Metrics()) == []
        (post,) = receiver.posts

    assert proxy.tunnels == 1
    assert post.headers["api-key"] == OWN_WORD
    assert post.headers["x-scope-orgid"] == "tenant-7"
    assert "proxy-authorization" not in post.headers
    assert OWN_WORD not in json.dumps(flat(settings))


@pytest.mark.parametrize("lacks", ["ca_file", "client_certificate"])
async def test_who_does_not_trust_or_shows_nothing_tells_nothing(
    house: Authority, write: Write, egress: Egress, lacks: str
) -> None:
    shown = house.issue("gateway")
    named = {
        "ca_file": f'ca_file = "{house.file}"',
        "client_certificate": f'client_certificate = "{shown.chain}"\nclient_key = "{shown.key}"',
    }
    kept = "\n".join(line for key, line in named.items() if key != lacks)
    async with OtlpReceiver(refusing(house)) as receiver:
        settings = write(f'[metrics]\nurl = "{receiver.url}/v1/metrics"\n{kept}')
        (line,) = await pushed(settings, egress, Metrics())
        assert receiver.posts == []

    assert line["event"] == Event.METRICS_NOT_TAKEN


async def test_points_that_a_collector_rejects_are_counted_and_named(
    write: Write, egress: Egress
) -> None:
    metrics = Metrics()
    async with OtlpReceiver() as receiver:
        receiver.replies.append(partly("rejectedDataPoints", "7", "out of order"))
        settings = write(f'[metrics]\nurl = "{receiver.url}/v1/metrics"')
        (line,) = await pushed(settings, egress, metrics)

    assert (line["event"], line["component"]) == (Event.OTLP_REJECTED, "metrics")
    assert (line["count"], line["reason"]) == (7, "out of order")
    labels = {"component": "metrics"}
    assert metrics.registry.get_sample_value("gatewright_otlp_rejected_total", labels) == 7


async def test_a_web_hook_of_alerts_is_reached_in_the_same_way(
    house: Authority, write: Write, egress: Egress
) -> None:
    async with OtlpReceiver(house.server("127.0.0.1")) as receiver:
        settings = write(f"""
[alerts]
url = "{receiver.url}/alerts"
ca_file = "{house.file}"
headers.api-key = {{ file = "vendor.key" }}
""")
        hook = make_hook(settings, egress, StoppedClock())
        assert hook is not None
        assert await hook.post(b"{}")
        (post,) = receiver.posts
    assert post.headers["api-key"] == OWN_WORD


async def sink_of(text: str, write: Write, egress: Egress) -> Sink:
    """The sink `a` of these settings."""
    settings = write(text)
    database = open_database(settings.database_url)
    try:
        return make_shipper(settings, egress, database, Metrics(), StoppedClock())._sinks["a"]
    finally:
        await database.close()


LINES = [{"stage": "outcome", "organisation": "acme", "sequence": 1, "utc_us": 1}]


async def test_a_syslog_server_of_a_private_authority_is_trusted_where_it_is_named(
    house: Authority, write: Write, egress: Egress
) -> None:
    got = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(4096):
            got.extend(piece)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=refusing(house))
    shown = house.issue("gateway")
    text = SINK.format("syslog", f"tls://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    ours = f'client_certificate = "{shown.chain}"\nclient_key = "{shown.key}"\n'
    trusting = await sink_of(f'{text}{ours}ca_file = "{house.file}"', write, egress)
    doubting = await sink_of(f"{text}{ours}", write, egress)

    assert not await doubting.deliver(LINES)
    assert not got
    assert await trusting.deliver(LINES)
    assert b'organisation="acme"' in got
    server.close()
    await server.wait_closed()


async def test_a_receiver_of_records_that_wants_to_be_left_alone_is(
    write: Write, egress: Egress
) -> None:
    async with OtlpReceiver() as receiver:
        receiver.replies.append(Reply(status=503, retry_after="30"))
        sink = await sink_of(SINK.format("http", f"{receiver.url}/in"), write, egress)
        assert not await sink.deliver(LINES)
        assert not await sink.deliver(LINES)
        assert len(receiver.posts) == 1
        assert sink.problem == "it answered with HTTP 503"


SINK = '[sinks.a]\nkind = "{}"\nurl = "{}"\n'
OTLP = SINK.format("otlp", "https://collector.example/v1/traces")
REFUSED = {
    f'{OTLP}headers.api-key = {{ file = "none.key" }}': ("sinks.a.headers.api-key", ""),
    f'{OTLP}ca_file = "vendor.key"': ("sinks.a.ca_file", "is no PEM"),
    f'{OTLP}client_key = "vendor.key"': ("sinks.a.client_key", "without `client_certificate`"),
    f'{OTLP}proxy = "proxy.example"': ("sinks.a.proxy", "must be http://host:port"),
    f'{OTLP}headers.api-key = {{ db = "x" }}': ("sinks.a.headers.api-key", "`env` and `file`"),
    f'{OTLP}headers.Api-Key = {{ env = "X" }}': ("sinks.a.headers.Api-Key", "lower case"),
    f'{OTLP}headers.host = {{ env = "X" }}': ("sinks.a.headers.host", "sets itself"),
    f'{OTLP}headers.content-type = {{ env = "X" }}': ("sinks.a.headers.content-type", "itself"),
    f'{OTLP}credential = {{ env = "X" }}\nheaders.authorization = {{ env = "X" }}': (
        "sinks.a.headers.authorization",
        "`credential`",
    ),
    f'{SINK.format("syslog", "tls://siem.example:6514")}headers.x = {{ env = "X" }}': (
        "sinks.a.headers",
        "means nothing",
    ),
    '[sinks.a]\nkind = "jsonl"\nfile = "x"\nca_file = "x"': ("sinks.a.ca_file", "means nothing"),
    '[sinks.a]\nkind = "jsonl"\nfile = "x"\nproxy_credential = { env = "X" }': (
        "sinks.a.proxy_credential",
        "means nothing",
    ),
}


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:514", "TCP://127.0.0.1:514"])
async def test_certificates_are_not_named_for_what_is_sent_in_plain(
    house: Authority, write: Write, egress: Egress, url: str
) -> None:
    with pytest.raises(ConfigurationInvalid) as refused:
        await sink_of(SINK.format("syslog", url) + f'ca_file = "{house.file}"', write, egress)

    assert refused.value.key == "sinks.a.url"
    assert "is plain tcp" in refused.value.reason


@pytest.mark.parametrize("text", REFUSED)
async def test_what_cannot_be_sent_or_read_is_refused_at_the_start(
    text: str, write: Write, egress: Egress
) -> None:
    key, reason = REFUSED[text]

    def build() -> None:
        settings = write(text)
        database = open_database(settings.database_url)
        make_shipper(settings, egress, database, Metrics(), StoppedClock())

    with pytest.raises(ConfigurationInvalid) as refused:
        build()

    # Of a file that cannot be read the source is the file.
    assert refused.value.key == key
    assert reason in refused.value.reason
    assert OWN_WORD not in str(refused.value)


async def test_a_header_that_would_end_the_head_is_refused(
    tmp_path: Path, write: Write, egress: Egress
) -> None:
    tmp_path.joinpath("vendor.key").write_text("a\r\nx-other: b")
    settings = write(f'{OTLP}headers.api-key = {{ file = "vendor.key" }}')
    database = open_database(settings.database_url)

    with pytest.raises(ConfigurationInvalid) as refused:
        make_shipper(settings, egress, database, Metrics(), StoppedClock())

    assert refused.value.key == "sinks.a.headers.api-key"
    assert "x-other" not in str(refused.value)


async def test_a_credential_that_would_end_the_head_is_refused_with_its_section(
    tmp_path: Path, write: Write, egress: Egress
) -> None:
    tmp_path.joinpath("vendor.key").write_text("a\r\nx-other: b")
    settings = write(f'{OTLP}credential = {{ file = "vendor.key" }}')
    database = open_database(settings.database_url)

    with pytest.raises(ConfigurationInvalid) as refused:
        make_shipper(settings, egress, database, Metrics(), StoppedClock())

    assert refused.value.key == "sinks.a.url"
    assert "x-other" not in str(refused.value)
