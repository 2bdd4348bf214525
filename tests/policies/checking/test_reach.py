"""Rules that can never match are named, and only those."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.checking.reach import shadowed, unreachable
from policies.decide import matching_preference
from policies.document import PolicyBody, Preference
from policies.facts import Facts
from policies.text.loading import load_document
from tests.policies.worlds import document, document_text, requests


def behind(*conditions: str | None) -> list[tuple[str, str]]:
    rules = [Preference(f"p{n}", when=when) for n, when in enumerate(conditions)]
    return [(each.name, each.behind) for each in shadowed(rules)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('data_class >= "S2"', 'data_class >= "S3"'),
        ('data_class != "S0"', 'data_class in ["S1", "S2"] and stream'),
        ("complexity > 0.5", "complexity >= 0.6"),
        ("findings.EMAIL > 0", "findings.EMAIL == 3 and has_tools"),
        ("max_output_tokens < 100", "max_output_tokens <= 99.5"),
        ("stream and has_tools", "has_tools and hour_utc > 3 and stream"),
        ('workspace == "a" or stream', 'has_tools and (workspace == "a" or stream)'),
        (None, "stream"),
        ("1 < 2", "stream"),
        ("2 < 1 or stream", "2 < 1 or stream"),
    ],
)
def test_a_wider_condition_hides_every_narrower_one_behind_it(
    first: str | None, second: str
) -> None:
    assert behind(first, second) == [("p1", "p0")]
    if first is not None and first != second:
        assert behind(second, first) in ([], [("p1", "p0")] if first == "1 < 2" else [])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('data_class >= "S3"', 'data_class >= "S2"'),
        ("complexity > 0.5", "complexity >= 0.5"),
        ("findings.EMAIL > 0", "findings.PHONE > 0"),
        ('workspace == "a"', 'workspace in ["a", "b"]'),
        ("stream", "has_tools"),
        ("2 < 1", "stream"),
        ("stream", None),
        ("stream", "1 < 2"),
        ("complexity > 9007199254740992", "complexity > 9007199254740991"),
    ],
)
def test_what_may_still_match_is_not_named(first: str, second: str | None) -> None:
    assert behind(first, second) == []


@pytest.mark.parametrize(
    ("earlier", "last"),
    [
        (("stream", "not stream"), None),
        (("stream", "not stream"), "has_tools"),
        (('data_class == "S1" or data_class == "S2"', "stream"), 'data_class == "S2"'),
        (("complexity > 0.5", "has_tools", "complexity <= 0.5"), "stream"),
        (('workspace == "a"', 'workspace in ["b", "c"]'), 'workspace in ["a", "b"]'),
        (("hour_utc < 12", "hour_utc >= 12 and stream"), "stream and hour_utc > 6"),
        (("has(max_output_tokens)",), "max_output_tokens >= 1"),
    ],
)
def test_rules_that_only_together_leave_nothing_hide_the_one_behind_them(
    earlier: tuple[str, ...], last: str | None
) -> None:
    assert [name for name, _ in behind(*earlier, last)] == [f"p{len(earlier)}"]


def test_only_those_that_are_needed_to_hide_a_rule_are_named() -> None:
    rules = [
        Preference(f"p{place}", when=when)
        for place, when in enumerate(("has_tools", "stream", "complexity > 3", "not stream", None))
    ]
    (found,) = shadowed(rules)
    assert found.reason == "never reached: 'p1' or 'p3' matches before it"


def test_routes_have_shadows_of_their_own() -> None:
    rules = [
        Preference("a", route="x"),
        Preference("b", when="stream"),
        Preference("c", route="x", when="stream"),
    ]
    assert [(each.name, each.behind) for each in shadowed(rules)] == [("c", "a")]


def test_a_condition_that_contradicts_itself_is_named_with_its_fact() -> None:
    body = document(
        {"when": 'data_class >= "S3" and stream and data_class < "S2"', "deny": "No."},
        {"when": "complexity > 0.5 and complexity < 0.6", "deny": "No."},
        {"when": "false", "deny": "No."},
        {"when": 'workspace == "a" and workspace == "b"', "deny": "No."},
        preferences=({"when": "findings.EMAIL > 1 and findings.EMAIL < 1", "order": ["mid"]},),
    ).body
    found = [(each.path, each.reason) for each in unreachable(body)]
    assert found == [
        ("constraints[0]", "what it asks of data_class contradicts itself"),
        ("constraints[2]", "the condition is always false"),
        ("constraints[3]", "the condition contradicts itself"),
        ("preferences[0]", "what it asks of findings contradicts itself"),
    ]


@given(
    conditions=st.lists(
        st.sampled_from(
            [
                'data_class >= "S1"',
                'data_class >= "S3" and stream',
                'data_class == "S4"',
                "stream and has_tools",
                "stream",
                "complexity > 0.5",
                "complexity > 0.5 and complexity < 0.2",
                "complexity >= 0.75 or stream",
                "findings.aadhaar > 0",
                "findings.aadhaar > 1 and stream",
                "not has_tools",
            ]
        ),
        min_size=1,
        max_size=8,
    ),
    asked=requests(),
)
def test_no_request_ever_meets_what_is_named(conditions: list[str], asked: Facts) -> None:
    text = document_text(
        {"deny": "No.", "when": "false"},
        preferences=tuple({"when": when, "order": ["mid"]} for when in conditions),
    )
    loaded = load_document(text)
    never = {each.name for each in unreachable(loaded.body)}
    chosen = matching_preference(loaded, asked)
    assert chosen is None or chosen.name not in never


def test_a_hostile_document_is_compared_only_so_often() -> None:
    condition = " and ".join(f"complexity > {n}" for n in range(50))
    rules = tuple(Preference(f"p{n}", when=f"{condition} and hour_utc > {-n}") for n in range(200))
    found = unreachable(PolicyBody("d", 1, preferences=rules))
    assert len(found) < len(rules) - 1
