"""What conditions mean, told a second time: in Python, from the words of `docs/policies.md`."""

import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from policies.expressions import compile_expression
from policies.facts import Facts
from policies.guards import make_guard
from tests.policies.worlds import request, requests


Meaning = Callable[[Facts], bool]


class Told(NamedTuple):
    """A condition as it is written, how tightly it binds, and what it means."""

    text: str
    binding: int
    means: Meaning


OR, AND, NOT, ALONE = range(4)
PYTHON: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
CLASSES = ["S0", "S1", "S2", "S3", "S4"]
TIERS = ["cheap", "mid", "frontier"]
NUMBERS = ["1", "5", "0.5", "1_0", "1e3", "-1"]
LABELS = ["aadhaar", "pan", "email", "nothing"]


def class_of(facts: Facts) -> int:
    """S4 when the inspection is incomplete; what nobody has heard of is the most sensitive."""
    is_known = facts.inspection_complete and facts.data_class in CLASSES
    return CLASSES.index(facts.data_class) if is_known else 4


def tier_of(facts: Facts) -> int:
    """What nobody has heard of is the strongest."""
    return TIERS.index(facts.complexity_tier) if facts.complexity_tier in TIERS else 2


def of_number(read: Callable[[Facts], float | None], symbol: str, bound: float) -> Meaning:
    """A comparison with an absent number is false."""

    def means(facts: Facts) -> bool:
        value = read(facts)
        return value is not None and PYTHON[symbol](value, bound)

    return means


def counted(label: str) -> Callable[[Facts], float]:
    """A missing count is 0."""
    return lambda facts: facts.findings.get(label, 0)


@st.composite
def numbers(draw: st.DrawFn) -> Told:
    label = draw(st.sampled_from(LABELS))
    readings: dict[str, Callable[[Facts], float | None]] = {
        "complexity": lambda facts: facts.complexity,
        "hour_utc": lambda facts: facts.hour_utc,
        "weekday": lambda facts: facts.weekday,
        "input_tokens_estimate": lambda facts: facts.input_tokens_estimate,
        "max_output_tokens": lambda facts: facts.max_output_tokens,
        "budget_left_microusd": lambda facts: facts.budget_left_microusd,
        "size(labels)": lambda facts: len(facts.labels),
        "size(findings)": lambda facts: len(facts.findings),
        f"findings.{label}": counted(label),
        f'findings["{label}"]': counted(label),
    }
    name = draw(st.sampled_from(sorted(readings)))
    symbol = draw(st.sampled_from(sorted(PYTHON)))
    several = draw(st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=3, unique=True))
    bound, read = several[0], readings[name]
    match draw(st.sampled_from(["plain", "mirrored", "in", "not in"])):
        case "plain":
            return Told(f"{name} {symbol} {bound}", ALONE, of_number(read, symbol, float(bound)))
        case "mirrored":
            text = f"{bound} {MIRRORED[symbol]} {name}"
            return Told(text, ALONE, of_number(read, symbol, float(bound)))
        case word:
            among = {float(each) for each in several}
            text = f"{name} {word} [{', '.join(several)}]"
            return Told(text, ALONE, lambda facts: (read(facts) in among) == (word == "in"))


@st.composite
def levels(draw: st.DrawFn) -> Told:
    scale, name, place = draw(
        st.sampled_from(
            [
                (CLASSES, "data_class", class_of),
                (TIERS, "complexity_tier", tier_of),
            ]
        )
    )
    level, symbol = draw(st.sampled_from(scale)), draw(st.sampled_from(sorted(PYTHON)))
    rank = scale.index(level)
    text = draw(
        st.sampled_from([f'{name} {symbol} "{level}"', f"'{level}' {MIRRORED[symbol]} {name}"])
    )
    return Told(text, ALONE, lambda facts: PYTHON[symbol](place(facts), rank))


