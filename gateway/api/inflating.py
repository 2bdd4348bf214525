"""Opens compressed bodies, only for known callers and only up to the limit of plain ones.

`gzip` and `deflate` are in the standard library. `br` and `zstd` are refused: a few of their bytes
stand for gigabytes, and nothing here could stop in the middle.
"""

import asyncio
import zlib
from collections.abc import Callable

from gateway.errors import BodyTooLarge, EncodingRefused, RequestInvalid


PIECE_BYTES = 256 * 1024
"""How much is inflated before others get their turn: about a millisecond of work."""
READ_BYTES = 16 * 1024
"""The most that is read for it: empty blocks cost up to half a second per megabyte."""

_GZIP = 16 + zlib.MAX_WBITS
_WINDOW_BITS = {b"gzip": _GZIP, b"x-gzip": _GZIP, b"deflate": zlib.MAX_WBITS}
"""By name; the second is an older name of the first (RFC 9110, 8.4.1.3)."""
_BROKEN = "The body is not what its content-encoding says."


def check_encoding(encoding: bytes) -> None:
    """Refuse an encoding before a byte of the body is read.

    Raises:
        EncodingRefused: it is unknown, or several in a row.
    """
    if encoding not in _WINDOW_BITS:
        offered = EncodingRefused.headers["accept-encoding"]
        raise EncodingRefused(f"Send the body plain, or in one of these encodings: {offered}.")


async def inflated(
    body: bytes, encoding: bytes, bytes_max: int, grows: Callable[[int], None] = lambda _: None
) -> bytes:
    """The plain body; stops as soon as it is longer than `bytes_max`.

    `grows` is told the length so far, and may raise.

    Raises:
        BodyTooLarge: it would be longer.
        RequestInvalid: it is cut, broken, or more than one stream.
    """
    inflater = zlib.decompressobj(_WINDOW_BITS[encoding])
    pieces: list[bytes] = []
    length = at = 0
    try:
        while (at < len(body) or inflater.unconsumed_tail) and not inflater.eof:
            unread = inflater.unconsumed_tail
            if not unread:
                unread, at = body[at : at + READ_BYTES], at + READ_BYTES
            piece = inflater.decompress(unread, PIECE_BYTES)
            length += len(piece)
            if length > bytes_max:
                raise BodyTooLarge(f"The body is longer than {bytes_max} bytes when inflated.")
            grows(length)
            pieces.append(piece)
            await asyncio.sleep(0)
    except zlib.error:
        raise RequestInvalid(_BROKEN) from None
    if not inflater.eof or inflater.unused_data or at < len(body):
        # Two readers could disagree about where a second stream, or missing data, belongs.
        raise RequestInvalid(_BROKEN)
    return b"".join(pieces)
