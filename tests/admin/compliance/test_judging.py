"""How duties stand follows from numbers, and from nothing else."""

from typing import Any

import msgspec
import pytest

from admin.compliance.duties import DUTIES, ORGANISATIONAL, PLACES
from admin.compliance.judging import CHECKS, Due, Known, standing_of
from gateway.clock import DAY_US, HOUR_US
from gateway.obligations import CLOCKS, REGIMES


NOW_US = 1_800_000_000_000_000
GOOD = Known(
    now_us=NOW_US,
    period_us=30_000_000,
    signed_us=NOW_US - 20_000_000,
    signed_records=1_200,
    exported_us=NOW_US - HOUR_US,
    verified_us=NOW_US - 3 * DAY_US,
    verified_reason="",
    first_us=NOW_US - 200 * DAY_US,
    retention_days=90,
    retention_late_us=2 * DAY_US,
    holds=0,
    cases=(),
    done_cases=2,
    reports={},
    incidents=0,
    reviews=("ahead",),
    signed_reviews=1,
    versions=2,
    unapproved=0,
    prices="approved",
    people=5,
    approvers=2,
    is_single_sign_on=True,
    credentials=(NOW_US - 30 * DAY_US,),
    jurisdictions=(),
    in_house=1,
    is_watched=True,
    drifts=0,
    sinks=1,
    behind_us=0,
    clock_source="time.example.org",
    stated_us=NOW_US - HOUR_US,
    offset=", 40 µs off",
)
WORSE: tuple[tuple[str, dict[str, Any], str, str], ...] = (
    ("signed", {"signed_us": NOW_US - 90_000_001}, "look", "1,200 records signed just now"),
    ("signed", {"signed_us": 0}, "open", "Nothing of this log is signed"),
    ("exported", {"exported_us": NOW_US - DAY_US - 1}, "open", "24 hours ago"),
    ("exported", {"exported_us": 0}, "open", "No checkpoint"),
    ("exported", {"exported_us": None}, "unknown", "does not see"),
    ("verified", {"verified_us": NOW_US - 31 * DAY_US}, "look", "31 days ago"),
    ("verified", {"verified_us": 0}, "open", "No full verification"),
    ("verified", {"verified_reason": "record 7"}, "open", "not whole"),
    ("limited", {"retention_days": 0}, "open", "for ever"),
    ("limited", {"retention_late_us": 3 * DAY_US}, "open", "is 3 days overdue"),
    ("erasures", {"cases": (NOW_US - 1, NOW_US + DAY_US)}, "open", "1 case past"),
    ("erasures", {"cases": (NOW_US + 3 * DAY_US,)}, "look", "1 case open, due in 3 days"),
    ("erasures", {"cases": (NOW_US + DAY_US,)}, "look", "1 case open, due in 1 day."),
    ("erasures", {"cases": (NOW_US + HOUR_US,)}, "look", "due in 1 hour."),
    ("erasures", {"cases": (NOW_US + 30 * DAY_US - 1,)}, "look", "due in 30 days."),
    ("erasures", {"cases": (NOW_US + 9 * DAY_US, NOW_US + 2 * DAY_US)}, "look", "due in 2 days"),
    ("incidents", {"incidents": 2}, "look", "2 incidents open"),
    ("reviews", {"reviews": ()}, "open", "No review"),
    ("reviews", {"reviews": ("overdue", "ahead")}, "open", "1 review overdue"),
    ("reviews", {"reviews": ("due",)}, "look", "1 review due"),
    ("reviews", {"signed_reviews": 0}, "look", "0 were signed"),
    ("four_eyes", {"unapproved": 1}, "open", "1 of 2 versions"),
    ("four_eyes", {"versions": 0}, "look", "configuration"),
    ("four_eyes", {"prices": "alone"}, "open", "prices in force were set without a second"),
    ("four_eyes", {"prices": "alone", "versions": 0}, "open", "without a second person"),
    ("four_eyes", {"prices": "configured"}, "met", "Prices come from the configuration"),
    ("people", {"approvers": 1}, "look", "5 people with single sign-on; 1 may approve"),
    ("people", {"people": 0}, "open", "Nobody"),
    ("credentials", {"credentials": (NOW_US - 366 * DAY_US, NOW_US)}, "look", "366 days ago"),
    ("credentials", {"credentials": ()}, "unknown", "not known"),
    ("transfers", {"jurisdictions": ("eu", "us")}, "look", "eu, us"),
    ("monitored", {"drifts": 1}, "look", "1 drift not accepted"),
    ("monitored", {"is_watched": False}, "open", "switched off"),
    ("sinks", {"sinks": 0}, "open", "No sink"),
    ("sinks", {"behind_us": DAY_US + 1}, "open", "more than a day"),
    ("clock", {"clock_source": ""}, "open", "audit.clock_source"),
    ("clock", {"stated_us": NOW_US - 3 * HOUR_US}, "look", "no worker confirms it"),
)


