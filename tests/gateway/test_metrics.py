"""What is counted once a request adds up to what Prometheus reads, with labels of ours only."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import generate_latest

from gateway.durations import Durations, Noted
from gateway.metrics import Metrics
from gateway.totals import CALL_BOUNDS_S, DURATION_BUCKETS_S


def test_metrics_have_labels_of_ours_only() -> None:
    metrics = Metrics()
    metrics.requests.add(
        ("house-model", "ok", "S3", "in-house", "/v1/messages"), 1_500_000, 11, 7, 42
    )
    metrics.requests.add(("house-model", "ok", "S1", "in-house", "/v1/messages"), 2_000, 1, 1, 1)
    metrics.requests.add(("", "refused", "", "", ""), 10)
    metrics.count_failed_attempt("house-model", "upstream_timeout")

    value = metrics.registry.get_sample_value
    assert value("gatewright_requests_total", {"target": "house-model", "status": "ok"}) == 2
    assert value("gatewright_requests_total", {"target": "", "status": "refused"}) == 1
    assert value("gatewright_tokens_total", {"target": "house-model", "kind": "input"}) == 12
    assert value("gatewright_tokens_total", {"target": "house-model", "kind": "output"}) == 8
    assert value("gatewright_cost_microusd_total", {"target": "house-model"}) == 43
    by_class = {"data_class": "S3", "jurisdiction": "in-house"}
    assert value("gatewright_requests_by_data_class_total", by_class) == 1
    labels = {name for m in metrics.registry.collect() for s in m.samples for name in s.labels}
    assert labels <= {"target", "status", "kind", "data_class", "jurisdiction", "code", "le"}
    assert b"gatewright_requests_total" in generate_latest(metrics.registry)


def test_what_alarms_watch_is_there_before_its_first_event() -> None:
    """A series that begins with its first event is no increase: an alarm would not ring for it."""
    metrics = Metrics()
    metrics.expect({"house-model": "in-house", "far-model": "us"})

    value = metrics.registry.get_sample_value
    far = {"data_class": "S4", "jurisdiction": "us"}
    assert value("gatewright_requests_by_data_class_total", far) == 0
    assert value("gatewright_credentials_refused_total", {"target": "far-model"}) == 0
    for kind in ("retry", "mend", "fallback", "hedge"):
        labels = {"target": "house-model", "kind": kind}
        assert value("gatewright_withheld_attempts_total", labels) == 0

    metrics.requests.add(("far-model", "ok", "S4", "us", "/v1/messages"), 10)
    metrics.count_withheld_attempt("house-model", "hedge")
    assert value("gatewright_requests_by_data_class_total", far) == 1
    hedges = {"target": "house-model", "kind": "hedge"}
    assert value("gatewright_withheld_attempts_total", hedges) == 1


@given(st.lists(st.integers(0, 400_000_000), max_size=20))
def test_a_duration_lies_in_every_bucket_from_its_own_up(durations_us: list[int]) -> None:
    metrics = Metrics()
    for duration_us in durations_us:
        metrics.requests.add(("t", "ok", "S0", "us", "/v1/messages"), duration_us)

    value = metrics.registry.get_sample_value
    for bound_s in DURATION_BUCKETS_S:
        labels = {"target": "t", "le": str(float(bound_s))}
        counted = value("gatewright_request_duration_seconds_bucket", labels) or 0
        assert counted == sum(duration_us <= bound_s * 1e6 for duration_us in durations_us)
    total = value("gatewright_request_duration_seconds_count", {"target": "t"}) or 0
    assert total == len(durations_us)


@given(
    st.lists(st.lists(st.integers(-5, 400_000_000), max_size=20), max_size=5),
)
def test_what_is_noted_and_sorted_in_later_is_what_one_by_one_would_be(
    rounds: list[list[int]],
) -> None:
    noted, added = Noted(CALL_BOUNDS_S), Durations(CALL_BOUNDS_S)
    for durations_us in rounds:
        for duration_us in durations_us:
            noted.note(duration_us)
            added.add(max(duration_us, 0))
        noted.settle()

    assert noted.cumulative() == added.cumulative()
    assert (noted.counts, noted.total_us) == (added.counts, added.total_us)


def test_bounds_of_calls_are_those_of_the_conventions_and_go_on_beyond() -> None:
    """They double from ten milliseconds: OpenTelemetry's, and two more."""
    assert tuple(round(0.01 * 2**at, 2) for at in range(16)) == CALL_BOUNDS_S