@st.composite
def texts(draw: st.DrawFn) -> Told:
    part = draw(st.sampled_from(["auto", "managed", "a", "openai_chat", "b", ""]))
    label = draw(st.sampled_from(LABELS))
    model: Callable[[Facts], str] = lambda facts: facts.model_requested  # noqa: E731
    return draw(
        st.sampled_from(
            [
                Told(f'model_requested == "{part}"', ALONE, lambda f: model(f) == part),
                Told(f"model_requested != '{part}'", ALONE, lambda f: model(f) != part),
                Told(
                    f'model_requested in ["{part}", "auto"]',
                    ALONE,
                    lambda f: model(f) in {part, "auto"},
                ),
                Told(
                    f'startswith(model_requested, "{part}")',
                    ALONE,
                    lambda f: model(f).startswith(part),
                ),
                Told(
                    f'model_requested.endswith("{part}")', ALONE, lambda f: model(f).endswith(part)
                ),
                Told(f'contains(model_requested, "{part}")', ALONE, lambda f: part in model(f)),
                Told(
                    'matches(model_requested, r"^auto(:|$)")',
                    ALONE,
                    lambda f: re.search(r"^auto(:|\Z)", model(f)) is not None,
                ),
                Told(f'"{part}" in labels', ALONE, lambda f: part in f.labels),
                Told(f'"{part}" not in labels', ALONE, lambda f: part not in f.labels),
                Told(f'"{label}" in findings', ALONE, lambda f: label in f.findings),
                Told(f"has(findings.{label})", ALONE, lambda f: label in f.findings),
                Told("has(max_output_tokens)", ALONE, lambda f: f.max_output_tokens is not None),
                Told(
                    f'headers.x_team == "{part}"',
                    ALONE,
                    lambda f: f.headers.get("x_team", "") == part,
                ),
                Told("stream", ALONE, lambda f: f.stream),
                Told("has_tools == stream", ALONE, lambda f: f.has_tools == f.stream),
                Told("inspection_complete != true", ALONE, lambda f: not f.inspection_complete),
            ]
        )
    )


def within(told: Told, binding: int) -> str:
    return told.text if told.binding >= binding else f"({told.text})"


@st.composite
def joined(draw: st.DrawFn, parts: st.SearchStrategy[Told]) -> Told:
    """`not` binds tighter than `and`, which binds tighter than `or`, as in Python."""
    first, second = draw(parts), draw(parts)
    match draw(st.sampled_from(["and", "&&", "or", "||", "not", "!", "()"])):
        case "and" | "&&" as word:
            text = f"{within(first, AND)} {word} {within(second, AND)}"
            return Told(text, AND, lambda facts: first.means(facts) and second.means(facts))
        case "or" | "||" as word:
            text = f"{first.text} {word} {second.text}"
            return Told(text, OR, lambda facts: first.means(facts) or second.means(facts))
        case "()":
            return Told(f"( {first.text} )", ALONE, first.means)
        case word:
            return Told(f"{word} {within(first, NOT)}", NOT, lambda facts: not first.means(facts))


@st.composite
def near(draw: st.DrawFn) -> Facts:
    """Any request, with numbers that are often just those that conditions name."""
    number = st.sampled_from([0, 1, 5])
    return structs.replace(
        draw(requests()),
        hour_utc=draw(number),
        weekday=draw(number),
        input_tokens_estimate=draw(number),
        max_output_tokens=draw(st.none() | number),
        budget_left_microusd=draw(st.none() | number),
        complexity=draw(st.sampled_from([0.0, 0.5, 1.0])),
        labels=tuple(draw(st.lists(st.sampled_from(["a", "b", "auto"]), unique=True))),
        headers=draw(st.sampled_from([{}, {"x_team": "a"}, {"x_other": "a"}])),
    )


CONDITIONS = numbers() | st.recursive(numbers() | levels() | texts(), joined, max_leaves=6)


@settings(max_examples=100)
@given(
    rules=st.lists(CONDITIONS, min_size=1, max_size=4),
    asked=st.lists(near(), min_size=1, max_size=3),
)
def test_every_condition_means_what_the_page_says(rules: list[Told], asked: list[Facts]) -> None:
    guard = make_guard([compile_expression(rule.text).text for rule in rules])
    for facts in asked:
        meant = [rule.means(facts) for rule in rules]
        assert [compile_expression(rule.text).holds(facts) for rule in rules] == meant
        assert guard.matching(facts) == sum(held << place for place, held in enumerate(meant))
        assert guard.first(facts) == (1 << meant.index(True) if True in meant else 0)


@pytest.mark.parametrize("symbol", sorted(PYTHON))
@pytest.mark.parametrize("value", [None, 0, 1, 2])
def test_a_number_is_compared_as_python_compares_it(symbol: str, value: int | None) -> None:
    """Below, at and above what is written, from both sides, in a table and outside of one."""
    facts = request(max_output_tokens=value, hour_utc=value or 0, findings={"PAN": value or 0})
    readings = {"max_output_tokens": value, "hour_utc": value or 0, "findings.PAN": value or 0}
    for name, read in readings.items():
        meant = read is not None and PYTHON[symbol](read, 1)
        for text in (f"{name} {symbol} 1", f"1 {MIRRORED[symbol]} {name}"):
            condition = compile_expression(text)
            assert condition.holds(facts) is meant
            assert make_guard([condition.text]).matching(facts) == meant


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("stream or has_tools and has_images", True),
        ("(stream or has_tools) and has_images", False),
        ("not stream and has_tools", False),
        ("not (stream and has_tools)", True),
        ("not stream or stream", True),
        ("!stream == false", True),
        ("not not stream", True),
    ],
)
def test_which_of_two_words_binds_tighter(text: str, meant: bool) -> None:
    assert compile_expression(text).holds(request(stream=True)) is meant
