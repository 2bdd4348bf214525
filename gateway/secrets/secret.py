"""A secret value: shows as dots everywhere and has to be asked for by name."""

import hmac
from typing import Generic, NoReturn, TypeVar


_T = TypeVar("_T", str, bytes)

REDACTED = "Secret(•••)"


class Secret(Generic[_T]):
    """A string or bytes that no log line, error, f-string or copy of memory by pickle can leak."""

    __slots__ = ("_value",)

    def __init__(self, value: _T) -> None:
        self._value: _T = value

    def reveal(self) -> _T:
        """The value itself; call it only where the value is used."""
        return self._value

    def __repr__(self) -> str:
        return REDACTED

    def __str__(self) -> str:
        return REDACTED

    def __format__(self, specification: str) -> str:
        return REDACTED

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(_as_bytes(self._value), _as_bytes(other.reveal()))

    __hash__ = None  # type: ignore[assignment]  # a hash would tell something about the value

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a secret is neither pickled nor copied")


def _as_bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
