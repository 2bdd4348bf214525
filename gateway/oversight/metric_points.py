"""Metrics in OpenTelemetry's format: OTLP/HTTP JSON, cumulative since the worker's start. Pure.

There are two kinds: the families of `/metrics` under their own names, and the metrics that the
GenAI semantic conventions (release 0.1.0 of their own repository) define for model calls, made of
the same sums.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct
from prometheus_client.metrics_core import Metric

from gateway.durations import Durations, together
from gateway.oversight.exporting import COUNT, compact_json, operation_of, provider_of
from gateway.oversight.otlp_resource import Source, attributes_of, resource_of
from gateway.totals import CALL_BOUNDS_S, Kind, Sums, Totals


CUMULATIVE: Final = 2
"""`AGGREGATION_TEMPORALITY_CUMULATIVE`: a lost post loses no counts."""
EMBEDDINGS: Final = "embeddings"
UNKNOWN: Final = "unknown"


class Model(Struct, frozen=True):
    """The model of a target."""

    provider: str
    """Its name in the settings."""
    kind: str
    """The provider's kind, as in the settings."""
    model: str
    """The upstream's name for it."""


class Span(Struct, frozen=True):
    """The time span of the points, and their source."""

    start_us: int
    now_us: int
    source: Source


class Instrument(Struct, frozen=True):
    """One of the conventions' metrics, with its values by attributes."""

    name: str
    unit: str
    rows: list[tuple[dict[str, str], Durations | int]]


def as_metrics(families: Iterable[Metric], instruments: Iterable[Instrument], span: Span) -> bytes:
    """The body of a request to a collector's `/v1/metrics`."""
    moment = {
        "startTimeUnixNano": str(span.start_us * 1000),
        "timeUnixNano": str(span.now_us * 1000),
    }
    ours = [made for family in families for made in _of_family(family, moment)]
    theirs = [_of_instrument(each, moment) for each in instruments if each.rows]
    scopes = [
        {"scope": {"name": name}, "metrics": metrics}
        for name, metrics in (("gatewright", ours), ("gatewright.gen_ai", theirs))
        if metrics
    ]
    resource = resource_of(span.source)
    return compact_json({"resourceMetrics": [{"resource": resource, "scopeMetrics": scopes}]})


def instruments_of(totals: Totals, models: Mapping[str, Model]) -> list[Instrument]:
    """The conventions' metrics; they leave out token counts, which are not inferences."""
    by_call: dict[tuple[str, str], list[Sums]] = defaultdict(list)
    for kind, sums in totals.rows():
        if kind.target and (operation := _operation(kind)):
            by_call[kind.target, operation].append(sums)
    calls, first, read, written = [], [], [], []
    for (target, operation), parts in by_call.items():
        said = _said(target, operation, models)
        calls.append((said, together([each.calls for each in parts], CALL_BOUNDS_S)))
        if operation == EMBEDDINGS:
            continue
        tokens = {**said, "gen_ai.token.modality": UNKNOWN}
        heard = [each.upstream_first_tokens for each in parts]
        first.append((said, together(heard, CALL_BOUNDS_S)))
        read.append((tokens, sum(each.input_tokens for each in parts)))
        written.append((tokens, sum(each.output_tokens for each in parts)))
    for (target, endpoint, code), failed in totals.failed().items():
        if (operation := operation_of(endpoint)) != COUNT:
            said = {**_said(target, operation, models), "error.type": code}
            calls.append((said, together([failed], CALL_BOUNDS_S)))
    vectors = [row for row in calls if row[0]["gen_ai.operation.name"] == EMBEDDINGS]
    answers = [row for row in calls if row[0]["gen_ai.operation.name"] != EMBEDDINGS]
    return [
        Instrument("gen_ai.client.inference.duration", "s", _told(answers)),
        Instrument("gen_ai.client.embeddings.duration", "s", _told(vectors)),
        Instrument("gen_ai.client.inference.time_to_first_chunk", "s", _told(first)),
        Instrument("gen_ai.client.inference.usage.input_tokens", "{token}", [*read]),
        Instrument("gen_ai.client.inference.usage.output_tokens", "{token}", [*written]),
    ]


