"""Tokens that are not to be taken, each with the one reason why, and those that are."""

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.errors import Unauthenticated
from gateway.identity import REFUSAL, Workload, key_table
from gateway.workloads.tokens import Expected, NotTaken, proved
from tests.gateway.workloads.callers_of_a_test import BOUND, RSA, Gate, key_record
from tests.token_issuer import (
    AUDIENCE,
    SUBJECT,
    TokenIssuer,
    curve_key,
    part,
    published,
    rsa_key,
    signed,
)


pytestmark = pytest.mark.anyio

HEADER = {"alg": "RS256", "kid": "k1", "typ": "JWT"}


@pytest.mark.parametrize(
    "key", [RSA, curve_key(), ed25519.Ed25519PrivateKey.generate()], ids=["RS256", "ES256", "EdDSA"]
)
async def test_a_token_of_each_algorithm_is_taken(
    gate: Gate, issuer: TokenIssuer, key: Any
) -> None:
    issuer.keys = {"k1": key}
    for _ in range(3):
        assert await gate.asks(issuer.token())
    assert issuer.asked == 1


async def test_a_token_is_proved_once_and_looked_up_from_then_on(
    gate: Gate, issuer: TokenIssuer
) -> None:
    token = issuer.token()
    for _ in range(3):
        await gate.asks(token)
    assert gate.counted == {("cluster", "verified"): 1, ("cluster", "known"): 2}


async def test_a_token_that_was_proved_proves_no_other_that_says_the_same(
    gate: Gate, issuer: TokenIssuer
) -> None:
    """What is remembered is the token with its signature: without it anybody could have made it."""
    token = issuer.token()
    assert await gate.asks(token)
    said, _, proof = token.rpartition(".")
    assert await gate.refuses(f"{said}.{'A' * len(proof)}") == "signature"
    assert await gate.asks(token)


async def test_a_clock_that_was_set_back_makes_no_token_good_again(
    gate: Gate, issuer: TokenIssuer
) -> None:
    token = issuer.token()
    assert await gate.asks(token)
    ended_us = gate.clock.utc_us() + 700_000_000
    gate.table = key_table(2, [key_record()], lambda: ended_us)
    assert await gate.refuses(token) == "expired"
    assert await gate.refuses(issuer.token(number=1)) == "expired"


async def test_no_algorithm_but_those_of_the_settings_is_taken(
    gate: Gate, issuer: TokenIssuer
) -> None:
    claims = issuer.claims()
    unsigned = f"{part({'alg': 'none'})}.{part(claims)}."
    assert await gate.refuses(unsigned) == "malformed"
    assert await gate.refuses(f"{unsigned}AA") == "algorithm"
    for spelled in ("None", "NONE", "nOnE", "RS256 ", "rs256", "HS256"):
        token = f"{part({'alg': spelled, 'kid': 'k1'})}.{part(claims)}.AA"
        assert await gate.refuses(token) == "algorithm"
    # Permitted by no setting here, though its signature is right.
    assert (
        await gate.refuses(signed({**HEADER, "alg": "RS512"}, claims, RSA, "RS512")) == "algorithm"
    )


async def test_a_public_key_is_no_secret_to_sign_with(gate: Gate, issuer: TokenIssuer) -> None:
    whole = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    text = f"{part({**HEADER, 'alg': 'HS256'})}.{part(issuer.claims())}"
    for secret in (whole, whole.strip(), issuer.jwks):
        proof = hmac.new(secret, text.encode(), hashlib.sha256).digest()
        assert await gate.refuses(f"{text}.{part(proof)}") == "algorithm"


async def test_a_key_that_a_token_brings_along_or_points_at_is_never_looked_at(
    gate: Gate, issuer: TokenIssuer
) -> None:
    own = rsa_key()
    brought = {
        "jwk": published("k1", own),
        "jku": f"{issuer.url}/elsewhere",
        "x5u": f"{issuer.url}/elsewhere",
        "x5c": [base64.b64encode(b"a certificate").decode()],
    }
    assert await gate.refuses(signed({**HEADER, **brought}, issuer.claims(), own)) == "signature"
    assert issuer.asked == 1
    # Beside a good signature they mean nothing either.
    assert await gate.asks(signed({**HEADER, **brought}, issuer.claims(), RSA))


