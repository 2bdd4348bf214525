"""Rules as forms say exactly what the document says."""

import pytest
from hypothesis import given

from policies.expressions import compile_expression
from policies.forms import Row, editable_rules, fact_fields, rows_of, when_of
from policies.problems import DocumentInvalid, ExpressionInvalid
from policies.program import PolicyDocument
from policies.text.loading import case_from, constraint_from, load_document, preference_from
from policies.text.writing import table_of
from tests.policies.worlds import CONDITIONS, document, document_text, documents


@pytest.mark.parametrize(
    ("when", "rows"),
    [
        (None, ()),
        ('data_class >= "S3"', (Row("data_class", ">=", ("S3",)),)),
        (
            "stream and not has_tools",
            (Row("stream", "is", (True,)), Row("has_tools", "is", (False,))),
        ),
        ('"hr" in labels', (Row("labels", "includes", ("hr",)),)),
        ("findings.aadhaar > 0", (Row("findings", ">", (0,), "aadhaar"),)),
        ('workspace not in ["a", "b"]', (Row("workspace", "not in", ("a", "b")),)),
        ("has(max_output_tokens)", (Row("max_output_tokens", "present", (True,)),)),
        ("not has(max_output_tokens)", (Row("max_output_tokens", "present", (False,)),)),
        ('matches(workspace, "^a+$")', (Row("workspace", "matches", ("^a+$",)),)),
        ('headers["x_team"] == "a"', (Row("headers", "==", ("a",), "x_team"),)),
        ('contains(headers["x_team"], "a")', (Row("headers", "contains", ("a",), "x_team"),)),
    ],
)
def test_joined_comparisons_have_rows_and_rows_say_them(
    when: str | None, rows: tuple[Row, ...]
) -> None:
    assert rows_of(when) == rows
    assert when_of(rows) == (None if when is None else compile_expression(when).text)


@pytest.mark.parametrize(
    "when",
    [
        "stream or has_tools",
        "5 < complexity",
        '"hr" not in labels',
        "not (complexity > 0.5)",
        'not matches(workspace, "a")',
        "size(labels) > 1",
        "not (stream or has_tools)",
        "max_output_tokens == input_tokens_estimate",
        "true",
        'has(findings.pan) and "email" not in findings',
    ],
)
def test_what_rows_cannot_say_is_left_as_text(when: str) -> None:
    assert rows_of(when) is None


@pytest.mark.parametrize("when", CONDITIONS)
def test_rows_never_say_anything_else_than_the_condition(when: str) -> None:
    rows = rows_of(when)
    assert rows is None or when_of(rows) == compile_expression(when).text


@pytest.mark.parametrize(
    "row",
    [
        Row("colour", "==", ("red",)),
        Row("complexity", "==", ("red",)),
        Row("complexity", ">", ()),
        Row("workspace", "matches", ("(",)),
        Row("data_class", ">=", ("S9",)),
        Row("labels", "==", ("a",)),
    ],
)
def test_a_row_that_says_nothing_sensible_is_refused(row: Row) -> None:
    with pytest.raises(ExpressionInvalid):
        when_of([row])


def test_every_fact_has_a_field_and_every_offered_comparison_is_one() -> None:
    examples: dict[str, object] = {"truth": True, "text": "a", "number": 1, "labels": "a"}
    examples |= {"counts": 1, "headers": "a"}
    for field in fact_fields():
        value = field.choices[0] if field.choices else examples[field.kind]
        for operator in field.operators:
            shown = True if operator == "present" else value
            row = Row(field.name, operator, (shown,), "x" if field.has_keys else "")  # type: ignore[arg-type]
            assert rows_of(when_of([row])) == (row,)


@given(known=documents())
def test_rules_come_apart_and_together_again_without_loss(known: PolicyDocument) -> None:
    body = known.body
    for rule in editable_rules(body, ""):
        table = table_of(rule.parts)
        match rule.section:
            case "constraints":
                assert constraint_from(table) == body.constraints[rule.place]
            case "preferences":
                assert preference_from(table) == body.preferences[rule.place]
            case _:
                assert case_from(table) == body.tests[rule.place]


def test_a_rule_says_where_it_stands_and_why_it_never_matches() -> None:
    text = (
        'name = "d"\nversion = 1\n\n[[constraints]]\nname = "c"\nwhen = "false"\ndeny = "No."\n'
        '[[tests]]\nname = "t"\nfacts = { stream = true }\nexpect = { effect = "allow" }\n'
    )
    rules = editable_rules(load_document(text).body, text)
    assert [(rule.section, rule.parts.name, str(rule.at)) for rule in rules] == [
        ("constraints", "c", "line 4, column 1"),
        ("tests", "t", "line 8, column 1"),
    ]
    assert [rule.never_matches for rule in rules] == ["the condition is always false", ""]
    assert [rule.rows for rule in rules] == [None, ()]
    untouched = document_text({"deny": "No."}, preferences=({"order": ["mid"]},))
    assert [rule.rows for rule in editable_rules(document().body, untouched)] == []


def test_a_test_case_is_a_form_too() -> None:
    table: dict[str, object] = {"name": "t", "facts": {"stream": True}, "expect": {"first": "a"}}
    assert table_of(case_from(table)) == table


def test_a_form_is_checked_like_a_document_and_every_problem_names_its_key() -> None:
    with pytest.raises(DocumentInvalid) as caught:
        constraint_from({"name": "c", "when": "colour", "cap_output_tokens": -1, "x": 1})
    assert [problem.path for problem in caught.value.problems] == ["when", "cap_output_tokens", "x"]
