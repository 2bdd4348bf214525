"""Three forms, one document; what could not be canonical is refused with its place."""

import json

import pytest

from policies.limits import CONDITIONS_COST_MAX
from policies.problems import DocumentInvalid
from policies.text.loading import load_document


YAML = """\
# who may go where
name: acme
version: 1
constraints:
  - name: home
    when: data_class >= "S3"
    allow_only: {in_house: true}
  - name: "short answers"
    cap_output_tokens: 500
preferences:
  - name: shares
    weights: {a: 3, b: 1}
    canary:
      target: c
      percent: 2.5
    hedge_after_ms: 300
    sticky: project
tests: []
"""
TOML = """
name = "acme"
version = 1
[[constraints]]
name = "home"
when = 'data_class >= "S3"'
allow_only = { in_house = true }
[[constraints]]
name = "short answers"
cap_output_tokens = 500
[[preferences]]
name = "shares"
weights = { b = 1, a = 3 }
canary = { target = "c", percent = 2.5 }
hedge_after_ms = 300
sticky = "project"
"""


def problems(text: str) -> str:
    with pytest.raises(DocumentInvalid) as invalid:
        load_document(text)
    return str(invalid.value)


def test_yaml_toml_and_json_of_one_document_have_one_digest() -> None:
    document = load_document(YAML)
    as_json = {
        "name": "acme",
        "version": 1,
        "constraints": [
            {"name": "home", "when": 'data_class >= "S3"', "allow_only": {"in_house": True}},
            {"name": "short answers", "cap_output_tokens": 500},
        ],
        "preferences": [
            {
                "name": "shares",
                "weights": {"a": 3, "b": 1},
                "canary": {"target": "c", "percent": 2.5},
                "hedge_after_ms": 300,
                "sticky": "project",
            }
        ],
    }
    assert load_document(TOML).digest == document.digest
    assert load_document(json.dumps(as_json)).digest == document.digest


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: &x [1]\nb: *x\n", "line 1, column 4: anchors are not known"),
        ("x: &a [*a]\n", "anchors are not known"),
        ("name: !!python/object:os.system x\n", "is no kind of value here"),
        ("name: !!binary eA==\n", "is no kind of value here"),
        ("name: [", "line 2, column 1: not YAML"),
        ("name: \x01\n", "not a document: not YAML"),
        ("a: " + "[" * 200 + "]" * 200, "nested too deeply"),
        ("a: " + "[" * 20_000, "not"),
        ("? [a]\n: b\nname: x\n", "not a document"),
        ("name: x\n? [a]\n: b\n", "a key is a plain word"),
        ("name: x\nname: y\n", "the key 'name' stands twice"),
        ("name:\nversion: 1\n", "line 1, column 6: a key without a value"),
        ("name: yes\nversion: 1.5\n", "expected a whole number, not a number"),
        ("name: 12\nversion: 1\n", "expected a string, not a number"),
        ("---\n- a\n", "a document is a table"),
        ("--- \n", "a key without a value"),
        ("name: x\nversion: 1\ntests: 2026-01-01\n", "expected a list of tables"),
    ],
)
def test_yaml_beyond_plain_tables_is_refused(text: str, expected: str) -> None:
    assert expected in problems(text)


def test_words_that_yaml_once_took_for_truth_values_stay_words() -> None:
    assert load_document("name: no\nversion: 1\n").name == "no"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('name="x"\nversion=1\ncolour=1\n', "line 3, column 1: colour: unknown key 'colour'"),
        ('name="x"\nversion=1\n[colour]\na=1\n', "line 3, column 1: colour: unknown key"),
        ('name="x"\nversion=1\n[[colour]]\na=1\n', "line 3, column 1: colour: unknown key"),
        (
            'name="x"\nversion=1\n[defaults]\norder=["mid"]\ncolour=1\n',
            "line 5, column 1: defaults.colour: unknown key",
        ),
        ('name="x"\nversion=1\n[defaults]\norder=["no"]\n', "line 4, column 1: defaults.order"),
        ("name: x\nversion: 1\ncolour: 1\n", "line 3, column 1: colour: unknown key"),
        ('{"name": "x",\n"version": 1,\n"colour": 1}', "line 3, column 1: colour: unknown key"),
        # Not seen plainly: no line is better than another's.
        ('{"name": "x", "version": 1, "colour": 1}', "colour: unknown key"),
        ('name="x"\nversion=1\n"a.b"=1\n', "unknown key 'a.b'"),
    ],
)
def test_a_problem_of_the_document_itself_names_its_line(text: str, expected: str) -> None:
    assert problems(text).startswith(expected)