@pytest.mark.parametrize(
    "kid",
    ["../../../dev/null", "/etc/passwd", "http://127.0.0.1:1/k", "k1' OR '1'='1", "", "K1", "k1 "],
)
async def test_the_name_of_a_key_is_compared_and_nothing_else(
    gate: Gate, issuer: TokenIssuer, kid: str
) -> None:
    assert await gate.refuses(signed({**HEADER, "kid": kid}, issuer.claims(), RSA)) == "key"


@pytest.mark.parametrize("kid", [1, ["k1"], {"k1": 1}, True])
async def test_a_name_of_a_key_that_is_no_text_is_none(
    gate: Gate, issuer: TokenIssuer, kid: object
) -> None:
    token = signed({**HEADER, "kid": kid}, issuer.claims(), RSA)
    assert await gate.refuses(token) == "malformed"


async def test_a_token_that_names_no_key_is_taken_where_there_is_one_only(
    gate: Gate, issuer: TokenIssuer
) -> None:
    nameless = signed({"alg": "RS256"}, issuer.claims(), RSA)
    assert await gate.asks(nameless)
    issuer.keys = {"k1": RSA, "k2": rsa_key()}
    gate.clock.later_s = 400.0
    await gate.callers.renew()
    assert await gate.refuses(nameless) == "key"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"iss": "https://issuer.example.com/"}, "issuer"),
        ({"iss": "https://ISSUER.example.com"}, "issuer"),
        ({"iss": None}, "malformed"),
        ({"iss": ["https://issuer.example.com"]}, "malformed"),
        ({"aud": "another"}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": ""}, "audience"),
        ({"aud": []}, "audience"),
        ({"aud": [AUDIENCE, "another"]}, "audience"),
        ({"aud": [AUDIENCE, None]}, "audience"),
        ({"aud": {AUDIENCE: 1}}, "audience"),
        ({"aud": AUDIENCE.upper()}, "audience"),
        ({"sub": None}, "malformed"),
        ({"sub": ""}, "malformed"),
        ({"sub": [SUBJECT]}, "malformed"),
        ({"sub": SUBJECT.upper()}, "unbound"),
        ({"sub": f"{SUBJECT} "}, "unbound"),
        ({"sub": SUBJECT.replace("a", "\u0430", 1)}, "unbound"),
        ({"sub": SUBJECT.replace("m", "\uff4d", 1)}, "unbound"),
        ({"sub": f"{SUBJECT}\u200b"}, "unbound"),
        ({"sub": f"{SUBJECT}\x00"}, "unbound"),
        ({"exp": None}, "malformed"),
        ({"iat": None}, "malformed"),
        ({"exp": "9999999999"}, "malformed"),
        ({"exp": True}, "malformed"),
        ({"exp": float("inf")}, "malformed"),
        ({"exp": float("nan")}, "malformed"),
        ({"exp": 10**30}, "malformed"),
        ({"nbf": "now"}, "malformed"),
        ({"nbf": None}, ""),
        ({"aud": [AUDIENCE]}, ""),
    ],
)
async def test_claims_that_are_not_as_they_must_be_prove_nobody(
    gate: Gate, issuer: TokenIssuer, changes: dict[str, Any], why: str
) -> None:
    token = signed(HEADER, issuer.claims(**changes), RSA)
    if why:
        assert await gate.refuses(token) == why
    else:
        assert await gate.asks(token)


async def test_a_token_holds_from_its_time_to_its_end_and_a_little_around(
    gate: Gate, issuer: TokenIssuer
) -> None:
    now_s = issuer.clock.utc_us() // 1_000_000
    assert await gate.asks(issuer.token(nbf=now_s + 20, iat=now_s + 20))
    assert await gate.refuses(issuer.token(nbf=now_s + 50)) == "not_yet"
    assert await gate.refuses(issuer.token(iat=now_s + 50)) == "not_yet"
    assert await gate.asks(issuer.token(iat=now_s - 600, exp=now_s - 10))
    assert await gate.refuses(issuer.token(iat=now_s - 600, exp=now_s - 50)) == "expired"
    assert await gate.refuses(issuer.token(exp=now_s - 5, iat=now_s)) == "lifetime"
    assert await gate.refuses(issuer.token(exp=now_s + 86_500, iat=now_s)) == "lifetime"