def _told(
    rows: list[tuple[dict[str, str], Durations]],
) -> list[tuple[dict[str, str], Durations | int]]:
    return [(said, durations) for said, durations in rows if any(durations.counts)]


def _operation(kind: Kind) -> str:
    """Empty for a count of tokens."""
    operation = operation_of(kind.endpoint)
    return "" if operation == COUNT else operation


def _said(target: str, operation: str, models: Mapping[str, Model]) -> dict[str, str]:
    """Two targets may be one model at two places, so each also states its own name."""
    found = models.get(target, Model("", "", ""))
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": provider_of(found.provider, found.kind) or UNKNOWN,
        "gen_ai.request.model": found.model,
        "gatewright.target": target,
    }


def _of_instrument(instrument: Instrument, moment: Mapping[str, str]) -> dict[str, Any]:
    points: list[dict[str, Any]] = []
    is_sum = False
    for said, value in instrument.rows:
        head = {"attributes": attributes_of(said), **moment}
        if isinstance(value, int):
            is_sum = True
            points.append({**head, "asInt": str(value)})
        else:
            points.append({**head, **_buckets(value.counts, CALL_BOUNDS_S, value.total_us / 1e6)})
    made = _sum(points) if is_sum else _histogram(points)
    return {"name": instrument.name, "unit": instrument.unit, **made}


def _of_family(family: Metric, moment: Mapping[str, str]) -> Iterable[dict[str, Any]]:
    """Families without samples, or without numbers in them, are left out."""
    if family.type == "histogram":
        points = _histogram_points(family, moment)
        made = _histogram(points)
        name = family.name
    else:
        samples = [
            each
            for each in family.samples
            if not each.name.endswith("_created") and math.isfinite(each.value)
        ]
        points = [
            {"attributes": attributes_of(each.labels), **moment, "asDouble": each.value}
            for each in samples
        ]
        name = samples[0].name if samples else ""
        made = _sum(points) if family.type == "counter" else {"gauge": {"dataPoints": points}}
    if points:
        yield {"name": name, "description": family.documentation, **made}


def _histogram_points(family: Metric, moment: Mapping[str, str]) -> list[dict[str, Any]]:
    """Prometheus' buckets include all lower ones, OTLP's only their own counts."""
    below: dict[tuple[tuple[str, str], ...], list[tuple[float, int]]] = defaultdict(list)
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in family.samples:
        labels = tuple((name, value) for name, value in sample.labels.items() if name != "le")
        if sample.name.endswith("_bucket"):
            below[labels].append((float(sample.labels["le"]), round(sample.value)))
        elif sample.name.endswith("_sum"):
            sums[labels] = sample.value
    points = []
    for labels, buckets in below.items():
        counts = [count for _, count in buckets]
        own = [count - before for count, before in zip(counts, [0, *counts], strict=False)]
        bounds = tuple(bound for bound, _ in buckets if math.isfinite(bound))
        head = {"attributes": attributes_of(dict(labels)), **moment}
        points.append({**head, **_buckets(own, bounds, sums[labels])})
    return points


def _buckets(counts: list[int], bounds_s: tuple[float, ...], sum_s: float) -> dict[str, Any]:
    return {
        "count": str(sum(counts)),
        "sum": sum_s,
        "bucketCounts": [str(count) for count in counts],
        "explicitBounds": list(bounds_s),
    }


def _histogram(points: list[dict[str, Any]]) -> dict[str, Any]:
    return {"histogram": {"aggregationTemporality": CUMULATIVE, "dataPoints": points}}


def _sum(points: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "sum": {"aggregationTemporality": CUMULATIVE, "isMonotonic": True, "dataPoints": points}
    }
