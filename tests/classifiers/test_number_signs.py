"""Items of a list, notes and counts stand at a number without a blank, and are no digits of it."""

import random
import unicodedata
from base64 import b64encode

import pytest

from classifiers.pii.detect import find
from classifiers.pii.numerals.number_signs import stands_at_a_number
from classifiers.pii.views.normalise import normalise
from tests.classifiers import samples


RANDOM = random.Random(31)
CARD = samples.with_luhn("4" + samples.digits(RANDOM, 14))
AADHAAR = samples.aadhaar(RANDOM)
IBAN = samples.iban(RANDOM)
PAN = "ABCPE1234F"
SIGNS = {
    "a circle": "\u2460",
    "a circle of two digits": "\u246b",
    "a black circle": "\u2776",
    "brackets": "\u2474",
    "a full stop": "\u2488",
    "a comma": "\U0001f103",
    "a Roman numeral": "\u2163",
    "a small Roman numeral": "\u2171",
    "an ideograph": "\u4e00",
    "a formal ideograph": "\u53c2",
    "an ideograph in brackets": "\u3221",
    "an ideograph in a circle": "\u3282",
    "a note": "\u00b2",
    "a note of two digits": "\u00b9\u2070",
    "a fraction": "\u00bd",
    "a sign of Ethiopia": "\u136a",
    "a month": "\u32c2",
    "an hour": "\u335a",
    "a day": "\u33e3",
    "a tally": "\U0001d373",
}


@pytest.mark.parametrize("name", SIGNS)
def test_a_sign_at_a_number_is_none_of_its_digits(name: str) -> None:
    sign, grouped = SIGNS[name], samples.grouped(CARD, " ")
    cards = ((CARD, "CREDIT_CARD"), (grouped, "CREDIT_CARD"))
    for said, label in (*cards, (AADHAAR, "IN_AADHAAR"), (IBAN, "IBAN"), (PAN, "IN_PAN")):
        for text in (f"{sign}{said}", f"{said}{sign}", f"{sign}{said}{sign}", f"a {sign}{said}, b"):
            places = [(each.start, each.end) for each in find(text) if each.label == label]
            at = text.index(said)
            assert places == [(at, at + len(said))], text


def test_all_that_is_read_as_a_digit_and_is_none_is_such_a_sign() -> None:
    """Letters that look like digits, as of Cyrillic, are letters of words."""
    signs = {
        char
        for char in map(chr, (*range(0x80, 0xD800), *range(0xE000, 0x20000)))
        if unicodedata.category(char) in {"No", "Nl", "So"} and normalise(char).text.isdigit()
    }
    assert len(signs) > 500
    assert {char for char in signs if not stands_at_a_number(f"{char}{CARD}")} == set()


@pytest.mark.parametrize("name", SIGNS)
def test_all_items_of_a_list_are_found(name: str) -> None:
    text = "".join(f"{SIGNS[name]}{each}" for each in (CARD, "12", AADHAAR, IBAN))

    assert {each.label for each in find(text)} >= {"CREDIT_CARD", "IN_AADHAAR", "IBAN"}


def test_a_sign_at_a_number_is_seen_in_what_is_encoded() -> None:
    coded = b64encode(f"\u2460{CARD} is mine".encode()).decode()

    assert "CREDIT_CARD" in {each.label for each in find(coded)}


def test_a_number_of_signs_alone_is_one_and_a_sign_elsewhere_is_nothing() -> None:
    circled = "".join(chr(0x245F + int(d)) if d != "0" else "\u24ea" for d in CARD)

    assert {each.label for each in find(circled)} == {"CREDIT_CARD"}
    assert not stands_at_a_number(circled)
    assert not stands_at_a_number("5 m\u00b2, 2\u00b2 = 4, \u2460 4111, \u4e00\u4e2a 12")
    assert find("\u246024 \u246125 30\u00b2 \u4e8c2026 \u00bd100") == ()
