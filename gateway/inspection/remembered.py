"""A bounded cache of inspection results: the least recently used goes first; no content.

Keys are digests, values are verdicts and scores. All of it can be lost at any moment.
"""

from typing import Generic, TypeVar


Value = TypeVar("Value")


class Remembered(Generic[Value]):
    """At most `entries_max` values by key; the least recently used goes first.

    Safe to use in several threads: each step is one operation of a dictionary, and a race costs at
    most a value that has to be computed again.
    """

    __slots__ = ("_entries_max", "_values")

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._values: dict[tuple[str, bytes], Value] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, owner: str, digest: bytes) -> Value | None:
        """What `owner` learned about the text with this digest; others' results do not count."""
        key = (owner, digest)
        value = self._values.pop(key, None)
        if value is not None:
            self._values[key] = value
        return value

    def keep(self, owner: str, digest: bytes, value: Value) -> None:
        if self._entries_max <= 0:
            return
        while len(self._values) >= self._entries_max:
            self._values.pop(next(iter(self._values), ("", b"")), None)
        self._values[owner, digest] = value
