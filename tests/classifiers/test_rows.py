"""Of a row of numbers every tenth stretch has a check digit by chance; a list has one in each."""

import random

import pytest

from classifiers.pii.detect import find
from classifiers.pii.numerals import validators
from tests.classifiers import samples


RNG = random.Random(23)
CARD = samples.with_luhn("4" + samples.digits(RNG, 14))
OTHER = samples.with_luhn("52" + samples.digits(RNG, 13))
AADHAAR = samples.aadhaar(RNG)
SPACED, DASHED = samples.grouped(CARD, " "), samples.grouped(CARD, "-")
THREE = samples.grouped(AADHAAR, " ")
ODD = f"{CARD[:3]} {CARD[3:8]} {CARD[8:]}"


def of_thirteen(prefix: str, *, of_article: bool) -> str:
    """A number as old cards have it, which has the check digit of an article (GTIN-13) or not."""
    for middle in range(10 ** (12 - len(prefix))):
        code = samples.with_luhn(f"{prefix}{middle:0{12 - len(prefix)}}")
        total = sum(int(digit) * (1, 3)[at % 2] for at, digit in enumerate(code))
        if (total % 10 == 0) is of_article:
            return code
    raise AssertionError(prefix)


OLD = of_thirteen("44089021", of_article=False)
EAN = of_thirteen("400638133", of_article=True)
CELLS = f"{CARD[:3]}\n{CARD[3:]}"


def labels(text: str) -> set[str]:
    return {finding.label for finding in find(text)}


ROWS: dict[str, str] = {
    "figures": f"1450 2713 {SPACED} 1822",
    "figures of a table": f"{THREE} 1822".replace(" ", "\t"),
    "counters": f"12 7171 {ODD} 99",
    "counters in cells": ODD.replace(" ", "\t"),
    "a number between others": "cpu 4833 6361 078 05 1120 86",
    "pairs of eight digits": f"7171574 {CARD[:8]} {CARD[8:]} 780",
    "fractions": f"0.{CARD} 0.5512345678901234",
    "fractions below each other": f"0.{CARD[:-1]}\n{CARD[-1]}.25",
    "a number of an article": f"doi:10.1007/s{OLD[:5]}-{OLD[5:8]}-{OLD[8:]}-7",
    "an article": f"Schraube;{EAN};12",
    "digits": f"{' '.join(CARD)} 3 1 4 1",
    "ends of rows": f"1;nut;{CELLS};bolt;717\n7812;screw;12",
}


@pytest.mark.parametrize("name", ROWS)
def test_a_stretch_of_a_row_is_nobodys_number(name: str) -> None:
    assert labels(ROWS[name]).isdisjoint({"CREDIT_CARD", "IN_AADHAAR", "US_SSN"})


@pytest.mark.parametrize(
    "text",
    [
        SPACED,
        ODD,
        f"7 {SPACED}",
        f"{SPACED} 1229 123",
        f"{DASHED} 1229",
        f"12 {DASHED} 1229 123",
        f"{SPACED} {samples.grouped(OTHER, ' ')}",
        f"{SPACED}\t{samples.grouped(OTHER, ' ')}",
        f"{CARD[:8]} {CARD[8:]}",
        " ".join(CARD),
        f"{' '.join(CARD)} 1 2 3",
        f"text of a line {CARD[:6]}\n{CARD[6:]} goes on",
        f"a; {CELLS};b",
        f"card 1450 2713 {SPACED} 1822",
        f"card 12 {ODD} 99",
        f"credit card {OLD}",
        f"credit card {EAN}",
    ],
)
def test_a_card_by_itself_in_a_list_or_behind_a_word_is_one(text: str) -> None:
    assert "CREDIT_CARD" in labels(text)


def test_so_is_an_aadhaar() -> None:
    numbers = [samples.grouped(samples.aadhaar(RNG), " ") for _ in range(3)]
    for text in (THREE, f"7 {THREE}", f"Aadhaar {THREE} 1822", " ".join(numbers)):
        assert "IN_AADHAAR" in labels(text), text


def test_what_is_the_number_of_an_article_by_its_check_digit_is_no_card() -> None:
    assert validators.luhn(EAN)
    assert (validators.card(EAN), validators.card(OLD)) == (False, True)
