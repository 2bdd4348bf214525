"""Passwords: long enough and not too long, proved by nobody without a hash, of any characters."""

import pytest
from argon2 import PasswordHasher, extract_parameters

from gateway.errors import RequestInvalid
from gateway.secrets.passwords import (
    LENGTH_MAX,
    LENGTH_MIN,
    checked_password,
    hash_password,
    proves,
)
from gateway.secrets.secret import Secret


@pytest.mark.parametrize("length", [LENGTH_MIN, LENGTH_MAX])
def test_a_password_of_the_shortest_and_of_the_longest_kind_proves_itself(length: int) -> None:
    password = Secret("p\x00" + "é" * (length - 2))
    encoded = hash_password(password)
    assert encoded.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert proves(password, encoded)
    assert not proves(Secret("p\x00" + "é" * (length - 3) + "e"), encoded)
    assert not proves(Secret("p" + "é" * (length - 1)), encoded)


@pytest.mark.parametrize("length", [0, LENGTH_MIN - 1, LENGTH_MAX + 1])
def test_what_is_too_short_or_too_long_is_none_and_says_which_lengths_are(length: int) -> None:
    with pytest.raises(RequestInvalid, match=f"{LENGTH_MIN} to {LENGTH_MAX}") as caught:
        checked_password(Secret("x" * length))
    assert caught.value.parameter == "password"


def test_nobody_has_a_password_not_even_the_one_that_takes_the_time() -> None:
    assert not proves(Secret("nobody has this password"), None)
    assert not proves(Secret("nobody has this password"), "")


def test_a_password_for_nobody_costs_what_one_for_somebody_costs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the time that a refusal takes would tell which names there are."""
    verify, asked = PasswordHasher.verify, []

    def noting(hasher: PasswordHasher, encoded: str, password: str) -> bool:
        asked.append(extract_parameters(encoded))
        return verify(hasher, encoded, password)

    monkeypatch.setattr(PasswordHasher, "verify", noting)
    password = Secret("a password of some length")
    for encoded in (hash_password(password), None, ""):
        proves(password, encoded)

    assert asked == [asked[0]] * 3


def test_a_hash_that_is_none_and_a_password_beyond_all_length_prove_nothing() -> None:
    long = Secret("x" * (LENGTH_MAX + 1))
    assert not proves(Secret("a password of some length"), "$argon2id$nonsense")
    # Of its own hash neither, which only somebody else can have made: it would cost what it likes.
    quick = PasswordHasher(time_cost=1, memory_cost=64)
    assert not proves(long, quick.hash(long.reveal()))
    assert proves(Secret("x" * LENGTH_MAX), quick.hash("x" * LENGTH_MAX))
