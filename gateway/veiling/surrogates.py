"""Surrogates: values that stand in for others of the same kind and belong to nobody.

Equal seeds give equal surrogates. Identifiers keep their layout, with check digits that are wrong
or beginnings that were never assigned; mail addresses use reserved domains, network addresses the
ranges for documentation. Values that have none of these, such as an account's number, are drawn.
"""

from collections.abc import Callable, Iterator
from typing import Final

from classifiers.pii.numerals import validators


ONE_WAY: Final = frozenset({"SECRET", "JWT", "PRIVATE_KEY", "PASSWORD"})
_FIRST = [
    "Adalyn",
    "Brecken",
    "Calder",
    "Darian",
    "Elowen",
    "Farley",
    "Gaelan",
    "Harlow",
    "Isolde",
    "Jorvik",
    "Kestrel",
    "Lorcan",
    "Maelis",
    "Nerys",
    "Orlaith",
    "Peregrin",
    "Quillon",
    "Rosalba",
    "Sorrel",
    "Tamsin",
    "Ulric",
    "Verity",
    "Wystan",
    "Xanthe",
    "Yorick",
    "Zelda",
]
_LAST = [
    "Ashgrove",
    "Birchall",
    "Coldwell",
    "Dunmere",
    "Elmsworth",
    "Fairholm",
    "Greyling",
    "Hartmoor",
    "Inglewick",
    "Jesmere",
    "Kirkholt",
    "Larkspur",
    "Merrowby",
    "Northam",
    "Oakhurst",
    "Penhallow",
    "Quarrington",
    "Ravensby",
    "Silverton",
    "Thornley",
    "Umberley",
    "Vanbridge",
    "Westerby",
    "Yarrowdale",
    "Zellweg",
    "Applegarth",
]
_HINDI_FIRST = ["अभिरूप", "बृंदा", "चितवन", "देवांग", "ईशानी", "गरिमा"]
_HINDI_LAST = ["अरण्यवाल", "बनसली", "चंदरगढ़", "देवलगाव", "गोधूली", "हरियल"]
_STREETS = [
    "Alder",
    "Beacon",
    "Cobble",
    "Dovecote",
    "Ember",
    "Foxglove",
    "Gannet",
    "Heron",
    "Ivy",
    "Juniper",
    "Kettle",
    "Linden",
]
_LETTERS = "bcdfghjkmnpqrstvwxz"
CHECKED: Final[dict[str, Callable[[str], bool]]] = {
    "CREDIT_CARD": validators.luhn,
    "IN_AADHAAR": validators.verhoeff,
    "US_SSN": validators.us_ssn,
    "US_ITIN": validators.us_itin,
    "UK_NHS": validators.nhs,
    "US_NPI": validators.npi,
    "CA_SIN": validators.luhn,
    "US_ROUTING": validators.aba_routing,
    "IBAN": validators.iban,
    "IN_GSTIN": validators.gstin,
    "IN_PAN": validators.pan,
    "CRYPTO_WALLET": validators.bitcoin,
    "NATIONAL_ID": validators.national_id,
    "PASSPORT": validators.machine_readable,
}
"""By label, a check that tells identifiers that somebody may have from impossible ones."""
# First digits, or letters, that were never issued.
_NEVER_ISSUED: Final = {
    # National numbers begin with one 0 and international ones with two; no country has a third.
    "PHONE": "000",
    "US_SSN": "000",
    "US_ITIN": "0",
    "IN_AADHAAR": "1",
    "CREDIT_CARD": "0",
    "UK_NINO": "QQ",
}


