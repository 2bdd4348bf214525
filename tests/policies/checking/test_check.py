"""Checking a document before it is published, example requests, and the texts for a terminal."""

import json
import re
from pathlib import Path

import pytest

import policies
from gateway.errors import RequestInvalid
from gateway.oversight.key_scope import check_labels
from policies.checking.check import CheckReport, check
from policies.decide import decide
from policies.examples import EXAMPLE_FACTS, EXAMPLE_TARGETS, facts_from_example
from policies.explain import explain
from policies.hierarchy import compose
from policies.language.vocabulary import FACTS
from policies.problems import FactsInvalid
from policies.program import PolicyDocument
from policies.render import render_explanation, render_report
from tests.policies.worlds import document, document_text, request, target


def _default() -> CheckReport:
    source = Path(policies.__file__).with_name("default.toml")
    return check(source.read_text(encoding="utf-8"), source.name, EXAMPLE_TARGETS)


def _default_document() -> PolicyDocument:
    loaded = _default().document
    assert loaded is not None
    return loaded


def test_the_default_document_passes_its_own_check_without_a_warning() -> None:
    report = _default()
    assert report.is_ok
    assert report.warnings == ()
    assert len(report.tests) >= 10
    assert render_report(report).endswith("ok")


@pytest.mark.parametrize("data_class", ["S3", "S4"])
@pytest.mark.parametrize("complexity_tier", ["cheap", "mid", "frontier"])
@pytest.mark.parametrize(
    "model",
    ["auto", "auto:cheap", "auto:quality", "auto:in-house"]
    + [each.name for each in EXAMPLE_TARGETS],
)
def test_by_default_restricted_data_never_leaves_the_house(
    data_class: str, complexity_tier: str, model: str
) -> None:
    facts = request(data_class=data_class, complexity_tier=complexity_tier, model_requested=model)
    decision = decide(_default_document(), facts)
    assert decision.candidates == ("in-house",)
    assert decision.obligations.jurisdictions == ("in-house",)
    down = (target("in-house", available=False), *EXAMPLE_TARGETS[1:])
    refused = decide(
        _default_document(),
        facts_from_example({"data_class": data_class, "model_requested": model}, targets=down),
    )
    assert (refused.effect, refused.refusal) == ("deny", "no_target_available")


def test_by_default_what_was_not_inspected_never_leaves_the_house() -> None:
    decision = decide(_default_document(), request(inspection_complete=False, data_class="S0"))
    assert decision.candidates == ("in-house",)


def test_a_document_that_does_not_load_has_errors_and_no_document() -> None:
    report = check(document_text({"when": "x", "deny": "No."}), "draft.toml")
    assert report.document is None
    assert not report.is_ok
    assert render_report(report).splitlines() == [
        (
            "draft.toml: error: line 1, column 50: constraints[0].when (rule 'c0'), line 1, "
            "column 1: "
            f"unknown fact 'x'; one of {', '.join(FACTS)}"
        ),
        "not ok",
    ]


def test_a_failing_test_case_says_what_it_got() -> None:
    cases = [
        {
            "name": "wishes",
            "facts": {"data_class": "S3"},
            "expect": {
                "effect": "deny",
                "refusal": "denied",
                "candidates": ["managed-mid", "in-house"],
                "excluded": ["in-house", "managed-mid"],
                "matched": ["c0", "c1"],
                "output_tokens_cap": 5,
            },
        },
        {"name": "another", "expect": {"first": "managed-mid"}},
        {"name": "nothing left", "facts": {"stream": True}, "expect": {"candidates": ["a"]}},
    ]
    rules = (
        {"when": 'data_class == "S3"', "allow_only": {"in_house": True}},
        {"when": "stream", "deny": "No."},
    )
    report = check(document_text(*rules, tests=cases), "draft.toml")
    assert not report.is_ok
    assert render_report(report).splitlines()[:10] == [
        "FAIL  wishes (line 1, column 211)",
        "      effect: expected deny, got allow",
        "      refusal: expected denied, got nothing",
        "      candidates: expected managed-mid, in-house, got in-house",
        "      output_tokens_cap: expected 5, got nothing",
        "      excluded: in-house was not excluded",
        "      matched: c1 did not match",
        "FAIL  another (line 1, column 446)",
        "      first: expected managed-mid, got in-house",
        "FAIL  nothing left (line 1, column 503)",
    ]
    assert report.tests[2].failures == ("candidates: expected a, got nothing",)


