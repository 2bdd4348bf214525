"""A document's text is changed where its body changes, and nowhere else."""

import json

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from policies.document import (
    Canary,
    Case,
    Constraint,
    Defaults,
    Expectation,
    PolicyBody,
    Preference,
    canonical_json,
)
from policies.problems import DocumentInvalid
from policies.program import PolicyDocument
from policies.selectors import Selector
from policies.text.amending import amended
from policies.text.loading import load_document
from policies.text.writing import document_text
from tests.policies.worlds import documents


TEXT = """# What our house holds true.
name = "house"  # ours
version = 1

[defaults]
# Nobody needs more.
output_tokens_max = 100   # tokens
order = ["cheap", "mid"]

# --- constraints ---------------------------------------

# Payroll is nobody else's business.
[[constraints]]
name = "payroll"
when = 'workspace == "payroll"  and stream'   # asked for by the council
allow_only.in_house = true

[[constraints]]
name = "capped"
# Long answers cost.
cap_output_tokens = 50

[constraints.forbid]
tiers = [
  "frontier",  # too dear
]

# --- preferences ---------------------------------------

[[preferences]]
name = "first"
order = ["mid"]  # for now

[[tests]]
name = "payroll stays"
facts = { workspace = "payroll", stream = true }
expect.effect = "allow"
"""


def changed(body: PolicyBody) -> list[str]:
    """The lines that differ, with `-` and `+`."""
    result = amended(TEXT, body)
    assert result.comments_kept
    assert load_document(result.text).body == body
    old, new = TEXT.splitlines(), result.text.splitlines()
    return [f"-{line}" for line in old if line not in new] + [
        f"+{line}" for line in new if line not in old
    ]


BODY = load_document(TEXT).body


def test_the_same_body_is_the_same_text() -> None:
    assert amended(TEXT, BODY).text == TEXT


def test_one_key_of_one_rule_is_one_line_and_its_comment_stays() -> None:
    rule = replace(BODY.constraints[0], when='workspace == "payroll"', no_cache=True)
    assert changed(replace(BODY, constraints=(rule, *BODY.constraints[1:]))) == [
        "-when = 'workspace == \"payroll\"  and stream'   # asked for by the council",
        "+when = 'workspace == \"payroll\"'  # asked for by the council",
        "+no_cache = true",
    ]


def test_keys_that_were_written_as_tables_or_with_dots_are_replaced_whole() -> None:
    first = replace(BODY.constraints[0], allow_only=Selector(tiers=("cheap",)))
    second = replace(BODY.constraints[1], forbid=None)
    assert changed(replace(BODY, constraints=(first, second))) == [
        "-allow_only.in_house = true",
        "-[constraints.forbid]",
        "-tiers = [",
        '-  "frontier",  # too dear',
        "-]",
        '+allow_only = { tiers = ["cheap"] }',
    ]


def test_a_renamed_rule_keeps_its_place_and_its_comments() -> None:
    rule = replace(BODY.constraints[0], name="wages")
    assert changed(replace(BODY, constraints=(rule, *BODY.constraints[1:]))) == [
        '-name = "payroll"',
        '+name = "wages"',
    ]


def test_rules_change_places_with_their_comments() -> None:
    body = replace(BODY, constraints=BODY.constraints[::-1])
    text = amended(TEXT, body).text
    assert changed(body) == []
    assert (
        text.index("# Long answers") < text.index("# Payroll is") < text.index("# --- preferences")
    )
    assert "# Payroll is nobody else's business.\n[[constraints]]\n" in text


def test_a_removed_rule_takes_only_its_own_comments_along() -> None:
    body = replace(BODY, constraints=(BODY.constraints[1],))
    text = amended(TEXT, body).text
    assert "Payroll is" not in text
    assert "# --- constraints ----" in text
    assert "# --- preferences ----" in text
    nothing = amended(TEXT, replace(BODY, constraints=(), tests=()))
    assert nothing.comments_kept
    assert "# --- preferences ----" in nothing.text


