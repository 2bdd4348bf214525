"""Text parts of one message are one text to a model: a value may stand in two of them."""

import base64
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from classifiers.adjoining import REACH, Seamed, scan_both_ways
from classifiers.extraction import extract
from classifiers.inspection import InspectionResult, inspect
from classifiers.pii.detect import scan
from classifiers.pii.labels import DataClass
from tests.classifiers import samples


RNG = random.Random(7)
CARD = samples.grouped(samples.card(RNG), " ")
VALUES = {
    "CREDIT_CARD": CARD,
    "IN_AADHAAR": samples.grouped(samples.aadhaar(RNG), " "),
    "US_SSN": "SSN " + samples.ssn(RNG),
    "IBAN": samples.grouped(samples.iban(RNG), " "),
    "SECRET": "gw" + "_live_" + samples.token(RNG, 40),
    "EMAIL": "anna.lindqvist@corp-mail.no",
}
WORDS = "The report about rivers and trains is ready, and the music was good. "


def part(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


def asked(content: Any) -> InspectionResult:
    return inspect({"model": "m", "messages": [{"role": "user", "content": content}]})


def in_parts(text: str, cuts: list[int]) -> list[dict[str, Any]]:
    edges = sorted({0, *cuts, len(text)})
    return [part(text[a:b]) for a, b in pairwise(edges)]


@pytest.mark.parametrize("label", VALUES)
def test_a_value_is_found_wherever_a_part_of_its_message_ends_in_it(label: str) -> None:
    text = f"{WORDS}It is {VALUES[label]} , as you know. {WORDS}"
    whole = asked(text)
    assert whole.counts == {label: 1}
    for place in range(1, len(text)):
        result = asked(in_parts(text, [place]))
        # Of some numbers a part is another one, and as sensitive.
        assert result.data_class >= whole.data_class


@settings(max_examples=50)
@given(data=st.data())
def test_no_cuts_into_parts_make_a_request_less_sensitive(data: st.DataObject) -> None:
    said = data.draw(st.lists(st.sampled_from([*VALUES.values(), WORDS]), min_size=1))
    text = " and ".join(said)
    cuts = data.draw(st.lists(st.integers(1, len(text)), max_size=12))
    assert asked(in_parts(text, cuts)).data_class >= asked(text).data_class


HALVES = [part(CARD[:9]), part(CARD[9:])]


@pytest.mark.parametrize(
    "document",
    [
        {"messages": [{"role": "user", "content": HALVES}]},
        {"system": HALVES, "messages": []},
        {"system": [HALVES[0], part(CARD[9:], cache_control={"type": "ephemeral"})]},
        {
            "input": [
                {"role": "user", "content": [{**each, "type": "input_text"} for each in HALVES]}
            ]
        },
        {"input": [{"type": "function_call_output", "output": HALVES}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": HALVES}]}]},
        {"messages": [{"role": "user", "content": [part("It is "), *HALVES, part(", yes")]}]},
        {"messages": [{"role": "user", "content": [HALVES[0], part(""), HALVES[1]]}]},
        {
            "messages": [
                {"role": "assistant", "content": [part(CARD[:9], citations=[{"n": 1}]), HALVES[1]]}
            ]
        },
    ],
)
def test_halves_of_a_number_in_parts_that_follow_each_other_are_one_number(document: Any) -> None:
    result = inspect(document)
    assert result.counts["CREDIT_CARD"] == 1
    assert (result.data_class, result.complete, result.is_torn) == (DataClass.S3, True, True)
    assert "CREDIT_CARD" not in {finding.label for finding in result.findings}


IMAGE = {"type": "image", "source": {"type": "url", "url": "https://images.invalid/a.png"}}


def test_an_image_between_the_halves_of_a_number_parts_it_for_nobody() -> None:
    document = {"messages": [{"role": "user", "content": [HALVES[0], IMAGE, HALVES[1]]}]}
    assert inspect(document, frozenset({"image"})).counts == {"CREDIT_CARD": 1}


@pytest.mark.parametrize(
    "document",
    [
        {"messages": [{"role": "user", "content": f"{each['text']} ways"} for each in HALVES]},
        {
            "messages": [
                {"role": "user", "content": [part(f"{each['text']} of them")]} for each in HALVES
            ]
        },
        {"rows": [f"{each['text']} rows" for each in HALVES]},
    ],
)
def test_halves_with_something_between_them_are_two_numbers(document: Any) -> None:
    assert inspect(document, frozenset({"image"})).counts == {}


@pytest.mark.parametrize(
    ("first", "then", "label"),
    [
        ("Write to anna.lindqvist@corp-mail.no", "Please be brief.", "EMAIL"),
        (f"It is {CARD}", "2. The next point", "CREDIT_CARD"),
        ("Point 1", f"{CARD} it is", "CREDIT_CARD"),
    ],
)
def test_a_value_that_ends_with_its_part_is_found_once_and_has_its_place(
    first: str, then: str, label: str
) -> None:
    result = asked([part(first), part(then)])
    assert result.counts == {label: 1}
    assert (len(result.findings), result.is_torn) == (1, False)


def test_words_that_only_meet_where_a_part_ends_are_no_value() -> None:
    result = asked([part("There were 4111 1111"), part("people, and 1111 1111"), part("trains.")])
    assert (result.counts, result.data_class) == ({}, DataClass.S0)


@pytest.mark.parametrize("length", [1, REACH - 20, REACH, 5 * REACH])
def test_far_from_the_beginning_and_end_of_long_parts_a_number_is_found_too(length: int) -> None:
    words = (WORDS * length)[:length] + " "
    content = [part(words + CARD[:9]), part(CARD[9:] + " " + words), part(words), part(words)]
    assert asked(content).counts == {"CREDIT_CARD": 1}


@pytest.mark.parametrize("place", [2, 60, 300, 550])
def test_a_word_longer_than_what_is_read_around_an_end_is_read_as_one_word(place: int) -> None:
    head = base64.urlsafe_b64encode(b'{"alg": "HS256", "typ": "JWT"}').decode().rstrip("=")
    body = base64.urlsafe_b64encode(b'{"sub": "%b"}' % (b"x" * 300)).decode().rstrip("=")
    jwt = f"{head}.{body}.{samples.token(RNG, 43)}"
    text = f"{WORDS}{jwt} {WORDS}"
    place += len(WORDS)
    assert asked(text).counts == {"JWT": 1}
    assert asked([part(text[:place]), part(text[place:])]).data_class is DataClass.S4


def test_many_short_parts_are_read_once_over() -> None:
    parts = [part(each) for each in f"{CARD} and " * 30]
    extraction = extract({"messages": [{"role": "user", "content": parts}]})
    # All but the "n", which is a word of the wire formats.
    assert [len(chain) for chain in extraction.places()] == [len(parts) - 30]
    assert asked(parts).counts == {"CREDIT_CARD": 30}


@given(st.text(max_size=40), st.lists(st.integers(0, 40), max_size=9))
def test_places_in_a_seamed_text_lead_back_to_the_text(text: str, cuts: list[int]) -> None:
    edges = sorted(min(each, len(text)) for each in cuts)
    seamed = Seamed(text, edges)
    assert len(seamed.text) == len(text) + len(edges)
    marks = 0
    for place, char in enumerate(seamed.text):
        if marks < len(edges) and place == edges[marks] + marks:
            marks += 1
        else:
            assert text[seamed.origin(place)] == char


def test_what_is_less_sensitive_than_asked_for_hides_nothing_where_parts_meet() -> None:
    text = f"Call {CARD} now"
    found = scan_both_ways(scan, text, [9, 12], DataClass.S3).findings
    assert [(each.label, text[each.start : each.end]) for each in found] == [("CREDIT_CARD", CARD)]
