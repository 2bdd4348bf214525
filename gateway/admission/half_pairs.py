r"""Halves of surrogate pairs in JSON from upstreams: joined again, or marked as lost.

Servers whose texts are UTF-16 cut them in the middle of a character, and send each half as an
escape (`\ud83d`). Alone it is not a character: no UTF-8 reader accepts it, and everything that
contains it would be lost too.
"""

import re
from typing import Final


_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE: Final = re.compile(
    rb"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"  # a whole pair
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|\\."
)
_LEFT_OPEN: Final = re.compile(rb"(\\u[dD][89abAB][0-9a-fA-F]{2})\"")
_TAKEN_UP: Final = re.compile(rb"\"(?=\\u[dD][c-fC-F][0-9a-fA-F]{2})")
_LOST: Final = rb"\ufffd"


def paired(data: bytes) -> bytes:
    """JSON in which each half that stands alone is U+FFFD, as a reader of bytes shows it."""
    if b"\\u" not in data or _HALF.search(data) is None:
        return data
    return _ESCAPE.sub(_whole, data)


def _whole(found: re.Match[bytes]) -> bytes:
    return _LOST if found[2] is not None else found[0]


class HalfPairs:
    """Carries the first half of a character from the end of one event to the next."""

    __slots__ = ("half",)

    def __init__(self) -> None:
        self.half = b""

    def joined(self, data: bytes) -> bytes:
        """The JSON of the next event; a first half at the end of a text waits for its second."""
        half, self.half = self.half, b""
        if half and (taken_up := _TAKEN_UP.search(data)) is not None:
            data = data[: taken_up.end()] + half + data[taken_up.end() :]
        if b"\\u" not in data or _HALF.search(data) is None:
            return data
        alone = [found.span() for found in _ESCAPE.finditer(data) if found[2] is not None]
        for start, end in alone:
            if _LEFT_OPEN.match(data, start) is not None:
                self.half = data[start:end]
                data = data[:start] + data[end:]
                break
        return paired(data)
