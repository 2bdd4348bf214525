"""Hashes people's passwords with argon2id and at least the parameters that OWASP recommends.

It is slow on purpose, so it belongs in a thread. Keys of machines are not hashed slowly: they hold
256 random bits (see `gateway.identity`).
"""

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError

from gateway.errors import RequestInvalid
from gateway.secrets.secret import Secret


LENGTH_MIN = 12
LENGTH_MAX = 1024
# OWASP Password Storage Cheat Sheet: 19 MiB, two passes, one lane.
_HASHER = PasswordHasher(
    time_cost=2, memory_cost=19_456, parallelism=1, hash_len=32, salt_len=16, type=Type.ID
)
_NOBODY = _HASHER.hash("nobody has this password")


def hash_password(password: Secret[str]) -> str:
    """The encoded hash, with its salt and parameters.

    Raises:
        RequestInvalid: it is too short to be safe or too long to be one.
    """
    return _HASHER.hash(checked_password(password).reveal())


def checked_password(password: Secret[str]) -> Secret[str]:
    """A password of acceptable length.

    Raises:
        RequestInvalid: it is too short to be safe or too long to be one.
    """
    if not LENGTH_MIN <= len(password.reveal()) <= LENGTH_MAX:
        raise RequestInvalid(
            f"a password has {LENGTH_MIN} to {LENGTH_MAX} characters", parameter="password"
        )
    return password


def proves(password: Secret[str], encoded: str | None) -> bool:
    """Whether it is the password; as slow without a hash, so that timing reveals no names."""
    if len(password.reveal()) > LENGTH_MAX:
        return False
    try:
        _HASHER.verify(encoded or _NOBODY, password.reveal())
    except (VerificationError, InvalidHashError):
        return False
    return bool(encoded)
