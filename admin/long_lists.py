"""Lists of the JSON API that grow for ever: whole as they always were, or a part from a place on.

A list is a bare array, which has no room for a count: that, and the way on, stand in headers.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import quote

from litestar import Request, Response

from admin.queries import FIRST, PAGE_ROWS, first_of
from gateway.store.pages import Part


COUNT: Final = "x-total-count"
_Row = TypeVar("_Row")


async def list_of(
    request: Request[Any, Any, Any],
    whole: Callable[[], Awaitable[Sequence[_Row]]],
    part: Callable[[int, int], Awaitable[Part[_Row]]],
) -> Response[Sequence[_Row]]:
    """All rows; where `from` is named at most PAGE_ROWS, how many there are and where they go on.

    `part` is told the place of the first row and how many are wanted.
    """
    if not FIRST.is_in(request):
        return Response(await whole())
    found = await part(first_of(request), PAGE_ROWS)
    headers = {COUNT: str(found.count)}
    if found.following:
        at = quote(request.scope["path"])
        headers["link"] = f'<{at}?{FIRST.name}={found.following}>; rel="next"'
    return Response(found.rows, headers=headers)
