"""A token issuer's signing keys: read from its JWKS (RFC 7517), cached and refreshed.

They are fetched outside of requests, every few minutes. A token that names an unknown key causes a
fetch at once, because issuers change their keys, but only so often, whatever strangers send.
"""

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import jwt
import msgspec
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from msgspec import Struct

from gateway.clock import Clock
from gateway.errors import GatewrightError, Unavailable


PUBLISHED_BYTES_MAX: Final = 256 * 1024
PUBLISHED_MAX: Final = 100
KEYS_FOR_S: Final = 300.0
"""How long a withdrawn key is still trusted at most, while the issuer answers."""
KEYS_EVERY_S: Final = 10.0
"""The least time between two questions to an issuer, whoever causes them."""
_RSA_BITS: Final = (2048, 8192)
_RSA_CHARS_MAX: Final = 1400
_EXPONENT_CHARS_MAX: Final = 6
_OF_RSA: Final = frozenset({"RS256", "RS384", "RS512", "PS256"})
_OF_CURVES: Final = {"P-256": "ES256", "P-384": "ES384"}
_AWAY: Final = "The keys of this token's issuer are not known here now; try again."


class KeysRefused(GatewrightError):
    """An issuer's published keys cannot be used; tells operators why."""


class PublishedKey(Struct, frozen=True):
    """One key, and what it may be used for."""

    kid: str | None
    algorithms: frozenset[str]
    key: Any


class KeySet(Struct, frozen=True, eq=False):
    """All keys of an issuer at one moment; equal only to itself."""

    keys: tuple[PublishedKey, ...]
    digest: bytes

    def named(self, kid: str | None, algorithm: str) -> PublishedKey | None:
        """The key that a token names, for its algorithm; the only key if it names none."""
        found = [
            each for each in self.keys if kid in (None, each.kid) and algorithm in each.algorithms
        ]
        return found[0] if len(found) == 1 else None


def key_set(published: bytes) -> KeySet:
    """The keys of a JWK set that can prove tokens; others are skipped.

    Raises:
        KeysRefused: it is not a set, is too long, or has no key that can be used.
    """
    if len(published) > PUBLISHED_BYTES_MAX:
        raise KeysRefused("is too long for a JWK set")
    try:
        tree = msgspec.json.decode(published)
    except (msgspec.DecodeError, RecursionError):
        raise KeysRefused("is no JWK set") from None
    listed = tree.get("keys") if isinstance(tree, dict) else None
    if not isinstance(listed, list):
        raise KeysRefused("is no JWK set")
    if len(listed) > PUBLISHED_MAX:
        raise KeysRefused(f"has more than {PUBLISHED_MAX} keys")
    keys = tuple(filter(None, map(_key, listed)))
    if not keys:
        raise KeysRefused("has no key that tokens may be proved by")
    return KeySet(keys, hashlib.sha256(published).digest())


def _key(published: object) -> PublishedKey | None:
    """None for a key of another kind, for another use, or too weak; also for a private one."""
    if not isinstance(published, dict) or "d" in published or "k" in published:
        return None
    kid, use = published.get("kid"), published.get("use", "sig")
    uses = published.get("key_ops", ["verify"])
    if not isinstance(kid, str | None) or use != "sig" or not isinstance(uses, list):
        return None
    if "verify" not in uses:
        return None
    try:
        found = _of_kind(published)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, OverflowError):
        return None
    if found is None:
        return None
    key, algorithms = found
    if "alg" in published:
        algorithms &= {published["alg"]} if isinstance(published["alg"], str) else frozenset()
    return PublishedKey(kid, algorithms, key) if algorithms else None


def _of_kind(published: Mapping[str, Any]) -> tuple[Any, frozenset[str]] | None:
    kind, curve, key = published.get("kty"), published.get("crv"), {**published}
    if kind == "RSA":
        # Checked before any arithmetic, which takes longer the larger they are.
        if len(str(key.get("n"))) > _RSA_CHARS_MAX or len(str(key.get("e"))) > _EXPONENT_CHARS_MAX:
            return None
        rsa: Any = RSAAlgorithm.from_jwk(key)
        return (rsa, _OF_RSA) if _RSA_BITS[0] <= rsa.key_size <= _RSA_BITS[1] else None
    if kind == "EC" and curve in _OF_CURVES:
        return ECAlgorithm.from_jwk(key), frozenset({_OF_CURVES[curve]})
    if kind == "OKP" and curve == "Ed25519":
        return OKPAlgorithm.from_jwk(key), frozenset({"EdDSA"})
    return None


class IssuerKeys:
    """The keys of one issuer."""

    def __init__(self, ask: Callable[[], Awaitable[bytes]], clock: Clock, outage_s: float) -> None:
        """`ask` returns the issuer's published keys; without it they are valid for `outage_s`.

        It raises GatewrightError, whose message is the operator's.
        """
        self._ask = ask
        self._clock = clock
        self._outage_s = outage_s
        self._asked_s = self._known_s = -math.inf
        self._known: KeySet | None = None
        self._turn = asyncio.Lock()

    @property
    def known(self) -> KeySet | None:
        """The last known keys; None if they are too old."""
        is_told = self._clock.monotonic_s() - self._known_s <= self._outage_s
        return self._known if is_told else None

    async def named(self, kid: str | None, algorithm: str) -> tuple[KeySet, PublishedKey | None]:
        """The current keys, and the one that a token names; an unknown one is asked for.

        Raises:
            Unavailable: the issuer has not published its keys for too long.
        """
        known = self.known
        # Nobody waits behind a stranger's token: known keys are looked up before any turn.
        key = known.named(kid, algorithm) if known else None
        if not known or not key:
            with suppress(GatewrightError):
                await self.refresh()
            known = self.known
            key = known.named(kid, algorithm) if known else None
        if not known:
            raise Unavailable(_AWAY, retry_after_s=5.0)
        return known, key

    async def renew(self) -> None:
        """Ask for the keys if they are old; raises as `refresh`."""
        if self._clock.monotonic_s() - self._known_s >= KEYS_FOR_S:
            await self.refresh()

    async def refresh(self) -> None:
        """Ask for the keys, unless that was done a moment ago.

        Raises:
            GatewrightError: that failed, and the keys stay as they were.
        """
        async with self._turn:
            if self._clock.monotonic_s() - self._asked_s < KEYS_EVERY_S:
                return
            try:
                found = key_set(await self._ask())
            finally:
                self._asked_s = self._clock.monotonic_s()
            self._known_s = self._asked_s
            if self._known is None or self._known.digest != found.digest:
                self._known = found