def test_test_cases_run_against_the_documents_own_targets() -> None:
    report = check(
        document_text(
            example_targets=[{"name": "home", "in_house": True}, {"name": "away"}],
            tests=[{"name": "t", "expect": {"candidates": ["away", "home"]}}],
        ),
        "draft.toml",
    )
    assert report.is_ok


def test_rules_that_can_have_no_effect_are_warned_about() -> None:
    preferences: tuple[dict[str, object], ...] = (
        {"when": "stream", "order": ["mid"]},
        {"route": "b", "when": "2 < 1", "order": ["mid"]},
        {"when": "1 < 2", "order": ["mid"]},
    )
    report = check(lined({"when": "false", "deny": "No."}, preferences=preferences), "d")
    assert [str(warning) for warning in report.warnings] == [
        "line 6, column 5: constraints[0].when (rule 'c0'): the condition is always false",
        "line 20, column 5: preferences[1].when (rule 'p1'): the condition is always false",
        "line 28, column 5: preferences[2].when (rule 'p2'): the condition is always true",
        "tests: the document has no test cases",
    ]
    assert report.is_ok
    assert "d: warning: tests: the document has no test cases" in render_report(report)


def lined(*rules: dict[str, object], preferences: tuple[dict[str, object], ...] = ()) -> str:
    """A document with every key on a line of its own."""
    return json.dumps(json.loads(document_text(*rules, preferences=preferences)), indent=1)


def test_a_rule_in_the_shadow_of_another_is_refused_where_it_stands() -> None:
    preferences: tuple[dict[str, object], ...] = (
        {"when": "stream", "order": ["mid"]},
        {"when": " stream ", "order": ["cheap"]},
        {"when": "1 < 2", "order": ["mid"]},
        {"when": "has_tools", "order": ["mid"]},
        {"route": "a", "order": ["mid"]},
        {"route": "a", "when": "stream", "order": ["mid"]},
    )
    report = check(document_text({"deny": "No."}, preferences=preferences), "d")
    assert not report.is_ok
    assert [re.sub(r"column \d+", "column N", str(error)) for error in report.errors] == [
        "line 1, column N: preferences[1] (rule 'p1'): never reached: 'p0' matches before it",
        "line 1, column N: preferences[3] (rule 'p3'): never reached: 'p2' matches before it",
        "line 1, column N: preferences[5] (rule 'p5'): never reached: 'p4' matches before it",
    ]


CATALOGUE_FLAWS = """name = "d"
version = 1

[[constraints]]
name = "typo"
when = "stream"
allow_only = { targets = ["in-house", "managed-mdi"] }

[[constraints]]
  name = "gone"
  forbid.targets = ["x"]

[[preferences]]
name = "order"
targets = ["in-house", "y"]
"""


def test_names_that_the_catalogue_lacks_are_errors_where_they_stand() -> None:
    report = check(CATALOGUE_FLAWS, "draft.toml", EXAMPLE_TARGETS)
    assert [str(error) for error in report.errors] == [
        (
            "line 7, column 1: constraints[0].allow_only.targets (rule 'typo'): no target of the "
            "catalogue is named 'managed-mdi'; did you mean 'managed-mid'?"
        ),
        (
            "line 11, column 3: constraints[1].forbid.targets (rule 'gone'): no target of the "
            "catalogue is named 'x'"
        ),
        (
            "line 15, column 1: preferences[0].targets (rule 'order'): no target of the catalogue "
            "is named 'y'"
        ),
    ]
    assert check(CATALOGUE_FLAWS, "draft.toml").errors == ()


CONTRADICTION = """name = "d"
version = 1

[[constraints]]
name = "no-cache"
no_cache = true

[[constraints]]
name = "home"
allow_only = { in_house = true }

[[constraints]]
name = "away"
when = "true"
forbid = { in_house = true }

[[constraints]]
name = "sometimes"
when = "stream"
forbid = { in_house = true }
"""


def test_rules_that_together_close_everything_for_everyone_are_an_error() -> None:
    (error,) = check(CONTRADICTION, "draft.toml", EXAMPLE_TARGETS).errors
    assert str(error) == (
        "line 8, column 1: constraints[1] (rule 'home'): "
        "every target is closed for every request by: home, away"
    )
    sometimes = CONTRADICTION.replace('when = "true"', 'when = "false"')
    assert check(sometimes, "draft.toml", EXAMPLE_TARGETS).errors == ()


