"""The log says what it is allowed to say, one JSON object a line."""

import atexit
import io
import os
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from gateway.telemetry import (
    LOG_KEYS,
    Event,
    LogBuffer,
    Renderer,
    configure_logging,
    logger,
    raised_at,
)


CANARY = "canary-4711"


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], io.BytesIO]]:
    """Configures logging at a level and gives what is written to standard error."""
    written = io.BytesIO()
    wrapper = io.TextIOWrapper(written, write_through=True)

    def configured(level: str) -> io.BytesIO:
        monkeypatch.setattr(sys, "stderr", wrapper)
        configure_logging(level)
        return written

    yield configured
    structlog.reset_defaults()
    wrapper.detach()


def lines(written: io.BytesIO) -> list[dict[str, object]]:
    return [msgspec.json.decode(line) for line in written.getvalue().splitlines()]


def test_stray_keys_are_dropped(log: Callable[[str], io.BytesIO]) -> None:
    written = log("debug")
    logger().info(
        Event.REQUEST_SERVED,
        request_id="req_1",
        prompt=CANARY,
        headers={"authorization": CANARY},
        exc_info=CANARY,
        message=CANARY,
    )

    (line,) = lines(written)
    assert line.keys() == {"event", "level", "timestamp", "request_id"}
    assert CANARY not in str(line)


@pytest.mark.parametrize("buffered", [False, True])
def test_a_log_that_cannot_be_written_stops_nobody(
    monkeypatch: pytest.MonkeyPatch, buffered: bool
) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BufferedWriter(full)))
        buffer = configure_logging(buffered=buffered)
        for _ in range(2 + buffered * LogBuffer.BYTES_MAX // 50):
            logger().info(Event.REQUEST_SERVED, request_id="req_1")
        if buffer is not None:
            buffer.drain()
            atexit.unregister(buffer.drain)
    structlog.reset_defaults()


@pytest.mark.parametrize("buffered", [False, True])
def test_a_reader_that_stops_reading_stops_nobody_and_is_told_what_it_missed(
    monkeypatch: pytest.MonkeyPatch, buffered: bool
) -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as file:
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(file))
        buffer = configure_logging(buffered=buffered)
        written = 0
        while written < 3 * 1024 * 1024:  # The pipe and what is held are full long before.
            logger().info(Event.REQUEST_SERVED, request_id="x" * 1000)
            written += 1000
        said = b""
        while b"log:lines_lost" not in said:
            said += os.read(read_end, 65536)
            logger().info(Event.REQUEST_SERVED)
            if buffer is not None:
                buffer.drain()
    os.close(read_end)
    structlog.reset_defaults()
    read = [msgspec.json.decode(line) for line in said.splitlines()]
    (lost,) = (line["count"] for line in read if line["event"] == "log:lines_lost")
    long = sum("request_id" in line for line in read)
    assert long * 1000 > 900_000
    assert long + lost >= 3 * 1024 * 1024 // 1000


def test_what_is_logged_while_lines_are_written_is_written_after_them() -> None:
    class Telling(io.BytesIO):
        """As where the interpreter ends an object in the midst of it, which logs that."""

        def write(self, raw: Any) -> int:
            if not self.tell():
                buffer.msg(b"second")
            return super().write(raw)

    written = Telling()
    buffer = LogBuffer(written, 0)
    logging = Thread(target=buffer.msg, args=(b"first",), daemon=True)
    logging.start()
    logging.join(20)
    atexit.unregister(buffer.drain)
    assert written.getvalue() == b"first\nsecond\n"


def test_the_level_is_obeyed_and_lines_stay_lines(log: Callable[[str], io.BytesIO]) -> None:
    written = log("warning")
    logger().info(Event.REQUEST_SERVED)
    logger().warning(Event.PROBE_FAILED, reason='two\nlines\x1b[31m "quoted"')

    (line,) = lines(written)
    assert line["reason"] == 'two\nlines\x1b[31m "quoted"'


@given(st.dictionaries(st.text(min_size=1, max_size=12), st.text(max_size=12)))
def test_only_the_allow_list_ever_passes(fields: dict[str, str]) -> None:
    line = msgspec.json.decode(Renderer()(None, "info", dict(fields)))

    assert line.keys() - {"level", "timestamp"} == fields.keys() & LOG_KEYS - {
        "level",
        "timestamp",
    }


def test_the_time_is_utc_to_the_microsecond() -> None:
    render, before = Renderer(), datetime.now(UTC)
    stamps = [msgspec.json.decode(render(None, "info", {}))["timestamp"] for _ in range(3)]

    times = [datetime.fromisoformat(stamp) for stamp in stamps]
    assert times == sorted(times)
    assert all(len(stamp) == len("2026-01-01T00:00:00.000000Z") for stamp in stamps)
    assert timedelta(0) <= times[0] - before + timedelta(microseconds=1) < timedelta(seconds=60)


def test_event_names_are_a_subject_and_an_action() -> None:
    assert len({event.value for event in Event}) == len(Event)
    assert all(event.value.count(":") == 1 for event in Event)


def test_where_an_error_came_from_says_nothing_of_what_it_said() -> None:
    def fail() -> None:
        raise ValueError(CANARY)

    with pytest.raises(ValueError, match=CANARY) as caught:
        fail()
    where = raised_at(caught.value)

    assert where.startswith(f"{__name__}:")
    assert CANARY not in where
    assert raised_at(ValueError(CANARY)) == "unknown"
