"""The page of a list that a caller asks for, in the parameters of either vendor."""

from collections.abc import Collection, Sequence
from typing import Any

from litestar import Request

from gateway.batches import PageOf
from gateway.errors import RequestInvalid


ID_LENGTH_MAX = 128


def page_asked(request: Request[Any, Any, Any], usual: int, most: int) -> PageOf:
    """The page of `limit`, `after`/`after_id`, `before`/`before_id` and `order`.

    Raises:
        RequestInvalid: one of them cannot be understood, or both directions are asked for.
    """
    query = request.query_params
    text = query.get("limit", str(usual))
    limit = int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(most)) else 0
    if not 1 <= limit <= most:
        raise RequestInvalid(f"The limit must be between 1 and {most}.", parameter="limit")
    order = query.get("order", "desc")
    if order not in {"asc", "desc"}:
        raise RequestInvalid("The order is `asc` or `desc`.", parameter="order")
    after = query.get("after") or query.get("after_id") or ""
    before = query.get("before") or query.get("before_id") or ""
    if after and before:
        raise RequestInvalid("Ask for what is after or before an id.", parameter="before_id")
    if max(len(after), len(before)) > ID_LENGTH_MAX:
        raise RequestInvalid("This is no id.", parameter="after_id" if after else "before_id")
    return PageOf(limit, after, before, oldest_first=order == "asc")


def page_if_asked(
    request: Request[Any, Any, Any],
    most: int,
    words: Collection[str] = ("limit", "after_id", "before_id"),
) -> PageOf | None:
    """The same if any of these page parameters is given; otherwise None, for the complete list.

    Raises:
        RequestInvalid: as above.
    """
    if request.query_params.keys().isdisjoint(words):
        return None
    return page_asked(request, most, most)


def on_page(names: Sequence[str], page: PageOf) -> tuple[list[int], bool]:
    """The places on a page, among items by name, oldest first; and whether there are more.

    Raises:
        RequestInvalid: it names a `before`, or an `after` that is not among them.
    """
    places = [*range(len(names))]
    if not page.oldest_first:
        places.reverse()
    if page.before:
        raise RequestInvalid("Items are listed after one of them.", parameter="before")
    if page.after:
        if page.after not in names:
            raise RequestInvalid("There is no such item here.", parameter="after")
        places = places[places.index(names.index(page.after)) + 1 :]
    return places[: page.limit], len(places) > page.limit