def test_new_rules_stand_where_they_belong() -> None:
    rule = Constraint("new", deny="Not \\ 'that' \"one\".\x7f\n")
    text = amended(TEXT, replace(BODY, constraints=(*BODY.constraints, rule))).text
    assert text.index('[[constraints]]\nname = "new"') < text.index("[[preferences]]")
    canary = Preference("c", weights={"a b": 1}, canary=Canary("t", 2.5), hedge_after_ms=9)
    assert changed(replace(BODY, preferences=(canary, *BODY.preferences)))[0] == '+name = "c"'
    bare = 'name = "d"\nversion = 1\n'
    made = amended(bare, replace(load_document(bare).body, constraints=(rule,)))
    assert made.text.startswith(bare + '\n[[constraints]]\nname = "new"\n')
    noted = f"{bare}\n# [[constraints]]\n# name = 'none yet'\n"
    made = amended(noted, replace(load_document(noted).body, constraints=(rule,)))
    assert made.text.startswith(noted + '\n[[constraints]]\nname = "new"\n'), "apart from it"


def test_the_head_and_the_defaults_change_in_place() -> None:
    body = replace(BODY, name="home", description="Ours.", defaults=Defaults(output_tokens_max=7))
    assert changed(body) == [
        '-name = "house"  # ours',
        "-output_tokens_max = 100   # tokens",
        '-order = ["cheap", "mid"]',
        '+name = "home"  # ours',
        '+description = "Ours."',
        "+output_tokens_max = 7  # tokens",
    ]
    without = amended(TEXT, replace(BODY, defaults=Defaults()))
    assert "[defaults]" not in without.text
    assert "# --- constraints ---" in without.text
    assert load_document(without.text).body.defaults == Defaults()


def test_a_long_list_and_an_empty_table_are_written_so_that_they_load() -> None:
    long = tuple(f"target-{n:030}" for n in range(9))
    case = replace(BODY.tests[0], facts={"findings": {}, "complexity": 0.25})
    body = replace(BODY, constraints=(Constraint("c", forbid=Selector(targets=long)),))
    result = amended(TEXT, replace(body, tests=(case,)))
    assert result.comments_kept
    assert '\n  "target-000000000000000000000000000000",\n' in result.text


def test_a_hash_inside_a_value_is_no_comment() -> None:
    text = 'name = "a # b" # c\nversion = 1\ndescription = "no # comment"\n'
    body = replace(load_document(text).body, name="x", description="y")
    assert amended(text, body).text == 'name = "x"  # c\nversion = 1\ndescription = "y"\n'


def test_comments_inside_a_value_are_kept_above_it() -> None:
    text = 'name = "d"\nversion = 1\n[[preferences]]\nname = "p"\norder = [\n  # dear\n  "mid"\n]\n'
    body = load_document(text).body
    rule = replace(body.preferences[0], order=("cheap",))
    result = amended(text, replace(body, preferences=(rule,)))
    assert result.text.endswith('name = "p"\n  # dear\norder = ["cheap"]\n')


def test_rules_in_one_line_are_written_anew_as_one_value() -> None:
    text = 'name = "d"  # d\nversion = 1\nconstraints = [{ name = "c", deny = "No." }]\n'
    body = load_document(text).body
    result = amended(text, replace(body, constraints=(Constraint("c", deny="Never."),)))
    assert result.text == text.replace("No.", "Never.")
    assert result.comments_kept


def test_json_keeps_the_spelling_of_what_did_not_change() -> None:
    text = json.dumps(
        {
            "name": "d",
            "version": 1,
            "description": "old",
            "defaults": {"order": "cheapest"},
            "constraints": [{"name": "c", "deny": "No.", "audit_content": "full"}],
        },
        indent=4,
    )
    body = load_document(text).body
    result = amended(text, replace(body, description="", constraints=body.constraints, name="e"))
    assert result.comments_kept
    written = text.replace('"d"', '"e"').replace('    "description": "old",\n', "")
    assert result.text == written


def test_yaml_is_written_anew_and_says_whether_comments_were_lost() -> None:
    text = "name: d # comment\nversion: 1\n"
    body = replace(load_document(text).body, description="x")
    result = amended(text, body)
    assert not result.comments_kept
    assert load_document(result.text).body == body
    assert amended("name: d\nversion: 1\n", body).comments_kept


def test_neither_a_broken_text_nor_a_broken_body_gives_a_text() -> None:
    with pytest.raises(DocumentInvalid):
        amended("name = ", BODY)
    with pytest.raises(DocumentInvalid):
        amended(TEXT, replace(BODY, constraints=(Constraint("c", when="colour", deny="No."),)))


