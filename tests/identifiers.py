"""Identifiers with correct check digits, made at run time: nothing that looks real is committed."""

import random


_D5 = (
    "0123456789",
    "1234067895",
    "2340178956",
    "3401289567",
    "4012395678",
    "5987604321",
    "6598710432",
    "7659821043",
    "8765932104",
    "9876543210",
)
_POSITIONS = (
    "0123456789",
    "1576283094",
    "5803796142",
    "8916043527",
    "9453126870",
    "4286573901",
    "2793806415",
    "7046913258",
)
_INVERSE = "0432156789"


def aadhaar(seed: int = 0) -> str:
    """Twelve digits, the first at least 2, the last a Verhoeff check digit."""
    rng = random.Random(seed)
    body = str(rng.randint(2, 9)) + "".join(str(rng.randint(0, 9)) for _ in range(10))
    check = 0
    for place, digit in enumerate(reversed(body), start=1):
        check = int(_D5[check][int(_POSITIONS[place % 8][int(digit)])])
    return body + _INVERSE[check]


def card(seed: int = 0) -> str:
    """Sixteen digits of a test range with a Luhn check digit."""
    rng = random.Random(seed)
    body = "4" + "".join(str(rng.randint(0, 9)) for _ in range(14))
    total = sum(
        sum(divmod(int(digit) * 2, 10)) if place % 2 == 0 else int(digit)
        for place, digit in enumerate(reversed(body))
    )
    return body + str(-total % 10)