BARELY: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("signed", {"signed_us": NOW_US - 90_000_000}, "signed just now"),
    ("exported", {"exported_us": NOW_US - DAY_US}, "24 hours ago"),
    ("verified", {"verified_us": NOW_US - 30 * DAY_US}, "Whole 30 days ago"),
    ("verified", {"verified_us": NOW_US - 2 * HOUR_US}, "Whole 2 hours ago"),
    ("verified", {"verified_us": NOW_US - 2 * HOUR_US + 1}, "Whole 119 minutes ago"),
    ("kept", {"first_us": NOW_US - DAY_US}, "oldest record is 1 day old"),
    ("kept", {"first_us": 0}, "Nothing was recorded yet"),
    ("limited", {"holds": 1}, "read for 90 days; 1 hold in force"),
    ("limited", {"retention_days": 1}, "read for 1 day."),
    ("erasures", {"done_cases": 1}, "1 was done"),
    ("erasures", {"done_cases": 0}, "none was requested yet"),
    ("credentials", {"credentials": (NOW_US - 365 * DAY_US,)}, "365 days ago"),
    ("credentials", {"credentials": (NOW_US - DAY_US,)}, "the oldest set 1 day ago"),
    ("people", {"approvers": 2, "is_single_sign_on": False}, "passwords kept here; 2 may"),
    ("sinks", {"behind_us": DAY_US}, "1 sink, none a day behind"),
    ("clock", {"stated_us": NOW_US - 2 * HOUR_US}, "time.example.org, 40 µs off"),
)
"""What holds to the last microsecond, and how that is said."""


@pytest.mark.parametrize(("check", "changes", "said"), BARELY)
def test_a_check_holds_up_to_its_limit(check: str, changes: dict[str, Any], said: str) -> None:
    found = standing_of(check, "gdpr", msgspec.structs.replace(GOOD, **changes))

    assert (found.state, said in found.said) == ("met", True), found.said


@pytest.mark.parametrize("check", sorted(CHECKS))
def test_every_check_holds_where_all_is_well(check: str) -> None:
    assert standing_of(check, "gdpr", GOOD).state == "met"


@pytest.mark.parametrize(("check", "changes", "state", "said"), WORSE)
def test_a_check_says_what_is_wrong_in_numbers(
    check: str, changes: dict[str, Any], state: str, said: str
) -> None:
    found = standing_of(check, "gdpr", msgspec.structs.replace(GOOD, **changes))

    assert found.state == state
    assert said in found.said


def test_a_report_counts_for_its_own_rule_only() -> None:
    known = msgspec.structs.replace(
        GOOD,
        reports={"gdpr": (Due(NOW_US + 71 * HOUR_US),), "cert-in": (Due(0), Due(NOW_US - 1))},
    )

    assert standing_of("reports", "gdpr", known).said == "1 report due in 71 hours."
    assert standing_of("reports", "cert-in", known).said == "2 reports due now or overdue."
    for dues, said in (
        ((NOW_US + HOUR_US - 1, NOW_US + 5 * HOUR_US), "2 reports due, the first in 59 min"),
        ((NOW_US, NOW_US + HOUR_US), "2 reports due, the first in 0 seconds."),
    ):
        barely = msgspec.structs.replace(GOOD, reports={"gdpr": tuple(map(Due, dues))})
        assert standing_of("reports", "gdpr", barely).said.startswith(said)
    in_days = msgspec.structs.replace(GOOD, reports={"gdpr": (Due(NOW_US + 9 * DAY_US, "days"),)})
    assert standing_of("reports", "gdpr", in_days).said == "1 report due in 9 days."
    assert standing_of("reports", "dpdp", known).state == "met"


def test_what_is_organisational_is_never_said_to_be_met() -> None:
    assert standing_of(ORGANISATIONAL, "gdpr", GOOD).state == "organisational"


def test_every_duty_names_its_source_and_a_check_that_there_is() -> None:
    known = {*CHECKS, "reports", ORGANISATIONAL}
    assert {duty.regime for duty in DUTIES} == set(REGIMES)
    assert all(duty.source and duty.duty and duty.proof for duty in DUTIES)
    assert {duty.check for duty in DUTIES} == known, "nothing is judged that nobody asks for"
    assert {duty.check for duty in DUTIES} - {ORGANISATIONAL} == set(PLACES)
    assert {clock.regime for clock in CLOCKS} == {
        duty.regime for duty in DUTIES if duty.check == "reports"
    }
    for regime in REGIMES:
        assert any(d.check == ORGANISATIONAL for d in DUTIES if d.regime == regime), regime
