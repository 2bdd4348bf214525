"""The little HTTP the engine needs, on plain ASGI: read a body, send JSON, see a hang-up."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any, TypeVar

from local_engine.serve.api.errors import ApiError, BodyTooLarge, MethodNotAllowed


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
EVENT_STREAM = (b"content-type", b"text/event-stream")
_Result = TypeVar("_Result")


class ClientGone(Exception):
    """The client hung up; nobody reads an answer."""


async def read_body(receive: Receive, max_bytes: int) -> bytes:
    """The complete body; raises `BodyTooLarge` as soon as it is."""
    parts: list[bytes] = []
    num_bytes = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        parts.append(message.get("body", b""))
        num_bytes += len(parts[-1])
        if num_bytes > max_bytes:
            raise BodyTooLarge(
                f"The request body is larger than {max_bytes} bytes.", code="request_too_large"
            )
        if not message.get("more_body", False):
            return b"".join(parts)


async def unless_client_gone(receive: Receive, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run `work`; cancel it and raise `ClientGone` if the client hangs up first."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_until_disconnect(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        for task in (working, watching):
            task.cancel()
        # Both are over before we leave, so that no computation outlives its request.
        await asyncio.gather(working, watching, return_exceptions=True)


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_body(
    send: Send,
    status: int,
    body: bytes,
    *,
    content_type: bytes = b"application/json",
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> None:
    length = str(len(body)).encode()
    fixed = ((b"content-type", content_type), (b"content-length", length))
    await send({"type": "http.response.start", "status": status, "headers": [*fixed, *headers]})
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: ApiError) -> None:
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if error.retry_after_s is not None:
        headers = ((b"retry-after", str(error.retry_after_s).encode()),)
    elif isinstance(error, MethodNotAllowed):
        headers = ((b"allow", error.allowed.encode()),)
    await send_body(send, error.status, error.envelope(), headers=headers)


async def start_event_stream(send: Send) -> None:
    headers = [EVENT_STREAM, (b"cache-control", b"no-cache")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def send_part(send: Send, part: bytes, *, is_last: bool = False) -> None:
    await send({"type": "http.response.body", "body": part, "more_body": not is_last})
