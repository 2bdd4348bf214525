"""Limits how much of a chunked body is parsed in one go.

The parser calls back for each chunk, and a chunk may be one byte: a read of 256 KB can hold forty
thousand. A sender of such bodies, with or without a key, kept a worker from almost all other work.
"""

from typing import Final


WHOLE_BYTES: Final = 4096
"""A piece up to this size is parsed as it came."""
LINES_MAX: Final = 1000
"""How many line ends are parsed before others have their turn; a chunk has two."""
_LINE_END: Final = b"\r\n"


def morsel_bytes(data: bytes) -> int:
    """How much of what was read to parse now: about `LINES_MAX` lines of it."""
    lines = data.count(_LINE_END)
    return len(data) if lines <= LINES_MAX else max(len(data) * LINES_MAX // lines, WHOLE_BYTES)
