"""Properties that hold for every document and every request: constraints only narrow."""

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from policies.decide import decide
from policies.decision import Decision
from policies.document import canonical_json
from policies.explain import explain
from policies.facts import Facts, TargetFacts, data_class_rank
from policies.program import PolicyDocument
from policies.render import render_explanation
from policies.replay import replay
from policies.text.loading import load_document
from tests.policies.worlds import (
    NAMES,
    PREFERENCE_LISTS,
    RULE_LISTS,
    constraints,
    defaults,
    document,
    documents,
    requests,
)


def _fits(selector: dict[str, object], target: TargetFacts) -> bool:
    """An independent reading of the selector, from the raw table."""
    fields = {
        "jurisdictions": target.jurisdiction,
        "targets": target.name,
        "tiers": target.tier,
        "providers": target.provider,
    }
    for key, wanted in selector.items():
        if key == "in_house":
            if target.in_house != wanted:
                return False
        elif not isinstance(wanted, list):
            raise TypeError(key)
        elif key in {"capabilities", "assurances"}:
            if not set(wanted) <= getattr(target, key):
                return False
        elif fields[key] not in wanted:
            return False
    return True


@given(rules=RULE_LISTS, preferences=PREFERENCE_LISTS, standard=defaults(), facts=requests())
def test_no_document_permits_a_target_that_a_matching_constraint_closed(
    rules: list[dict[str, object]],
    preferences: tuple[dict[str, object], ...],
    standard: dict[str, object],
    facts: Facts,
) -> None:
    policy = document(*rules, preferences=preferences, defaults=standard)
    decision = decide(policy, facts)
    closed: set[str] = set()
    for place, rule in enumerate(rules):
        if f"c{place}" not in decision.matched_constraints:
            continue
        allow_only, forbid = rule.get("allow_only"), rule.get("forbid")
        for target in facts.targets:
            if isinstance(allow_only, dict) and not _fits(allow_only, target):
                closed.add(target.name)
            if isinstance(forbid, dict) and _fits(forbid, target):
                closed.add(target.name)
    assert not closed & set(decision.candidates)
    fallen = {each.target for each in decision.excluded if each.kind == "policy"}
    assert fallen == closed
    cleared = {each.jurisdiction for each in facts.targets if each.name not in closed}
    assert set(decision.obligations.jurisdictions) <= cleared


@given(
    rules=RULE_LISTS,
    added=constraints(),
    place=st.integers(0, 4),
    preferences=PREFERENCE_LISTS,
    standard=defaults(),
    facts=requests(),
)
def test_adding_a_constraint_never_widens(
    rules: list[dict[str, object]],
    added: dict[str, object],
    place: int,
    preferences: tuple[dict[str, object], ...],
    standard: dict[str, object],
    facts: Facts,
) -> None:
    named = [{"name": f"r{n}", **rule} for n, rule in enumerate(rules)]
    more = [*named[:place], {"name": "added", **added}, *named[place:]]
    # For a model requested by name a closed one is replaced, so the permitted set is compared
    # through a request that leaves the choice open.
    facts = msgspec.structs.replace(facts, model_requested="auto")
    before = decide(document(*named, preferences=preferences, defaults=standard), facts)
    after = decide(document(*more, preferences=preferences, defaults=standard), facts)
    assert set(after.candidates) <= set(before.candidates)
    assert set(after.obligations.jurisdictions) <= set(before.obligations.jurisdictions)
    assert before.effect == "allow" or after.effect == "deny"
    assert _cap(after.obligations.output_tokens_cap) <= _cap(before.obligations.output_tokens_cap)
    assert _cap(after.obligations.input_tokens_cap) <= _cap(before.obligations.input_tokens_cap)
    assert after.obligations.no_cache or not before.obligations.no_cache
    openness = ["none", "redacted", "encrypted", None]
    assert openness.index(after.obligations.audit_content) <= openness.index(
        before.obligations.audit_content
    )
    strictness = [None, "count", "mask"]
    assert strictness.index(after.obligations.scan_output) >= strictness.index(
        before.obligations.scan_output
    )


def _cap(tokens: int | None) -> float:
    return float("inf") if tokens is None else tokens


