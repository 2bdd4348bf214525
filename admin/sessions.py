"""Who is signed in to the admin listener: opaque session ids, kept in memory, ended when idle.

It knows one shared token for now; people, roles and second persons come with the admin screens.
"""

import hashlib
import hmac
import secrets

from gateway.clock import Clock
from gateway.secrets.secret import Secret


IDLE_S = 1800.0
ABSOLUTE_S = 12 * 3600.0
SESSIONS_MAX = 1000


class Sessions:
    """Session ids that are good now; only their digests are kept."""

    def __init__(self, token: Secret[str], clock: Clock) -> None:
        self._token = token
        self._clock = clock
        self._seen: dict[bytes, tuple[float, float]] = {}

    def sign_in(self, token: str) -> str | None:
        """A new session id for whoever knows the token."""
        if not hmac.compare_digest(token.encode(), self._token.reveal().encode()):
            return None
        now_s = self._clock.monotonic_s()
        self._forget_ended(now_s)
        session_id = secrets.token_urlsafe(32)
        self._seen[_digest(session_id)] = (now_s, now_s)
        return session_id

    def is_signed_in(self, session_id: str) -> bool:
        """Whether a session is good; looking keeps it from being idle."""
        now_s = self._clock.monotonic_s()
        digest = _digest(session_id)
        times = self._seen.get(digest)
        if times is None or _is_over(times, now_s):
            self._seen.pop(digest, None)
            return False
        self._seen[digest] = (times[0], now_s)
        return True

    def sign_out(self, session_id: str) -> None:
        self._seen.pop(_digest(session_id), None)

    def _forget_ended(self, now_s: float) -> None:
        self._seen = {
            digest: times for digest, times in self._seen.items() if not _is_over(times, now_s)
        }
        while len(self._seen) >= SESSIONS_MAX:
            del self._seen[min(self._seen, key=lambda digest: self._seen[digest][1])]


def _is_over(times: tuple[float, float], now_s: float) -> bool:
    began_s, seen_s = times
    return now_s - seen_s > IDLE_S or now_s - began_s > ABSOLUTE_S


def _digest(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode()).digest()
