"""Turns a token into a principal: a trusted issuer, a signature, and a key bound to both.

A token that was verified is remembered by its digest until it expires, so that its signature is
checked once and not for each request. Its binding is looked up each time: a revoked binding is gone
with the next table of keys, like any revoked key.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import jwt
from jwt.api_jws import PyJWS
from msgspec import Struct

from gateway.errors import GatewrightError, Unauthenticated, Unavailable
from gateway.identity import REFUSAL, Headers, KeyTable, credential_of
from gateway.secrets.issuer_keys import IssuerKeys, KeySet
from gateway.types import Principal
from gateway.workloads.tokens import Expected, NotTaken, Proved, is_token, proved, unproved


TOKENS_KEPT_MAX: Final = 4096
REFUSAL_OF_TOKENS: Final = (
    "Incorrect API key provided: this token is not one that an issuer of this gateway signed for "
    "it, or its time is over, or no caller here is bound to its subject."
)
"""Begins as at OpenAI, like the refusal of a key, and is the same for every reason."""
_SIGNED: Final = PyJWS()


class Issuer(Struct, frozen=True, eq=False):
    """An issuer whose tokens are accepted."""

    name: str
    expected: Expected
    algorithms: frozenset[str]
    organisations: frozenset[str]
    """Organisations in whose projects its subjects may be bound; empty for all."""
    keys: IssuerKeys


class _Seen(Struct, frozen=True):
    """A token that was verified, and with which of its issuer's keys."""

    issuer: Issuer
    keys: KeySet
    token: Proved


class Callers:
    """Authenticates callers by tokens."""

    def __init__(
        self,
        issuers: Iterable[Issuer],
        table: Callable[[], KeyTable],
        count: Callable[[str, str], None],
    ) -> None:
        """`table` gives the current keys; `count` gets an issuer's name and an outcome."""
        self._issuers: Mapping[str, Issuer] = {each.expected.issuer: each for each in issuers}
        self._table = table
        self._count = count
        self._seen: dict[bytes, _Seen] = {}

    async def principal(self, headers: Headers, now_us: int) -> Principal:
        """The caller whom a request's headers prove, if they hold no key of ours.

        Raises:
            Unauthenticated: with the same words for every reason of a token.
            Unavailable: its issuer has not said for too long which keys it has.
        """
        credential = credential_of(headers)
        if not is_token(credential):
            raise Unauthenticated(REFUSAL)
        now_us = self._table().by(now_us)
        digest = hashlib.sha256(credential.encode()).digest()
        name = ""
        try:
            seen = self._remembered(digest, now_us)
            outcome = "known"
            if seen is None:
                issuer = self._issuers.get(unproved(credential).issuer)
                if issuer is None:
                    raise NotTaken("issuer")
                name, outcome = issuer.name, "verified"
                seen = await self._proved(credential, issuer, now_us)
                self._remember(digest, seen)
            name = seen.issuer.name
            principal = _bound(self._table(), seen, now_us)
        except NotTaken as reason:
            self._count(name, str(reason))
            raise Unauthenticated(REFUSAL_OF_TOKENS) from None
        except Unavailable:
            self._count(name, "keys_unavailable")
            raise
        self._count(name, outcome)
        return principal

    async def renew(self) -> None:
        """Ask every issuer whose turn it is for its keys; raises the first failure.

        Each is asked, even if others fail.
        """
        failed: GatewrightError | None = None
        for issuer in self._issuers.values():
            try:
                await issuer.keys.renew()
            except GatewrightError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _remembered(self, digest: bytes, now_us: int) -> _Seen | None:
        seen = self._seen.get(digest)
        if seen is None:
            return None
        if now_us < seen.token.ends_us and seen.keys is seen.issuer.keys.known:
            return seen
        # Its time is over, or its issuer has other keys by now: it is proved again, or not.
        del self._seen[digest]
        return None

    def _remember(self, digest: bytes, seen: _Seen) -> None:
        while len(self._seen) >= TOKENS_KEPT_MAX:
            del self._seen[next(iter(self._seen))]
        self._seen[digest] = seen

    async def _proved(self, credential: str, issuer: Issuer, now_us: int) -> _Seen:
        token = unproved(credential)
        if token.algorithm not in issuer.algorithms:
            raise NotTaken("algorithm")
        keys, key = await issuer.keys.named(token.kid, token.algorithm)
        if key is None:
            raise NotTaken("key")
        try:
            signed = _SIGNED.decode(credential, key.key, algorithms=[token.algorithm])
        except (jwt.PyJWTError, ValueError, TypeError):
            raise NotTaken("signature") from None
        return _Seen(issuer, keys, proved(signed, issuer.expected, now_us))


def _bound(table: KeyTable, seen: _Seen, now_us: int) -> Principal:
    """The one key that is bound to a token; raises NotTaken if there is none, or several."""
    found = [
        record
        for record in table.bound.get((seen.issuer.name, seen.token.subject), ())
        if record.is_live(now_us)
        and record.workload is not None
        and record.workload.fits(seen.token.claims)
        and (
            not seen.issuer.organisations
            or record.principal.organisation in seen.issuer.organisations
        )
    ]
    if len(found) != 1:
        raise NotTaken("ambiguous" if found else "unbound")
    return found[0].principal
