"""Metrics as OTLP say what a scrape says; who does not take them is named once."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import HistogramMetricFamily
from structlog.testing import capture_logs

from gateway.clock import StoppedClock
from gateway.durations import Durations, family
from gateway.metrics import Metrics
from gateway.oversight.metric_points import Model, Span, as_metrics
from gateway.oversight.metrics_push import MetricsPush
from gateway.oversight.otlp_resource import Source
from gateway.telemetry import Event
from gateway.totals import OVERHEAD_BOUNDS_S


MODELS = {"vectors": Model("house", "engine", "bge"), "chat": Model("eu", "bedrock", "opus")}


class Taking:
    """Takes, or not, as it is told."""

    def __init__(self) -> None:
        self.takes = True
        self.problem = ""
        self.retry_after_s: float | None = None
        self.bodies: list[bytes] = []

    async def post(self, body: bytes, about: str = "") -> bool:
        del about
        self.bodies.append(body)
        return self.takes

    @property
    def told(self) -> dict[str, list[dict[str, Any]]]:
        """The points of the last post by metric."""
        (resource,) = json.loads(self.bodies[-1])["resourceMetrics"]
        found = {}
        for scope in resource["scopeMetrics"]:
            for metric in scope["metrics"]:
                (kind,) = {"sum", "gauge", "histogram"} & set(metric)
                found[metric["name"]] = metric[kind]["dataPoints"]
        return found


def pushing(collector: Taking, metrics: Metrics, clock: StoppedClock | None = None) -> MetricsPush:
    clock = clock or StoppedClock()
    return MetricsPush(
        collector, metrics, lambda: MODELS, clock, Source("w7", "north", "production")
    )


def said(point: dict[str, Any]) -> dict[str, str]:
    return {each["key"]: each["value"]["stringValue"] for each in point["attributes"]}


@pytest.mark.anyio
async def test_it_is_named_once_that_nobody_takes_and_once_that_somebody_does_again() -> None:
    collector = Taking()
    push = pushing(collector, Metrics())
    with capture_logs() as lines:
        for takes in (True, False, False, True, True):
            collector.takes, collector.problem = takes, "it answered with HTTP 413"
            await push.perform()

    assert [line["event"] for line in lines] == [Event.METRICS_NOT_TAKEN, Event.METRICS_RECOVERED]
    assert {line["worker"] for line in lines} == {"w7"}
    assert lines[0]["reason"] == "it answered with HTTP 413"
    assert len(collector.bodies) == 5


@pytest.mark.anyio
async def test_a_collector_that_wants_to_be_left_alone_is_but_not_for_ever() -> None:
    collector, clock = Taking(), StoppedClock()
    push = pushing(collector, Metrics(), clock)
    collector.takes, collector.retry_after_s = False, 86_400.0
    await push.perform()
    clock.advance(899.0)
    await push.perform()
    assert len(collector.bodies) == 1

    clock.advance(1.0)
    collector.takes, collector.retry_after_s = True, None
    for _ in range(2):
        await push.perform()
    assert len(collector.bodies) == 3


@pytest.mark.anyio
async def test_the_last_post_is_spared_where_the_one_before_was_not_taken() -> None:
    collector = Taking()
    push = pushing(collector, Metrics())
    await push.conclude()
    collector.takes = False
    for _ in range(2):
        await push.conclude()

    assert len(collector.bodies) == 2


@pytest.mark.anyio
async def test_no_point_is_of_a_time_before_the_start_when_a_clock_is_set_back() -> None:
    collector, clock = Taking(), StoppedClock()
    push = pushing(collector, Metrics(), clock)
    clock.jump(-60.0)
    await push.perform()

    for points in collector.told.values():
        for point in points:
            assert int(point["startTimeUnixNano"]) <= int(point["timeUnixNano"])


@pytest.mark.anyio
async def test_workers_of_two_installations_are_told_apart() -> None:
    collector = Taking()
    await pushing(collector, Metrics()).perform()

    (resource,) = json.loads(collector.bodies[-1])["resourceMetrics"]
    assert said(resource["resource"]) == {
        "service.namespace": "north",
        "service.name": "gatewright",
        "service.instance.id": "w7",
        "deployment.environment.name": "production",
    }


@pytest.mark.anyio
async def test_vectors_counts_and_unknown_targets_are_told_apart() -> None:
    metrics, collector = Metrics(), Taking()
    for target, endpoint in (
        ("vectors", "/v1/embeddings"),
        ("chat", "/v1/messages"),
        ("chat", "/v1/chat/completions"),
        ("chat", "/v1/messages/count_tokens"),
        ("gone", "/v1/completions"),
    ):
        kind = (target, "ok", "S0", "eu", endpoint)
        metrics.requests.add(kind, 9000, 11, 7).took(8000)
    metrics.requests.failed_call("chat", "/v1/messages/count_tokens", "upstream_refused", 5)
    await pushing(collector, metrics).perform()

    (vectors,) = collector.told["gen_ai.client.embeddings.duration"]
    assert said(vectors)["gen_ai.provider.name"] == "house"
    calls = {
        said(each)["gatewright.target"]: each
        for each in collector.told["gen_ai.client.inference.duration"]
    }
    assert {target: each["count"] for target, each in calls.items()} == {"chat": "2", "gone": "1"}
    assert said(calls["chat"])["gen_ai.provider.name"] == "aws.bedrock"
    assert said(calls["gone"]) == {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "unknown",
        "gatewright.target": "gone",
    }
    read = collector.told["gen_ai.client.inference.usage.input_tokens"]
    assert sorted(each["asInt"] for each in read) == ["11", "22"]
    assert "gen_ai.client.inference.time_to_first_chunk" not in collector.told


@given(st.lists(st.integers(0, 9_000_000), max_size=30))
def test_buckets_hold_their_own_and_no_others(durations_us: list[int]) -> None:
    durations = Durations(OVERHEAD_BOUNDS_S)
    for duration_us in durations_us:
        durations.add(duration_us)
    made: HistogramMetricFamily = family("x", "X.", ("target",), [(("t",), durations)])

    body = json.loads(as_metrics([made], [], Span(1, 2, Source("w"))))

    ((metric,),) = [scope["metrics"] for scope in body["resourceMetrics"][0]["scopeMetrics"]]
    (point,) = metric["histogram"]["dataPoints"]
    assert list(map(int, point["bucketCounts"])) == durations.counts
    assert point["explicitBounds"] == list(OVERHEAD_BOUNDS_S)
    assert int(point["count"]) == len(durations_us)
    assert point["sum"] == pytest.approx(sum(durations_us) / 1e6)
    assert (point["startTimeUnixNano"], point["timeUnixNano"]) == ("1000", "2000")
