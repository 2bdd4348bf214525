"""Sessions begun with the token of the settings: they end when that token is replaced.

Replacing a token that leaked also shuts out whoever signed in with it. So the id of such a session
carries a mark of the token it comes from. The mark is made under the pepper: a cookie gives nobody
a means to test guesses at the token.
"""

import hashlib
import hmac
import secrets

from gateway.secrets.secret import Secret


class TokenSessions:
    """Ids of one token."""

    def __init__(self, token: Secret[str], pepper: bytes) -> None:
        said = b"admin token\x00" + token.reveal().encode()
        self._key = hmac.new(pepper, said, hashlib.sha256).digest()

    def new_id(self) -> str:
        drawn = secrets.token_urlsafe(32)
        return f"{drawn}.{self._mark(drawn)}"

    def is_ours(self, session_id: str) -> bool:
        """Whether this token began a session of such an id."""
        drawn, _, mark = session_id.partition(".")
        return hmac.compare_digest(mark.encode(), self._mark(drawn).encode())

    def _mark(self, drawn: str) -> str:
        return hmac.new(self._key, drawn.encode(), hashlib.sha256).hexdigest()
