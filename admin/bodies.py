"""Bodies of the JSON API: typed, and without any field that is not asked for."""

from typing import Any, TypeVar

import msgspec
from litestar import Request

from gateway.errors import RequestInvalid


Order = TypeVar("Order")


async def body_of(request: Request[Any, Any, Any], kind: type[Order]) -> Order:
    """The body as a struct that takes no other fields; who may set a field is who may send it.

    Raises:
        RequestInvalid: it is none.
    """
    try:
        return msgspec.json.decode(await request.body() or b"{}", type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        raise RequestInvalid("the body is not what this takes", parameter="body") from None
