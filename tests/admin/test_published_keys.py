"""With which algorithm a provider's published key is believed, at the sign-in and the sign-out."""

import base64
from typing import Any

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from admin.sign_in.logout_tokens import EVENT, LogoutRefused, LogoutTokens
from admin.sign_in.oidc import OpenIdClient
from gateway.clock import SystemClock
from gateway.configuration.caller_issuers import ALGORITHMS
from gateway.configuration.sections import OidcSettings
from gateway.errors import Unauthenticated
from gateway.secrets.issuer_keys import KEYS_FOR_S, PUBLISHED_MAX, IssuerKeys
from tests import token_issuer
from tests.admin.provider_of_a_test import CLIENT, PEPPER, Liar
from tests.admin.test_openid import vouched


pytestmark = pytest.mark.anyio
Claims = dict[str, Any]
RSA = rsa.generate_private_key(65537, 2048)
P256 = ec.generate_private_key(ec.SECP256R1())
P384 = ec.generate_private_key(ec.SECP384R1())
P521 = ec.generate_private_key(ec.SECP521R1())
ED = ed25519.Ed25519PrivateKey.generate()
KEYS: dict[str, Any] = {"ES256": P256, "ES384": P384, "EdDSA": ED}
"""Which one signs; RSA with any other."""


def published(algorithm: str, key: Any, **more: Any) -> Claims:
    """Without `alg`, unless it is said."""
    known = jwt.algorithms.get_default_algorithms()[algorithm]
    told: Claims = known.to_jwk(key.public_key(), as_dict=True)
    return {name: told[name] for name in told if name != "key_ops"} | {"kid": "1"} | more


def signed(claims: Claims, algorithm: str, key: Any, **more: Any) -> str:
    return jwt.encode(claims, key, algorithm, headers={"kid": "1"} | more)


def symmetric(claims: Claims, name: str, secret: bytes) -> str:
    """An HMAC whose header names an algorithm, be it its own or not."""
    parts = [msgspec.json.encode({"alg": name, "kid": "1"}), msgspec.json.encode(claims)]
    said = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    mark = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(said, secret)
    return (said + b"." + base64.urlsafe_b64encode(mark).rstrip(b"=")).decode()


async def logged_out(liar: Liar, token: str) -> str:
    """Whose sessions a logout token ends, as its reader says."""
    settings, clock = OidcSettings(issuer=liar.issuer, client_id=CLIENT), SystemClock()
    client = OpenIdClient(settings, None, clock, "http://127.0.0.1/back", pepper=PEPPER)
    try:
        keys = IssuerKeys(client.keys, clock, outage_s=KEYS_FOR_S)
        return (await LogoutTokens(settings, keys, clock).read(token)).subject
    finally:
        await client.close()


def logout(liar: Liar) -> Claims:
    claims = {name: value for name, value in liar.claims().items() if name != "nonce"}
    return claims | {"jti": "j1", "events": {EVENT: {}}}


async def is_believed(liar: Liar, forge: Any) -> tuple[bool, bool]:
    """At the sign-in, and where it tells of a sign-out."""
    liar.forge = forge
    try:
        at_sign_in = await vouched(liar) == f"{liar.issuer}|ann"
    except Unauthenticated:
        at_sign_in = False
    try:
        at_sign_out = await logged_out(liar, forge(logout(liar))) == f"{liar.issuer}|ann"
    except LogoutRefused:
        at_sign_out = False
    return at_sign_in, at_sign_out


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("is_named", [True, False])
async def test_a_key_published_without_an_algorithm_is_believed_with_any_that_fits_it(
    liar: Liar, algorithm: str, is_named: bool
) -> None:
    key = KEYS.get(algorithm, RSA)
    liar.published = [published(algorithm, key), {"kty": "oct", "k": "c2VjcmV0", "kid": "2"}]
    named = {} if is_named else {"kid": None}

    def forge(claims: Claims) -> str:
        headers = {name: value for name, value in ({"kid": "1"} | named).items() if value}
        return jwt.encode(claims, key, algorithm, headers=headers)

    assert await is_believed(liar, forge) == (True, True)


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "PS256"])
async def test_a_key_published_for_one_algorithm_is_believed_with_no_other(
    liar: Liar, algorithm: str
) -> None:
    liar.published = [published("RS256", RSA, alg="RS256")]
    is_its = algorithm == "RS256"
    answer = await is_believed(liar, lambda claims: signed(claims, algorithm, RSA))
    assert answer == (is_its, is_its)


