"""What becomes of a line of a batch by the error it met, and which lines ask for a stream."""

import pytest

from gateway.batches import LineEnd
from gateway.batching.lines import Later, check_whole, later_of
from gateway.errors import (
    AuditUnavailable,
    BudgetExhausted,
    ContextTooLong,
    Exhausted,
    FeatureUnsupported,
    GatewrightError,
    ModelUnknown,
    NoTargetAvailable,
    NoTargetConfigured,
    NotReady,
    PolicyDenied,
    PoolBusy,
    RequestInvalid,
    Unauthenticated,
    UpstreamMalformed,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnpaid,
)


END = LineEnd("errored", 500, "req_1", b"{}")


def refused(status: int) -> UpstreamRefused:
    return UpstreamRefused("words", upstream_status=status, retry_after_s=7.0)


@pytest.mark.parametrize(
    "error",
    [
        *(Exhausted("w"), NoTargetAvailable("w"), AuditUnavailable("w"), NotReady("w")),
        *(PoolBusy("w"), refused(429), refused(503), refused(529), Unauthenticated("w")),
        UpstreamUnpaid("w", upstream_status=400),
    ],
)
def test_what_is_full_or_not_ready_costs_a_line_nothing_but_time(error: GatewrightError) -> None:
    later = later_of(error, END)

    assert isinstance(later, Later)
    assert later.is_full
    assert later.after_s == error.retry_after_s


def test_what_only_others_hold_is_waited_for() -> None:
    error = BudgetExhausted("w", retry_after_s=86_400.0)
    error.is_held = True
    assert later_of(error, END) == Later(None, is_full=True, end=END)


@pytest.mark.parametrize(
    "error", [UpstreamMalformed("w"), UpstreamTimeout("w"), refused(500), refused(401)]
)
def test_what_failed_upstream_is_tried_again_a_few_times(error: GatewrightError) -> None:
    later = later_of(error, END)

    assert isinstance(later, Later)
    assert not later.is_full
    assert later.end is END


@pytest.mark.parametrize(
    "error",
    [
        *(BudgetExhausted("w"), PolicyDenied("w"), ModelUnknown("w"), ContextTooLong("w")),
        *(FeatureUnsupported("w"), refused(400), refused(404), GatewrightError("w")),
        NoTargetConfigured("w"),
    ],
)
def test_what_would_be_refused_again_is_the_lines_end(error: GatewrightError) -> None:
    assert later_of(error, END) is None


@pytest.mark.parametrize("body", [b'{"stream":true}', b'{"stream":1}', b'{"a":{},"stream":"x"}'])
def test_a_line_that_asks_for_a_stream_is_refused(body: bytes) -> None:
    with pytest.raises(FeatureUnsupported):
        check_whole(body, 10)


@pytest.mark.parametrize(
    "body",
    [b'{"stream":false}', b'{"stream":null}', b"{}", b"[", b"\xff", b'{"a":{"stream":true}}'],
)
def test_what_asks_for_none_or_cannot_be_read_is_left_to_its_dialect(body: bytes) -> None:
    check_whole(body, 10)


def test_a_line_holds_as_many_values_as_any_request_may() -> None:
    check_whole(b'{"a":[7,7,7,7,7,7,7,7,7]}', 10)
    with pytest.raises(RequestInvalid):
        check_whole(b'{"a":[7,7,7,7,7,7,7,7,7,7]}', 10)