class _Seed:
    """Numbers drawn from a seed byte by byte, again and again."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._at = 0

    def below(self, limit: int) -> int:
        self._at += 2
        first = self._seed[self._at % len(self._seed)]
        second = self._seed[(self._at * 7 + 1) % len(self._seed)]
        return (first * 256 + second + self._at) % limit

    def of(self, items: list[str] | str) -> str:
        return items[self.below(len(items))]


def surrogate(label: str, value: str, seed: bytes) -> str:
    """The surrogate of a value; `seed` has at least 16 bytes."""
    draw = _Seed(seed)
    if label == "PERSON":
        return _person(value, draw)
    if label in {"EMAIL", "IN_UPI"}:
        return f"{_word(draw, 10)}@{'mail' if label == 'EMAIL' else 'pay'}.example"
    if label == "ADDRESS":
        return f"{1 + draw.below(899)} {draw.of(_STREETS)} Lane {_word(draw, 6).upper()}"
    if label == "USERNAME":
        return f"user_{_word(draw, 8)}"
    if label == "IP_ADDRESS":
        return _network_address(value, draw)
    if not any(map(str.isalnum, value)) or not value.isascii():
        return f"{label.lower().replace('_', '-')}-{_word(draw, 10)}"
    return _same_layout(label, value, draw)


def _person(value: str, draw: _Seed) -> str:
    hindi = "\u0900" <= value[:1] < "\u0980"
    first, last = (_HINDI_FIRST, _HINDI_LAST) if hindi else (_FIRST, _LAST)
    count = len(value.split())
    names = [draw.of(first), *(draw.of(last) for _ in range(min(count, 4) - 1))]
    name = " ".join(names)
    return name.upper() if value.isupper() and len(value) > 1 else name


def _word(draw: _Seed, length: int) -> str:
    """Letters without vowels, and digits: no word of any language."""
    return "".join(
        draw.of(_LETTERS) if at % 3 else str(draw.below(10)) for at in range(1, length + 1)
    )


def _network_address(value: str, draw: _Seed) -> str:
    if ":" in value:
        return f"2001:db8:{draw.below(0xFFFF):x}::{1 + draw.below(0xFFFE):x}"
    return f"{draw.of(['192.0.2', '198.51.100', '203.0.113'])}.{1 + draw.below(254)}"


def _same_layout(label: str, value: str, draw: _Seed) -> str:
    """Digits for digits, letters for letters, everything else the same; never a valid number.

    A leading zero stays: if a model wrote the surrogate as a number, the restored value could not
    be one.
    """
    chars = [_like(char, draw) for char in value]
    leading = next((at for at, char in enumerate(value) if char.isdigit()), None)
    if leading is not None and value[leading] == "0":
        chars[leading] = "0"
    first = _NEVER_ISSUED.get(label, "")
    is_kind = str.isdigit if first.isdigit() else str.isalpha
    places = [at for at, char in enumerate(chars) if is_kind(char)]
    for at, char in zip(places, first, strict=False):
        chars[at] = char
    check = CHECKED.get(label)
    if check is not None and _passes(check, chars):
        _spoil(chars, check)
    return "".join(chars)


def _passes(check: Callable[[str], bool], chars: list[str]) -> bool:
    return check("".join(chars)) or check("".join(filter(str.isalnum, chars)))


def _spoil(chars: list[str], check: Callable[[str], bool]) -> None:
    """Change one character so that the check fails: the last one that it depends on."""
    for at in reversed(range(len(chars))):
        before = chars[at]
        for chars[at] in _others(before):
            if not _passes(check, chars):
                return
        chars[at] = before


def _like(char: str, draw: _Seed) -> str:
    if char.isdigit():
        return str(draw.below(10))
    if char.isalpha():
        letter = draw.of(_LETTERS)
        return letter.upper() if char.isupper() else letter
    return char


def _others(char: str) -> Iterator[str]:
    """Other digits for a digit, beginning with the next; other letters for a letter."""
    if char.isdigit():
        yield from (str((int(char) + step) % 10) for step in range(1, 10))
    elif char.isalpha():
        letters = _LETTERS.upper() if char.isupper() else _LETTERS
        yield from (letter for letter in letters if letter != char)
