"""Logout tokens of an OpenID provider, checked in full (Back-Channel Logout 1.0, 2.6).

Nobody is signed in where they arrive, so what costs little is looked at first, and the provider is
asked for its keys only so often, whatever a stranger sends: a token that names a key which we do
not know makes us ask again, because providers change theirs.
"""

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import jwt

from admin.sign_in.oidc import ALGORITHMS, LEEWAY_S, key_of
from gateway.clock import Clock
from gateway.configuration.sections import OidcSettings
from gateway.errors import RequestInvalid, Unauthenticated
from gateway.store.identity.provided_sessions import Logout


EVENT: Final = "http://schemas.openid.net/event/backchannel-logout"
TYPES: Final = ("logout+jwt", "application/logout+jwt", "jwt")
"""What a logout token may say that it is; it need not say so."""
FRESH_S: Final = 300
"""A provider sends it at once; one that is older was kept by somebody."""
KEYS_FOR_S: Final = 300.0
"""A key that the provider withdrew is believed so long at most."""
KEYS_EVERY_S: Final = 5.0
"""The provider is asked for its keys no sooner after the last time."""
TOKEN_CHARS_MAX: Final = 12 * 1024
NAME_CHARS_MAX: Final = 512
_MOMENTS_END: Final = 2**40
_HALF_PAIR: Final = re.compile("[\ud800-\udfff]")


class LogoutRefused(RequestInvalid):
    """A token that ends nothing; why is one of our own words, never one of the token's."""


class ProviderKeys:
    """The keys of a provider, asked for when they are old or one is not among them."""

    def __init__(self, ask: Callable[[], Awaitable[jwt.PyJWKSet]], clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._asked_s = self._known_s = -math.inf
        self._known: jwt.PyJWKSet | None = None
        self._turn = asyncio.Lock()

    async def named(self, key_id: object, algorithm: object) -> jwt.PyJWK | None:
        """The key of this name, for this algorithm.

        None where the provider has none, or does not answer.
        """
        found = self._found(key_id, algorithm)
        if found is not None:
            return found  # Nobody waits behind a stranger's token.
        async with self._turn:
            found = self._found(key_id, algorithm)
            now_s = self._clock.monotonic_s()
            if found is not None or now_s - self._asked_s <= KEYS_EVERY_S:
                return found
            try:
                self._known, self._known_s = await self._ask(), now_s
            except Unauthenticated:
                return None
            finally:
                self._asked_s = self._clock.monotonic_s()
            return self._found(key_id, algorithm)

    def _found(self, key_id: object, algorithm: object) -> jwt.PyJWK | None:
        is_fresh = self._clock.monotonic_s() - self._known_s <= KEYS_FOR_S
        return key_of(self._known, key_id, algorithm) if self._known and is_fresh else None


class LogoutTokens:
    """Reads the tokens of one provider."""

    def __init__(self, settings: OidcSettings, keys: ProviderKeys, clock: Clock) -> None:
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
        key = await self._keys.named(header.get("kid"), header.get("alg"))
        if key is None:
            raise LogoutRefused("signed with a key that the provider does not name")
        return self._logout(self._claims(token, key))

    def _claims(self, token: str, key: jwt.PyJWK) -> dict[str, Any]:
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(ALGORITHMS),
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