def test_a_problem_names_the_line_of_its_rule_in_every_form() -> None:
    toml = 'name="x"\nversion=1\n[[constraints]] # one\nname="r"\nwhen="stroem"\nno_cache=true\n'
    assert problems(toml).startswith(
        "line 5, column 1: constraints[0].when (rule 'r'), line 1, column 1: unknown fact 'stroem'"
    )
    indented = toml.replace("[[", "  [[").replace("when=", "  when  = ")
    assert problems(indented).startswith("line 5, column 3: constraints[0].when (rule 'r')")
    elsewhere = toml.replace('when="stroem"', '"when"="stroem"').replace("[[", "  [[")
    assert problems(elsewhere).startswith("line 3, column 3: constraints[0].when (rule 'r')")
    behind = toml.replace('when="stroem"\n', "colour=1\n") + '[[constraints]]\nname="s"\ncolour=2\n'
    assert problems(behind).startswith("line 5, column 1: constraints[0].colour (rule 'r')")
    assert "line 9, column 1: constraints[1].colour (rule 's')" in problems(behind)
    yaml = "name: x\nversion: 1\nconstraints:\n  - name: r\n    when: stroem\n    no_cache: true\n"
    assert problems(yaml).startswith("line 4, column 5: constraints[0].when (rule 'r')")
    table = {"name": "x", "version": 1, "constraints": [{"name": "r", "colour": 1, "deny": "no"}]}
    assert problems(json.dumps(table, indent=1)).startswith("line 6, column 5: constraints")
    nameless = {"name": "x", "version": 1, "constraints": [{"no_cache": True}]}
    assert problems(json.dumps(nameless)).startswith("constraints[0].name")
    escaped = {"name": "x", "version": 1, "constraints": [{"name": "ü", "deny": " "}]}
    assert problems(json.dumps(escaped)).startswith("constraints[0].deny (rule 'ü')")


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("weights = {}", "weights name at least one target"),
        ("weights = { a = 0 }", "not between 1"),
        ("weights = { a = 2000000 }", "not between 1 and 1000000"),
        ('canary = { target = "a" }', "a canary has a target and a percent"),
        ('canary = { target = "a", percent = 101 }', "above 0 and up to 100"),
        ('order = ["cheapest"]\nhedge_after_ms = 999999999', "not between 1 and 600000"),
        ('sticky = "key"', "needs an order, targets, weights or a canary"),
        ('order = ["cheapest"]\nsticky = "moon"', "'moon' is not one of"),
    ],
)
def test_shares_that_mean_nothing_are_refused(rule: str, expected: str) -> None:
    text = f'name = "x"\nversion = 1\n[[preferences]]\nname = "p"\n{rule}\n'
    assert expected in problems(text)


def test_more_weights_than_a_list_may_have_are_refused() -> None:
    weights = ", ".join(f"t{n} = 1" for n in range(300))
    text = f'name = "x"\nversion = 1\n[[preferences]]\nname = "p"\nweights = {{ {weights} }}\n'
    assert "more than 256 entries" in problems(text)


def test_the_conditions_of_a_document_have_a_common_bound_on_their_cost() -> None:
    when = " or ".join(['matches(workspace, "a+")'] * 100)
    rules = [{"name": f"r{n}", "when": when, "no_cache": True} for n in range(20)]
    assert 100 * 20 * len(rules) > CONDITIONS_COST_MAX
    text = json.dumps({"name": "x", "version": 1, "constraints": rules})
    assert "steps together, more than 10000" in problems(text)
