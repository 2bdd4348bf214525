"""Sinks get every record and every checkpoint, in order and at least once."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gateway.audit.disk import Disk
from gateway.audit.projecting.projector import Projector
from gateway.audit.proving.checkpoints import open_signer
from gateway.audit.proving.exported import CheckpointFiles, SignedCheckpoint
from gateway.audit.proving.integrator import Integrator
from gateway.clock import StoppedClock, SystemClock
from gateway.errors import ConfigurationInvalid
from gateway.oversight.exporting import as_spans, as_syslog
from gateway.oversight.otlp_resource import Source
from gateway.providers.egress.client import Egress
from gateway.providers.outlets.otlp import OtlpCollector, SpanSink
from gateway.providers.outlets.pause import Pause
from gateway.providers.outlets.sinks import FileSink, HttpSink, SyslogSink
from gateway.providers.outlets.webhook import WebHook
from gateway.secrets.secret import Secret
from gateway.store.engine import Database, open_database
from gateway.store.evidence.shipping import LEASE_US, Shipper, Sink
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.evidence.tree import DatabaseAuditTrees
from tests.gateway.audit.samples import KEYS, journeys, running


pytestmark = pytest.mark.anyio
BATCH_LINES = 40
CONTENT = secrets.token_hex(16)


class ListSink:
    """Keeps what it takes; refuses while it is told to."""

    takes_checkpoints = True

    def __init__(self) -> None:
        self.lines: list[Any] = []
        self.refuses = False
        self.deliveries = 0
        self.problem = ""

    async def deliver(self, lines: Sequence[Any]) -> bool:
        self.deliveries += 1
        self.problem = "it is told to refuse" if self.refuses else ""
        if self.refuses:
            return False
        self.lines += lines
        return True

    def numbers(self, organisation: str) -> list[int]:
        lines = [line for line in self.lines if line["organisation"] == organisation]
        return [line["sequence"] for line in lines if "sequence" in line]


class Ahead(SystemClock):
    """A clock that can be set ahead."""

    ahead_us = 0

    def utc_us(self) -> int:
        return super().utc_us() + self.ahead_us


class Log:
    """A log with some records, its database, and a signer."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.folder, self.database = folder, database
        self.records = DatabaseAuditSink(database, folder)
        self.clock = Ahead()

    async def add(self, first: int, count: int) -> None:
        async with running(self.folder) as log:
            await journeys(log, first, count)
        await Projector(self.folder, self.records).catch_up()

    async def sign(self) -> None:
        signer = open_signer(self.folder / "w0", "test/w0", KEYS, self.clock, Disk())
        files = CheckpointFiles(self.folder / "checkpoints", Disk())
        trees = DatabaseAuditTrees(self.database)
        await Integrator(
            trees, signer, files, self.clock, log_name="test", period_s=30.0
        ).sign_due()

    def shipper(self, holder: str = "w0", **sinks: Sink) -> Shipper:
        return Shipper(self.database, self.records, sinks, self.clock, holder)


@pytest.fixture
async def log(tmp_path: Path, database_url: str) -> AsyncIterator[Log]:
    database = open_database(database_url)
    yield Log(tmp_path / "audit", database)
    await database.close()