FAILING = """name = "d"
version = 1

[[tests]]
name = "good"
expect = { first = "in-house" }

[[tests]]
name = "bad"
expect = { first = "managed-mid" }
"""


def test_a_test_case_that_fails_is_named_with_its_place() -> None:
    report = check(FAILING, "draft.toml")
    assert not report.is_ok
    assert "FAIL  bad (line 8, column 1)" in render_report(report)
    assert "pass  good\n" in render_report(report)


def test_an_example_differs_from_a_harmless_request_only_where_it_says_so() -> None:
    assert facts_from_example({}) == EXAMPLE_FACTS
    facts = facts_from_example(
        {
            "labels": ["a"],
            "targets": [
                {"name": "home", "in_house": True, "available": False},
                {"name": "away", "capabilities": ["tools"]},
            ],
        }
    )
    home, away = facts.targets
    assert facts.labels == ("a",)
    assert (home.jurisdiction, home.unavailable_reason) == (
        "in-house",
        "not available in this example",
    )
    assert (away.jurisdiction, away.capabilities) == ("us", frozenset({"tools"}))


@pytest.mark.parametrize(
    ("example", "expected"),
    [
        ({"data_clas": "S1"}, "data_clas: unknown fact 'data_clas'; did you mean 'data_class'?"),
        ({"data_class": 3}, "data_class: Expected `str`, got `int`"),
        ({"data_class": "s3"}, "data_class: 's3' is not one of S0, S1, S2, S3, S4"),
        ({"complexity": 1.5}, "complexity: 1.5 is not between 0 and 1"),
        ({"complexity": float("nan")}, "complexity: nan is not between 0 and 1"),
        ({"weekday": 7}, "weekday: 7 is not between 0 and 6"),
        ({"max_output_tokens": -1}, "max_output_tokens: -1 is not between"),
        ({"findings": {"pan": 10**30}}, "findings: the count of 'pan' is not between"),
        ({"targets": "home"}, "targets: expected a list of targets"),
        ({"targets": ["home"]}, "targets[0]: expected a table with a name"),
        ({"targets": [{"tier": "mid"}]}, "targets[0]: expected a table with a name"),
        ({"targets": [{"name": "a", "tier": "x"}]}, "targets[0].tier: 'x' is not one of cheap"),
        ({"targets": [{"name": "a"}] * 2}, "targets: two targets are named 'a'"),
        ({"targets": [{"name": "a"}] * 300}, "targets: more than 256 targets"),
    ],
)
def test_a_wrong_example_is_refused_with_its_field(
    example: dict[str, object], expected: str
) -> None:
    with pytest.raises(FactsInvalid) as raised:
        facts_from_example(example)
    assert expected in str(raised.value)


def test_every_wrong_field_of_an_example_is_reported() -> None:
    with pytest.raises(FactsInvalid) as raised:
        facts_from_example({"a": 1, "weekday": 9, "targets": [{"name": 1}]})
    assert len(raised.value.problems) == 3


def test_an_explanation_reads_well_on_a_terminal() -> None:
    policy = document(
        {"name": "home", "when": 'data_class >= "S3"', "allow_only": {"in_house": True}},
        {"name": "caps", "cap_output_tokens": 10, "cap_input_tokens": 10_000},
        {"name": "quiet", "no_cache": True, "audit_content": "none"},
        preferences=(
            {"name": "first", "order": ["cheap"]},
            {"name": "second", "order": ["mid"]},
            {"name": "third", "order": ["mid"], "route": "nightly"},
        ),
    )
    facts = request(data_class="S3", findings={"pan": 1})
    assert render_explanation(explain(policy, facts)).splitlines() == [
        (
            "allow: Sent to the in-house engine because *home* matched "
            "(data_class = S3; findings: pan)."
        ),
        f"document: test ({policy.digest[:12]})",
        "candidates: in-house",
        "constraints matched: home, caps, quiet",
        "preference: first",
        "output tokens at most: 10",
        "input tokens at most: 10000",
        "cleared jurisdictions: in-house",
        "response cache: not to be used",
        "content in the audit record: none",
        "excluded: managed-cheap (policy by home: allows only: in-house)",
        "excluded: managed-mid (policy by home: allows only: in-house)",
        "excluded: managed-frontier (policy by home: allows only: in-house)",
        "",
        "rules:",
        '  applied  constraint home: data_class >= "S3"  [data_class = S3; findings: pan]',
        "  applied  constraint caps: always",
        "  applied  constraint quiet: always",
        "  applied  preference first: always",
        "  matched  preference second: always",
        "  -        preference third: always",
        "",
        "targets:",
        "  1        in-house",
        "  -        managed-cheap: policy by home: allows only: in-house",
        "  -        managed-mid: policy by home: allows only: in-house",
        "  -        managed-frontier: policy by home: allows only: in-house",
    ]