@pytest.mark.parametrize(
    ("algorithm", "key", "other", "other_key"),
    [
        ("ES256", P256, "RS256", RSA),
        ("RS256", RSA, "ES256", P256),
        ("EdDSA", ED, "PS256", RSA),
        ("ES256", P256, "EdDSA", ED),
        ("ES384", P384, "ES256", P256),
        ("PS256", RSA, "ES384", P384),
    ],
)
async def test_an_algorithm_of_another_type_of_key_is_refused(
    liar: Liar, algorithm: str, key: Any, other: str, other_key: Any
) -> None:
    liar.published = [published(algorithm, key)]
    assert await is_believed(liar, lambda claims: signed(claims, other, other_key)) == (
        *(False, False),
    )
    assert await is_believed(liar, lambda claims: signed(claims, algorithm, key)) == (True, True)


@pytest.mark.parametrize("name", ["HS256", "RS256", "PS256", "none"])
@pytest.mark.parametrize("kind", [serialization.Encoding.PEM, serialization.Encoding.DER])
async def test_a_public_key_is_no_secret_whatever_the_token_calls_it(
    liar: Liar, name: str, kind: serialization.Encoding
) -> None:
    liar.published = [published("RS256", RSA)]
    secret = RSA.public_key().public_bytes(kind, serialization.PublicFormat.SubjectPublicKeyInfo)
    assert await is_believed(liar, lambda claims: symmetric(claims, name, secret)) == (
        *(False, False),
    )


@pytest.mark.parametrize("more", [{}, {"alg": "HS256"}, {"alg": "RS256"}])
async def test_a_secret_that_a_provider_publishes_is_no_key(liar: Liar, more: Claims) -> None:
    shown = base64.urlsafe_b64encode(b"s" * 32).rstrip(b"=").decode()
    liar.published = [
        {"kty": "oct", "k": shown, "kid": "1"} | more,
        published("RS256", RSA, kid="2"),
    ]
    for name in ("HS256", "RS256"):
        answer = await is_believed(
            liar, lambda claims, name=name: symmetric(claims, name, b"s" * 32)
        )
        assert answer == (False, False)


async def test_a_curve_that_is_none_of_ours_is_refused(liar: Liar) -> None:
    liar.published = [published("ES512", P521)]
    assert await is_believed(liar, lambda claims: signed(claims, "ES512", P521)) == (False, False)


@pytest.mark.parametrize("keys", [None, 7, "keys", {}, [], [7, None, "key"], [{"kty": ["RSA"]}]])
async def test_keys_of_no_shape_are_nobodys(liar: Liar, keys: Any) -> None:
    liar.published = keys if keys is not None else []
    assert await is_believed(liar, lambda claims: signed(claims, "RS256", RSA)) == (False, False)


@pytest.mark.parametrize("count", [PUBLISHED_MAX, PUBLISHED_MAX + 1])
async def test_more_keys_than_any_provider_publishes_are_not_read(liar: Liar, count: int) -> None:
    more = [published("ES256", P256, kid=str(at)) for at in range(2, count + 1)]
    liar.published = [published("RS256", RSA), *more]
    is_taken = count <= PUBLISHED_MAX
    answer = await is_believed(liar, lambda claims: signed(claims, "RS256", RSA))
    assert answer == (is_taken, is_taken)


SHORT = token_issuer.rsa_key(1024)


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (SHORT, published("RS256", SHORT)),
        (RSA, published("RS256", RSA, use="enc")),
        (RSA, published("RS256", RSA, key_ops=["encrypt"])),
        (RSA, jwt.algorithms.RSAAlgorithm.to_jwk(RSA, as_dict=True) | {"kid": "1"}),
    ],
    ids=["short", "for encryption", "for encryption by its operations", "private"],
)
async def test_a_key_that_is_weak_or_for_another_use_or_was_given_away_proves_nobody(
    liar: Liar, key: Any, told: Claims
) -> None:
    liar.published = [told]
    header = {"alg": "RS256", "kid": "1"}
    answer = await is_believed(liar, lambda claims: token_issuer.signed(header, claims, key))
    assert answer == (False, False)


async def test_a_provider_whose_answers_are_too_deep_to_read_vouches_for_nobody(liar: Liar) -> None:
    liar.more = {"deep": msgspec.Raw(b"[" * 5000 + b"]" * 5000)}
    assert await is_believed(liar, lambda claims: signed(claims, "RS256", RSA)) == (False, False)