async def test_a_token_that_was_proved_ends_when_it_says(gate: Gate, issuer: TokenIssuer) -> None:
    token = issuer.token()
    assert await gate.asks(token)
    gate.clock.later_s = 625.0
    assert await gate.asks(token)
    gate.clock.later_s = 635.0
    assert await gate.refuses(token) == "expired"


@pytest.mark.parametrize(
    "text",
    [
        b'{"alg":"RS256","kid":"k1","kid":"k2"}',
        b'{"alg":"none","alg":"RS256","kid":"k1"}',
        b'{"alg":"RS256","kid":"k1","crit":["exp"],"exp":1}',
        b'{"alg":"RS256","kid":"k1","b64":false}',
        b'{"alg":"RS256","kid":"k1","typ":"logout+jwt"}',
        b'{"alg":"RS256","kid":"k1","typ":["JWT"]}',
        b'{"alg":["RS256"],"kid":"k1"}',
        b'{"alg":"RS256","kid":"k1"',
        b'{"a":' * 900 + b"1" + b"}" * 900,
    ],
)
async def test_a_head_that_two_could_read_in_two_ways_is_not_read(
    gate: Gate, issuer: TokenIssuer, text: bytes
) -> None:
    assert await gate.refuses(signed(text, issuer.claims(), RSA)) == "malformed"


async def test_claims_that_stand_twice_are_not_read(gate: Gate, issuer: TokenIssuer) -> None:
    claims = json.dumps(issuer.claims()).encode()
    assert await gate.asks(signed(HEADER, claims, RSA))
    for more in (b'"sub":"another"', b'"iss":"https://issuer.example.com"', b'"exp":9999999999'):
        assert (
            await gate.refuses(signed(HEADER, claims[:-1] + b"," + more + b"}", RSA)) == "malformed"
        )
    inner = claims[:-1] + b',"kubernetes.io":{"pod":1,"pod":2}}'
    assert await gate.refuses(signed(HEADER, inner, RSA)) == "malformed"


async def test_what_has_not_the_form_of_a_token_is_not_read(
    gate: Gate, issuer: TokenIssuer
) -> None:
    token = issuer.token()
    head, claims, proof = token.split(".")
    for text in (
        head,
        f"{head}.{claims}",
        f"{token}.{proof}",
        f"{head}..{proof}",
        f"{token}=",
        f"{head}.{claims}.{proof[:-4]}+/==",
        f"{token}{'A' * 9000}",
    ):
        assert await gate.refuses(text) == "malformed"
    assert await gate.refuses(f"{head}.{claims}.{proof[:-8]}AAAAAAAA") == "signature"
    assert await gate.refuses(f"{head}.{part(issuer.claims(sub='x'))}.{proof}") == "signature"
    huge = issuer.token(groups=["g" * 100] * 100)
    assert await gate.refuses(huge) == "malformed"


async def test_what_is_no_token_is_refused_in_the_words_of_keys(gate: Gate) -> None:
    for text in ("sk-something", "gw_live_abc", "Bearer", "e30.e30.AA"):
        with pytest.raises(Unauthenticated) as caught:
            await gate.asks(text)
        assert caught.value.message == REFUSAL
    assert not gate.counted


async def test_a_key_of_another_issuer_by_the_same_name_proves_nothing(
    issuer: TokenIssuer, tmp_path: Path
) -> None:
    async with TokenIssuer(k1=rsa_key()) as other:
        theirs = other.settings("partner").replace(other.issuer, "https://partner.example.com")
        gate = Gate(issuer, tmp_path, issuer.settings() + theirs)
        gate.table = key_table(1, [key_record(), key_record(Workload("partner", "them"), number=2)])
        try:
            stolen = other.token(iss=issuer.issuer)
            assert await gate.refuses(stolen) == "signature"
            assert await gate.refuses(other.token(iss="https://partner.example.com")) == "unbound"
            good = other.token(iss="https://partner.example.com", sub="them")
            assert await gate.asks(good) == "000000000002"
        finally:
            await gate.egress.close()


