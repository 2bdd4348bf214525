"""Who may take a policy where, which document governs whom, and when a canary must go."""

from itertools import pairwise
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from gateway.configuration.guarding import GuardRules
from gateway.errors import ChangedMeanwhile, Forbidden, RequestInvalid
from gateway.identity import accounts_of
from gateway.rollout.trials import (
    TARGETS_WATCHED,
    Arm,
    TargetTrial,
    TargetTrials,
    Trials,
    harm,
    shadow_change,
    wilson_low,
)
from gateway.rollout.versions import (
    Acting,
    Action,
    Level,
    PolicyEvent,
    PolicySet,
    PolicyVersion,
    State,
    acting_at,
    step,
)
from gateway.types import Principal
from policies.decide import decide
from tests.policies.worlds import document, documents, request, requests


OPEN = document(preferences=({"targets": ["managed-mid"]},))
HOME = document({"name": "home", "allow_only": {"in_house": True}})
SHORT = document({"name": "short", "cap_output_tokens": 9})
DRAFT = PolicyVersion("", 1, "d", "draft", "Ann", 0)


def principal(key_id: str = "k1", project: str = "x") -> Principal:
    accounts = accounts_of("acme", "lab", project, key_id)
    return Principal(key_id, "title", "acme", "lab", project, (), None, accounts)


def test_nobody_approves_what_they_wrote() -> None:
    assert step(DRAFT, "approve", "Bob") == "approved"
    for name in ("Ann", "ann", " ANN ", "os:ann"):
        with pytest.raises(Forbidden, match="somebody else"):
            step(DRAFT, "approve", name)


def test_nothing_acts_before_it_was_approved() -> None:
    reached: set[tuple[State, bool]] = {("draft", False)}
    while True:
        before = set(reached)
        for state, was_approved in before:
            for action in get_args(Action):
                try:
                    after = step(structs.replace(DRAFT, state=state), action, "Bob")
                except RequestInvalid:
                    continue
                reached.add((after, was_approved or action == "approve"))
        if reached == before:
            break
    assert {state for state, was_approved in reached if not was_approved} == {"draft", "rejected"}


def test_each_step_begins_where_it_may_and_nowhere_else() -> None:
    every: tuple[State, ...] = get_args(State)
    begins = {
        action: {state for state in every if may(structs.replace(DRAFT, state=state), action)}
        for action in get_args(Action)
    }
    on_trial = {"shadow", "canary"}
    assert begins == {
        "approve": {"draft"},
        "reject": {"draft", "approved"},
        "shadow": {"approved"},
        "canary": {"approved", *on_trial},
        "publish": {"approved", *on_trial},
        "stop": on_trial,
        "withdraw": on_trial,
    }


def test_what_is_done_already_is_said_so_and_what_does_not_fit_in_words() -> None:
    """Pressed twice, or by two at once: the second is told that it is done."""
    approved = structs.replace(DRAFT, state="approved")
    with pytest.raises(ChangedMeanwhile, match=r"^version \d is approved already$"):
        step(approved, "approve", "Bob")
    with pytest.raises(ChangedMeanwhile, match="is in the shadow already"):
        step(structs.replace(DRAFT, state="shadow"), "shadow", "Bob")
    with pytest.raises(RequestInvalid, match="is declined: it cannot be approved now") as caught:
        step(structs.replace(DRAFT, state="rejected"), "approve", "Bob")
    assert not isinstance(caught.value, ChangedMeanwhile)


def may(version: PolicyVersion, action: Action) -> bool:
    try:
        step(version, action, "Bob")
    except RequestInvalid:
        return False
    return True


def test_a_canary_leaves_the_shadow_of_another_version_alone() -> None:
    steps = ((10, 1, "publish"), (20, 2, "shadow"), (30, 3, "canary"), (40, 2, "canary"))
    history = [PolicyEvent("", number, at, "Ann", action, "") for at, number, action in steps]
    assert acting_at(history, 30) == Acting(1, canary=3, shadow=2, since_us=30)
    assert acting_at(history, 40) == Acting(1, canary=2, shadow=0, since_us=40)