def test_a_value_of_many_lines_is_not_searched_for_ever() -> None:
    lines = "\n" * 400
    text = f'name = "d"\nversion = 1\n[defaults]\norder = [{lines}"mid"]\n'
    body = load_document(text).body
    result = amended(text, replace(body, name="e"))
    assert load_document(result.text).body.name == "e"
    assert result.text.count("\n") < 10


@given(one=documents(), other=documents(), data=st.data())
def test_any_text_becomes_any_body(
    one: PolicyDocument, other: PolicyDocument, data: st.DataObject
) -> None:
    text = document_text(one.body)
    assert load_document(text).body == one.body
    pool = [*one.body.constraints, *other.body.constraints]
    names: set[str] = set()
    picked = data.draw(st.lists(st.sampled_from(pool), max_size=5)) if pool else []
    rules = tuple(
        rule
        for rule in picked
        if not (rule.name in names or names.add(rule.name))  # type: ignore[func-returns-value]
    )
    body = replace(other.body, constraints=rules)
    commented = text.replace("[[", "# mine\n[[")
    result = amended(commented, body)
    assert load_document(result.text).body == body
    kept = {rule.name for rule in rules} & {rule.name for rule in one.body.constraints}
    if result.comments_kept:
        assert result.text.count("# mine") >= len(kept)


IN_YAML = """# ours
name: house
version: 1

constraints:
  # payroll stays
  - name: payroll
    when: workspace == "payroll"
    allow_only: {in_house: true}   # by law

  - name: capped
    cap_output_tokens: 50
preferences:
- name: first
  order: [mid]  # for now
# the end
"""


def test_entries_of_yaml_are_changed_added_and_taken_out_and_its_comments_stay() -> None:
    body = load_document(IN_YAML).body
    payroll, capped = body.constraints
    (first,) = body.preferences

    def text_of(wanted: PolicyBody) -> str:
        result = amended(IN_YAML, wanted)
        assert result.comments_kept
        assert load_document(result.text).body == wanted
        return result.text

    less = replace(capped, cap_output_tokens=5)
    wanted = replace(body, constraints=(payroll, less))
    assert text_of(wanted) == IN_YAML.replace("tokens: 50", "tokens: 5")
    wanted = replace(body, constraints=(payroll,))
    gone = "  - name: capped\n    cap_output_tokens: 50\n"
    assert text_of(wanted) == IN_YAML.replace(gone, "")
    third = replace(capped, name="no")
    wanted = replace(body, constraints=(payroll, capped, third))
    added = '\n  - name: "no"\n    cap_output_tokens: 50\n'
    assert text_of(wanted) == IN_YAML.replace("tokens: 50\n", f"tokens: 50\n{added}")
    wanted = replace(body, preferences=(first, replace(first, name="second")))
    added = '- name: second\n  order: ["mid"]\n# the end'
    assert text_of(wanted) == IN_YAML.replace("# the end", added)
    case = Case("it's: odd #1", {"workspace": "payroll"}, Expectation(effect="allow"))
    added = """
tests:
  - name: "it's: odd #1"
    facts: {"workspace": "payroll"}
    expect: {"effect": "allow"}
"""
    assert text_of(replace(body, tests=(case,))) == IN_YAML + added
    none = f"{IN_YAML}tests: []\n"
    assert amended(none, replace(body, tests=(case,))).text == IN_YAML + added.lstrip()


def test_yaml_that_cannot_be_followed_is_written_anew() -> None:
    body = load_document(IN_YAML).body
    wanted = replace(body, constraints=body.constraints[1:])
    assert amended(IN_YAML, wanted).comments_kept is False, "a comment stands inside of the rule"
    flow = "name: flow\nversion: 1\nconstraints: [{name: a, no_cache: true}]\n"
    body = load_document(flow).body
    more = replace(body, constraints=(*body.constraints, replace(body.constraints[0], name="b")))
    result = amended(flow, more)
    assert load_document(result.text).body == more


@given(one=documents(), other=documents())
def test_any_yaml_becomes_any_body(one: PolicyDocument, other: PolicyDocument) -> None:
    text = yaml.safe_dump(msgspec.json.decode(canonical_json(one.body)), allow_unicode=True)
    assert load_document(text).body == one.body
    body = replace(one.body, constraints=other.body.constraints, tests=other.body.tests)
    assert load_document(amended(text, body).text).body == body
