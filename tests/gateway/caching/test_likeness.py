"""Which questions may get each other's answers: near in words, and the same in what matters."""

import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.caching.likeness import (
    DIMENSIONS_MAX,
    FAMILY_MAX,
    Likenesses,
    Question,
    is_comparable,
    question_of,
    vector_of,
)


def body(text: object, **more: object) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}]} | more


def question(text: str) -> Question:
    found = question_of(body(text), b"acme")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How do I reset my password?", "how can I reset the password that I have"),
        ("How long do you keep invoices?", "invoices are kept by you for how long?"),
        ("How do I reset my password?", "how do I reset my password"),
        ("was sagt die\u00ad Akte", "sag mir was die Akte sagt"),
        ("Wie lange werden Rechnungen verwahrt?", "Wie lange werden die Rechnungen hier verwahrt?"),
    ],
)
def test_another_wording_may_be_compared(one: str, other: str) -> None:
    assert is_comparable(question(one), question(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("what is the capital of france", "what is the capital of spain"),
        ("Tell me the capital of France, please.", "What is the capital of Spain?"),
        ("Is it safe to mix them?", "Tell me if it is not safe to mix them"),
        ("Doesn't it work at night?", "Tell me: it works at night?"),
        ("how much is 12 + 30", "tell me how much is 12 + 31"),
        ("how much is 12 + 30", "tell me how much is 12 - 30"),
        ('what does "retain" mean', 'please tell me what does "detain" mean'),
        ("Darf man das ohne Antrag?", "Sagen Sie mir: darf man das mit Antrag?"),
        ("list the files of user_7", "please list the files of user_8"),
        ("list ten ways to save water", "please list twelve ways to save water"),
        ("what do zwanzig Leute kosten", "was kosten denn dreißig Leute"),
        ("is it twice a day", "is it to be taken three times a day"),
        ("was kosten zweiundvierzig Leute", "was kosten denn dreiundvierzig Leute"),
        ("wat kosten tweeënveertig mensen", "wat kosten dan drieënveertig mensen"),
        ("show the twenty-first entry", "please show the twenty-fourth entry"),
        ("was tun fu\u0308nf Leute", "was tun denn zwo\u0308lf Leute"),
        ("nur dreiund\u00advierzig Leute", "es sind nur zweiund\u00advierzig Leute"),
    ],
)
def test_what_changes_an_answer_keeps_questions_apart(one: str, other: str) -> None:
    assert not is_comparable(question(one), question(other))


NEGATING = (
    "not no never none nor neither without except only cannot don't isn’t"
    " nicht kein keine keinen nie ohne nur außer"
    " ne pas sans jamais aucun aucune non sauf"
    " ni nunca sin nada salvo senza mai solo"
    " niet geen nooit zonder bez не нет без никогда"
)


@pytest.mark.parametrize("word", NEGATING.split())
def test_a_word_that_denies_keeps_questions_apart_in_any_place(word: str) -> None:
    for asked in (f"{word} may they be taken with milk", f"may they be taken {word} with milk"):
        assert not is_comparable(question("may they be taken with milk"), question(asked))


def test_a_family_shares_all_but_the_newest_question() -> None:
    same = question_of(body("one", temperature=0), b"acme")
    parts = question_of(body([{"type": "text", "text": "another"}], temperature=0), b"acme")
    assert same is not None
    assert parts is not None
    assert same.family == parts.family
    for other in (
        question_of(body("one", temperature=1), b"acme"),
        question_of(body("one", temperature=0), b"other"),
        question_of(body("one", temperature=0, tools=[]), b"acme"),
    ):
        assert other is not None
        assert other.family != same.family
    earlier = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "so"}]
    longer = {"messages": [*earlier, {"role": "user", "content": "x"}]}
    changed = {"messages": [*earlier[:1], {"role": "user", "content": "x"}]}
    found = [question_of(each, b"") for each in (longer, changed)]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].family != found[1].family


@pytest.mark.parametrize(
    "tree",
    [
        {},
        {"messages": []},
        {"messages": ["x"]},
        body(""),
        body("x" * 2_001),
        body("भारत की राजधानी क्या है"),
        body("What does 東京 mean"),
        body([{"type": "text", "text": "a", "cache_control": {}}]),
        body([{"type": "text", "text": "a"}, {"type": "image_url"}]),
        body([{"type": "text", "text": 7}]),
        body([7]),
        {"messages": [{"role": "tool", "content": "x"}]},
        {"input": 7},
    ],
)
def test_what_is_no_plain_question_is_not_compared(tree: dict[str, Any]) -> None:
    assert question_of(tree, b"") is None


