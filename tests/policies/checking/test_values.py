"""What a fact never is: said where it stands, and nothing said of what a request may be."""

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.admission.sealing import ANTHROPIC, OPENAI
from gateway.errors import RequestInvalid
from gateway.store.identity.keys import Place, check_place
from gateway.types import DialectName
from policies.checking.check import check
from policies.expressions import compile_expression
from policies.facts import DIALECTS, SEALING_DIALECTS, Facts
from tests.policies.worlds import document_text, request, requests


def told(when: str, labels: tuple[str, ...] = ("CREDIT_CARD",)) -> list[str]:
    case = {"name": "t", "expect": {"effect": "allow"}}
    text = document_text({"when": when, "forbid": {"tiers": ["frontier"]}}, tests=[case])
    report = check(text, "d", labels=labels)
    assert report.is_ok
    paths = {each.path for each in report.warnings}
    assert paths <= {"constraints[0].when"}
    return [each.message for each in report.warnings]


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ("weekday == 7", "weekday is never 7; it is a whole number from 0 to 6"),
        ("weekday in [5, 6, 7]", "weekday is never 7; it is a whole number from 0 to 6"),
        ("weekday != 7 or stream", "weekday is never 7; it is a whole number from 0 to 6"),
        ("not (stream and 7 == weekday)", "weekday is never 7; it is a whole number from 0 to 6"),
        ("weekday == 1.5", "weekday is never 1.5; it is a whole number from 0 to 6"),
        ("hour_utc >= 24", "hour_utc >= 24 never holds; it is a whole number from 0 to 23"),
        ("24 <= hour_utc", "hour_utc >= 24 never holds; it is a whole number from 0 to 23"),
        ("hour_utc > 23", "hour_utc > 23 never holds; it is a whole number from 0 to 23"),
        ("hour_utc < 0", "hour_utc < 0 never holds; it is a whole number from 0 to 23"),
        ("not (hour_utc < 24)", "hour_utc >= 24 never holds; it is a whole number from 0 to 23"),
        ("injection > 50", "injection > 50 never holds; it is a number from 0 to 1"),
        ("complexity == 2", "complexity is never 2; it is a number from 0 to 1"),
        (
            "findings.CREDIT_CARD < 0",
            'findings["CREDIT_CARD"] < 0 never holds; it is a whole number from 0 up',
        ),
        (
            "input_tokens_estimate == 0.5",
            "input_tokens_estimate is never 0.5; it is a whole number",
        ),
        ("max_output_tokens <= -1", "max_output_tokens <= -1 never holds; it is a whole number"),
        ('dialect == "anthropic"', "dialect is never 'anthropic'; did you mean 'anthropic_"),
        ('dialect in ["openai_chat", "x"]', "dialect is never 'x'; it is one of openai_chat, "),
        ('service_tier != "flex"', "service_tier is never 'flex'; it is one of priority, "),
        ('sealed == "yes"', "sealed is never 'yes'; it is one of an empty text, "),
        ('startswith(dialect, "azure")', "startswith(dialect, 'azure') never holds; "),
        (
            'project == "Payroll"',
            "project is never 'Payroll'; a name is 1 to 63 lower-case letters, ",
        ),
        (
            'workspace in ["pay roll"]',
            "workspace is never 'pay roll'; a name is 1 to 63 lower-case ",
        ),
        ('organisation != "café"', "organisation is never 'café'; a name is 1 to 63 lower-case "),
        ('headers["X-Team"] == "hr"', "no header is called 'X-Team' here; did you mean 'x_team'?"),
        ('startswith(headers["x-a"], "b")', "no header is called 'x-a' here; did you mean 'x_a'?"),
        ('"PAN" in findings', "nothing is ever found as 'PAN'"),
        ("not has(findings.PAN)", "nothing is ever found as 'PAN'"),
        ("1 < findings.PAN", "nothing is ever found as 'PAN'"),
    ],
)
def test_a_value_that_a_fact_never_has_is_warned_of(when: str, message: str) -> None:
    (found,) = told(when)
    assert found.startswith(message)


@pytest.mark.parametrize(
    "when",
    [
        "hour_utc >= 20 and hour_utc < 24",
        "weekday in [5, 6]",
        "weekday >= 0 and weekday <= 6",
        "complexity > 0.5 or injection >= 1",
        "findings.CREDIT_CARD == 0",
        'not ("CREDIT_CARD" in findings)',
        "not (max_output_tokens >= 0)",
        "budget_left_microusd < 0.5",
        'dialect != "openai_chat" and startswith(dialect, "openai")',
        'sealed == ""',
        'workspace == "7" and project != "a.b-c_d" and headers.x_team == ""',
        "size(labels) > 7",
    ],
)
def test_what_a_request_may_be_is_not_warned_of(when: str) -> None:
    assert told(when) == []


def test_labels_are_looked_at_only_where_it_is_known_what_can_be_found() -> None:
    assert told("findings.PAN > 0 and has(findings.PAN)", labels=()) == []


def test_a_header_that_the_settings_do_not_show_is_warned_of() -> None:
    text = document_text(
        {"when": 'headers.x_team == "hr" and headers.x_tem != ""', "no_cache": True},
        {"when": "findings.PAN > 0", "no_cache": True},
        preferences=({"when": 'contains(headers.x_place, "a")', "order": ["mid"]},),
    )
    told = "always empty: policy.headers does not list"
    assert [
        (each.path, each.message)
        for each in check(text, "d", headers=["x_team"]).warnings
        if "empty" in each.message
    ] == [
        ("constraints[0].when", f"{told} 'x_tem'; did you mean 'x_team'?"),
        ("preferences[0].when", f"{told} 'x_place'"),
    ]
    assert "empty" not in str(check(text, "d").warnings)
    assert str(check(text, "d", headers=()).warnings).count("empty") == 3


@pytest.mark.parametrize("name", ["a", "7", "a.b-c_d", "a" * 63, "a" * 64, "A", "-a", "é", ""])
def test_names_are_those_that_a_key_may_be_issued_for(name: str) -> None:
    place = Place(name, name, name)
    try:
        check_place(place)
    except RequestInvalid:
        assert told(f'project == "{name}"')
    else:
        assert not told(f'project == "{name}"')


def test_texts_of_facts_are_those_that_the_gateway_writes() -> None:
    assert set(DIALECTS) == set(get_args(DialectName))
    assert set(SEALING_DIALECTS) == {ANTHROPIC, OPENAI}


NUMBERS = st.sampled_from(["-1", "0", "0.5", "1", "6", "7", "23", "24", "1.5"])
FACTS = st.sampled_from(
    ["hour_utc", "weekday", "complexity", "injection", "input_tokens_estimate", "max_output_tokens"]
)


@settings(max_examples=100)
@given(
    fact=FACTS,
    operator=st.sampled_from(["<", "<=", ">", ">=", "=="]),
    number=NUMBERS,
    is_negated=st.booleans(),
    asked=requests(),
)
def test_no_request_ever_meets_what_is_said_never_to_hold(
    fact: str, operator: str, number: str, is_negated: bool, asked: Facts
) -> None:
    when = f"{fact} {operator} {number}"
    if is_negated and operator != "==":
        when = f"not ({when})"
    holds = compile_expression(when).holds
    assert not told(when) or not holds(asked)
    assert not told(when) or not holds(request())