def test_history_says_what_acted_at_any_moment() -> None:
    steps = [
        (10, 1, "draft"),
        (20, 1, "publish"),
        (30, 2, "shadow"),
        (40, 3, "canary"),
        (50, 2, "canary"),
        (60, 2, "withdraw"),
        (70, 4, "shadow"),
        (75, 9, "approve"),
        (80, 4, "stop"),
        (90, 5, "canary"),
        (95, 6, "shadow"),
        (100, 7, "roll_back"),
        (110, 8, "shadow"),
        (120, 7, "retire"),
    ]
    history = [PolicyEvent("", number, at, "Ann", action, "") for at, number, action in steps]

    assert [acting_at(history, at) for at in (0, 19, 20, 35, 45, 55, 65, 79, 99, 100, 999)] == [
        Acting(),
        Acting(),
        Acting(1, since_us=20),
        Acting(1, shadow=2, since_us=30),
        Acting(1, canary=3, shadow=2, since_us=40),
        Acting(1, canary=2, since_us=50),
        Acting(1, since_us=60),
        Acting(1, shadow=4, since_us=70),
        Acting(1, canary=5, shadow=6, since_us=95),
        Acting(7, since_us=100),
        Acting(since_us=120),
    ]


def test_levels_govern_their_own_and_narrow_what_is_above() -> None:
    policies = PolicySet(OPEN, {"org:acme": Level(live=HOME), "proj:acme/lab/x": Level(live=SHORT)})
    mine = decide(policies.document_for(principal()), request())
    other = decide(policies.document_for(principal(project="y")), request())

    assert mine.candidates == other.candidates == ("in-house",)
    assert (mine.obligations.output_tokens_cap, other.obligations.output_tokens_cap) == (9, None)
    stranger = structs.replace(principal(), accounts=("org:b", "ws:b/w", "proj:b/w/p", "key:k"))
    assert policies.document_for(stranger) is OPEN
    assert policies.document_for(structs.replace(principal(), accounts=())) is OPEN


def test_a_canary_governs_its_share_of_the_keys_and_each_key_stays() -> None:
    level = Level(live=OPEN, canary=HOME, canary_number=2, percent=20.0, shadow=SHORT)
    policies = PolicySet(OPEN, {"": level})
    chosen = [policies.document_for(principal(f"k{n}")).digest == HOME.digest for n in range(2_000)]

    assert 0.16 < sum(chosen) / len(chosen) < 0.24
    again = PolicySet(OPEN, {"": level})
    assert chosen == [again.document_for(principal(f"k{n}")) is HOME for n in range(2_000)]
    assert policies.governing(principal()).shadow is SHORT
    assert [trial.number for each in policies.watched() for trial in each.trials] == [2]
    assert policies.digests != PolicySet(OPEN, {"": structs.replace(level, percent=30.0)}).digests


def test_sets_that_differ_in_any_document_or_whom_it_governs_have_other_digests() -> None:
    sets = [
        PolicySet(OPEN),
        PolicySet(HOME),
        PolicySet(OPEN, {"org:a": Level(live=HOME)}),
        PolicySet(OPEN, {"org:b": Level(live=HOME)}),
        PolicySet(OPEN, {"org:a": Level(live=SHORT)}),
        PolicySet(OPEN, {"org:a": Level(canary=HOME)}),
        PolicySet(OPEN, {"org:a": Level(canary=SHORT)}),
        PolicySet(OPEN, {"org:a": Level(shadow=HOME)}),
        PolicySet(OPEN, {"org:a": Level(shadow=SHORT)}),
    ]
    assert len({repr(each.digests) for each in sets}) == len(sets)


def test_only_projects_with_something_on_trial_are_watched() -> None:
    levels = {"proj:acme/lab/x": Level(canary=HOME, canary_number=1, percent=5.0)}
    policies = PolicySet(OPEN, levels)
    tried, other = (policies.governing(principal(project=name)) for name in ("x", "y"))
    assert policies.watched() == [tried]
    assert other.trials == ()


def test_sets_that_differ_in_the_guard_of_a_canary_alone_have_other_digests() -> None:
    level = Level(live=OPEN, canary=HOME, canary_number=2, percent=20.0)
    kept = [
        PolicySet(OPEN, {"": structs.replace(level, guard=guard)}).digests
        for guard in (None, GuardRules(), GuardRules(cost_ratio=3.0), GuardRules(on_harm="halt"))
    ]
    assert all(one != other for one, other in pairwise(kept))