async def test_signed_claims_say_again_whose_they_are(issuer: TokenIssuer) -> None:
    """What was read before the signature was looked at has only found the key."""
    now_us = issuer.clock.utc_us()
    expected = Expected(issuer.issuer, AUDIENCE, frozenset(), 30.0, 3600.0)
    assert proved(json.dumps(issuer.claims()).encode(), expected, now_us).subject == SUBJECT
    for other in (f"{issuer.issuer}.evil.example.com", None):
        with pytest.raises(NotTaken, match="issuer"):
            proved(json.dumps(issuer.claims(iss=other)).encode(), expected, now_us)


async def test_a_curve_is_for_its_own_algorithm_only(gate: Gate, issuer: TokenIssuer) -> None:
    key = curve_key(ec.SECP384R1())
    issuer.keys = {"k1": key}
    claims = issuer.claims()
    assert await gate.refuses(signed({**HEADER, "alg": "ES256"}, claims, key, "ES384")) == "key"


async def test_what_a_binding_asks_for_besides_has_to_be_said_exactly(
    gate: Gate, issuer: TokenIssuer
) -> None:
    wanted = (("azp", "robot"), ("kubernetes.io/cluster", "north"))
    gate.table = key_table(1, [key_record(Workload("cluster", SUBJECT, wanted))])
    good = {"azp": "robot", "kubernetes.io/cluster": "north"}
    assert await gate.asks(issuer.token(**good))
    for changes in ({"azp": "robots"}, {"azp": ["robot"]}, {"azp": None}, {"azp": 1}):
        assert await gate.refuses(issuer.token(**(good | changes))) == "unbound"


async def test_keys_that_have_ended_are_bound_to_nobody(gate: Gate, issuer: TokenIssuer) -> None:
    token = issuer.token()
    assert await gate.asks(token)
    for ended in (key_record(revoked_us=1), key_record(expires_us=gate.clock.utc_us())):
        gate.table = key_table(2, [ended])
        assert await gate.refuses(token) == "unbound"
    gate.table = key_table(3, [])
    assert await gate.refuses(token) == "unbound"
    gate.table = key_table(4, [key_record()])
    assert await gate.asks(token)


async def test_a_token_that_two_keys_fit_leads_to_neither(gate: Gate, issuer: TokenIssuer) -> None:
    gate.table = key_table(1, [key_record(), key_record(number=2)])
    assert await gate.refuses(issuer.token()) == "ambiguous"


async def test_an_issuer_of_one_organisation_vouches_for_no_other(
    issuer: TokenIssuer, tmp_path: Path
) -> None:
    for organisation, is_taken in (("acme", True), ("globex", False)):
        gate = Gate(issuer, tmp_path, issuer.settings(more=f'organisations = ["{organisation}"]'))
        if is_taken:
            assert await gate.asks(issuer.token())
        else:
            assert await gate.refuses(issuer.token()) == "unbound"
        await gate.egress.close()


async def test_whom_a_token_may_name_beside_us_says_the_setting(
    issuer: TokenIssuer, tmp_path: Path
) -> None:
    gate = Gate(issuer, tmp_path, issuer.settings(more='other_audiences = ["account"]'))
    assert await gate.asks(issuer.token(aud=["account", AUDIENCE]))
    assert await gate.refuses(issuer.token(aud=["account"])) == "audience"
    assert await gate.refuses(issuer.token(aud="account")) == "audience"
    assert await gate.refuses(issuer.token(aud=["account", AUDIENCE, "x"])) == "audience"
    await gate.egress.close()


async def test_as_many_tokens_are_remembered_as_fit_and_the_oldest_goes(
    gate: Gate, issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.workloads.callers.TOKENS_KEPT_MAX", 2)
    tokens = [issuer.token(number=number) for number in range(3)]
    for token in tokens:
        await gate.asks(token)
    assert len(gate.callers._seen) == 2
    await gate.asks(tokens[0])
    assert gate.counted["cluster", "verified"] == 4
    assert BOUND.subject not in repr(gate.callers)
