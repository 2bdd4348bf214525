"""What is posted has the shape of OTLP's messages in their JSON form, with no field besides.

By opentelemetry-proto 1.45 (metrics.proto, common.proto) and the JSON mapping of protobuf: names in
lowerCamelCase, 64-bit integers as text, enumerations as numbers.
"""

import json
import math
from typing import Any

import pytest

from gateway.clock import StoppedClock
from gateway.metrics import Metrics
from gateway.oversight.metric_points import Model
from gateway.oversight.metrics_push import MetricsPush
from gateway.oversight.otlp_resource import Source


Shape = dict[str, Any]

POINT: Shape = {
    "attributes": ["KeyValue"],
    "startTimeUnixNano": "fixed64",
    "timeUnixNano": "fixed64",
}
SHAPES: dict[str, Shape] = {
    "ExportMetricsServiceRequest": {"resourceMetrics": ["ResourceMetrics"]},
    "ResourceMetrics": {"resource": "Resource", "scopeMetrics": ["ScopeMetrics"]},
    "Resource": {"attributes": ["KeyValue"]},
    "ScopeMetrics": {"scope": "InstrumentationScope", "metrics": ["Metric"]},
    "InstrumentationScope": {"name": "string", "version": "string"},
    "Metric": {
        "name": "string",
        "description": "string",
        "unit": "string",
        "gauge": "Gauge",
        "sum": "Sum",
        "histogram": "Histogram",
    },
    "Gauge": {"dataPoints": ["NumberDataPoint"]},
    "Sum": {
        "dataPoints": ["NumberDataPoint"],
        "aggregationTemporality": "cumulative",
        "isMonotonic": "bool",
    },
    "Histogram": {"dataPoints": ["HistogramDataPoint"], "aggregationTemporality": "cumulative"},
    "NumberDataPoint": POINT | {"asDouble": "double", "asInt": "sfixed64"},
    "HistogramDataPoint": POINT
    | {
        "count": "fixed64",
        "sum": "double",
        "bucketCounts": ["fixed64"],
        "explicitBounds": ["double"],
    },
    "KeyValue": {"key": "string", "value": "AnyValue"},
    "AnyValue": {"stringValue": "string", "intValue": "sfixed64"},
}
ONE_OF = {"Metric": {"gauge", "sum", "histogram"}, "NumberDataPoint": {"asDouble", "asInt"}}


def require_shape(value: Any, shape: str, place: str = "$") -> None:
    """Raises AssertionError, naming the place, where the value is none of that shape."""
    if shape not in SHAPES:
        assert is_scalar(value, shape), f"{place} is no {shape}: {value!r}"
        return
    fields = SHAPES[shape]
    assert set(value) <= set(fields), f"{place} has more than a {shape}: {set(value)}"
    if shape in ONE_OF:
        assert len(ONE_OF[shape] & set(value)) == 1, f"{place} is not one of {ONE_OF[shape]}"
    for name, inner in value.items():
        kind = fields[name]
        if isinstance(kind, list):
            assert isinstance(inner, list), f"{place}.{name} is no list"
            for number, each in enumerate(inner):
                require_shape(each, kind[0], f"{place}.{name}[{number}]")
        else:
            require_shape(inner, kind, f"{place}.{name}")


def is_scalar(value: Any, kind: str) -> bool:
    if kind in {"fixed64", "sfixed64"}:
        return isinstance(value, str) and value.isdecimal() and int(value) < 2**63
    if kind == "double":
        return type(value) in (int, float) and math.isfinite(value)
    if kind == "cumulative":
        return type(value) is int and value == 2
    return type(value) is {"string": str, "bool": bool}[kind]


class Kept:
    """Takes, and keeps the last."""

    problem = ""
    retry_after_s: float | None = None
    body = b""

    async def post(self, body: bytes, about: str = "") -> bool:
        del about
        self.body = body
        return True


@pytest.mark.anyio
async def test_a_post_has_the_shape_of_an_export_request() -> None:
    metrics, kept = Metrics(), Kept()
    metrics.expect({"chat": "eu"})
    for target, endpoint in (("vectors", "/v1/embeddings"), ("chat", "/v1/messages")):
        sums = metrics.requests.add((target, "ok", "S0", "eu", endpoint), 9000, 11, 7, 3)
        sums.took(8000)
        sums.spoke(5)
        sums.heard(6)
    metrics.requests.failed_call("chat", "/v1/messages", "upstream_refused", 5)
    metrics.count_failed_attempt("chat", "upstream_refused")
    models = {"chat": Model("eu", "bedrock", "opus")}
    push = MetricsPush(kept, metrics, lambda: models, StoppedClock(), Source("w7", "north"))

    await push.perform()

    sent = json.loads(kept.body)
    require_shape(sent, "ExportMetricsServiceRequest")
    kinds = {
        kind
        for scope in sent["resourceMetrics"][0]["scopeMetrics"]
        for metric in scope["metrics"]
        for kind in metric
    }
    assert kinds == set(SHAPES["Metric"])
    for scope in sent["resourceMetrics"][0]["scopeMetrics"]:
        for metric in scope["metrics"]:
            for point in metric.get("histogram", {"dataPoints": []})["dataPoints"]:
                counts = list(map(int, point["bucketCounts"]))
                assert len(counts) == len(point["explicitBounds"]) + 1
                assert sum(counts) == int(point["count"])
                assert point["explicitBounds"] == sorted(set(point["explicitBounds"]))