async def test_a_sink_that_was_away_gets_the_back_log_in_order_and_the_checkpoints(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.store.evidence.shipping.BATCH_LINES", BATCH_LINES)
    sink = ListSink()
    shipper = log.shipper(siem=sink)
    await log.add(0, 30)
    await log.sign()
    sink.refuses = True
    assert await shipper.perform() == 0
    await log.add(30, BATCH_LINES)
    sink.refuses = False
    while await shipper.perform():
        pass
    assert sink.numbers("acme") == list(range(1, len(sink.numbers("acme")) + 1))
    assert len(sink.numbers("acme")) + len(sink.numbers("globex")) == 2 * (30 + BATCH_LINES)
    notes = [line for line in sink.lines if "note" in line]
    assert {line["organisation"] for line in notes} == {"acme", "globex"}
    assert await shipper.perform() == 0


class SleepingSink(ListSink):
    """Of a worker that is stopped while it delivers, until another has had its turn."""

    def __init__(self, log: Log, other: Shipper) -> None:
        super().__init__()
        self._log, self._other = log, other

    async def deliver(self, lines: Sequence[Any]) -> bool:
        self._log.clock.ahead_us += 2 * LEASE_US
        while await self._other.perform():
            pass
        return await super().deliver(lines)


async def test_a_worker_that_was_stopped_delivers_nothing_more_and_moves_nothing(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.store.evidence.shipping.BATCH_LINES", BATCH_LINES)
    await log.add(0, BATCH_LINES)
    await log.sign()
    theirs = ListSink()
    other = log.shipper("w1", siem=theirs)
    sink = SleepingSink(log, other)
    await log.shipper("w0", siem=sink).perform()
    # What was under way came twice; what follows was the other's already.
    assert sink.deliveries == 1
    assert theirs.numbers("acme") == list(range(1, len(theirs.numbers("acme")) + 1))
    assert sink.numbers("acme") == theirs.numbers("acme")[:BATCH_LINES]
    taken = len(theirs.lines)
    assert await other.perform() == 0
    assert len(theirs.lines) == taken


async def test_checkpoints_are_read_a_delivery_at_a_time(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink that is new after a year has a million before it: never all of them at once."""
    monkeypatch.setattr("gateway.store.evidence.shipping.BATCH_LINES", 7)
    trees, sink = DatabaseAuditTrees(log.database), ListSink()
    await log.add(0, 3)
    await trees.keep([SignedCheckpoint("acme", at, 2, bytes(32), "note") for at in range(1, 41)])
    read: list[int] = []
    between = DatabaseAuditTrees.between

    async def counted(self: DatabaseAuditTrees, *span: Any) -> Sequence[SignedCheckpoint]:
        found = await between(self, *span)
        read.append(len(found))
        return found

    monkeypatch.setattr(DatabaseAuditTrees, "between", counted)
    await log.shipper(siem=sink).perform()
    assert [line["signed_us"] for line in sink.lines if "note" in line] == list(range(1, 41))
    assert max(read) == 7


async def test_a_restart_and_another_worker_go_on_at_the_cursor_and_only_one_delivers(
    log: Log,
) -> None:
    first, second = ListSink(), ListSink()
    await log.add(0, 12)
    await asyncio.gather(
        log.shipper(siem=first).perform(), log.shipper("w1", siem=second).perform()
    )
    await log.add(12, 12)
    await log.shipper("w1", siem=second).perform()
    numbers = sorted(first.numbers("acme") + second.numbers("acme"))
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) + len(first.numbers("globex") + second.numbers("globex")) == 48


async def test_a_worker_that_died_while_it_delivered_holds_nobody_up_for_long(log: Log) -> None:
    await log.add(0, 3)
    dead, sink = log.shipper("dead", siem=ListSink()), ListSink()
    assert await dead._take_lease("siem")
    assert await log.shipper("w1", siem=sink).perform() == 0
    later = log.shipper("w1", siem=sink)
    later._clock = _Other(120)
    assert await later.perform() == 6


async def test_who_died_before_the_clock_was_set_back_holds_nobody_up_until_it_is_there_again(
    log: Log,
) -> None:
    await log.add(0, 3)
    dead, sink = log.shipper("dead", siem=ListSink()), ListSink()
    assert await dead._take_lease("siem")
    earlier = log.shipper("w1", siem=sink)
    earlier._clock = _Other(-3_600)
    assert await earlier.perform() == 6


class _Other(SystemClock):
    def __init__(self, ahead_s: int) -> None:
        self._ahead_us = ahead_s * 1_000_000

    def utc_us(self) -> int:
        return super().utc_us() + self._ahead_us


async def test_a_file_gets_json_lines_and_follows_a_rotation(log: Log, tmp_path: Path) -> None:
    file = tmp_path / "out" / "audit.jsonl"
    shipper = log.shipper(archive=FileSink(file))
    await log.add(0, 3)
    await shipper.perform()
    file.rename(tmp_path / "rotated")
    await log.add(3, 3)
    await shipper.perform()
    lines = (tmp_path / "rotated").read_text() + file.read_text()
    assert len([json.loads(line) for line in lines.splitlines()]) == 12
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
async def test_a_line_that_a_kill_or_a_full_disk_cut_off_comes_again_whole(
    log: Log, tmp_path: Path, share: float
) -> None:
    """The cursor stands before it: what is delivered again must not be glued to the half."""
    file, whole = tmp_path / "audit.jsonl", tmp_path / "whole.jsonl"
    await log.add(0, 3)
    await log.shipper(archive=FileSink(whole)).perform()
    lines = whole.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + lines[1][: int(len(lines[1]) * share)])
    await log.shipper(other=FileSink(file)).perform()
    read = []
    for line in file.read_bytes().splitlines():
        with suppress(ValueError):
            read.append(json.loads(line))
    taken = [(line["organisation"], line["sequence"]) for line in read]
    every = [(line["organisation"], line["sequence"]) for line in map(json.loads, lines)]
    assert taken == [every[0], *every]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_what_cannot_be_read_at_this_moment_is_delivered_later_and_not_called_lost(
    log: Log,
) -> None:
    """A record whose bytes are in the segments alone; too many open files are enough for it."""
    await log.add(0, 3)
    sink = ListSink()
    (segment,) = log.folder.glob("w0/*.log")
    aside = segment.rename(segment.with_name("aside"))
    segment.mkdir()
    with pytest.raises(IsADirectoryError):
        await log.shipper(siem=sink).perform()
    segment.rmdir()
    aside.rename(segment)
    assert sink.lines == []
    await log.shipper(siem=sink).perform()
    assert len([line for line in sink.lines if line.get("stage")]) == 6
    # What is gone for good is said, and holds nothing up.
    segment.unlink()
    gone = ListSink()
    await log.shipper(other=gone).perform()
    assert len([line for line in gone.lines if "record_error" in line]) == 6


async def test_a_syslog_server_gets_framed_messages_of_rfc_5424(log: Log) -> None:
    got = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(4096):
            got.extend(piece)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    await log.add(0, 4)
    assert await log.shipper(siem=SyslogSink("siem", url, allow_plain=False)).perform() == 8
    server.close()
    messages = unframed(bytes(got))
    assert len(messages) == 8
    assert all(message.startswith(b"<110>1 20") for message in messages)
    assert b'organisation="acme" sequence="1" stage="intent"' in b"".join(messages)
    assert await log.shipper("w1", siem=SyslogSink("siem", url, allow_plain=False)).perform() == 0


def unframed(raw: bytes) -> list[bytes]:
    """The messages of an octet-counted stream; fails when a count is wrong."""
    messages = []
    while raw:
        length, _, rest = raw.partition(b" ")
        messages.append(rest[: int(length)])
        raw = rest[int(length) :]
    return messages


async def test_a_syslog_server_that_is_away_or_resets_has_taken_nothing(log: Log) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sink = SyslogSink("siem", f"tcp://127.0.0.1:{port}", allow_plain=False)
    lines = [{"organisation": "acme", "sequence": n, "utc_us": 1} for n in range(2_000)]
    assert not await sink.deliver(lines)
    assert sink.problem
    server.close()
    await server.wait_closed()
    assert not await sink.deliver(lines)


def test_no_text_of_a_record_breaks_out_of_a_syslog_message() -> None:
    hostile = 'a"] <0>1 - \n\r\x00\u2028]\\'
    line = {"organisation": hostile, "sequence": 1, "utc_us": 1, "status": hostile}
    (message,) = unframed(as_syslog([line], "host"))
    assert message.count(b"\n") == message.count(b"\r") == message.count(b"\x00") == 0
    assert b'a\\"\\] <0>1 - ???' in message


@pytest.mark.parametrize(
    "url", ["udp://h:1", "tls://h", "tcp://siem.example:514", "tls://:1", "tls://[::1:1", "x"]
)
def test_a_syslog_address_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationInvalid):
        SyslogSink("siem", url, allow_plain=False)


async def test_an_http_collector_gets_lines_and_telemetry_gets_spans_of_outcomes(log: Log) -> None:
    bodies: dict[str, list[bytes]] = {}
    status = {"now": 503}

    async def take(request: web.Request) -> web.Response:
        assert request.headers["authorization"] == f"Bearer {CONTENT}"
        body = await request.read()
        if status["now"] == 200:
            bodies.setdefault(request.path, []).append(body)
        return web.Response(status=status["now"])

    application = web.Application()
    application.router.add_post("/{path:.*}", take)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    egress = Egress()
    hooks = {
        name: WebHook(name, url + path, Secret(CONTENT), egress)
        for name, path in (("siem", "/in"), ("otel", "/v1/traces"))
    }
    pause, collector = Pause(StoppedClock()), OtlpCollector(hooks["otel"], "otel", lambda *_: None)
    make: dict[str, Any] = {
        "siem": HttpSink(hooks["siem"], pause),
        "otel": SpanSink(collector, {}, Source("w0"), StoppedClock()),
    }
    await log.add(0, 4)
    shipper = log.shipper(**make)
    assert await shipper.perform() == 0
    assert make["siem"].problem == "it answered with HTTP 503"
    status["now"] = 200
    assert await shipper.perform() == 16
    await egress.close()
    await runner.cleanup()

    lines = [json.loads(line) for line in b"".join(bodies["/in"]).splitlines()]
    assert [line["organisation"] for line in lines].count("globex") == 4
    spans = [
        span
        for body in bodies["/v1/traces"]
        for span in json.loads(body)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    ]
    assert len(spans) == 4
    assert {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "1"}} in spans[0][
        "attributes"
    ]


def test_telemetry_says_what_the_conventions_name_and_nothing_of_an_intent() -> None:
    intent = {"stage": "intent", "request_id": "r", "utc_us": 9}
    assert as_spans([intent], {}, Source("w0")) == b""
    outcome = {
        "stage": "outcome",
        "request_id": "r",
        "utc_us": 9_000_000,
        "duration_us": 1_000_000,
        "endpoint": "/v1/embeddings",
        "model_requested": "m",
        "target": "t",
        "provider": "eu",
        "usage": {
            "input_tokens": 3,
            "output_tokens": 4,
            "cache_read_tokens": 1,
            "cache_write_tokens": 1,
            "cache_write_1h_tokens": 1,
            "reasoning_tokens": 2,
        },
        "error": "upstream_timeout",
        "http_status": 504,
    }
    sent = as_spans([outcome], {"eu": "bedrock"}, Source("w0"))
    span = json.loads(sent)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    said = {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}
    assert (span["name"], span["startTimeUnixNano"]) == ("embeddings m", "8000000000")
    assert (len(span["traceId"]), len(span["spanId"]), span["status"]["code"]) == (32, 16, 2)
    assert said["gen_ai.operation.name"] == "embeddings"
    assert said["gen_ai.usage.output_tokens"] == "4"
    assert said["gen_ai.usage.cache_read.input_tokens"] == "1"
    assert said["gen_ai.usage.cache_write.input_tokens"] == "2"
    assert said["gen_ai.usage.reasoning.output_tokens"] == "2"
    assert said["error.type"] == "upstream_timeout"
    assert (said["gen_ai.provider.name"], said["gatewright.target"]) == ("aws.bedrock", "t")


@pytest.mark.parametrize("endpoint", ["/v1/messages/count_tokens", "/v1/responses/input_tokens"])
def test_a_count_of_tokens_is_no_chat_in_telemetry(endpoint: str) -> None:
    outcome = {"stage": "outcome", "request_id": "r", "utc_us": 9, "endpoint": endpoint}
    (resource,) = json.loads(as_spans([outcome], {}, Source("w0")))["resourceSpans"]
    span = resource["scopeSpans"][0]["spans"][0]
    said = {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}
    assert said["gen_ai.operation.name"] == "count_tokens"
    assert not [name for name in said if name.startswith("gen_ai.usage")]
