"""Validators agree with independent implementations and reject what is one digit off."""

import base64
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classifiers.pii.numerals import validators
from tests.classifiers import samples


SEEDS = st.integers(0, 2**32)
ANY_DIGITS = st.text("0123456789", min_size=1, max_size=30)


@given(ANY_DIGITS)
def test_luhn_agrees_with_the_text_of_the_standard(number: str) -> None:
    expected = samples.luhn_sum(number) % 10 == 0 and len(set(number)) > 1
    assert validators.luhn(number) == expected


@given(ANY_DIGITS)
def test_verhoeff_agrees_with_dihedral_arithmetic(number: str) -> None:
    assert validators.verhoeff(number) == samples.verhoeff_holds(number)


@given(SEEDS)
def test_any_single_wrong_digit_breaks_a_card_an_aadhaar_and_an_iban(seed: int) -> None:
    rng = random.Random(seed)
    for number, accepts in (
        (samples.card(rng), validators.luhn),
        (samples.aadhaar(rng), validators.aadhaar),
        (samples.iban(rng), validators.iban),
        (samples.nhs(rng), validators.nhs),
    ):
        assert accepts(number)
        place = rng.choice([i for i, char in enumerate(number) if char.isdigit()])
        wrong = rng.choice([d for d in "0123456789" if d != number[place]])
        assert not accepts(number[:place] + wrong + number[place + 1 :])


@given(SEEDS)
def test_a_generated_gstin_is_accepted_and_its_neighbour_is_not(seed: int) -> None:
    number = samples.gstin(random.Random(seed))
    assert validators.gstin(number)
    assert not validators.gstin(number[:-1] + ("0" if number[-1] != "0" else "1"))


@pytest.mark.parametrize(
    ("accepts", "good", "bad"),
    [
        (validators.us_ssn, "078051120", "666051120"),
        (validators.us_ssn, "899991234", "900991234"),
        (validators.us_ssn, "001010001", "001000001"),
        (validators.ssn_without_nought, "78051120", "19840524"),
        (validators.us_itin, "900701234", "900931234"),
        (validators.aba_routing, "011000015", "011000016"),
        (validators.npi, "1234567893", "1234567894"),
        (validators.ca_sin, "046454286", "046454287"),
        (validators.cpf, "11144477735", "11144477736"),
        (validators.pan, "ABCPE1234F", "ABCXE1234F"),
        (validators.card, "378282246310005", "178282246310005"),
        (validators.public_ip, "8.8.8.8", "127.0.0.1"),
        (validators.public_ip, "2a02:b562:678::b658", "2001:db8::1"),
        (validators.ipv6, "2a02:b562:678::b658", "a::b"),
    ],
)  # fmt: skip
def test_a_published_example_passes_and_its_broken_twin_does_not(
    accepts: Callable[[str], bool], good: str, bad: str
) -> None:
    assert accepts(good)
    assert not accepts(bad)


ISSUERS: list[tuple[str, set[int]]] = [
    ("4", {13, 16, 19}),
    *((prefix, {16}) for prefix in ("51", "52", "53", "54", "55", "2221", "2222", "2719", "2720")),
    *((prefix, {15}) for prefix in ("34", "37")),
    *((prefix, {14, 15, 16}) for prefix in ("36", "38", "39", "3000", "3001", "3058", "3059")),
    *((prefix, {16, 17, 18, 19}) for prefix in ("3528", "3529", "3588", "3589")),
    *((prefix, {16, 17, 18, 19}) for prefix in ("50", "56", "57", "58", "60", "62", "63", "64")),
    *((prefix, {16, 17, 18, 19}) for prefix in ("65", "67", "68", "69", "81", "82")),
    *(
        (prefix, set())
        for prefix in ("00", "10", "20", "2220", "2721", "2999", "3060", "31", "32", "33")
    ),
    *((prefix, set()) for prefix in ("3527", "3590", "59", "61", "66", "70", "80", "83", "90")),
]
"""The first digits of a card, and how many it may have: the ends of each range, and beyond."""


@pytest.mark.parametrize(("prefix", "lengths"), ISSUERS)
def test_a_card_has_a_prefix_that_is_issued_with_its_length(prefix: str, lengths: set[int]) -> None:
    made = {
        length: samples.with_luhn(prefix + "7" * (length - len(prefix) - 1))
        for length in range(12, 21)
    }
    assert {length for length, number in made.items() if validators.card(number)} == lengths
    padded = {length: f"000{number}" for length, number in made.items()}
    assert prefix == "00" or lengths == {
        length for length, number in padded.items() if validators.padded_card(number)
    }


def test_a_jwt_header_is_json_that_names_an_algorithm() -> None:
    header = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    other = base64.urlsafe_b64encode(b'{"name":"x"}').decode().rstrip("=")
    assert validators.jwt_header(header + ".e30.")
    assert not validators.jwt_header(other + ".e30.")


def with_right_checks(country: str, account: str) -> str:
    number = "".join(str(int(each, 36)) for each in f"{account}{country}00")
    return f"{country}{98 - int(number) % 97:02}{account}"


@pytest.mark.parametrize("account", ["d7e861500000", "9BABD7E86685", "F00000000001"])
def test_letters_in_an_account_of_a_country_of_digits_are_no_iban(account: str) -> None:
    assert not validators.iban(with_right_checks("BE", account.upper()))
    assert validators.iban(with_right_checks("BE", "539007547034"))
    assert validators.iban(with_right_checks("GB", "WEST12345698765432"))


@given(st.text(max_size=60))
def test_no_validator_raises_on_any_text(text: str) -> None:
    for accepts in (
        *(validators.luhn, validators.verhoeff, validators.card, validators.aadhaar),
        *(validators.us_ssn, validators.ssn_without_nought, validators.us_itin, validators.nhs),
        *(validators.aba_routing, validators.npi, validators.ca_sin, validators.cpf),
        *(validators.iban, validators.pan),
        *(validators.gstin, validators.bitcoin, validators.public_ip, validators.ipv6),
        *(validators.jwt_header, validators.machine_readable, validators.padded_card),
    ):
        assert accepts(text) in {True, False}
    assert validators.entropy(text) >= 0
