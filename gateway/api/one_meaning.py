"""Reads a request's head, and refuses one that a server in front may have read differently."""

import re
from collections.abc import Sequence
from operator import itemgetter
from typing import Final, Literal


Framing = Literal["", "length", "chunks"]

_NAME: Final = itemgetter(0)
_ENCODING: Final = b"transfer-encoding"
_LINE_END: Final = b"\r\n"
_HEAD_END: Final = 2 * _LINE_END
TAIL_BYTES: Final = len(_HEAD_END) - 1
OFFER: Final = b"pgrade:"
"""Part of every head that offers another protocol, as clients write it."""
_UPGRADE: Final = re.compile(rb"(?<=\r\n)[Uu]pgrade:[^\r\n]*\r\n")


class _Unkept(list[tuple[bytes, bytes]]):
    """Takes trailers and drops them: uvicorn would take them for headers of their request."""

    def append(self, header: tuple[bytes, bytes]) -> None:
        """Drop it; a stranger may send any number."""


TRAILERS: Final = _Unkept()


def not_upgraded(data: bytes, before: bytes) -> bytes:
    """A request's head as read, without an offer to speak another protocol.

    Java's own client makes one (`h2c`) in the first request of an unencrypted connection. Nothing
    here accepts any, and the parser would stop after the head, before the body, and take that for
    another request. A line that did not arrive complete in one read stays, and its request is
    refused: half of it would be read as part of its neighbours.

    `before` is the end (`TAIL_BYTES`) of what was already read of the same head, and passed on.
    """
    known = before + data
    end = known.find(_HEAD_END)
    end = len(known) if end < 0 else end + len(_LINE_END)
    head = _UPGRADE.sub(lambda line: b"" if line.start() >= len(before) else line[0], known[:end])
    return (head + known[end:])[len(before) :]


def framing(version: str, headers: Sequence[tuple[bytes, bytes]], url: bytes) -> Framing:
    """How a body after a head ends, if every server agrees on that (RFC 9112 §3.2, §6.1).

    Empty if one might not. The parser itself refuses two lengths, or a length besides an encoding.
    """
    names = [*map(_NAME, headers)]
    hosts = names.count(b"host")
    # A fragment does not belong in a request: here the path ends before it, elsewhere it may not.
    if not (hosts == 1 if version == "1.1" else version == "1.0" and hosts <= 1) or b"#" in url:
        return ""
    if _ENCODING not in names:
        return "length"
    codings = [value.lower() for name, value in headers if name == _ENCODING]
    return "chunks" if version == "1.1" and codings == [b"chunked"] else ""