@settings(max_examples=30)
@given(
    base=documents(),
    live=documents(),
    canary=documents(),
    percent=st.floats(1, 100),
    facts=requests(),
)
def test_no_canary_of_a_lower_level_permits_what_the_level_above_closed(
    base: object, live: object, canary: object, percent: float, facts: object
) -> None:
    facts = structs.replace(facts, model_requested="auto")  # type: ignore[type-var]
    level = Level(live=live, canary=canary, canary_number=1, percent=percent)  # type: ignore[arg-type]
    policies = PolicySet(base, {"org:acme": level})  # type: ignore[arg-type]
    allowed = set(decide(base, facts).candidates)  # type: ignore[arg-type]
    for number in range(3):
        governed = policies.document_for(principal(f"k{number}"))
        assert set(decide(governed, facts).candidates) <= allowed  # type: ignore[arg-type]


GOOD = Arm(requests=400, failures=4, refusals=4, answered=392, duration_us=392, cost_microusd=392)


@pytest.mark.parametrize(
    ("canary", "reason"),
    [
        (Arm(requests=19, failures=19), ""),
        (Arm(requests=20, failures=20), "failures: 100%"),
        (Arm(requests=40, refusals=20), "refusals: 50%"),
        (Arm(requests=40, failures=2, answered=38, duration_us=40, cost_microusd=40), ""),
        (Arm(requests=40, answered=40, duration_us=90, cost_microusd=40), "latency: 2.2 times"),
        (Arm(requests=40, answered=40, duration_us=40, cost_microusd=200), "cost: 5.0 times"),
    ],
)
def test_a_canary_is_judged_by_figures_that_are_worse_than_chance(canary: Arm, reason: str) -> None:
    found = harm(canary, GOOD, GuardRules())
    assert found.startswith(reason) if reason else not found


def arm(answers: int, duration_us: int = 1_000, cost: int = 10, *unsound: str) -> Arm:
    found = Arm(requests=answers)
    for number in range(answers):
        # One in ten takes ten times as long.
        found.answer(duration_us * (10 if number % 10 == 9 else 1), cost, unsound)
    return found


@pytest.mark.parametrize(
    ("rules", "canary", "reason"),
    [
        (GuardRules(p95_ms_max=50), arm(100, 10_000), "p95: 10 of 100 answers took longer than 50"),
        (GuardRules(p95_ms_max=100), arm(100, 10_000), ""),
        (GuardRules(p95_ms_max=50), arm(19, 10_000), ""),
        (GuardRules(cost_microusd_max=9), arm(40), "cost: 0.000010 USD an answer, 0.000009 allow"),
        (GuardRules(cost_microusd_max=10), arm(40), ""),
        (GuardRules(failures_max=0.04), Arm(requests=60, failures=8), "failures: 13% of 60"),
        (GuardRules(), Arm(requests=60, failures=6), ""),
        (GuardRules(requests_min=5), Arm(requests=5, failures=5), "failures: 100% of 5"),
        (GuardRules(), arm(40, 1, 1, "complete"), "complete: 100% of 40 answers fail"),
        (GuardRules(checks_excess=1.0), arm(40, 1, 1, "complete"), ""),
    ],
)
def test_limits_of_its_own_are_what_a_canary_is_judged_by(
    rules: GuardRules, canary: Arm, reason: str
) -> None:
    found = harm(canary, Arm(), rules)
    assert found.startswith(reason) if reason else not found


def test_a_p95_is_known_to_within_a_step_and_arms_of_workers_add_up() -> None:
    one, other = arm(200, 20_000, 3, "format"), arm(50, 20_000, 3)
    assert 180 <= one.p95_ms <= 220
    assert Arm().p95_ms == 0
    assert 18 <= arm(4, 20_000).p95_ms <= 22
    one.add(other)
    assert (one.requests, one.answered, one.cost_microusd) == (250, 250, 750)
    assert (one.unsound, sum(one.times.values())) == ({"format": 200}, 250)
    assert one.slower_than(100) == 25


def test_without_live_traffic_beside_it_only_shares_count() -> None:
    fine = Arm(requests=50, answered=50, duration_us=10**9)
    assert harm(fine, Arm(), GuardRules()) == ""
    assert harm(Arm(requests=50, failures=30), Arm(), GuardRules()).startswith("failures")
    assert wilson_low(0, 10) == pytest.approx(0.0)
    assert 0.6 < wilson_low(10, 10) < 0.8


