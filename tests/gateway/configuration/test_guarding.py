"""Limits of a canary: what somebody may choose, and what is wider than the installation's."""

import msgspec
import pytest

from gateway.configuration.guarding import (
    GuardRules,
    guard_difference,
    guard_from,
    require_seen,
    wider,
)
from gateway.configuration.reading import parse_settings
from gateway.errors import ConfigurationInvalid, RequestInvalid
from tests.gateway.configuration.test_reading import FOLDER


USUAL = GuardRules()


def test_what_is_not_named_stays_as_usual_and_nothing_named_is_no_rule_of_its_own() -> None:
    usual = GuardRules(requests_min=50)
    assert guard_from({"failures_excess": "0.02"}, usual) == GuardRules(
        requests_min=50, failures_excess=0.02
    )
    assert guard_from({}, usual) is None
    assert guard_from({"requests_min": "50"}, usual) is None
    limited = GuardRules(p95_ms_max=900)
    assert guard_from({"p95_ms_max": "none"}, limited) == GuardRules()


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"speed": "3"}, "no limit is called speed"),
        ({"failures_excess": "none"}, "has to be there"),
        ({"failures_excess": "1.2"}, "from 0.1 points to 100 points"),
        ({"failures_excess": "nan"}, "from 0.1 points"),
        ({"requests_min": "4"}, "from 5 to 100000"),
        ({"p95_ms_max": "fast"}, "int"),
        ({"cost_microusd_max": "2000000000"}, "0.000001 USD to 1000 USD"),
        ({"on_harm": "applaud"}, "applaud"),
    ],
)
def test_a_limit_that_is_none_is_refused_with_its_bounds(said: dict[str, str], reason: str) -> None:
    with pytest.raises(RequestInvalid, match=reason):
        guard_from(said, USUAL)


def test_rules_are_wider_where_a_single_limit_is_and_somebody_has_to_have_seen_it() -> None:
    narrow = GuardRules(
        requests_min=10, failures_excess=0.01, latency_ratio=1.2, p95_ms_max=800, failures_max=0.1
    )
    assert wider(narrow, USUAL) == wider(None, USUAL) == ()
    require_seen(narrow, USUAL, seen=False)
    wide = msgspec.structs.replace(narrow, cost_ratio=3.0, on_harm="halt")
    assert wider(wide, USUAL) == (
        "guard, mean cost, against that beside it: 2 times → 3 times",
        "guard, a canary that does harm: taken back for good → halted and stays approved",
    )
    with pytest.raises(RequestInvalid, match=r"2 times → 3 times.*Say that you have seen it"):
        require_seen(wide, USUAL, seen=False)
    require_seen(wide, USUAL, seen=True)
    # No limit at all is wider than any.
    assert wider(USUAL, narrow) == guard_difference(narrow, USUAL)
    assert len(wider(USUAL, narrow)) == 5


def test_the_installations_own_limits_are_settings_within_the_same_bounds() -> None:
    def read(text: str) -> GuardRules:
        return parse_settings(text, "t.toml", FOLDER, {}).policy.guard

    assert read("") == USUAL
    own = read('[policy.guard]\np95_ms_max = 2000\non_harm = "halt"\n')
    assert (own.p95_ms_max, own.on_harm, own.requests_min) == (2000, "halt", 20)
    with pytest.raises(ConfigurationInvalid, match=r"policy\.guard.*5 to 100000"):
        read("[policy.guard]\nrequests_min = 1\n")
