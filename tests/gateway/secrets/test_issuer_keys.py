"""Keys of issuers: which of those that they publish can prove anything, and what."""

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import RSAAlgorithm

from gateway.secrets.issuer_keys import KeysRefused, key_set
from tests.token_issuer import curve_key, published, rsa_key


RSA = rsa_key()
WANTED = ("k1", "RS256")


def said(*keys: object) -> bytes:
    return json.dumps({"keys": keys}).encode()


GOOD = published("k1", RSA)


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