def count(trials: Trials, digest: str, times: int, **ended: Any) -> None:
    usual = {"failed": False, "refused": False, "duration_us": 1_000, "cost_microusd": 10}
    for _ in range(times):
        trials.count(digest, **(usual | ended))


def test_what_was_counted_of_a_canary_outlives_a_change_of_other_policies() -> None:
    levels = {"org:acme": Level(live=OPEN, canary=HOME, canary_number=2, percent=50.0)}
    before, trials = PolicySet(OPEN, levels), Trials()
    asked = before.governing(principal())
    trials.watch(before.watched(), before.canaries)
    count(trials, asked.document.digest, 3)
    count(trials, asked.trials[0].document.digest, 2)

    after = PolicySet(OPEN, levels | {"org:other": Level(live=HOME)})
    trials.watch(after.watched(), after.canaries)  # Before anybody asks under the new set.
    after.governing(principal())
    ((_, canary, beside),) = trials.figures(after.watched())
    assert (canary.requests, beside.requests) == (2, 3)

    for ended in (levels["org:acme"], Level(live=OPEN)):
        is_on_trial = ended.canary is not None
        now = PolicySet(OPEN, {"org:acme": ended})
        trials.watch(now.watched(), now.canaries)
        assert trials.watches(asked.document.digest) is is_on_trial


def test_a_worker_counts_only_what_is_on_trial() -> None:
    policies = PolicySet(OPEN, {"": Level(canary=HOME, canary_number=7, percent=50.0)})
    governing = [policies.governing(principal())]
    trials = Trials()
    trials.count(HOME.digest, failed=True, refused=False, duration_us=1, cost_microusd=1)
    assert not list(trials.harmful(governing))

    trials.watch(governing, policies.canaries)
    for _ in range(30):
        trials.count(HOME.digest, failed=True, refused=False, duration_us=1, cost_microusd=1)
        trials.count(OPEN.digest, failed=False, refused=False, duration_us=1, cost_microusd=1)
    (found,) = trials.harmful(governing)
    assert (found[0].number, found[1].partition(":")[0]) == (7, "failures")
    trials.watch([], ())
    assert not list(trials.harmful(governing))


def test_arms_add_up_over_projects_and_only_answers_count_as_answered() -> None:
    levels = {
        "": Level(canary=HOME, canary_number=7, percent=50.0),
        "proj:acme/lab/y": Level(live=SHORT),
    }
    policies, trials = PolicySet(OPEN, levels), Trials()
    governing = [policies.governing(principal()), policies.governing(principal(project="y"))]
    trials.watch(governing, policies.canaries)
    for each in governing:
        for digest in (each.document.digest, each.trials[0].document.digest):
            count(trials, digest, 2, unsound=("json",))
            count(trials, digest, 1, failed=True)
            count(trials, digest, 1, refused=True)
    ((_, canary, beside),) = trials.figures(governing)
    for arm in (canary, beside):
        assert (arm.requests, arm.failures, arm.refusals, arm.answered) == (8, 2, 2, 4)
        assert (arm.duration_us, arm.cost_microusd) == (4_000, 40)
        assert arm.unsound == {"json": 4}
        assert sum(arm.times.values()) == 4


def test_means_are_compared_when_enough_was_answered_on_both_sides() -> None:
    rules = GuardRules(requests_min=20)

    def arm(answered: int, duration_us: int) -> Arm:
        found = Arm(requests=100)
        for _ in range(answered):
            found.answer(duration_us, 10)
        return found

    assert harm(arm(20, 9_000), arm(19, 1_000), rules) == ""
    assert harm(arm(19, 9_000), arm(20, 1_000), rules) == ""
    assert harm(arm(20, 9_000), arm(20, 1_000), rules).startswith("latency: 9.0 times")


def test_targets_on_trial_are_judged_by_the_rules_of_the_installation() -> None:
    for requests_min, found in ((5, 1), (30, 0)):
        trials = Trials(GuardRules(requests_min=requests_min)).targets
        tried(trials, canary=False, times=100)
        tried(trials, canary=True, times=10, failed=True)
        assert len(list(trials.worse())) == found


