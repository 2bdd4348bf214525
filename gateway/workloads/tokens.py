"""Callers' tokens (JWT, RFC 7519 and 8725): what is read before and after verification. Pure.

A token is believed only as far as its signature covers it: before that, only its algorithm, the
name of its key and its issuer are read, to find the key that can verify it at all. What a token
says of where its key is (`jku`, `x5u`, `jwk`, `x5c`) is never read.
"""

import base64
import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from msgspec import Struct


TOKEN_CHARS_MAX: Final = 8 * 1024
TYPES: Final = ("jwt", "at+jwt", "application/at+jwt")
"""Accepted token types; a token for another use, such as a sign-out, has another type."""
CLAIM_CHARS_MAX: Final = 512
_FORM: Final = re.compile(r"(eyJ[A-Za-z0-9_-]*)\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+", re.ASCII)
_MOMENTS_END: Final = 2**40


class NotTaken(Exception):
    """Why a token is refused, for operators: in our words, never any of the token's."""


class Unproved(Struct, frozen=True):
    """What a token says of itself before any of it is believed."""

    algorithm: str
    kid: str | None
    issuer: str


class Expected(Struct, frozen=True):
    """What the claims of an issuer's tokens must say."""

    issuer: str
    audience: str
    other_audiences: frozenset[str]
    """Audiences allowed beside us; any other one could pass a token on to us."""
    leeway_s: float
    lifetime_s: float
    """The longest time from a token's `iat` to its `exp`."""


class Proved(Struct, frozen=True):
    """What an issuer has signed about a caller."""

    subject: str
    claims: Mapping[str, str]
    """All claims that are short texts."""
    ends_us: int
    """When the token stops being valid."""


def is_token(credential: str) -> bool:
    """Whether a credential is meant as a token: it begins like JSON's `{"` in base64.

    None of our keys does, whatever its id and its secret are.
    """
    return credential.startswith("eyJ")


def unproved(token: str) -> Unproved:
    """What is needed to find the key of a token; raises NotTaken."""
    found = _FORM.fullmatch(token) if len(token) <= TOKEN_CHARS_MAX else None
    if found is None:
        raise NotTaken("malformed")
    header, claims = _object(_decoded(found[1])), _object(_decoded(found[2]))
    kid, kind = header.get("kid"), header.get("typ", "jwt")
    if not isinstance(kind, str) or kind.lower() not in TYPES:
        raise NotTaken("malformed")
    if "crit" in header or "b64" in header or not isinstance(kid, str | None):
        # Of what a header may order to be understood nothing is (RFC 7515, 4.1.11).
        raise NotTaken("malformed")
    algorithm, issuer = header.get("alg"), claims.get("iss")
    if not isinstance(algorithm, str) or not isinstance(issuer, str):
        raise NotTaken("malformed")
    return Unproved(algorithm, kid, issuer)


def proved(signed: bytes, expected: Expected, now_us: int) -> Proved:
    """What a payload with a valid signature says; raises NotTaken."""
    claims = _object(signed)
    if claims.get("iss") != expected.issuer:
        raise NotTaken("issuer")
    _check_audience(claims.get("aud"), expected)
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject:
        raise NotTaken("malformed")
    now_s = now_us / 1_000_000
    issued_s, ends_s = _moment(claims, "iat"), _moment(claims, "exp")
    starts_s = _moment(claims, "nbf") if "nbf" in claims else issued_s
    if now_s >= ends_s + expected.leeway_s:
        raise NotTaken("expired")
    if max(issued_s, starts_s) > now_s + expected.leeway_s:
        raise NotTaken("not_yet")
    if not 0 < ends_s - issued_s <= expected.lifetime_s:
        raise NotTaken("lifetime")
    texts = {
        name: value
        for name, value in claims.items()
        if isinstance(value, str) and len(value) <= CLAIM_CHARS_MAX
    }
    return Proved(subject, texts, round((ends_s + expected.leeway_s) * 1_000_000))


def _check_audience(audience: object, expected: Expected) -> None:
    named: Collection[object] = audience if isinstance(audience, list) else (audience,)
    others = [each for each in named if each != expected.audience]
    if len(others) == len(named) or not all(
        isinstance(each, str) and each in expected.other_audiences for each in others
    ):
        raise NotTaken("audience")


def _moment(claims: Mapping[str, Any], claim: str) -> float:
    """Seconds since 1970."""
    value = claims.get(claim)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MOMENTS_END:
        return float(value)
    raise NotTaken("malformed")


def _decoded(part: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except ValueError:
        raise NotTaken("malformed") from None


def _object(text: bytes) -> dict[str, Any]:
    """A JSON object without duplicate names: two readers could read two tokens in one."""
    try:
        value = json.loads(text.decode(), object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise NotTaken("malformed") from None
    if not isinstance(value, dict):
        raise NotTaken("malformed")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotTaken("malformed")
    return found
