"""Reads long bodies of small routes in pieces, with limits on bytes and on pauses."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from litestar import Request
from litestar.exceptions import HTTPException

from gateway.api.exchange import is_longer
from gateway.api.inflating import check_encoding, inflated
from gateway.configuration.settings import Limits
from gateway.errors import BodyTooLarge, EncodingRefused, RequestInvalid


async def pieces_of(
    request: Request[Any, Any, Any], bytes_max: int, limits: Limits
) -> AsyncIterator[bytes]:
    """A body piece by piece.

    Raises:
        BodyTooLarge: it is longer than `bytes_max`, or says so.
        RequestInvalid: it stalls, takes longer than a request may, or its sender left.
    """
    if is_longer(request.headers.get("content-length", "").encode(), bytes_max):
        raise _too_large(bytes_max)
    read_bytes = 0
    stream = request.stream()
    try:
        async with asyncio.timeout(limits.request_deadline_s):
            while True:
                async with asyncio.timeout(limits.body_receive_s):
                    piece = await anext(stream, None)
                if piece is None:
                    return
                read_bytes += len(piece)
                if read_bytes > bytes_max:
                    raise _too_large(bytes_max)
                yield piece
    except TimeoutError:
        raise RequestInvalid("The request's body did not arrive in time.") from None
    except HTTPException:
        raise RequestInvalid("The request's body did not arrive whole.") from None


async def whole_body(request: Request[Any, Any, Any], bytes_max: int, limits: Limits) -> bytes:
    """A complete body, inflated if it is compressed; raises like `pieces_of`."""
    encoding = request.headers.get("content-encoding", "").lower().encode()
    if encoding in (b"", b"identity"):
        return b"".join([piece async for piece in pieces_of(request, bytes_max, limits)])
    check_encoding(encoding)
    body = b"".join([piece async for piece in pieces_of(request, bytes_max, limits)])
    return await inflated(body, encoding, bytes_max)


def check_plain(request: Request[Any, Any, Any]) -> None:
    """Raises EncodingRefused if the body is compressed, since it is read while it arrives."""
    if request.headers.get("content-encoding", "identity") not in ("", "identity"):
        raise EncodingRefused("Send a file's form without a content-encoding.")


def _too_large(bytes_max: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body is longer than {bytes_max} bytes.")
