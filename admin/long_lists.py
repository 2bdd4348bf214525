"""Ever-growing lists of the JSON API: complete by default, or a part from a place on.

A list is a bare array, which has no room for a count; the count and the way on are in headers.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import quote

from litestar import Response

from admin.asking import Asking
from admin.queries import AFTER, FIRST, PAGE_ROWS, after_of, first_of
from gateway.store.pages import Part


COUNT: Final = "x-total-count"
_Row = TypeVar("_Row")


async def list_of(
    request: Asking,
    whole: Callable[[], Awaitable[Sequence[_Row]]],
    part: Callable[[int, int, str], Awaitable[Part[_Row]]],
) -> Response[Sequence[_Row]]:
    """All rows or, with `from`, at most PAGE_ROWS, the number of rows, and the way on.

    `part` gets the number of rows before, the number wanted, and the key of the row before them,
    as given in the way on.
    """
    if not FIRST.is_in(request):
        return Response(await whole())
    found = await part(first_of(request), PAGE_ROWS, after_of(request))
    return Response(found.rows, headers=onward_of(request, found))


def onward_of(request: Asking, part: Part[Any]) -> dict[str, str]:
    """The headers for a part: how many rows the list has, and where the next part is."""
    headers = {COUNT: str(part.count)}
    if part.following:
        at = quote(request.scope["path"])
        onward = f"&{AFTER.name}={quote(part.onward)}"
        headers["link"] = f'<{at}?{FIRST.name}={part.following}{onward}>; rel="next"'
    return headers