def test_a_refusal_reads_well_on_a_terminal() -> None:
    facts = facts_from_example({}, targets=(target("managed-mid", available=False),))
    assert render_explanation(explain(document(), facts)).splitlines()[:5] == [
        (
            "deny (no_target_available): Refused because no permitted target is available: "
            "managed-mid (not available)."
        ),
        f"document: test ({document().digest[:12]})",
        "candidates: none",
        "constraints matched: none",
        "preference: none",
    ]


def test_a_target_that_was_not_asked_for_is_no_exclusion() -> None:
    lines = render_explanation(explain(document(), request(model_requested="managed-mid")))
    assert "  -        in-house: permitted, but not what was asked for" in lines.splitlines()
    assert "  1        managed-mid" in lines.splitlines()


def test_obligations_are_expected_by_name_and_shown() -> None:
    text = document_text(
        {"when": "stream", "pseudonymise": True, "redact": True},
        preferences=({"order": ["cheapest"], "hedge_after_ms": 250},),
        tests=[
            {"name": "told", "facts": {"stream": True}, "expect": {"obligations": ["redact"]}},
            {"name": "not told", "expect": {"obligations": ["pseudonymise"]}},
        ],
    )
    report = check(text, "draft.toml")
    assert [result.failures for result in report.tests] == [
        (),
        ("obligations: pseudonymise was not demanded",),
    ]
    assert report.document is not None
    shown = render_explanation(explain(report.document, request(stream=True)))
    assert "hedged after: 250 ms" in shown
    cascading = document(preferences=({"order": ["cheapest"], "cascade_above_percent": 12.5},))
    shown_cascade = render_explanation(explain(cascading, request()))
    assert "one tier up when it fails more likely than: 12.5%" in shown_cascade
    assert "pseudonymise: every finding" in shown


CLOSING: tuple[dict[str, object], ...] = (
    {"forbid": {"in_house": True}},
    {"forbid": {"in_house": False}},
)


def test_a_document_that_closes_all_examples_is_refused_if_the_examples_are_its_own() -> None:
    said = "every example target is closed for every request by: c0, c1"
    report = check(document_text(*CLOSING), "d")
    assert report.is_ok, "a catalogue may have what the examples lack"
    assert any(said in str(warning) for warning in report.warnings)
    own = check(document_text(*CLOSING, example_targets=[{"name": "a"}]), "d")
    assert [error.message for error in own.errors] == [said.removesuffix("c0, c1") + "c1"]
    assert not check(document_text(CLOSING[0]), "d").warnings[1:]


ALL_OF_IT = {"allow_only": {"in_house": True}, "forbid": {"in_house": True}}


@pytest.mark.parametrize(
    "rules",
    [
        ({"when": 'data_class >= "S0"', **ALL_OF_IT},),
        ({"when": "stream or not stream", **ALL_OF_IT},),
        ({"when": "stream", **ALL_OF_IT}, {"when": "not stream", **ALL_OF_IT}),
        (
            {"forbid": {"in_house": True}},
            {"when": 'data_class <= "S4"', "forbid": {"in_house": False}},
        ),
    ],
)
def test_rules_that_only_together_leave_nobody_a_target_are_refused(
    rules: tuple[dict[str, object], ...],
) -> None:
    report = check(document_text(*rules), "d", EXAMPLE_TARGETS)
    assert not report.is_ok
    names = ", ".join(f"c{place}" for place in range(len(rules)))
    assert str(report.errors[0]).startswith("line 1, column ")
    assert report.errors[0].message == f"every target is closed for every request by: {names}"


def test_a_rule_that_leaves_nothing_when_it_matches_is_warned_of() -> None:
    report = check(document_text({"when": "stream", **ALL_OF_IT}), "d", EXAMPLE_TARGETS)
    assert report.is_ok
    assert any(each.message.startswith("closes every target") for each in report.warnings)
    everybody = check(document_text({"when": "stream", "deny": "No."}, {"deny": "Closed."}), "d")
    assert everybody.is_ok, "somebody may mean it"
    assert "every request is refused by: c0, c1" in [each.message for each in everybody.warnings]


