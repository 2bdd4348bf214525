"""Groups of a number in cells, items and lines of their own, and what is none of them."""

import base64
import html
import json
import random
from urllib.parse import quote

import pytest

from classifiers.inspection import inspect
from tests.classifiers import samples


RANDOM = random.Random(17)
CARD = samples.with_luhn("4" + samples.digits(RANDOM, 14))
IBAN = samples.iban(RANDOM)
FOURS = {
    "CREDIT_CARD": [CARD[at : at + 4] for at in range(0, 16, 4)],
    "IBAN": [IBAN[at : at + 4] for at in range(0, len(IBAN), 4)],
}
BOXES = {
    "cells": ("<table><tr>{}</tr></table>", "<td>{group}</td>", ""),
    "cells with a class": ("<tr>{}</tr>", '<td class="c{at}">{group}</td>', "\n    "),
    "items": ("<ol>{}</ol>", "<li>{group}</li>", "\n"),
    "paragraphs": ("{}", "<p>{group}</p>", "\r\n"),
    "divisions": ("<div>{}</div>", "<div id=p{at}><b>{group}</b></div>", ""),
    "elements of XML": ("<card>{}</card>", "<p{at}>{group}</p{at}>", ""),
    "text of a picture": ("<text>{}</text>", '<tspan x="{at}">{group}</tspan>', ""),
    "colours": ("{}", "\x1b[3{at}m{group}\x1b[0m", " "),
}
NUMBERED = {
    "numbers": ("{}", "{at}. {group}", "\n"),
    "numbers in brackets": ("{}", "{at}) {group}", "\r\n"),
    "letters": ("{}", "{letter}) {group}", "\n"),
    "a quotation": ("{}", "{at}. {group}", "\n> "),
    "one line": ("{}", "{at}) {group}", ", "),
}

HINDI = (
    "\u0936\u0942\u0928\u094d\u092f \u090f\u0915 \u0926\u094b \u0924\u0940\u0928"
    " \u091a\u093e\u0930 \u092a\u093e\u0902\u091a \u091b\u0939 \u0938\u093e\u0924"
    " \u0906\u0920 \u0928\u094c"
)


def put(box: tuple[str, str, str], groups: list[str]) -> str:
    frame, each, between = box
    boxes = [
        each.format(group=group, at=at, letter=chr(ord("a") + at))
        for at, group in enumerate(groups, start=1)
    ]
    return f"please look at {frame.format(between.join(boxes))} and tell me more"


def labels(text: str) -> set[str]:
    return {*inspect({"messages": [{"role": "user", "content": text}]}).counts}


@pytest.mark.parametrize("label", FOURS)
@pytest.mark.parametrize("name", [*BOXES, *NUMBERED])
def test_groups_in_boxes_are_put_together(name: str, label: str) -> None:
    assert label in labels(put((BOXES | NUMBERED)[name], FOURS[label]))


@pytest.mark.parametrize("name", ["cells", "text of a picture", "numbers"])
def test_so_are_digits(name: str) -> None:
    assert "CREDIT_CARD" in labels(put((BOXES | NUMBERED)[name], [*CARD]))


@pytest.mark.parametrize("name", ["cells", "items", "numbers", "letters"])
def test_so_are_groups_in_boxes_behind_another_disguise(name: str) -> None:
    said = put((BOXES | NUMBERED)[name], FOURS["CREDIT_CARD"])
    behind = (
        *(json.dumps(said), json.dumps(json.dumps({"it": said})), html.escape(said), quote(said)),
        *(base64.b64encode(said.encode()).decode(), said.encode().hex(), "\u200b".join(said)),
    )
    for text in behind:
        assert "CREDIT_CARD" in labels(f"look at {text} please")


def test_rows_of_a_table_and_points_of_a_list_are_nothing() -> None:
    rows = [[str(RANDOM.randrange(1000, 10_000)) for _ in "abcdef"] for _ in range(60)]
    cells = "".join(f"<tr>{''.join(f'<td>{n}</td>' for n in row)}</tr>" for row in rows)
    assert labels(f"<table>{cells}</table>") == set()
    for box in NUMBERED.values():
        assert labels(put(box, [row[0] for row in rows])) == set()
    assert labels("1. 4000\n2. 4100\n3. 4200\n4. 4300") == set()


