"""Disguises: what a reader or a program decodes is found, at its place in the text as it came."""

import base64
import codecs
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifiers.pii.detect import find
from classifiers.pii.views.decoded import CUT, with_changes
from tests.classifiers import samples


WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
HINDI = ["शून्य", "एक", "दो", "तीन", "चार", "पांच", "छह", "सात", "आठ", "नौ"]


def escaped(value: str) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in value)


DISGUISES: dict[str, Callable[[str], str]] = {
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "base64 twice": lambda value: base64.b64encode(base64.b64encode(value.encode())).decode(),
    "hexadecimal": lambda value: value.encode().hex(),
    "percent": lambda value: "".join(f"%{ord(char):02x}" for char in value),
    "entities": lambda value: "".join(f"&#{ord(char)};" for char in value),
    "hexadecimal entities": lambda value: "".join(f"&#x{ord(char):x};" for char in value),
    "escapes": escaped,
    "zero width": "\u200b".join,
    "soft hyphens": "\u00ad".join,
    "full width": lambda value: "".join(chr(ord(char) + 0xFEE0) for char in value),
    "bidi": lambda value: f"\u202e\u202d{value}\u202c",
}
SPOKEN: dict[str, Callable[[str], str]] = {
    "words": lambda value: " ".join(WORDS[int(char)] for char in value),
    "words with commas": lambda value: ", ".join(WORDS[int(char)] for char in value),
    "Hindi words": lambda value: " ".join(HINDI[int(char)] for char in value),
    "words and digits": lambda value: " ".join(
        WORDS[int(char)] if at % 3 else char for at, char in enumerate(value)
    ),
    "one by one": " ".join,
    "odd separators": lambda value: "~".join(value[at : at + 4] for at in range(0, 16, 4)),
    "bars": lambda value: " | ".join(value[at : at + 4] for at in range(0, 16, 4)),
    "underscores": lambda value: "_".join(value[at : at + 4] for at in range(0, 16, 4)),
}


def found_at(text: str, value: str) -> set[str]:
    """Labels of findings that lie within the value and cover most of it."""
    start = text.index(value)
    return {
        finding.label
        for finding in find(text)
        if start - 1 <= finding.start
        and finding.end <= start + len(value) + 1
        and 2 * (finding.end - finding.start) > len(value)
    }


BEHIND = (
    *("%20", "%2C", "%3A", "%0A", "%09", "%22", "%2F", "%5F", "%2520", "%252520"),
    *("\\u0020", "\\x20", "\\u000a", "\\x0A", "\\040", "=3D", "=3A", "&#32;", "&nbsp;"),
)


@pytest.mark.parametrize("escape", BEHIND)
@pytest.mark.parametrize("make", [samples.card, samples.aadhaar])
def test_an_escape_does_not_lengthen_the_number_behind_it(
    escape: str, make: Callable[[random.Random], str]
) -> None:
    value = make(random.Random(escape))
    text = f"https://shop.example/?q=for{escape}{value} and more"

    (found,) = find(text)

    assert found.label in {"CREDIT_CARD", "IN_AADHAAR"}
    assert text[found.start : found.end].endswith(value)


@pytest.mark.parametrize("name", DISGUISES)
@given(st.integers(0, 2**32))
def test_a_card_is_found_in_every_disguise(name: str, seed: int) -> None:
    rng = random.Random(seed)
    value = DISGUISES[name](samples.card(rng))
    text = f"{samples.clean_text(rng)} my card {value} {samples.clean_text(rng)}"
    assert "CREDIT_CARD" in found_at(text, value)


@pytest.mark.parametrize("name", SPOKEN)
@given(st.integers(0, 2**32))
def test_a_card_is_found_however_its_digits_are_said(name: str, seed: int) -> None:
    rng = random.Random(seed)
    value = SPOKEN[name](samples.with_luhn("4" + samples.digits(rng, 14)))
    text = f"{samples.clean_text(rng)} my card {value}, {samples.clean_text(rng)}"
    assert "CREDIT_CARD" in found_at(text, value)


@pytest.mark.parametrize("name", DISGUISES)
def test_an_address_of_mail_is_found_in_every_disguise(name: str) -> None:
    value = DISGUISES[name]("jane.q.doe@corp-mail.io")
    assert "EMAIL" in found_at(f"please write to {value} today", value)