def test_a_responses_body_has_a_question_too() -> None:
    plain = question_of({"input": "Where?"}, b"")
    assert plain is not None
    assert plain.text == "Where?"


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=8) | st.just("user"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "messages", "input"]), inner
        )
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["messages", "input", "model"]), JSON))
def test_no_body_breaks_the_comparison(tree: dict[str, Any]) -> None:
    found = question_of(tree, b"")

    assert found is None or is_comparable(found, found)


@given(st.lists(st.floats(width=32), max_size=5))
def test_a_vector_has_length_one_or_is_none(numbers: list[float]) -> None:
    vector = vector_of(numbers)

    assert vector is None or abs(float(np.linalg.norm(vector)) - 1) < 1e-3


def test_the_nearest_comes_first_and_its_own_dimensions_only() -> None:
    known = Likenesses(10)
    asked = question("How do I reset my password?")
    for key, numbers in ((b"far", [1.0, 1.0]), (b"near", [1.0, 0.1]), (b"other", [1.0, 0.0, 0.0])):
        vector = vector_of(numbers)
        assert vector is not None
        known.keep(asked, vector, key)
    vector = vector_of([1.0, 0.0])
    assert vector is not None

    assert [key for _, key in known.nearest(asked, vector)] == [b"near", b"far"]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 400)), max_size=80), st.integers(1, 20))
def test_no_more_vectors_are_kept_than_the_settings_say(
    kept: list[tuple[int, int]], vectors_max: int
) -> None:
    known, vector = Likenesses(vectors_max), vector_of([1.0])
    assert vector is not None
    for family, key in kept:
        asked = Question(bytes([family]), "", b"", b"")
        known.keep(asked, vector, b"%d" % key)
        found = sum(
            len(known.nearest(Question(bytes([each]), "", b"", b""), vector)) for each in range(5)
        )
        assert found == len(known) <= vectors_max


def test_a_family_that_is_still_asked_for_outlives_one_that_is_not() -> None:
    known, vector = Likenesses(2), vector_of([1.0])
    assert vector is not None
    often, seldom, new = (Question(family, "", b"", b"") for family in (b"o", b"s", b"n"))
    for asked in (often, seldom):
        known.keep(asked, vector, asked.family)
    known.nearest(often, vector)  # Found, and therefore not kept anew.
    known.keep(new, vector, new.family)

    assert [len(known.nearest(each, vector)) for each in (often, seldom, new)] == [1, 0, 1]


def test_a_family_forgets_its_oldest_question() -> None:
    known, vector = Likenesses(10_000), vector_of([1.0])
    assert vector is not None
    for number in range(FAMILY_MAX + 5):
        known.keep(question("Where?"), vector, b"%d" % number)

    keys = {key for _, key in known.nearest(question("Where?"), vector)}

    assert len(keys) == len(known) == FAMILY_MAX
    assert b"4" not in keys


def test_where_few_may_be_kept_a_family_forgets_its_oldest_too() -> None:
    vector = vector_of([1.0])
    assert vector is not None
    for vectors_max in (1, 3):
        known = Likenesses(vectors_max)
        for number in range(10):
            known.keep(question("Where?"), vector, b"%d" % number)
        keys = {key for _, key in known.nearest(question("Where?"), vector)}
        assert keys == {b"%d" % number for number in range(10 - vectors_max, 10)}


def test_a_family_that_is_asked_something_new_outlives_an_older_one() -> None:
    known, vector = Likenesses(3), vector_of([1.0])
    assert vector is not None
    for family, key in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4")):
        known.keep(Question(family, "", b"", b""), vector, key)
    left = [len(known.nearest(Question(family, "", b"", b""), vector)) for family in (b"a", b"b")]
    assert left == [2, 0]


def test_a_question_takes_its_vector_and_eight_bytes_for_each_word() -> None:
    count, dimensions, words = 100, 64, 4 * 240 + 2
    known, text = Likenesses(count), "a b c d " * 240
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(count):
            vector = vector_of([1.0] * dimensions)
            assert vector is not None
            known.keep(question(f"Question {number} {text}"), vector, b"%d" % number)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(known) == count
    assert after - before < count * (4 * dimensions + 8 * words + 1_000)


def test_a_vector_that_is_too_long_is_none() -> None:
    assert vector_of([1.0] * DIMENSIONS_MAX) is not None
    assert vector_of([1.0] * (DIMENSIONS_MAX + 1)) is None
