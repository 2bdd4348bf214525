"""Refuses database passwords that anybody would try first. Pure.

A default is refused on this machine too, like every other default secret: what is set up with one
for a day is still there a year later. No password at all is allowed, for a database that asks for
none from this machine, or that is shown a certificate or a password file of PostgreSQL's own.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit


SHORTEST: Final = 8
LETTERS_MIN: Final = 4
"""So many different characters: `aaaaaaaa` and `abababab` are no passwords."""
_EXAMPLES: Final = ("changeme", "change-me", "change_me", "secret", "password", "passw0rd")
_WORDS: Final = ("gatewright", "postgres", "example", "default", "admin", "root", "letmein")
_ROWS: Final = ("01234567890123456789", "qwertyuiop", "abcdefghijklmnopqrstuvwxyz")
_FROM_ENVIRONMENT: Final = "PGPASSWORD"
"""Where the driver looks if the address has no password."""
_SHOWN: Final = "is an example or a default, or short enough to be guessed: choose another"


def refused_password(url: str, environment: Mapping[str, str]) -> str:
    """Why the password in a database's address is refused; empty if there is no objection."""
    parts = urlsplit(url)
    query = parse_qs(parts.query, keep_blank_values=True)
    written = [unquote(parts.password)] if parts.password is not None else []
    written += query.get("password", [])
    if not written and (found := environment.get(_FROM_ENVIRONMENT)):
        written = [found]
    hosts = [parts.hostname or "", *query.get("host", [])]
    known = {unquote(parts.username or ""), parts.path.strip("/"), *hosts}
    for password in written:
        if not password:
            if not all(map(_is_here, hosts)):
                return "the password is empty, and the database is beyond this machine"
        elif _is_default(password, {each.lower() for each in known}):
            return f"the password {_SHOWN}"
    return ""


def _is_default(password: str, known: set[str]) -> bool:
    word = password.lower()
    bare = word.rstrip("0123456789!.-_")
    is_example = any(each in word for each in _EXAMPLES)
    is_word = bare in _WORDS or word in known or (bare in known and bool(bare))
    is_row = any(word in row or word in row[::-1] for row in _ROWS)
    is_thin = len(word) < SHORTEST or len(set(word)) < LETTERS_MIN
    return is_example or is_word or is_row or is_thin


def _is_here(host: str) -> bool:
    """Whether it is this machine: by its own name, or by a socket in a folder."""
    return host in ("", "127.0.0.1", "::1", "localhost") or host.startswith("/")
