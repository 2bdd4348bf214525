"""Loading a document: what it means, what is refused, and where the mistake is said to be."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.document import Defaults, canonical_json
from policies.language.vocabulary import FACTS
from policies.problems import DocumentInvalid, Position
from policies.program import PolicyDocument
from policies.text.loading import load_document
from tests.policies.worlds import document, document_text


TOML = """
name = "house rules"
version = 1
description = "What we agreed."

[defaults]
output_tokens_max = 4096
when_requested_model_closed = "refuse"
order = "cheapest"

[[constraints]]
name = "Aadhaar → in-house"
when = "findings.aadhaar > 0"
allow_only = { in_house = true, jurisdictions = ["in-house", "eu"] }
no_cache = true
audit_content = "encrypted"

[[preferences]]
name = "best"
route = "best"
targets = ["managed-frontier", "managed-mid"]

[[tests]]
name = "numbers stay home"
facts = { findings = { aadhaar = 1 } }
expect = { candidates = ["in-house"] }
"""


def _problems(text: str) -> list[str]:
    with pytest.raises(DocumentInvalid) as raised:
        load_document(text)
    return [str(problem) for problem in raised.value.problems]


def _unplaced(text: str) -> list[str]:
    """The problems of one line of JSON, without their columns."""
    return [re.sub(r"^line 1, column \d+: ", "", each) for each in _problems(text)]


def test_toml_and_json_of_one_meaning_have_one_digest() -> None:
    loaded = load_document(TOML)
    canonical = canonical_json(loaded.body).decode()
    assert load_document(canonical).digest == loaded.digest
    assert len(loaded.digest) == 64
    assert (loaded.name, loaded.body.version, loaded.routes) == ("house rules", 1, ("best",))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"findings.aadhaar > 0"', "\"  findings['aadhaar']>0 \""),
        ('["in-house", "eu"]', '["eu", "in-house"]'),
        ('order = "cheapest"', 'order = ["cheapest"]'),
        ("in_house = true, ", ""),
        ("no_cache = true\naudit_content", "audit_content"),
        ("> 0", "> 1"),
        ("4096", "4097"),
        ('"refuse"', '"substitute"'),
        ('route = "best"', 'route = "finest"'),
        ('["managed-frontier", "managed-mid"]', '["managed-mid", "managed-frontier"]'),
        ("we agreed", "we wished"),
        ("aadhaar = 1", "aadhaar = 2"),
    ],
)
def test_the_digest_changes_with_the_meaning_only(before: str, after: str) -> None:
    assert before in TOML
    is_same_meaning = before in {'"findings.aadhaar > 0"', '["in-house", "eu"]'}
    is_same_meaning |= before == 'order = "cheapest"'
    changed = load_document(TOML.replace(before, after))
    assert (changed.digest == load_document(TOML).digest) == is_same_meaning


@given(order=st.permutations(["name", "version", "constraints", "preferences", "defaults"]))
def test_the_digest_does_not_depend_on_the_order_of_keys(order: list[str]) -> None:
    text = document_text({"deny": "No.", "when": "stream"}, defaults={"output_tokens_max": 9})
    table = json.loads(text)
    shuffled = json.dumps({key: table[key] for key in order}, indent=2)
    assert load_document(shuffled).digest == load_document(text).digest


def test_a_value_written_at_its_default_is_no_difference() -> None:
    plain = document({"deny": "No."})
    spelled = document({"deny": "No.", "no_cache": False}, description="", defaults={})
    assert plain.digest == spelled.digest
    assert plain.body.defaults == Defaults()


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ({"naem": 1}, "unknown key 'naem'; did you mean 'name'?"),
        ({"name": 1}, "name: expected a string, not a number"),
        ({"name": " "}, "name: a name is printable text on one line"),
        ({"name": "x" * 101}, "name: longer than 100 characters"),
        ({"version": 2}, "version: the schema version is required and is 1"),
        ({"version": True}, "version: expected a whole number, not true or false"),
        ({"version": 0}, "version: not between 1 and 1000000000000"),
        ({"defaults": []}, "defaults: expected a table, not a list"),
        ({"defaults": {"order": ["dearest"]}}, "defaults.order: 'dearest' is not"),
        ({"defaults": {"order": ["cheapst"]}}, "did you mean 'cheapest'?"),
        ({"constraints": {}}, "expected a list of tables, [[constraints]], not a table"),
        ({"constraints": [1]}, "constraints[0]: expected a table, not a number"),
        ({"constraints": [{}] * 1001}, "constraints[1000]: there are more than 1000 entries"),
        ({"constraints": [{"no_cache": True}]}, "constraints[0].name: a name is required"),
        ({"tests": [{"name": "t"}]}, "tests[0].expect (rule 't'): a test case says what"),
        ({"tests": [{"name": "t", "expect": {}}]}, "tests[0].expect (rule 't'): a test case exp"),
        ({"tests": [{"name": "t", "expect": 1}]}, "expect (rule 't'): expected a table, not a num"),
        ({"tests": [{"name": "t", "facts": 1}]}, "tests[0].facts (rule 't'): expected a table"),
        (
            {"tests": [{"name": "t", "facts": {"data_class": "S7"}, "expect": {"first": "a"}}]},
            "tests[0].facts.data_class (rule 't'): 'S7' is not one of S0, S1, S2, S3, S4",
        ),
        ({"example_targets": 1}, "example_targets: expected a list of targets"),
        (
            {"example_targets": [{"name": "a", "tier": "x"}]},
            "example_targets[0].tier",
        ),
        (
            {"tests": [{"name": "t", "expect": {"first": "a"}}] * 2},
            "tests[1].name (rule 't'): tests[0] has the same name",
        ),
    ],
)
def test_a_mistake_outside_the_rules_is_named(rest: dict[str, object], expected: str) -> None:
    table = {"name": "test", "version": 1, **rest}
    assert any(expected in problem for problem in _problems(json.dumps(table)))


@pytest.mark.parametrize(
    ("at_most", "beyond", "expected"),
    [
        (
            {"forbid": {"targets": [str(n) for n in range(256)]}},
            {"forbid": {"targets": [str(n) for n in range(257)]}},
            "constraints[0].forbid.targets (rule 'c0'): the list has more than 256 entries",
        ),
        (
            {"forbid": {"targets": ["x" * 100]}},
            {"forbid": {"targets": ["x" * 101]}},
            "constraints[0].forbid.targets (rule 'c0'): an entry has 1 to 100 characters",
        ),
        (
            {"cap_output_tokens": 10**12},
            {"cap_output_tokens": 10**12 + 1},
            "constraints[0].cap_output_tokens (rule 'c0'): not between 1 and 1000000000000",
        ),
        (
            {"cap_input_tokens": 0},
            {"cap_input_tokens": -1},
            "constraints[0].cap_input_tokens (rule 'c0'): not between 0 and 1000000000000",
        ),
        (
            {"deny": "x" * 2000},
            {"deny": "x" * 2001},
            "constraints[0].deny (rule 'c0'): longer than 2000 characters",
        ),
    ],
)
def test_what_a_constraint_may_hold_has_a_bound_and_holds_up_to_it(
    at_most: dict[str, object], beyond: dict[str, object], expected: str
) -> None:
    assert document(at_most).constraints[0].name == "c0"
    assert _unplaced(document_text(beyond)) == [expected]


@pytest.mark.parametrize("percent", [0, 100.5, 101, -1, True, "5", None, float("1e300")])
def test_a_share_is_above_nothing_and_at_most_all(percent: object) -> None:
    for good in (0.001, 1, 100):
        (rule,) = document(preferences=({"canary": {"target": "a", "percent": good}},)).preferences
        assert rule.preference.canary is not None
        assert rule.preference.canary.percent == good
    told = _unplaced(
        document_text(preferences=({"order": ["mid"], "cascade_above_percent": percent},))
    )
    assert told == [
        "preferences[0].cascade_above_percent (rule 'p0'): expected a number above 0 and up to 100"
    ]


def test_a_rule_too_many_is_named_and_what_is_wrong_behind_it_is_not_its_own() -> None:
    for name, told in (("x" * 100, f" (rule '{'x' * 100}')"), ("x" * 101, ""), (1, "")):
        rules = [{"name": f"c{n}", "no_cache": True} for n in range(1000)]
        table = {"name": "t", "version": 1, "constraints": [*rules, {"name": name}], "odd": 1}
        assert _unplaced(json.dumps(table)) == [
            f"constraints[1000]{told}: there are more than 1000 entries",
            "odd: unknown key 'odd'",
        ]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({}, "constraints[0] (rule 'c0'): the constraint has no effect"),
        ({"deny": " "}, "constraints[0].deny (rule 'c0'): a refusal says why"),
        ({"deny": "x" * 2001}, "constraints[0].deny (rule 'c0'): longer than 2000 characters"),
        ({"allow_only": {}}, "constraints[0].allow_only (rule 'c0'): the selector is empty"),
        ({"forbid": {"tiers": ["mids"]}}, "forbid.tiers (rule 'c0'): 'mids' is not known; did"),
        ({"forbid": {"tiers": ["x"]}}, "'x' is not known; one of cheap, mid, frontier"),
        ({"forbid": {"targets": []}}, "forbid.targets (rule 'c0'): the list is empty"),
        (
            {"forbid": {"targets": ["a", "a"]}},
            "forbid.targets (rule 'c0'): an entry stands twice in the list",
        ),
        (
            {"forbid": {"targets": [1]}},
            "forbid.targets (rule 'c0'): expected a list of strings only",
        ),
        ({"forbid": {"targets": 1}}, "expected a list of strings, not a number"),
        ({"forbid": {"targets": [""]}}, "an entry has 1 to 100 characters"),
        ({"forbid": {"targets": [str(n) for n in range(300)]}}, "more than 256 entries"),
        ({"forbid": {"in_house": "yes"}}, "expected true or false, not a string"),
        (
            {"forbid": {"house": True}},
            "forbid.house (rule 'c0'): unknown key 'house'; did you mean",
        ),
        ({"no_cache": 1}, "no_cache (rule 'c0'): expected true or false, not a number"),
        (
            {"audit_content": "all"},
            "audit_content (rule 'c0'): 'all' is not one of none, metadata, redacted, enc",
        ),
        ({"cap_output_tokens": 0}, "cap_output_tokens (rule 'c0'): not between 1 and"),
        ({"cap_output_tokens": 1.5}, "expected a whole number, not a number"),
        ({"cap_output_tokens": None}, "expected a whole number, not a value of another kind"),
        ({"deny": "No.", "when": 1}, "when (rule 'c0'): expected a string, not a number"),
        ({"deny": "No.", "when": "x"}, "constraints[0].when (rule 'c0'), line 1, column 1: unk"),
        ({"name": "a\nb", "deny": "No."}, "a name is printable text on one line"),
    ],
)
def test_a_mistake_in_a_constraint_is_named(rule: dict[str, object], expected: str) -> None:
    assert any(expected in problem for problem in _problems(document_text(rule)))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({}, "preferences[0] (rule 'p0'): the preference needs an order, targets,"),
        ({"order": ["mid"], "route": "A b"}, "route (rule 'p0'): a route is lower-case letters"),
        (
            {"order": ["mid"], "hedge_after_ms": 5, "cascade_above_percent": 5.0},
            "cascade_above_percent (rule 'p0'): a cascade waits for its first answer",
        ),
        ({"order": ["mid"], "cache_s": -1}, "cache_s (rule 'p0'): not between 0 and"),
        ({"order": ["mid"], "cache_s": 604_801}, "cache_s (rule 'p0'): not between 0 and 604800"),
        ({"order": "middle"}, "preferences[0].order (rule 'p0'): 'middle' is not known"),
        (
            {"order": ["mid"], "forbid": {}},
            "preferences[0].forbid (rule 'p0'): unknown key 'forbid'",
        ),
    ],
)
def test_a_mistake_in_a_preference_is_named(rule: dict[str, object], expected: str) -> None:
    assert any(expected in problem for problem in _problems(document_text(preferences=(rule,))))


def test_every_mistake_is_reported_at_once() -> None:
    problems = _problems(
        document_text(
            {"when": 'data_class > "S9"\nand x', "deny": "No."},
            {"allow_only": {"tier": ["mid"]}},
            {"name": "c0", "no_cache": True},
            preferences=({"name": "c0", "order": []},),
            version=3,
        )
    )
    assert len(problems) == 8
    assert any(
        problem.startswith("line 1, column ")
        and problem.endswith(
            "constraints[0].when (rule 'c0'), line 2, column 5: unknown fact 'x'; one of "
            + ", ".join(FACTS)
        )
        for problem in problems
    )
    twin = "preferences[0].name (rule 'c0'): constraints[0] has the same name"
    assert any(problem.endswith(twin) for problem in problems)


@pytest.mark.parametrize(
    ("text", "message", "position"),
    [
        ("name = ", "not a document: Invalid value", None),
        ("a = 1\nb = = 2\n", "not a document: Invalid value", Position(2, 5)),
        ('{"a": 1,}', "not JSON: ", Position(1, 8)),
        ('{"a": 1, "b": 2, "a": 3}', "the key 'a' stands twice in one object", None),
        ('{"a": NaN}', "NaN is not a number", None),
        ('{"a": "\\ud800"}', "holds a surrogate", None),
        ('name = "\ud800"', "holds a surrogate", None),
        ("x = " + "[" * 100_000, "nested too deeply", None),
        ('{"a":' * 100_000, "nested too deeply", None),
        (".".join("a" * 200_000) + " = 1", "more than 16 names are joined by dots", None),
        ('"\\"" . ' * 200 + "a = 1", "more than 16 names are joined by dots", None),
        ("x = " + "1" * 5_000, "not a document: ", None),
        ("#" * (512 * 1024 + 1), "longer than 524288 characters", None),
    ],
)
def test_text_that_is_no_document_is_refused(
    text: str, message: str, position: Position | None
) -> None:
    with pytest.raises(DocumentInvalid) as raised:
        load_document(text)
    (problem,) = raised.value.problems
    assert message in problem.message
    if position is not None:
        assert problem.position is not None
        assert problem.position.line == position.line
        assert str(problem).startswith(f"line {position.line}, column ")


def test_a_document_with_thousands_of_mistakes_reports_a_bounded_number() -> None:
    keys = {f"key{n}": 1 for n in range(5_000)}
    assert len(_problems(json.dumps({"name": "test", "version": 1, **keys}))) == 200
    rules: list[dict[str, object]] = [{"naem": "x"}] * 300
    assert len(_problems(document_text(*rules))) == 200
    facts = {"tests": [{"name": "t", "facts": keys, "expect": {"first": "a"}}]}
    assert len(_problems(json.dumps({"name": "test", "version": 1, **facts}))) == 200


_KEYS = (
    *("name", "version", "constraints", "preferences", "defaults", "tests", "when"),
    *("allow_only", "facts", "expect", "order", "targets", "findings", "example_targets"),
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(_KEYS) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


def _loaded(text: str) -> PolicyDocument | DocumentInvalid:
    try:
        return load_document(text)
    except DocumentInvalid as error:
        return error


@given(text=st.text() | _JSON.map(json.dumps) | st.dictionaries(st.text(), _JSON).map(json.dumps))
def test_any_text_loads_or_is_refused(text: str) -> None:
    outcome = _loaded(text)
    assert isinstance(outcome, PolicyDocument) or outcome.problems


@given(
    rule=st.fixed_dictionaries({"name": st.just("r")}, optional={"deny": _JSON, "forbid": _JSON}),
    case=st.fixed_dictionaries({"name": st.just("t")}, optional={"facts": _JSON, "expect": _JSON}),
    standard=_JSON,
    entries=_JSON,
)
def test_any_values_inside_a_document_load_or_are_refused(
    rule: dict[str, object], case: dict[str, object], standard: object, entries: object
) -> None:
    table = {"name": "test", "version": 1, "constraints": [rule], "tests": [case]}
    variants: list[dict[str, object]] = [{}, {"defaults": standard}, {"example_targets": entries}]
    for more in variants:
        outcome = _loaded(json.dumps({**table, **more}))
        if isinstance(outcome, DocumentInvalid):
            assert outcome.problems
        else:
            assert load_document(canonical_json(outcome.body).decode()).digest == outcome.digest
