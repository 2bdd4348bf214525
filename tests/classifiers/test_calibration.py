"""Calibration: exact bounds, shrunk maps, guarantees that hold in resamples, honest refusals."""

import math
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifiers.calibration.bounds import at_most, failure_rate_upper
from classifiers.calibration.maps import AS_IT_IS, Label, fit_map
from classifiers.calibration.table import Judged, Scope, calibrate, load_table
from classifiers.calibration.threshold import Infeasible, Threshold, drift, guarantee
from tests.classifiers.stated_chances import expected_calibration_error


ACME = Scope("acme", "auto")
VERSION = "complexity-test"


def _traffic(seed: int, count: int, lift: float = 0.0) -> list[Label]:
    """Answers that succeed as often as stated, plus `lift` on the log-odds."""
    draw = random.Random(seed)
    labels = []
    for _ in range(count):
        odds = draw.gauss(0.8, 1.2)
        stated = 1 / (1 + math.exp(-odds))
        labels.append(Label(stated, draw.random() < 1 / (1 + math.exp(-odds - lift))))
    return labels


@given(st.integers(1, 60), st.data())
def test_the_binomial_tail_is_the_sum_of_its_terms(trials: int, data: st.DataObject) -> None:
    failures = data.draw(st.integers(0, trials))
    rate = data.draw(st.floats(0.01, 0.99))
    terms = [
        math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(failures + 1)
    ]
    assert math.isclose(at_most(failures, trials, rate), sum(terms), abs_tol=1e-9)


@pytest.mark.parametrize(
    ("failures", "trials", "upper"),
    [(0, 10, 0.258866), (3, 50, 0.147837), (100, 400, 0.288179), (10, 10, 1.0)],
)
def test_bounds_are_those_of_clopper_and_pearson(failures: int, trials: int, upper: float) -> None:
    assert math.isclose(failure_rate_upper(failures, trials, 0.05), upper, abs_tol=1e-6)


def test_a_map_learns_a_tenants_lift_and_keeps_the_order() -> None:
    labels = _traffic(1, 1500, lift=1.0)
    learned = fit_map(labels)
    mapped = [Label(learned(label.p_weak), label.succeeded) for label in labels]
    assert expected_calibration_error(mapped) < expected_calibration_error(labels) / 2
    assert learned(0.3) < learned(0.5) < learned(0.9)


def test_few_labels_lean_on_the_parent() -> None:
    labels = _traffic(2, 10, lift=3.0)
    near, far = fit_map(labels), fit_map(labels * 50)
    assert abs(near.offset - AS_IT_IS.offset) < abs(far.offset - AS_IT_IS.offset)
    assert fit_map([], far) == far


def test_the_guarantee_holds_in_resamples() -> None:
    """In at most 5 % of resamples more fails than promised, and much is promised."""
    population = _traffic(3, 5_000)
    draw = random.Random(4)
    violated, shares = 0, []
    for _ in range(200):
        promised = guarantee(draw.sample(population, 600), alpha=0.2, delta=0.05)
        if isinstance(promised, Threshold):
            sent = [label for label in population if label.p_weak >= promised.p_weak_least]
            violated += sum(not label.succeeded for label in sent) / len(sent) > 0.2
            shares.append(promised.share)
    assert violated <= 200 * 0.05
    assert len(shares) > 150
    assert sum(shares) / len(shares) > 0.3


def test_what_cannot_be_shown_is_infeasible() -> None:
    few = guarantee(_traffic(5, 149), alpha=0.3, delta=0.05)
    hard = guarantee(_traffic(6, 900, lift=-3.0), alpha=0.05, delta=0.05)
    assert few == Infeasible("too_few_labels", 0.3, 0.05, 149)
    assert hard == Infeasible("failure_rate_too_high", 0.05, 0.05, 900)


def test_equal_scores_are_sent_together_or_not_at_all() -> None:
    labels = [Label(0.9, True)] * 150 + [Label(0.5, False)] * 150
    promised = guarantee(labels, alpha=0.1, delta=0.05)
    assert isinstance(promised, Threshold)
    assert (promised.p_weak_least, promised.sent) == (0.9, 150)


def test_a_changed_population_is_noticed() -> None:
    before = [label.p_weak for label in _traffic(7, 500)]
    assert drift(before, [label.p_weak for label in _traffic(8, 500)]) < 0.1
    assert drift(before, [value**4 for value in before]) > 0.25
    assert drift(before, [0.01] * 10) == 0


def test_a_table_answers_by_organisation_and_route() -> None:
    judged = [Judged(ACME, label) for label in _traffic(9, 600)]
    judged += [Judged(Scope("acme", "route:legal"), label) for label in _traffic(10, 40)]
    table = calibrate(judged, 0.25, 0.05, VERSION)
    sure = table.verdict(ACME, 0.99, VERSION, familiar=True)
    unsure = table.verdict(ACME, 0.05, VERSION, familiar=True)
    few = table.verdict(Scope("acme", "route:legal"), 0.99, VERSION, familiar=True)
    assert sure is not None
    assert unsure is not None
    assert few is not None
    assert (sure.cheap, sure.reason) == (True, "guaranteed")
    assert (unsure.cheap, unsure.reason) == (False, "below_threshold")
    assert (few.cheap, few.reason) == (False, "too_few_labels")
    assert table.verdict(Scope("other", "auto"), 0.99, VERSION, familiar=True) is None


@pytest.mark.parametrize(
    ("version", "familiar", "reason"),
    [("complexity-other", True, "other_classifier"), (VERSION, False, "unfamiliar")],
)
def test_nothing_is_promised_outside_of_what_was_seen(
    version: str, familiar: bool, reason: str
) -> None:
    table = calibrate([Judged(ACME, label) for label in _traffic(9, 600)], 0.25, 0.05, VERSION)
    verdict = table.verdict(ACME, 0.99, version, familiar=familiar)
    assert verdict is not None
    assert (verdict.cheap, verdict.reason) == (False, reason)


def test_drifted_traffic_withdraws_the_promise() -> None:
    judged = [Judged(ACME, label) for label in _traffic(9, 600)]
    recent = {ACME: [one.label.p_weak**4 for one in judged]}
    table = calibrate(judged, 0.25, 0.05, VERSION, recent)
    assert table.entries[0].guarantee == Infeasible("drift", 0.25, 0.05, 600)


def test_a_table_survives_its_file() -> None:
    judged = [Judged(ACME, label) for label in _traffic(9, 600)]
    table = calibrate(judged, 0.25, 0.05, VERSION)
    assert load_table(msgspec.json.encode(table)) == table
