"""What can be said of workers from their reports: who is lost, and who serves by a change."""

import msgspec
import pytest

from gateway.oversight.workers import (
    LOST_AFTER_PERIODS,
    REVISIONS_KEPT,
    Applied,
    MemberReport,
    WorkerReport,
    age_s,
    applied_us,
    decoded,
    encoded,
    standing,
)


NOW_US = 1_800_000_000_000_000


def report(**fields: object) -> WorkerReport:
    return msgspec.convert({"worker": "w0", "seen_us": NOW_US, **fields}, WorkerReport)


def test_a_report_comes_back_as_it_was_written() -> None:
    member = MemberReport(provider="house", member="a", state="slow", waiting=3, token_ms=12.5)
    written = report(breakers={"x": "open"}, problems=["One."], metrics={"a_total": 1.5})
    written = msgspec.structs.replace(written, members=(member,), applied=(Applied(7, NOW_US),))

    assert decoded(encoded(written), "w0", NOW_US) == written


def test_a_report_of_a_newer_version_is_read_as_far_as_it_is_understood() -> None:
    raw = msgspec.json.encode({"worker": "w0", "seen_us": 5, "new": {"x": 1}, "revision": 3})

    assert decoded(raw, "w0", 5) == WorkerReport("w0", 5, revision=3)


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b'{"worker": 7}', b'{"worker":"w","seen_us":""}']
)
def test_a_report_that_cannot_be_read_still_says_who_and_when(raw: bytes) -> None:
    found = decoded(raw, "w9", 11)

    assert (found.worker, found.seen_us, len(found.problems)) == ("w9", 11, 1)


def test_a_worker_is_lost_after_some_of_its_own_periods_without_a_word() -> None:
    quiet_us = round(LOST_AFTER_PERIODS * 2.0 * 1e6)

    assert standing(report(period_s=2.0), NOW_US + quiet_us) == "serving"
    assert standing(report(period_s=2.0), NOW_US + quiet_us + 1) == "lost"
    assert standing(report(period_s=20.0), NOW_US + quiet_us + 1) == "serving"


def test_a_worker_with_a_problem_refuses_and_a_lost_one_is_lost_first() -> None:
    broken = report(problems=["The audit log cannot be written."])

    assert standing(broken, NOW_US) == "refusing"
    assert standing(broken, NOW_US + 10**9) == "lost"


def test_a_clock_that_goes_before_ours_makes_no_negative_age() -> None:
    assert age_s(report(), NOW_US - 5_000_000) == 0.0


def test_a_revision_counts_from_the_first_that_holds_it() -> None:
    applied = [{"revision": 3, "since_us": 30}, {"revision": 5, "since_us": 50}]
    worker = report(revision=5, applied=applied)

    assert applied_us(worker, 3) == 30
    assert applied_us(worker, 4) == 50, "4 and 5 were seen in one look"
    assert applied_us(worker, 5) == 50
    assert applied_us(worker, 6) is None
    assert applied_us(worker, 2) == 30, "it began after that, with 3"


def test_what_is_longer_ago_than_a_worker_remembers_is_in_force_without_a_time() -> None:
    kept = [{"revision": 100 + n, "since_us": n + 1} for n in range(REVISIONS_KEPT)]
    worker = report(revision=100 + REVISIONS_KEPT - 1, applied=kept)

    assert applied_us(worker, 99) == 0
    assert applied_us(worker, 100) == 1
    assert applied_us(report(revision=4), 4) == 0, "a report without times"
