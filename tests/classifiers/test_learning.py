"""The learning loop: known odds, unbiased estimates, and no threshold goes live unchecked."""

import random

import pytest

from classifiers.calibration.learning import (
    Logged,
    cheap_failure_under,
    check_before_live,
    choose,
    success_under,
)


P_STRONG = 0.9


def _logged(
    seed: int, count: int, threshold: float, exploration: float, bias: float = 0.0
) -> list[Logged]:
    """Traffic under a threshold with exploration; the classifier is off by `bias`."""
    draw = random.Random(seed)
    rows = []
    for at in range(count):
        truth = draw.random()
        stated = min(0.99, max(0.01, truth + bias))
        choice = choose(stated >= threshold, exploration, f"{seed}-{at}", "salt")
        chance = truth if choice.cheap else P_STRONG
        rows.append(Logged(stated, choice.cheap, choice.propensity, draw.random() < chance))
    return rows


def test_exploration_has_the_odds_it_logs_and_replays_alike() -> None:
    choices = [choose(True, 0.05, str(at), "salt") for at in range(10_000)]
    explored = [one for one in choices if one.explored]
    assert 0.04 < len(explored) / len(choices) < 0.06
    assert all(not one.cheap and one.propensity == 0.05 for one in explored)
    assert all(one.cheap or one.explored for one in choices)
    assert choices[:100] == [choose(True, 0.05, str(at), "salt") for at in range(100)]


@pytest.mark.parametrize("exploration", [-0.1, 0.06, 1.0])
def test_exploration_is_small(exploration: float) -> None:
    with pytest.raises(ValueError, match="small"):
        choose(True, exploration, "id", "salt")


@pytest.mark.parametrize("bias", [0.0, 0.15])
def test_what_another_threshold_would_do_is_estimated_though_the_model_is_biased(
    bias: float,
) -> None:
    """The truth: cheap from 0.3 + bias on succeeds 65 % of the time there."""
    rows = _logged(1, 15_000, 0.6 + bias, 0.05, bias)
    success = success_under(rows, 0.3 + bias, P_STRONG)
    failing = cheap_failure_under(rows, 0.3 + bias)
    assert success.lower < 0.3 * P_STRONG + 0.7 * 0.65 < success.upper
    assert failing.lower < 0.35 < failing.upper


def test_without_exploration_a_biased_model_misleads() -> None:
    rows = _logged(1, 15_000, 0.75, 0.0, 0.15)
    assert cheap_failure_under(rows, 0.45).upper < 0.35


@pytest.mark.parametrize(
    ("then", "alpha", "loss", "reason"),
    [
        (0.75, 0.25, 0.2, "passed"),
        (0.3, 0.25, 0.5, "cheap_failure_rate_too_high"),
        (0.5, 0.4, 0.01, "success_may_fall"),
    ],
)
def test_a_threshold_goes_live_only_when_checked(
    then: float, alpha: float, loss: float, reason: str
) -> None:
    check = check_before_live(_logged(2, 12_000, 0.8, 0.05), 0.8, then, alpha, loss)
    assert check.reason == reason
    assert check.passed == (reason == "passed")


def test_too_little_traffic_lets_nothing_live() -> None:
    check = check_before_live(_logged(3, 199, 0.8, 0.05), 0.8, 0.75, 1.0, 1.0)
    assert not check.passed
    assert check.reason == "too_few_logged"
