"""The expression language: meaning, canonical text, and errors with line and column."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.expressions import Expression, Reading, compile_expression
from policies.facts import Facts
from policies.language.parser import parse
from policies.language.syntax import (
    Call,
    Compare,
    ListLiteral,
    Literal,
    Logic,
    Lookup,
    Name,
    Node,
    Not,
    canonical_text,
)
from policies.language.vocabulary import FACTS
from policies.problems import ExpressionInvalid, Position
from tests.policies.worlds import CONDITIONS, request, requests


FACTS_SEEN = request(
    organisation="acme",
    labels=["restricted", "eu"],
    model_requested="auto:quality",
    stream=True,
    input_tokens_estimate=700,
    max_output_tokens=None,
    data_class="S3",
    findings={"aadhaar": 2, "credit-card": 1},
    complexity=0.5,
    complexity_tier="mid",
    budget_left_microusd=5,
    hour_utc=18,
)


@pytest.mark.parametrize(
    "text",
    [
        "stream",
        "not has_tools",
        "! has_tools",
        "stream && !has_tools || has_images",
        "stream and stream and stream",
        "has_tools or has_images or stream",
        "not (has_tools and stream)",
        "stream == true",
        "stream != has_tools",
        "not (has_tools or has_images or has_documents)",
        "not (stream and stream and has_tools)",
        "true",
        'data_class == "S3"',
        'data_class >= "S3"',
        '"S2" < data_class',
        'data_class > "S2" and data_class <= "S4"',
        'data_class in ["S3", "S4"]',
        "data_class >= data_class",
        'complexity_tier > "cheap"',
        "findings.aadhaar > 1",
        'findings["credit-card"] == 1',
        "findings.pan == 0",
        '"aadhaar" in findings',
        '"pan" not in findings',
        "has(findings.aadhaar) and not has(findings.pan)",
        'has(findings["credit-card"])',
        "size(findings) == 2",
        "size(labels) == 2",
        "size(organisation) == 4",
        '"eu" in labels',
        'organisation in ["acme", "globex"]',
        "organisation == 'acme'",
        'organisation != "globex"',
        'startswith(model_requested, "auto:")',
        'model_requested.endswith("quality")',
        'contains(model_requested, "o:q")',
        '"acme".contains("cm")',
        'matches(model_requested, "^auto:(quality|cheap)$")',
        r'matches(model_requested, r"^\w+:\w+$")',
        r'matches(model_requested, "^\\w+:")',
        "input_tokens_estimate >= 7_00",
        "input_tokens_estimate > -1",
        "complexity == 0.5",
        "complexity < 5e-1 or complexity >= 0.5",
        "hour_utc in [18, 19.0]",
        "has(budget_left_microusd)",
        "budget_left_microusd < 10",
        "budget_left_microusd in [5]",
        "not has(max_output_tokens)",
        "weekday == 0\nand hour_utc == 18",
        r'"\u0041\t\"" == "A\u0009\""',
        "((((stream))))",
    ],
)
def test_an_expression_holds_for_the_facts_it_describes(text: str) -> None:
    assert compile_expression(text).holds(FACTS_SEEN) is True
    assert compile_expression(f"not ({text})").holds(FACTS_SEEN) is False


@pytest.mark.parametrize(
    ("operator", "holds"),
    [
        ("==", (False, True, False)),
        ("!=", (True, False, True)),
        ("<", (False, False, True)),
        ("<=", (False, True, True)),
        (">", (True, False, False)),
        (">=", (True, True, False)),
    ],
)
def test_every_comparison_holds_below_at_and_above_its_number(
    operator: str, holds: tuple[bool, ...]
) -> None:
    for number, held in zip((699, 700, 701), holds, strict=True):
        text = f"input_tokens_estimate {operator} {number}"
        assert compile_expression(text).holds(FACTS_SEEN) is held


def test_two_facts_are_compared_by_what_both_are() -> None:
    same, other = 'workspace == "w" and project == "p"', "workspace == project"
    apart, twins = request(workspace="w", project="p"), request(workspace="w", project="w")
    for facts, is_same in ((apart, False), (twins, True)):
        assert compile_expression(other).holds(facts) is is_same
        assert compile_expression("workspace != project").holds(facts) is not is_same
        assert compile_expression(same).holds(facts) is not is_same


@pytest.mark.parametrize("operator", ["==", "!=", "<", "<=", ">", ">="])
def test_every_comparison_with_an_absent_number_is_false(operator: str) -> None:
    assert not compile_expression(f"max_output_tokens {operator} 5").holds(FACTS_SEEN)
    assert not compile_expression(f"5 {operator} max_output_tokens").holds(FACTS_SEEN)
    assert compile_expression(f"not max_output_tokens {operator} 5").holds(FACTS_SEEN)
    assert not compile_expression("max_output_tokens in [5]").holds(FACTS_SEEN)


@pytest.mark.parametrize("name", sorted(FACTS))
def test_every_fact_of_the_vocabulary_is_a_field_of_facts(name: str) -> None:
    assert name in Facts.__struct_fields__


def test_targets_are_the_only_facts_outside_the_vocabulary() -> None:
    assert set(Facts.__struct_fields__) - set(FACTS) == {"targets"}


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "the expression is empty"),
        ("  \n ", 2, 2, "the expression is empty"),
        ("stream and", 1, 11, "expected a value, not the end"),
        ("stream strean", 1, 8, "expected an operator or the end, not 'strean'"),
        ("strean", 1, 1, "unknown fact 'strean'; did you mean 'stream'?"),
        ("\n stream\n and fnord", 3, 6, "unknown fact 'fnord'; one of organisation, workspace, "),
        ('user == "ann"', 1, 1, "; who asks is told by key_id, labels, workspace, project"),
        ("user:ann", 1, 5, "unexpected character ':'; a comparison is written as in workspace =="),
        ("stream | stream", 1, 8, "unexpected character '|'; write 'or'"),
        ("fnord.a > 0", 1, 1, "unknown fact 'fnord'"),
        ("targets == 1", 1, 1, "targets are chosen with allow_only and forbid"),
        ("stream = true", 1, 8, "'=' is not an operator; write '=='"),
        ("stream & stream", 1, 8, "unexpected character '&'; write 'and'"),
        ('organisation == "acme', 1, 17, "this string is not closed on its line"),
        ('organisation == "a\nb"', 1, 17, "this string is not closed on its line"),
        (r'organisation == "a\d"', 1, 19, "unknown escape"),
        (r'organisation == "\u12"', 1, 18, "four hexadecimal digits"),
        (r'organisation == "\ud800"', 1, 18, "a surrogate is not a character"),
        (r'organisation == "\udfff"', 1, 18, "a surrogate is not a character"),
        ('stream or\n"\ud800" == organisation', 2, 2, "a surrogate is not a character"),
        ("complexity > 1e999", 1, 14, "the number 1e999 is too large"),
        ("complexity > " + "1" * 40, 1, 14, "longer than 32 characters"),
        ("complexity > -stream", 1, 15, "expected a number after '-'"),
        ("1 < complexity < 2", 1, 16, "comparisons cannot be chained"),
        ("stream not true", 1, 12, "expected 'in' after 'not', not 'true'"),
        ("(stream", 1, 8, "expected ')', not the end"),
        ("findings[1]", 1, 10, "expected a quoted key, not '1'"),
        ('findings["a" > 0', 1, 14, "expected ']', not '>'"),
        ("findings.1 > 0", 1, 10, "expected a name after '.', not '1'"),
        ('"a".1', 1, 5, "expected a function name after '.', not '1'"),
        ('"a".contains', 1, 13, "expected '(', not the end"),
        ("size(labels", 1, 12, "expected ')', not the end"),
        ("weekday in [1, [2]]", 1, 16, "a list holds only strings and numbers"),
        ("weekday in [1, weekday]", 1, 16, "a list holds only strings and numbers"),
        ("weekday in [1 2]", 1, 15, "expected ',', not '2'"),
        ("weekday in [1,]", 1, 15, "expected a value, not ']'"),
        ("weekday in [" + "1," * 256 + "1]", 1, 12, "more than 256 entries"),
        ("weekday in []", 1, 12, "the list is empty"),
        ('weekday in [1, "a"]', 1, 12, "either only strings or only numbers"),
        ("weekday in [true]", 1, 12, "either only strings or only numbers"),
        ('weekday in ["a"]', 1, 9, "cannot look for a number in a list of strings"),
        ("organisation in [1]", 1, 14, "cannot look for a string in a list of numbers"),
        ("stream in labels", 1, 8, "cannot look for a truth value in a list of strings"),
        ('"a" in organisation', 1, 5, "use contains(text, part)"),
        ("weekday", 1, 1, "expected a condition, not a number"),
        ("not organisation", 1, 5, "expected a condition, not a string"),
        ("stream and [1]", 1, 12, "expected a condition, not a list"),
        ('data_class == "S7"', 1, 12, "'S7' is not a data class; one of S0, S1, S2, S3, S4"),
        ('data_class in ["S1", "s2"]', 1, 12, "'s2' is not a data class"),
        ("data_class == complexity_tier", 1, 12, "cannot compare a data class with a tier"),
        ("data_class > organisation", 1, 12, "cannot compare a data class with a string"),
        ("organisation < data_class", 1, 14, "cannot compare a data class with a string"),
        ("data_class > 3", 1, 12, "cannot compare a data class with a number"),
        ('organisation < "b"', 1, 14, "a string has no order"),
        ("stream > true", 1, 8, "a truth value has no order"),
        ('complexity > "high"', 1, 12, "cannot compare a number with a string"),
        ("labels.a > 0", 1, 1, "labels is a list of strings and has no entries"),
        ("lower(organisation)", 1, 1, "unknown function 'lower'"),
        ('startwith(organisation, "a")', 1, 1, "did you mean 'startswith'?"),
        ("size(fnord) > 1", 1, 6, "unknown fact 'fnord'"),
        ("fnord > 1", 1, 1, "unknown fact 'fnord'"),
        ("1 > fnord", 1, 5, "unknown fact 'fnord'"),
        ("size(weekday) > 1", 1, 1, "a number has no size"),
        ("size() > 1", 1, 1, "size() takes one"),
        ("has(stream)", 1, 1, "a truth value is always present"),
        ("has()", 1, 1, "has() takes one optional fact"),
        ("contains(organisation)", 1, 1, "contains() takes two strings"),
        ('contains(labels, "a")', 1, 1, "contains() looks into strings; use 'in' for lists"),
        ("organisation.matches(project)", 1, 14, "must be written as a string"),
        ('matches(weekday, "a")', 1, 1, "matches() takes a string and a pattern"),
        ('matches(project, "(a")', 1, 1, "not a pattern that RE2 accepts"),
        ('matches(project, "(?=a)")', 1, 1, "not a pattern that RE2 accepts"),
        (r'matches(project, r"(a)\1")', 1, 1, "not a pattern that RE2 accepts"),
        (r'matches(project, r"\pL{100}")', 1, 1, "not a pattern that RE2 accepts"),
        ("(" * 40 + "stream" + ")" * 40, 1, 33, "nested deeper than 32 levels"),
        ("not " * 40 + "stream", 1, 125, "nested deeper than 32 levels"),
        ("stream or " * 500, 1, 1, "longer than 4000 characters"),
        ("stream||" * 490 + "stream", 1, 1, "longer than 4000 characters when spelled out"),
    ],
)
def test_an_error_says_what_and_where(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(ExpressionInvalid) as raised:
        compile_expression(text)
    problem = raised.value.problems[0]
    assert problem.position == Position(line=line, column=column)
    assert message in problem.message
    assert str(raised.value).startswith(f"line {line}, column {column}: ")


def test_only_what_stands_in_another_counts_as_nested() -> None:
    beside = (" and ".join(["not stream"] * 40), " or ".join(["(stream)"] * 40))
    for text in beside:
        compile_expression(text)


def test_every_type_error_of_an_expression_is_reported() -> None:
    with pytest.raises(ExpressionInvalid) as raised:
        compile_expression('data_class > "S9"\nand fnord == 2\nand weekday > "a" or size(1) == 1')
    positions = [problem.position for problem in raised.value.problems]
    places = [(1, 12), (2, 5), (3, 13), (3, 22)]
    assert positions == [Position(line=line, column=column) for line, column in places]


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("stream&&!has_tools", "stream and not has_tools"),
        ("not not stream", "not not stream"),
        ("not(weekday in[1,2])", "weekday not in [1, 2]"),
        ("findings.pan>0", 'findings["pan"] > 0'),
        ("'a'  ==\n organisation", '"a" == organisation'),
        ("(stream or has_tools) and has_images", "(stream or has_tools) and has_images"),
        ("(stream and has_tools) or has_images", "stream and has_tools or has_images"),
        ("(stream and has_tools) and stream", "(stream and has_tools) and stream"),
        ("not (stream or has_tools)", "not (stream or has_tools)"),
        ("not (stream == true)", "not stream == true"),
        ("(not stream) == true", "(not stream) == true"),
        ("(weekday == 1) == true", "(weekday == 1) == true"),
        ("organisation.contains('a')", 'contains(organisation, "a")'),
        ("1_000 < input_tokens_estimate", "1000 < input_tokens_estimate"),
        ("complexity>-1.50", "complexity > -1.5"),
    ],
)
def test_spellings_of_one_meaning_have_one_text(text: str, canonical: str) -> None:
    assert compile_expression(text).text == canonical
    assert compile_expression(canonical).text == canonical


def test_an_expression_knows_the_facts_it_reads() -> None:
    text = 'findings.pan > 0 and (data_class >= "S3" or findings.pan > 3 or size(findings) > 1)'
    readings = compile_expression(text).readings
    assert readings == (Reading("findings", "pan"), Reading("data_class"), Reading("findings"))


def test_what_stands_beside_the_surrogates_is_a_character() -> None:
    for letter in ("\ud7ff", "\ue000"):
        written = compile_expression(f'organisation == "\\u{ord(letter):04x}"')
        assert written.holds(request(organisation=letter))


def test_a_lone_surrogate_in_a_fact_neither_raises_nor_matches() -> None:
    expression = compile_expression('matches(organisation, "^a.b$")')
    assert not expression.holds(request(organisation="a\n\ud800b"))
    assert compile_expression('matches(organisation, "b$")').holds(request(organisation="\ud800b"))


_AT = Position(line=1, column=1)
_SCALARS = st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=5)
_LITERALS = (_SCALARS | st.floats(-1e9, 1e9)).map(lambda value: Literal(value, _AT))
_LIST_ITEMS = st.lists(_LITERALS, min_size=1, max_size=3).map(tuple)
_LEAVES = (
    _LITERALS
    | st.sampled_from(sorted(FACTS)).map(lambda name: Name(name, _AT))
    | st.text(max_size=5).map(lambda key: Lookup("findings", key, _AT))
    | _LIST_ITEMS.map(lambda items: ListLiteral(items, _AT))
)


def _larger(nodes: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(nodes, min_size=2, max_size=3).map(tuple)
    return (
        st.builds(Not, nodes, st.just(_AT))
        | st.builds(Logic, st.sampled_from(["and", "or"]), several, st.just(_AT))
        | st.builds(
            Compare,
            st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in"]),
            nodes,
            nodes,
            st.just(_AT),
        )
        | st.builds(Call, st.sampled_from(["has", "size", "matches"]), several, st.just(_AT))
    )


@given(tree=st.recursive(_LEAVES, _larger, max_leaves=12))
def test_the_canonical_text_of_any_tree_parses_back_to_it(tree: Node) -> None:
    text = canonical_text(tree)
    assert parse(text) == tree
    assert canonical_text(parse(text)) == text


_WORDS = st.sampled_from(
    [
        *["and", "or", "not", "in", "(", ")", "[", "]", ",", ".", "==", ">=", "-", "1", "2.5"],
        *["data_class", "findings", "labels", "size", "has", "matches", 'r"("', "true", '"S3"'],
        *["&&", "!"],
    ]
)
_GARBAGE = st.text() | st.lists(_WORDS, max_size=12).map(" ".join) | st.sampled_from(CONDITIONS)


def _compiled(text: str) -> Expression | ExpressionInvalid:
    try:
        return compile_expression(text)
    except ExpressionInvalid as error:
        return error


@given(text=_GARBAGE, facts=requests())
def test_any_text_compiles_to_a_total_condition_or_is_refused_with_a_place(
    text: str, facts: Facts
) -> None:
    outcome = _compiled(text)
    if isinstance(outcome, ExpressionInvalid):
        assert outcome.problems
        assert all(problem.position is not None for problem in outcome.problems)
    else:
        assert outcome.holds(facts) in {True, False}
        assert compile_expression(outcome.text).holds(facts) == outcome.holds(facts)


def test_facts_are_compared_with_facts_as_with_written_values() -> None:
    same = request(workspace="labs", labels=["labs"], complexity_tier="mid", weekday=3, hour_utc=3)
    for text in ("workspace in labels", "weekday == hour_utc", "complexity != weekday"):
        assert compile_expression(text).holds(same)
    assert compile_expression("weekday == 3 and weekday != 4 and weekday < 4").holds(same)
    assert not compile_expression("weekday <= 2 or weekday > 3").holds(same)
    assert compile_expression("complexity_tier <= complexity_tier").holds(same)