def test_a_version_is_judged_by_its_own_rules_and_its_projects_are_added_up() -> None:
    own = GuardRules(requests_min=10, on_harm="halt")
    levels = {
        "": Level(canary=HOME, canary_number=7, percent=50.0, guard=own),
        "proj:acme/lab/y": Level(live=SHORT),
    }
    policies = PolicySet(OPEN, levels)
    governing = [policies.governing(principal()), policies.governing(principal(project="y"))]
    trials = Trials(GuardRules(requests_min=100))
    trials.watch(governing, policies.canaries)
    tried = [each.trials[0] for each in governing]
    for trial in tried:
        assert trials.watches(trial.document.digest)
        for _ in range(6):
            trials.count(
                trial.document.digest, failed=True, refused=False, duration_us=1, cost_microusd=1
            )
    assert not list(trials.harmful(governing)), "six of each project say nothing yet"
    ((trial, canary, beside),) = trials.figures(governing)
    assert (canary.requests, canary.failures, beside.requests) == (12, 12, 0)
    assert trials.harm(trial, canary, beside).startswith("failures: 100% of 12")
    assert trials.on_harm(trial) == "halt"


def test_what_a_shadow_would_change_is_said_in_one_word() -> None:
    facts = request()
    acting = decide(OPEN, facts)
    assert shadow_change(acting, acting) == "same"
    assert shadow_change(acting, decide(HOME, facts)) == "rerouted"
    denied = decide(document({"deny": "No."}), facts)
    assert (shadow_change(acting, denied), shadow_change(denied, acting)) == (
        "blocked",
        "permitted",
    )
    capped = document({"no_cache": True}, preferences=({"targets": ["managed-mid"]},))
    assert shadow_change(acting, decide(capped, facts)) == "obliged"


def test_speeds_are_looked_at_only_where_a_policy_orders_by_them() -> None:
    quick = document(preferences=({"order": ["fastest"]},))
    assert not PolicySet(document()).orders_by_speed
    assert PolicySet(quick).orders_by_speed
    assert PolicySet(document(), {"org:acme": Level(shadow=quick)}).orders_by_speed
    assert PolicySet(document(defaults={"order": ["fastest"]})).orders_by_speed


def test_what_a_shadow_looks_at_is_found_out_as_well() -> None:
    wary = document({"name": "wary", "when": "injection_suspected", "cap_output_tokens": 9})
    alone = PolicySet(OPEN, {})
    shadowed = PolicySet(OPEN, {"": Level(live=OPEN, shadow=wary)})
    assert "injection_suspected" not in alone.governing(principal()).facts_read(OPEN)
    assert "injection_suspected" in shadowed.governing(principal()).facts_read(OPEN)
    assert "injection_suspected" in alone.governing(principal()).facts_read(wary)


def tried(trials: TargetTrials, canary: bool, times: int, **ended: Any) -> None:
    usual: dict[str, Any] = {"failed": False, "unsound": (), "duration_us": 10, "cost_microusd": 4}
    for _ in range(times):
        trials.count(TargetTrial("d", "rule", "new"), is_canary=canary, **(usual | ended))


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        ({}, ""),
        ({"failed": True}, "failures: 100% of 30 requests, 5% allowed"),
        ({"duration_us": 30}, "latency: 3.0 times that of the live version, 2 allowed"),
        ({"cost_microusd": 20}, "cost: 5.0 times that of the live version, 2 allowed"),
        ({"unsound": ("format",)}, "format: 100% of 30 answers fail, 5% allowed"),
    ],
)
def test_a_target_on_trial_is_compared_and_told_of_once(ended: dict[str, Any], said: str) -> None:
    trials = TargetTrials()
    tried(trials, canary=False, times=100)
    tried(trials, canary=True, times=30, **ended)
    assert [reason for _, reason in trials.worse()] == ([said] if said else [])
    assert list(trials.worse()) == []


def test_what_the_others_fail_as_often_speaks_against_nobody() -> None:
    trials = TargetTrials()
    tried(trials, canary=False, times=100, unsound=("no_refusal",))
    tried(trials, canary=True, times=30, unsound=("no_refusal",))
    assert list(trials.worse()) == []
    assert [arm.requests for arm in trials.figures()[TargetTrial("d", "rule", "new")]] == [30, 100]


def test_only_so_many_targets_are_watched() -> None:
    trials = TargetTrials()
    for number in range(TARGETS_WATCHED + 5):
        tried_here = TargetTrial(str(number), "rule", "new")
        trials.count(
            tried_here, is_canary=True, failed=True, unsound=(), duration_us=1, cost_microusd=1
        )
    assert len(trials.figures()) == TARGETS_WATCHED