@pytest.mark.parametrize(
    "value",
    [
        "jane [at] corp [dot] io",
        "jane(at)corp-mail(dot)co(dot)in",
        "jane dot doe at corp dot io",
        "jane.doe at gmail.com",
        "jane underscore doe at corp dot com",
        "jane.doe AT corp DOT com",
    ],
)
def test_an_address_of_mail_in_words_is_found(value: str) -> None:
    assert "EMAIL" in found_at(f"write to {value} please", value)


def test_double_and_triple_digits_are_counted() -> None:
    value = "double five five one two triple three four"
    assert "US_SSN" in found_at(f"my ssn is {value}", value)


def test_letters_beside_spoken_digits_belong_to_the_identifier() -> None:
    value = "HDFC zero nine three four four one eight"
    assert "IN_IFSC" in found_at(f"IFSC code {value} please", value)


def test_a_number_that_somebody_spells_is_never_nothing() -> None:
    text = "it reads " + " ".join(WORDS[int(char)] for char in "302917465")
    assert find(text)


@pytest.mark.parametrize(
    "text",
    [
        "meet me at example.com or look at acme.com",
        "ids IN (1,2,3,4,5,6,7,8,9,10,11,12) and x = [10, 20, 30, 40, 50, 60, 70]",
        "at 12:30:45 on 2023-01-01T12:00:00+05:30 we read 1,234,567,890 rows",
        "one two three testing one two",
        "thequickbrownfoxjumpsoverthelazydog and internationalization and camelCaseNames",
        "a &lt; b &amp;&amp; c &gt; d, 100%25 sure, path%2Fto%2Ffile, caf\\u00e9",
        "deadbeefcafebabe0123 is no text, nor is dGhlIHdlYXRoZXIgaXMgbmljZSB0b2RheQ==",
        "MFRGGZDFMZTWQ2LKNNWG23TPOBYXE43U and pneumonoultramicroscopicsilicovolcanoconiosis",
        "self._children_of_the_node(x)[at]&&(other->left<=right) FIRST_NAME_OF_THE_ENUM=12",
        "/usr/share/doc/README.gz 2024-01-01T00:00:00.000000+00:00 00000000 11111111 01010101",
        "ROT13 turns Uryyb into Hello, and codecs.encode(text, 'rot13') does so in Python",
        "begin 644 is how such files begin, and end is how they end",
        "int x = a ? b : c; char c, d, e; do { i++; } while (i < 10);",
    ],
)
def test_what_only_looks_like_a_disguise_is_left_alone(text: str) -> None:
    assert find(text) == ()


def rot13(text: str) -> str:
    return codecs.encode(text, "rot13")


@pytest.mark.parametrize(
    ("told", "value", "label"),
    [
        ("in ROT13: {}", "IBAN " + samples.iban(random.Random(2)), "IBAN"),
        ("{} (rot-13)", "Passport No K1234567", "PASSPORT"),
        ("{}", "password: Tr0ub4dor&3x", "PASSWORD"),
        ("{}", "my secret: " + samples.token(random.Random(4), 20) + "7", "SECRET"),
    ],
)
def test_rot13_is_read_where_the_text_says_so(told: str, value: str, label: str) -> None:
    assert label in {f.label for f in find(told.format(rot13(value)))}


@given(
    st.text("abc ", min_size=1, max_size=900),
    st.lists(st.tuples(st.integers(0, 900), st.integers(1, 5), st.text("XYZ", max_size=4))),
)
def test_places_in_decoded_texts_lead_back_to_the_original(
    text: str, wanted: list[tuple[int, int, str]]
) -> None:
    changes, reached = [], 0
    for start, length, replacement in sorted(wanted):
        if reached <= start and start + length <= len(text):
            changes.append((start, start + length, replacement))
            reached = start + length
    decoded = with_changes(text, changes)
    if decoded is None:
        assert not changes
        return
    for at, char in enumerate(decoded.text):
        start, end = decoded.origin(at, at + 1)
        assert 0 <= start <= end <= len(text)
        if not decoded.touches(at, at + 1) and char != CUT:
            assert text[start:end] == char


@pytest.mark.parametrize("card", ["4111111111111111", "5555555555554444"])
@pytest.mark.parametrize("how", ["base64", "base64 twice", "hexadecimal"])
def test_a_card_of_two_digits_is_found_behind_an_encoding(card: str, how: str) -> None:
    assert [finding.label for finding in find(DISGUISES[how](card))] == ["CREDIT_CARD"]