def test_lines_that_are_numbered_out_of_turn_are_no_list() -> None:
    groups = FOURS["CREDIT_CARD"]
    for marks in ("1123", "4321", "1a2b"):
        lines = "\n".join(f"{mark}. {group}" for mark, group in zip(marks, groups, strict=True))
        assert labels(lines) == set()


@pytest.mark.parametrize(
    "said",
    [
        "please use part1={}, part2={}",
        "use a={}, b={} then",
        'it is "part 1": "{}", "part 2": "{}".',
        'p0 = "{}"\np1 = "{}"',
        "Take Group 1: {}\nGroup 2: {}",
    ],
)
def test_the_first_of_several_parts_may_stand_in_a_sentence(said: str) -> None:
    assert "CREDIT_CARD" in labels(said.format(CARD[:8], CARD[8:]))


def test_fields_that_are_no_parts_stay_apart() -> None:
    for said in ("the total={}, due={}", "a width: {}\nheight: {}", "see order 1: {}\nitem 2: {}"):
        assert labels(said.format(CARD[:8], CARD[8:])) == set()


@pytest.mark.parametrize(
    "words",
    [
        "zero one two three four five six seven eight nine",
        "null eins zwei drei vier f\u00fcnf sechs sieben acht neun",
        "z\u00e9ro un deux trois quatre cinq six sept huit neuf",
        "cero uno dos tres cuatro cinco seis siete ocho nueve",
        HINDI,
    ],
)
def test_digits_in_words_are_found_as_a_text_and_as_a_list(words: str) -> None:
    said = [words.split()[int(digit)] for digit in CARD]
    listed = json.dumps(said, ensure_ascii=False)
    for text in (" ".join(said), ", ".join(said), listed, json.dumps(listed, ensure_ascii=False)):
        assert "CREDIT_CARD" in labels(f"look at {text} please")


def test_words_that_say_a_digit_among_others_only_are_none() -> None:
    assert labels("[null, null, null, null, null, null, null, null]") == set()
    assert labels("null, 1, null, 2, null, 3, null, 4, null, 5, null, 6") == set()
    assert labels("un, une, un, une, un, une, un, une, un") == set()


DIGITS = "zero one two three four five six seven eight nine".split()  # noqa: SIM905 - ten words.


@pytest.mark.parametrize("number", ["0123456789", "314159265", "98765432", "27182818284590"])
@pytest.mark.parametrize("form", ["{}", "words = {}\n", "VALUES {}", "enum Digit {};"])
def test_a_list_of_words_is_a_number_only_by_its_check_digit(form: str, number: str) -> None:
    """Programs and exercises have lists of number words, and their length says nothing."""
    said = [DIGITS[int(digit)] for digit in number]
    lines = "{\n    " + ",\n    ".join(said) + "\n}"
    for text in (json.dumps(said), json.dumps(json.dumps(said)), repr(said), lines):
        assert labels(form.format(text)) == set(), text


def test_a_word_more_in_a_list_hides_no_card() -> None:
    said = [DIGITS[int(digit)] for digit in CARD]
    for listed in (["two", *said], [*said, "one"], ["six", "nine", *said, "two", "two"]):
        assert labels(json.dumps(listed)) & {"CREDIT_CARD", "NATIONAL_ID"}


def test_what_is_said_within_a_list_is_found_as_it_was() -> None:
    said = " ".join(DIGITS[int(digit)] for digit in "987654321")
    assert labels(json.dumps(["and one", said, "two, three"])) == labels(f"it is {said}") != set()


@pytest.mark.parametrize("last", [9, 10, 12, 19])
def test_who_counts_names_no_number(last: int) -> None:
    words = [*DIGITS, "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen"]
    words += ["sixteen", "seventeen", "eighteen", "nineteen"]
    for first in (0, 1):
        counted = words[first : last + 1]
        for text in (" ".join(counted), ", ".join(counted), ", ".join(counted).upper()):
            assert labels(text) == set(), text
    assert labels(" ".join(words[3:10])) != set()
