"""Logout tokens of an OpenID provider, checked in full (Back-Channel Logout 1.0, 2.6).

The sender is not signed in, so cheap checks come first, and the provider is asked for its keys only
so often, whatever a stranger sends: a token that names a key we do not know makes us ask again,
because providers change their keys.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import jwt

from admin.sign_in.oidc import LEEWAY_S
from gateway.clock import Clock
from gateway.configuration.caller_issuers import ALGORITHMS
from gateway.configuration.sections import OidcSettings
from gateway.errors import RequestInvalid, Unavailable
from gateway.secrets.issuer_keys import IssuerKeys, PublishedKey
from gateway.store.identity.provided_sessions import Logout


EVENT: Final = "http://schemas.openid.net/event/backchannel-logout"
TYPES: Final = ("logout+jwt", "application/logout+jwt", "jwt")
"""What a logout token may say that it is; it need not say so."""
FRESH_S: Final = 300
"""A provider sends it at once; one that is older was kept by somebody."""
TOKEN_CHARS_MAX: Final = 12 * 1024
NAME_CHARS_MAX: Final = 512
_MOMENTS_END: Final = 2**40
_HALF_PAIR: Final = re.compile("[\ud800-\udfff]")


class LogoutRefused(RequestInvalid):
    """A token that ends nothing; why is one of our own words, never one of the token's."""


class LogoutTokens:
    """Reads the tokens of one provider."""

    def __init__(self, settings: OidcSettings, keys: IssuerKeys, clock: Clock) -> None:
        self._settings = settings
        self._keys = keys
        self._clock = clock

    async def read(self, token: str) -> Logout:
        """What a token ends.

        Raises:
            LogoutRefused: it is none, not from the provider, not for us, old, or says too little.
        """
        if not token or len(token) > TOKEN_CHARS_MAX or not token.isascii():
            raise LogoutRefused("not a token")
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise LogoutRefused("not a token") from None
        if header.get("alg") not in ALGORITHMS:
            raise LogoutRefused("not signed as it has to be")
        if str(header.get("typ", "jwt")).lower() not in TYPES:
            raise LogoutRefused("a token of another kind")
        algorithm = header["alg"]
        try:
            _, key = await self._keys.named(header.get("kid"), algorithm)
        except Unavailable:
            key = None
        if key is None:
            raise LogoutRefused("signed with a key that the provider does not name")
        return self._logout(self._claims(token, key, algorithm))

    def _claims(self, token: str, key: PublishedKey, algorithm: str) -> dict[str, Any]:
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=self._settings.client_id,
                issuer=self._settings.issuer,
                options={
                    "require": ["iss", "aud", "iat", "exp", "jti", "events"],
                    # Looked at below: moments by our own clock, names by our own bounds.
                    "verify_jti": False,
                    "verify_sub": False,
                    "verify_exp": False,
                    "verify_iat": False,
                    "verify_nbf": False,
                },
            )
        except jwt.InvalidIssuerError:
            raise LogoutRefused("from another issuer") from None
        except jwt.InvalidAudienceError:
            raise LogoutRefused("for another audience") from None
        except jwt.MissingRequiredClaimError:
            raise LogoutRefused("a claim is missing") from None
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise LogoutRefused("not signed by the provider") from None
        return claims

    def _logout(self, claims: Mapping[str, Any]) -> Logout:
        events = claims["events"]
        if not isinstance(events, dict) or not isinstance(events.get(EVENT), dict):
            raise LogoutRefused("no event of a sign-out")
        if "nonce" in claims:  # An identity token must never do as one of these.
            raise LogoutRefused("a token of another kind")
        issued_s, ends_s = _moment(claims["iat"]), _moment(claims["exp"])
        now_s = self._clock.utc_us() / 1_000_000
        is_new = now_s - FRESH_S <= issued_s + LEEWAY_S and issued_s - LEEWAY_S <= now_s
        starts_s = _moment(claims.get("nbf", claims["iat"]))
        if not is_new or ends_s + LEEWAY_S < now_s or starts_s - LEEWAY_S > now_s:
            raise LogoutRefused("not of this moment")
        number, subject, sid = (_name(claims, each) for each in ("jti", "sub", "sid"))
        if not number or not (subject or sid):
            raise LogoutRefused("a claim is missing")
        issuer = self._settings.issuer
        return Logout(
            number=f"{issuer}|{number}",
            subject=f"{issuer}|{subject}" if subject else "",
            sid=f"{issuer}|{sid}" if sid else "",
            issued_us=round(issued_s * 1_000_000),
            # Once this is over it is refused for its age, and need not be remembered.
            until_us=round((issued_s + FRESH_S + 2 * LEEWAY_S) * 1_000_000),
        )


def _moment(value: object) -> float:
    """Seconds since 1970; raises LogoutRefused for what is no such number."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MOMENTS_END:
        return float(value)
    raise LogoutRefused("not of this moment")


def _name(claims: Mapping[str, Any], claim: str) -> str:
    """A claim that is a text; empty where it is not there.

    Raises:
        LogoutRefused: it is something else, or no text that names anything.
    """
    value = claims.get(claim)
    if value is None:
        return ""
    if not isinstance(value, str) or not value or len(value) > NAME_CHARS_MAX or "\x00" in value:
        raise LogoutRefused("a claim that says nothing")
    if _HALF_PAIR.search(value):  # JSON's escapes can write what is no text in UTF-8.
        raise LogoutRefused("a claim that says nothing")
    return value
