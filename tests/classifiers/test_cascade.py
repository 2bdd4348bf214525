"""The cascade gate: sums are checked, second opinions count by how reliable they proved."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifiers.complexity.answers import NAMES, agreement, final_answer, look
from classifiers.complexity.arithmetic import compute, equations
from classifiers.complexity.cascade import CascadeVerdict, judge, reliabilities
from classifiers.complexity.model import load


MODEL = load()
PROMPT = "Ann has 12 apples and buys 3 bags of 4 apples. How many apples has she now?"
RIGHT = "She buys 3 * 4 = <<3*4=12>>12 apples.\nNow she has 12 + 12 = <<12+12=24>>24.\n#### 24"
WRONG = "She buys 3 * 4 = <<3*4=14>>14 apples.\nNow she has 12 + 14 = <<12+14=27>>27.\n#### 27"
CHOICE = "Which animal is a mammal?\nA) trout\nB) bat\nC) newt\nAnswer:"


def _judged(
    prompt: str, *answers: str, reliability: dict[str, float] | None = None
) -> CascadeVerdict:
    named = [(f"model-{at}", text) for at, text in enumerate(answers)]
    return judge(MODEL.gate, MODEL.assess(prompt), prompt, named, reliability or {})


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("3*4", 12.0),
        ("2 + 3 * (4 - 1)", 11.0),
        ("3 bags x $2.50", 7.5),
        ("1,000 / 8", 125.0),
        ("50% * 80", 40.0),
        ("-3 + 5", 2.0),
    ],
)
def test_plain_arithmetic_is_computed(written: str, value: float) -> None:
    assert compute(written) == value


@pytest.mark.parametrize("written", ["", "four", "3 +", "(1 + 2", "1 / 0", "2 ** 3", "9" * 100])
def test_what_is_no_plain_arithmetic_has_no_value(written: str) -> None:
    assert compute(written) is None


@pytest.mark.parametrize(
    ("answer", "stops"),
    [
        ("She buys 3 * 4 = <<3*", True),
        ("She has 12 + 6 +", True),
        ("He pays 4 x $", False),
        ("That leaves 64 + 30 = <<64+30=94>>94 meals.", False),
        ("It is done.\n#### 7", False),
        ("std::cout << value << std::endl;", False),
        ("a = 1 <<3\nprint(a)", False),
    ],
)
def test_an_answer_that_stops_in_a_sum_is_cut_off_and_worth_less(answer: str, stops: bool) -> None:
    assert look(PROMPT, answer).cut_off == stops
    assert not stops or _judged(PROMPT, answer).score > _judged(PROMPT, RIGHT).score + 0.3


def test_an_answer_that_takes_up_the_question_and_its_numbers_is_worth_more() -> None:
    values = dict(zip(NAMES, look(PROMPT, RIGHT).values, strict=True))
    absent = dict(zip(NAMES, look(PROMPT, "Three bags.\n#### 3").values, strict=True))
    assert values["question_taken_up"] == 0
    told = look(PROMPT, "3 * 4 = 12 and 12 + 12 = 24: 24 apples she has now, many.")
    assert dict(zip(NAMES, told.values, strict=True))["question_taken_up"] == 1
    assert values["numbers_reused"] > absent["numbers_reused"] == 0


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("so 12 (first batch) + 6 (from work) = 18 cakes", 0),
        ("he pays 3 bags * $2 = $7", 1),
        ("2 * 3 + 1 = 6 + 1 = 7", 0),
        ("<<20/8=2.5>>2.50", 0),
        ("<<20/8=3>>3", 1),
    ],
)
def test_equations_are_found_between_words_and_checked(text: str, wrong: int) -> None:
    found = equations(text)
    assert found
    assert sum(equation.wrong for equation in found) == wrong


def test_a_wrong_sum_makes_an_answer_less_likely_to_do() -> None:
    assert _judged(PROMPT, RIGHT).p_weak > _judged(PROMPT, WRONG).p_weak


@pytest.mark.parametrize("empty", ["", "I'm sorry, but I cannot help with that."])
def test_an_answer_that_says_nothing_will_hardly_do(empty: str) -> None:
    plain = _judged("What is the capital of France?", "Paris is the capital of France.")
    assert _judged("What is the capital of France?", empty).p_weak < plain.p_weak / 2


def test_a_second_opinion_counts_by_its_reliability() -> None:
    alone = _judged(CHOICE, "B").p_weak
    doubted = _judged(CHOICE, "B", "C", reliability={"model-1": 0.9}).p_weak
    shrugged = _judged(CHOICE, "B", "C", reliability={"model-1": 0.55}).p_weak
    confirmed = _judged(CHOICE, "B", "B) bat", reliability={"model-1": 0.9}).p_weak
    assert doubted < shrugged < alone < confirmed


def test_the_reasons_of_a_verdict_name_what_was_looked_at() -> None:
    names = [name for name, _ in _judged(PROMPT, RIGHT, WRONG).reasons]
    assert names == ["calculation", "agreement:model-1"]


def test_who_agrees_with_others_is_more_reliable_than_who_does_not() -> None:
    panels = [
        {"good": "A", "fair": "A" if at % 4 else "B", "poor": "ABCD"[at % 4]} for at in range(200)
    ]
    learned = reliabilities(panels)
    assert learned["good"] > learned["poor"]
    assert learned["fair"] > learned["poor"]
    assert all(0 < rate < 1 for rate in learned.values())


def test_few_answers_say_little_about_reliability() -> None:
    learned = reliabilities([{"one": "A", "two": "A"}])
    assert 0.6 < learned["one"] < 0.7


@pytest.mark.parametrize(
    ("text", "final"),
    [
        ("B", "B"),
        (" (C) because it flies", "C"),
        ("The answer is D.", "D"),
        ("12 + 12 = 24\n#### 24", "24"),
        ("$1,200", "1200"),
    ],
)
def test_final_answers_are_recognised(text: str, final: str) -> None:
    assert final_answer(text) == final


def test_agreement_is_a_share_of_common_words() -> None:
    assert agreement("bats can fly", "bats can fly") == 1
    assert 0 < agreement("bats can fly at night", "bats fly at night") < 1
    assert agreement("B", "C") == 0


@given(st.text(max_size=300), st.text(alphabet=string.printable, max_size=300))
def test_any_answer_is_looked_at_without_failing(prompt: str, answer: str) -> None:
    assert len(look(prompt, answer).values) == len(NAMES)
    assert 0 <= _judged(prompt, answer).p_weak <= 1


@pytest.mark.parametrize(
    "hostile", ["9" * 100_000, "(" * 100_000, "1+" * 50_000 + "=1", "=1" * 50_000, "<<" * 50_000]
)
def test_hostile_answers_are_bounded(hostile: str) -> None:
    assert 0 <= _judged(hostile, hostile).p_weak <= 1
