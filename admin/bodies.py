"""Bodies of the JSON API: typed, with unknown fields refused."""

from typing import TypeVar

import msgspec

from admin.asking import Asking
from admin.wrong_fields import refusal_of


Order = TypeVar("Order")


async def body_of(request: Asking, kind: type[Order]) -> Order:
    """The body as a struct that takes no other fields: whoever may send it may set each field.

    Raises:
        RequestInvalid: it is not such a body; the error names the wrong field by its path.
    """
    try:
        return msgspec.json.decode(await request.body() or b"{}", type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise refusal_of(error) from None
