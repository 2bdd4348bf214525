"""Surrogates: of the layout of what they stand for, and nobody's wherever that can be told."""

import random
from collections.abc import Callable
from hashlib import sha256

import pytest

from classifiers.pii import patterns
from classifiers.pii.numerals import numbers, validators
from gateway.veiling.surrogates import CHECKED, ONE_WAY, surrogate
from tests.classifiers import samples


def cpf(rng: random.Random) -> str:
    """A number of Brazil's with the two check digits that fit, as it is written there."""
    first = samples.digits(rng, 9)
    last = next(f"{two:02}" for two in range(100) if validators.cpf(f"{first}{two:02}"))
    return f"{first[:3]}.{first[3:6]}.{first[6:]}-{last}"


def pan(rng: random.Random) -> str:
    holder = samples.token(rng, 1, "ABCEFGHJKLPT")
    letters = samples.token(rng, 4, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return f"{letters[:3]}{holder}{letters[3]}{samples.digits(rng, 4)}Q"


def travel_line(rng: random.Random) -> str:
    """The second line of a travel document with its three check digits."""
    number, birth, end = (samples.digits(rng, count) for count in (9, 6, 6))

    def checked(part: str) -> str:
        weighed = sum(int(char) * (7, 3, 1)[at % 3] for at, char in enumerate(part))
        return f"{part}{weighed % 10}"

    return f"{checked(number)}UTO{checked(birth)}F{checked(end)}ZE<<<<<<"


def phone(rng: random.Random) -> str:
    """As people write one of their own country's, or of another one."""
    rest = samples.grouped(samples.digits(rng, 8), " ", 2)
    return rng.choice(["0", "+3", "004", ""]) + str(rng.randrange(1, 10)) + f" {rest}"


def is_reached(text: str) -> bool:
    return not "".join(filter(str.isdigit, text)).startswith("000")


def is_nino(text: str) -> bool:
    return not text.upper().startswith("QQ")


def compact(check: Callable[[str], bool]) -> Callable[[str], bool]:
    return lambda text: check("".join(filter(str.isalnum, text)))


@pytest.mark.parametrize(
    ("label", "make", "is_somebodys"),
    [
        ("IN_PAN", pan, validators.pan),
        ("NATIONAL_ID", cpf, compact(validators.cpf)),
        ("PASSPORT", travel_line, validators.machine_readable),
        ("UK_NINO", lambda rng: f"AB {samples.grouped(samples.digits(rng, 6), ' ', 2)} C", is_nino),
        ("PHONE", phone, is_reached),
        ("UK_NHS", samples.nhs, validators.nhs),
        ("IN_GSTIN", samples.gstin, validators.gstin),
    ],
)
def test_what_can_be_told_to_be_nobodys_is(
    label: str, make: Callable[[random.Random], str], is_somebodys: Callable[[str], bool]
) -> None:
    rng = random.Random(11)
    for number in range(2000):
        value = make(rng)
        assert is_somebodys(value)
        other = surrogate(label, value, sha256(str(number).encode()).digest())
        assert not is_somebodys(other), other
        assert [c.isdigit() for c in other] == [c.isdigit() for c in value]


def test_whatever_is_found_by_its_check_digits_is_spoiled_by_them() -> None:
    known = [one for name, one in vars(validators).items() if callable(one) and name[0] != "_"]
    proved = {rule.label for rule in numbers.RULES if rule.accepts in known}
    proved |= {rule.label for rule in patterns.PATTERNS if rule.accepts in known}
    assert proved >= {"CREDIT_CARD", "US_ROUTING", "CRYPTO_WALLET"}
    assert proved - ONE_WAY - {"IP_ADDRESS"} <= set(CHECKED)


@pytest.mark.parametrize("label", ["BANK_ACCOUNT", "UK_NHS", "PHONE"])
def test_a_number_with_a_nought_in_front_is_no_number_of_json_on_either_side(label: str) -> None:
    """A model may write a surrogate without quotation marks: what comes back is to be JSON."""
    for number in range(200):
        seed = sha256(str(number).encode()).digest()
        assert surrogate(label, "05 3201 3000", seed)[0] == "0"
