"""The log says what it is allowed to say, one JSON object a line."""

import io
import sys
from collections.abc import Callable, Iterator

import msgspec
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from gateway.telemetry import (
    LOG_KEYS,
    Event,
    Metrics,
    _keep_allowed_keys,
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


def test_the_level_is_obeyed_and_lines_stay_lines(log: Callable[[str], io.BytesIO]) -> None:
    written = log("warning")
    logger().info(Event.REQUEST_SERVED)
    logger().warning(Event.PROBE_FAILED, reason='two\nlines\x1b[31m "quoted"')

    (line,) = lines(written)
    assert line["reason"] == 'two\nlines\x1b[31m "quoted"'


@given(st.dictionaries(st.text(min_size=1, max_size=12), st.text(max_size=12)))
def test_only_the_allow_list_ever_passes(fields: dict[str, str]) -> None:
    passed = _keep_allowed_keys(None, "info", dict(fields))

    assert passed.keys() == fields.keys() & LOG_KEYS


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


def test_metrics_have_labels_of_ours_only() -> None:
    metrics = Metrics()
    metrics.count_request("house-model", "ok", 1_500_000)
    metrics.count_usage("house-model", 11, 7, 42)
    metrics.count_data_class("S3", "in-house")
    metrics.count_failed_attempt("house-model", "upstream_timeout")

    value = metrics.registry.get_sample_value
    assert value("gatewright_requests_total", {"target": "house-model", "status": "ok"}) == 1
    assert value("gatewright_tokens_total", {"target": "house-model", "kind": "output"}) == 7
    assert value("gatewright_cost_microusd_total", {"target": "house-model"}) == 42
    labels = {name for m in metrics.registry.collect() for s in m.samples for name in s.labels}
    assert labels <= {"target", "status", "kind", "data_class", "jurisdiction", "code", "le"}
