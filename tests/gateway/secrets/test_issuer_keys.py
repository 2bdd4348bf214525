"""Keys of issuers: which of those that they publish can prove anything, and what."""

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519
from hypothesis import assume, given
from hypothesis import strategies as st
from jwt.algorithms import OKPAlgorithm, RSAAlgorithm

from gateway.secrets.issuer_keys import KeysRefused, key_set
from tests.token_issuer import curve_key, part, published, rsa_key


RSA = rsa_key()
WANTED = ("k1", "RS256")


def said(*keys: object) -> bytes:
    return json.dumps({"keys": keys}).encode()


GOOD = published("k1", RSA)
OF_EDWARDS = ed25519.Ed25519PrivateKey.generate()


@pytest.mark.parametrize(
    "key",
    [
        published("k1", rsa_key(1024)),
        {**GOOD, "e": "AQAB" * 200},
        {**GOOD, "n": "A" * 4000},
        {**GOOD, "n": "????"},
        {**GOOD, "use": "enc"},
        {**GOOD, "key_ops": ["encrypt"]},
        {**GOOD, "key_ops": "verify"},
        {**GOOD, "alg": "RSA-OAEP"},
        {**GOOD, "alg": ["RS256"]},
        {**GOOD, "alg": "HS256"},
        {**GOOD, "kid": 1},
        {**json.loads(RSAAlgorithm.to_jwk(RSA)), "kid": "k1", "key_ops": ["sign", "verify"]},
        {"kty": "oct", "kid": "k1", "k": "c2VjcmV0", "alg": "RS256"},
        {"kty": "EC", "crv": "P-521", "kid": "k1"},
        {**json.loads(OKPAlgorithm.to_jwk(ed448.Ed448PrivateKey.generate().public_key()))},
        {"kty": "RSA", "kid": "k1"},
        "k1",
        None,
    ],
)
def test_what_can_prove_nothing_is_passed_over(key: Any) -> None:
    with pytest.raises(KeysRefused, match="no key that tokens"):
        key_set(said(key))
    beside = {**GOOD, "kid": "k2"}
    assert key_set(said(key, beside)).named(*WANTED) is None


@pytest.mark.parametrize(
    ("bits", "is_taken"), [(2047, False), (2048, True), (8192, True), (8193, False)]
)
def test_a_key_of_rsa_is_neither_too_short_nor_too_long(bits: int, *, is_taken: bool) -> None:
    number = (1 << bits) - 1
    text = part(number.to_bytes((bits + 7) // 8, "big"))
    if is_taken:
        assert key_set(said({**GOOD, "n": text})).named(*WANTED)
    else:
        with pytest.raises(KeysRefused, match="no key that tokens"):
            key_set(said({**GOOD, "n": text}))


@pytest.mark.parametrize("changes", [{"n": "A" * 1401}, {"e": "AQABAQAB"}])
def test_no_time_is_spent_on_numbers_that_are_too_long(
    changes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def computed(_: object) -> None:
        raise AssertionError("it was computed with")

    monkeypatch.setattr(RSAAlgorithm, "from_jwk", staticmethod(computed))
    with pytest.raises(KeysRefused, match="no key that tokens"):
        key_set(said({**GOOD, **changes}))


_NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)  # JSON has no other
_ANY = st.recursive(
    st.none() | st.booleans() | _NUMBERS | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@given(
    st.sampled_from([GOOD, published("k1", curve_key()), published("k1", OF_EDWARDS)]),
    st.dictionaries(
        st.sampled_from(["kty", "crv", "n", "e", "x", "y", "use", "key_ops", "alg", "kid"]),
        _ANY,
        min_size=1,
        max_size=2,
    ),
)
def test_rubbish_in_a_key_keeps_no_other_from_being_known(
    key: dict[str, Any], changes: dict[str, object]
) -> None:
    """An issuer whose whole set fell by it would shut out all of its callers."""
    assume(changes.get("kid") != "k2")  # two keys of one name are none
    beside = {**GOOD, "kid": "k2"}
    assert key_set(said({**key, **changes}, beside)).named("k2", "RS256")


def test_a_key_is_for_the_algorithms_of_its_kind_and_of_its_word() -> None:
    found = key_set(said(GOOD, {**GOOD, "kid": "k2", "alg": "PS256"}, published("k3", curve_key())))
    assert found.named(*WANTED)
    assert found.named("k2", "PS256")
    assert not found.named("k2", "RS256")
    assert found.named("k3", "ES256")
    assert not found.named("k3", "ES384")
    assert not found.named("k3", "RS256")
    key = published("k1", curve_key(ec.SECP384R1()))
    assert key_set(said(key)).named("k1", "ES384")


def test_as_many_keys_are_read_as_may_be_published() -> None:
    keys = [{**GOOD, "kid": f"k{number}"} for number in range(100)]
    assert key_set(said(*keys)).named("k99", "RS256")


def test_two_keys_of_one_name_are_none() -> None:
    assert key_set(said(GOOD, published("k1", rsa_key()))).named(*WANTED) is None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"keys":{}}',
        b'{"keys":[]}',
        b"[" * 100_000,
        said(*[GOOD] * 101),
        said(GOOD) + b" " * 256 * 1024,
        b"\xff",
    ],
)
def test_what_is_no_set_of_keys_is_refused(text: bytes) -> None:
    with pytest.raises(KeysRefused):
        key_set(text)