@given(policy=documents(), facts=requests())
def test_every_decision_is_complete_and_consistent(policy: PolicyDocument, facts: Facts) -> None:
    decision = decide(policy, facts)
    names = [target.name for target in facts.targets]
    assert decision.reason.endswith(".")
    assert decision.reason.isprintable()
    assert (decision.effect == "allow") == bool(decision.candidates)
    assert (decision.effect == "deny") == (decision.refusal is not None)
    assert decision.effect == "allow" or not decision.obligations.jurisdictions
    assert len(set(decision.candidates)) == len(decision.candidates)
    fallen = [each.target for each in decision.excluded]
    assert set(decision.candidates) <= set(names) - set(fallen)
    usable = [target for target in facts.targets if target.name in decision.candidates]
    assert all(target.available and target.permitted_to_key for target in usable)
    assert {target.jurisdiction for target in usable} <= set(decision.obligations.jurisdictions)
    if facts.model_requested == "auto" and decision.effect == "allow":
        assert sorted([*decision.candidates, *fallen]) == sorted(names)


@given(policy=documents(), facts=requests())
def test_a_concrete_model_is_answered_by_itself_unless_policy_closed_it(
    policy: PolicyDocument, facts: Facts
) -> None:
    decision = decide(policy, facts)
    if decision.effect == "deny" or facts.model_requested not in NAMES:
        return
    if facts.model_requested in decision.candidates:
        assert decision.candidates == (facts.model_requested,)
    else:
        kinds = {each.target: each.kind for each in decision.excluded}
        assert kinds[facts.model_requested] == "policy"
        assert policy.body.defaults.when_requested_model_closed == "substitute"


@given(policy=documents(), facts=requests())
def test_explain_decides_as_decide_does_and_accounts_for_everything(
    policy: PolicyDocument, facts: Facts
) -> None:
    explanation = explain(policy, facts)
    decision = explanation.decision
    assert decision == decide(policy, facts)
    matched = [
        rule.name for rule in explanation.rules if rule.kind == "constraint" and rule.applied
    ]
    assert tuple(matched) == decision.matched_constraints
    applied = [
        rule.name for rule in explanation.rules if rule.kind == "preference" and rule.applied
    ]
    assert applied == ([decision.matched_preference] if decision.matched_preference else [])
    assert [target.name for target in explanation.targets] == [each.name for each in facts.targets]
    first = [target.exclusions[0] for target in explanation.targets if target.exclusions]
    assert first == list(decision.excluded)
    assert decision.reason in render_explanation(explanation)


@given(policy=documents(), recorded=st.lists(requests(), max_size=3))
def test_replay_of_recorded_facts_gives_the_recorded_decisions_back(
    policy: PolicyDocument, recorded: list[Facts]
) -> None:
    decisions = [decide(policy, facts) for facts in recorded]
    stored = msgspec.json.decode(msgspec.json.encode(recorded), type=list[Facts])
    assert stored == recorded
    assert list(replay(policy, stored)) == decisions
    encoded = msgspec.json.encode(decisions)
    assert msgspec.json.decode(encoded, type=list[Decision]) == decisions


@given(facts=requests())
def test_what_was_not_inspected_counts_as_the_most_sensitive(facts: Facts) -> None:
    policy = document({"when": 'data_class == "S4"', "allow_only": {"in_house": True}})
    homes = {target.name for target in facts.targets if target.in_house}
    is_known = facts.data_class in {"S0", "S1", "S2", "S3"}
    if facts.inspection_complete and is_known:
        assert data_class_rank(facts) == int(facts.data_class[1])
        assert decide(policy, facts).matched_constraints == ()
    else:
        assert set(decide(policy, facts).candidates) <= homes


@given(policy=documents())
def test_the_canonical_form_loads_to_the_same_document(policy: PolicyDocument) -> None:
    canonical = canonical_json(policy.body)
    again = load_document(canonical.decode())
    assert again.digest == policy.digest
    assert canonical_json(again.body) == canonical
    loosely = json.dumps(json.loads(canonical), indent=3, sort_keys=False)
    assert load_document(loosely).digest == policy.digest
