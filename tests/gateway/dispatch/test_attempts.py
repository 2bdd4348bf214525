"""An attempt is written down once, with what it is owed; a request's bill is that of its answer."""

import asyncio

import pytest

from gateway.clock import StoppedClock
from gateway.dispatch.attempts import (
    STOPPED,
    AttemptLog,
    RunningAttempt,
    end_code,
    is_stopped,
)
from gateway.dispatch.health import TargetHealth
from gateway.errors import GatewrightError, UpstreamRefused, UpstreamTimeout, WorkerStopped
from gateway.money.bills import Bill
from gateway.types import Attempt, Usage
from tests.gateway.providers.samples import make_target


READ_TOKENS = 7
A, B, C = (make_target(f"scripted/{name}") for name in "abc")


def running(log: AttemptLog) -> RunningAttempt:
    return RunningAttempt(A, log, TargetHealth(), StoppedClock(), read_tokens=lambda: READ_TOKENS)


def logged(*bills: Bill, status: int = 200) -> AttemptLog:
    log = AttemptLog()
    for bill in bills:
        log.add(log.begin(), Attempt(bill.target.name, status, "", 1, 1), bill)
    return log


def test_what_a_request_is_owed_for_is_its_answer_or_else_what_it_asked_for_last() -> None:
    paid = [Bill(A, Usage(1, 1)), Bill(B, Usage(2, 2)), Bill(C, None)]
    log = logged(*paid)
    assert log.main_bill() == paid[1], "the last of those that are owed anything"
    log.answer = 1
    assert log.main_bill() == paid[0]
    log.answer = 3
    assert log.main_bill() == paid[1], "nobody is owed anything for the answer itself"
    assert logged(Bill(A, None)).main_bill() is None
    assert logged().main_bill() is None


def test_the_answer_alone_is_billed_as_it_was_counted_in_the_end() -> None:
    log, counted = logged(Bill(A, Usage(1, 1)), Bill(B, Usage(2, 2))), Usage(9, 9)
    log.answer = 2
    assert [bill.usage for bill in log.bills(counted)] == [Usage(1, 1), counted]
    assert [bill.usage for bill in log.bills()] == [Usage(1, 1), Usage(2, 2)]


def test_the_last_attempt_of_each_target_is_known() -> None:
    log = AttemptLog()
    assert (log.last_target, log.last_status_of("a")) == ("", 0)
    for target, status in (("a", 429), ("b", 500), ("a", 0), ("c", 404)):
        log.add(log.begin(), Attempt(target, status, "", 1, 1), Bill(A, None))
    assert log.last_target == "c"
    assert [log.last_status_of(each) for each in "abcd"] == [0, 500, 404, 0]


@pytest.mark.parametrize(
    ("status", "tokens"),
    [(0, READ_TOKENS), (200, READ_TOKENS), (399, READ_TOKENS), (400, None), (500, None)],
)
def test_a_refusal_is_owed_nothing_and_all_else_that_left_what_its_request_holds(
    status: int, tokens: int | None
) -> None:
    log = AttemptLog()
    attempt = running(log)
    attempt.leaves()
    if status:
        attempt.heard(status)
    owed = attempt.end(UpstreamTimeout("late"))
    expected = None if tokens is None else Usage(input_tokens=tokens, estimated=True)
    assert (owed, log.bills()[0].usage) == (expected, expected)


def test_an_attempt_that_must_not_be_made_any_more_has_not_left() -> None:
    class Taken(GatewrightError):
        """Its line is another worker's by now."""

    def taken() -> None:
        raise Taken("taken over")

    log = AttemptLog()
    attempt = running(log)
    log.check_lease = taken
    with pytest.raises(Taken):
        attempt.leaves()
    assert attempt.end(Taken("taken over")) is None
    assert len(log.as_tuple()) == 1


def test_an_attempt_ends_once() -> None:
    log = AttemptLog()
    attempt = running(log)
    attempt.leaves()
    assert attempt.end(asyncio.CancelledError()) == Usage(input_tokens=READ_TOKENS, estimated=True)
    assert attempt.end(UpstreamRefused("late", upstream_status=500)) is None
    assert [each.error for each in log.as_tuple()] == ["client_gone"]


def test_how_long_an_attempt_took_counts_from_its_own_beginning() -> None:
    log, clock, health = AttemptLog(), StoppedClock(), TargetHealth()
    clock.advance(100.0)
    attempt = RunningAttempt(A, log, health, clock)
    clock.advance(2.0)
    attempt.heard(200)
    clock.advance(3.0)
    attempt.end(None)
    (said,) = log.as_tuple()
    assert (said.first_byte_us, said.duration_us) == (2_000_000, 5_000_000)
    assert health.first_token_ms() == {A.name: 2048}


def test_what_its_upstream_calls_it_is_written_down_however_it_ends() -> None:
    log = AttemptLog()
    for error in (None, UpstreamTimeout("late"), asyncio.CancelledError()):
        attempt = running(log)
        attempt.heard(200, ("req_a", "b"))
        attempt.end(error)
    running(log).end(UpstreamTimeout("no head came"))
    assert [each.upstream_ids for each in log.as_tuple()] == [("req_a", "b")] * 3 + [()]


def test_who_is_asked_of_those_that_were_broken_is_on_trial_and_nobody_else_asks_meanwhile() -> (
    None
):
    health, clock = TargetHealth(), StoppedClock()
    for _ in range(5):
        health.ended(A.name, 0.0, 0.0, UpstreamTimeout("late"))
    clock.advance(6.0)
    assert health.place(A.name, clock.monotonic_s()) == 0
    attempt = RunningAttempt(A, AttemptLog(), health, clock)
    assert health.place(A.name, clock.monotonic_s()) == 2
    attempt.end(None)
    assert health.place(A.name, clock.monotonic_s()) == 0


@pytest.mark.parametrize("words", [(), ("a reason of nobody's",)])
def test_what_is_broken_off_for_no_known_reason_is_its_callers_leaving(
    words: tuple[str, ...],
) -> None:
    assert end_code(asyncio.CancelledError(*words)) == "client_gone"
    assert not is_stopped(asyncio.CancelledError(*words))


def test_the_end_of_a_worker_is_told_from_a_callers_leaving() -> None:
    stopped = asyncio.CancelledError(STOPPED)
    assert (end_code(stopped), is_stopped(stopped)) == (WorkerStopped.code, True)
    assert not is_stopped(ValueError(STOPPED))
