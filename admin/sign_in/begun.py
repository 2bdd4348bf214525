"""Pending sign-ins at an OpenID provider: what each began with, sealed in its browser's cookie.

Nothing of them is stored here, because anybody may begin one: storage for strangers has a limit,
and whoever begins often enough would push out everybody else. Any listener under the same pepper
finishes what another one began, also after a restart.

What is stored is which ones were finished, until they are too old anyway. Only people whom the
provider vouched for get that far, so no stranger can fill it. The code is good for one exchange as
well, by the provider's own count (RFC 6749, 4.1.2), whichever listener it is brought to.
"""

import base64
import hashlib
import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
from cryptography.fernet import Fernet, InvalidToken
from msgspec import Struct

from gateway.clock import Clock
from gateway.errors import Unauthenticated
from gateway.secrets.secret import Secret


BEGUN_FOR_S: Final = 600
TICKET_BYTES_MAX: Final = 3800
"""Browsers drop a cookie of more than 4,096 bytes with its name and attributes (RFC 6265, 6.1)."""
FAILED: Final = "The identity provider did not vouch for this sign-in."


class Begun(Struct, frozen=True):
    """What a sign-in began with."""

    state: str
    nonce: str
    verifier: str
    former: Secret[str]
    """The session that the browser had when it began; empty for none."""
    to: str
    """The page of ours that was wanted; empty for none."""


class BegunSignIns:
    """Seals and opens what was begun at one provider."""

    def __init__(self, issuer: str, client_id: str, pepper: bytes, clock: Clock) -> None:
        said = b"openid sign-in\x00" + msgspec.json.encode((issuer, client_id))
        key = hmac.new(pepper, said, hashlib.sha256).digest()
        self._cipher = Fernet(base64.urlsafe_b64encode(key))
        self._clock = clock
        self._finished: dict[str, int] = {}
        """States of those that are being finished, or were, and until which second they count."""

    def sealed(self, begun: Begun) -> str:
        """A name for a cookie. Where the page that was wanted has no room in it, it is left out."""
        ticket = self._seal(begun)
        if len(ticket) > TICKET_BYTES_MAX:
            ticket = self._seal(msgspec.structs.replace(begun, to=""))
        return ticket

    def _seal(self, begun: Begun) -> str:
        parts = (begun.state, begun.nonce, begun.verifier, begun.former.reveal(), begun.to)
        return self._cipher.encrypt_at_time(msgspec.json.encode(parts), self._now_s()).decode()

    @contextmanager
    def finishing(self, ticket: str, state: str) -> Iterator[Begun]:
        """What a browser brings back, for as long as it is being finished: once at a time.

        It is done with when the block ends well. One that failed may be tried again, by who holds
        both the cookie and the state; of a wrong state nothing is learnt and nothing is lost.

        Raises:
            Unauthenticated: it was not sealed here, is old, is another's or was finished before.
        """
        now_s = self._now_s()
        begun = self._opened(ticket, now_s)
        if not hmac.compare_digest(state.encode(), begun.state.encode()):
            raise Unauthenticated(FAILED)
        self._finished = {name: until for name, until in self._finished.items() if until >= now_s}
        if begun.state in self._finished:
            raise Unauthenticated(FAILED)
        # By its own age it ends before this, whenever it began.
        self._finished[begun.state] = now_s + BEGUN_FOR_S
        try:
            yield begun
        except BaseException:
            self._finished.pop(begun.state, None)
            raise

    def _opened(self, ticket: str, now_s: int) -> Begun:
        try:
            raw = self._cipher.decrypt_at_time(ticket.encode(), BEGUN_FOR_S, now_s)
            state, nonce, verifier, former, to = msgspec.json.decode(
                raw, type=tuple[str, str, str, str, str]
            )
        except (InvalidToken, msgspec.DecodeError, UnicodeEncodeError):
            raise Unauthenticated(FAILED) from None
        return Begun(state, nonce, verifier, Secret(former), to)

    def _now_s(self) -> int:
        return self._clock.utc_us() // 1_000_000
