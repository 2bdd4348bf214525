"""Generators of identifiers and credentials; check digits are found by trial, not by our code.

Nothing here is a constant that looks like a secret: keys are built from a seeded generator.
"""

import random
import string


CLEAN_WORDS = (
    *("the", "gateway", "routes", "every", "request", "to", "a", "managed", "model", "and"),
    *("writes", "an", "audit", "record", "about", "it", "while", "someone", "reads", "short"),
    *("story", "on", "rivers", "mountains", "music", "bread", "winter", "summer", "trains"),
)


ALPHANUMERIC = string.ascii_letters + string.digits


def clean_text(rng: random.Random, count: int = 12) -> str:
    return " ".join(rng.choices(CLEAN_WORDS, k=count))


def digits(rng: random.Random, count: int) -> str:
    return "".join(rng.choices(string.digits, k=count))


def token(rng: random.Random, count: int, alphabet: str = ALPHANUMERIC) -> str:
    return "".join(rng.choices(alphabet, k=count))


def luhn_sum(number: str) -> int:
    """Straight from the standard's text: double every second digit from the right."""
    total = 0
    for position, char in enumerate(reversed(number)):
        value = int(char) * (2 if position % 2 else 1)
        total += value // 10 + value % 10
    return total


def with_luhn(payload: str) -> str:
    return next(payload + d for d in string.digits if luhn_sum(payload + d) % 10 == 0)


def card(rng: random.Random) -> str:
    prefix, length = rng.choice(
        [("4", 16), ("52", 16), ("2300", 16), ("37", 15), ("6011", 16), ("3530", 16), ("6521", 16)]
    )
    return with_luhn(prefix + digits(rng, length - 1 - len(prefix)))


def dihedral(a: int, b: int) -> int:
    """Product in D5, written with rotations and reflections instead of Verhoeff's table."""
    if a < 5:
        return (a + b) % 5 if b < 5 else 5 + (a + b - 5) % 5
    return 5 + (a - 5 - b) % 5 if b < 5 else (a - b) % 5


PERMUTATION = (1, 5, 7, 6, 2, 8, 3, 0, 9, 4)


def verhoeff_holds(number: str) -> bool:
    state = 0
    for position, char in enumerate(reversed(number)):
        value = int(char)
        for _ in range(position % 8):
            value = PERMUTATION[value]
        state = dihedral(state, value)
    return state == 0


def aadhaar(rng: random.Random) -> str:
    payload = rng.choice("23456789") + digits(rng, 10)
    return next(payload + d for d in string.digits if verhoeff_holds(payload + d))


def ssn(rng: random.Random) -> str:
    area = rng.choice([n for n in range(1, 900) if n != 666])
    return f"{area:03}-{rng.randint(1, 99):02}-{rng.randint(1, 9999):04}"


def iban(rng: random.Random) -> str:
    country, pattern = rng.choice(
        [("GB", "AAAA" + "9" * 14), ("DE", "9" * 18), ("NL", "AAAA" + "9" * 10), ("NO", "9" * 11)]
    )
    body = "".join(
        rng.choice(string.ascii_uppercase if p == "A" else string.digits) for p in pattern
    )
    number = "".join(str(ord(c) - 55) if c.isalpha() else c for c in body + country + "00")
    remainder = 0
    for char in number:
        remainder = (remainder * 10 + int(char)) % 97
    return f"{country}{98 - remainder:02}{body}"


def nhs(rng: random.Random) -> str:
    while True:
        body = digits(rng, 9)
        check = (11 - sum(int(c) * w for c, w in zip(body, range(10, 1, -1), strict=True))) % 11
        if check < 10 and len(set(body)) > 1:
            return body + str(check)


def gstin(rng: random.Random) -> str:
    alphabet = string.digits + string.ascii_uppercase
    body = (
        f"{rng.randint(1, 37):02}" + token(rng, 3, string.ascii_uppercase) + "P"
        + token(rng, 1, string.ascii_uppercase) + digits(rng, 4)
        + token(rng, 1, string.ascii_uppercase) + "1Z"
    )  # fmt: skip
    total = 0
    for index, char in enumerate(body):
        quotient, rest = divmod(alphabet.index(char) * (2 if index % 2 else 1), 36)
        total += quotient + rest
    check: str = alphabet[-total % 36]
    return body + check


def grouped(number: str, separator: str, size: int = 4) -> str:
    return separator.join(number[i : i + size] for i in range(0, len(number), size))
