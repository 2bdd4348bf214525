"""Lists of the JSON API that grow for ever: whole as they always were, or a part from a place on.

A list is a bare array, which has no room for a count: that, and the way on, stand in headers.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import quote

from litestar import Request, Response

from admin.queries import AFTER, FIRST, PAGE_ROWS, after_of, first_of
from gateway.store.pages import Part


COUNT: Final = "x-total-count"
_Row = TypeVar("_Row")


async def list_of(
    request: Request[Any, Any, Any],
    whole: Callable[[], Awaitable[Sequence[_Row]]],
    part: Callable[..., Awaitable[Part[_Row]]],
    *,
    is_by_key: bool = False,
) -> Response[Sequence[_Row]]:
    """All rows; where `from` is named at most PAGE_ROWS, how many there are and where they go on.

    `part` is told the place of the first row and how many are wanted; where `is_by_key`, the key
    of the row before them as well, as the way on says it.
    """
    if not FIRST.is_in(request):
        return Response(await whole())
    place = (first_of(request), PAGE_ROWS, *([after_of(request)] if is_by_key else []))
    found = await part(*place)
    headers = {COUNT: str(found.count)}
    if found.following:
        at = quote(request.scope["path"])
        onward = f"&{AFTER.name}={quote(found.onward)}" if found.onward else ""
        headers["link"] = f'<{at}?{FIRST.name}={found.following}{onward}>; rel="next"'
    return Response(found.rows, headers=headers)