@pytest.mark.parametrize(
    ("key", "more"),
    [
        ("targets", {"targets": ["managed-mod"]}),
        ("weights", {"weights": {"managed-mod": 2, "in-house": 1}}),
        ("canary", {"order": ["mid"], "canary": {"target": "managed-mod", "percent": 5}}),
    ],
)
def test_a_preference_names_targets_of_the_catalogue_only(
    key: str, more: dict[str, object]
) -> None:
    report = check(document_text(preferences=(more,)), "d", EXAMPLE_TARGETS)
    (error,) = report.errors
    assert (error.path, error.rule) == (f"preferences[0].{key}", "p0")
    assert "named 'managed-mod'; did you mean 'managed-mid'?" in error.message


def test_a_place_that_no_target_has_is_warned_of() -> None:
    rule = {"forbid": {"jurisdictions": ["uss"]}, "allow_only": {"providers": ["nobody"]}}
    report = check(document_text({"when": "stream", **rule}), "d", EXAMPLE_TARGETS)
    found = {each.path: each.message for each in report.warnings}
    said = "no target of the catalogue has 'uss'; did you mean 'us'?"
    assert found["constraints[0].forbid.jurisdictions"] == said
    assert "constraints[0].allow_only.providers" in found


def test_a_label_that_nothing_is_found_as_is_warned_of() -> None:
    rules = (
        {"when": "findings.PAN > 0", "deny": "No."},
        {"when": "size(findings) > 9", "deny": "No."},
    )
    document = document_text(
        *rules, preferences=({"when": "has(findings.EMIAL)", "order": ["mid"]},)
    )
    report = check(document, "d", labels=("CREDIT_CARD", "EMAIL"))
    found = {each.path: each.message for each in report.warnings if "found as" in each.message}
    assert found == {
        "constraints[0].when": "nothing is ever found as 'PAN'",
        "preferences[0].when": "nothing is ever found as 'EMIAL'; did you mean 'EMAIL'?",
    }
    assert not any("found as" in each.message for each in check(document, "d").warnings)


def test_a_rule_that_no_label_can_approve_is_warned_of() -> None:
    """Labels are words: such a rule refuses everybody, whatever key is asked for."""
    names = ("second look", "second,look", "x" * 92, "x" * 91, "second-look")
    rules = [{"name": name, "require_approval": "Ask."} for name in names]
    denying = {"name": "not for us", "deny": "No."}
    found = {
        each.path: each.message
        for each in check(document_text(*rules, denying, name="d"), "d").warnings
        if each.message.startswith("never approved:")
    }
    assert set(found) == {f"constraints[{place}].name" for place in range(3)}
    assert "no key can carry 'approved:second look'" in found["constraints[0].name"]
    for rule in rules:
        label = f"approved:{rule['name']}"
        if rule["name"] in names[3:]:
            check_labels([label])
        else:
            with pytest.raises(RequestInvalid):
                check_labels([label])


def test_a_documents_name_that_no_label_can_hold_is_warned_of_where_rules_need_approval() -> None:
    ask, other = {"name": "look", "require_approval": "Ask."}, {"name": "b", "no_cache": True}
    said = "never approved where a level above has a rule of this name"
    for name, rules, count in (
        ("My team", (ask,), 1),
        ("my-team", (ask,), 0),
        ("A B", (other,), 0),
    ):
        report = check(document_text(*rules, name=name), "d")
        found = [each for each in report.warnings if each.message.startswith(said)]
        assert [(each.path, each.rule) for each in found] == [("name", "look")] * count
        assert report.is_ok
    below = compose([document(ask, name="org"), document(ask, name="My team")])
    assert [step.name for step in below.constraints] == ["look", "My team/look"]
    warned = [each.message for each in check(document_text(ask, name="My team"), "d").warnings]
    assert any("'approved:My team/look'" in each for each in warned)


def test_a_document_with_too_many_rules_is_refused_at_the_first_that_is_too_many() -> None:
    (error,) = check(document_text(*[{"deny": "No."}] * 1_001), "d").errors
    assert (error.path, error.rule) == ("constraints[1000]", "c1000")
    assert str(error).startswith("line 1, column ")
    (error,) = check("x" * 600_000, "d").errors
    assert str(error) == "line 1, column 524289: the document is longer than 524288 characters"
