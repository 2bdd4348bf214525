"""`/v1/responses/{id}`: kept answers, for the project that asked for them.

Answers that are still being made in the background are read, followed and cancelled here as well.
"""

from typing import Any

import msgspec
from litestar import MediaType, Request, Response, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from litestar.response import Stream
from litestar.status_codes import HTTP_200_OK

from gateway.api.front import Front
from gateway.api.paging import on_page, page_if_asked
from gateway.background.following import Followers
from gateway.batches import PageOf
from gateway.continuing.items import in_parts
from gateway.continuing.threads import Threads
from gateway.errors import RequestInvalid


STREAM_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
EVENTS = "text/event-stream; charset=utf-8"
JSON = "application/json"
AFTER = "starting_after"
DIGITS_MAX = 9
PAGE_MAX = 100
PAGE_WORDS = ("limit", "after", "before", "order")

Asking = Request[Any, Any, Any]


def response_routes(front: Front, threads: Threads, followers: Followers) -> list[HTTPRouteHandler]:
    """Reading, following, cancelling and forgetting an answer, and listing its input."""

    @get("/v1/responses/{answer_id:str}", media_type=MediaType.JSON)
    async def retrieve(request: Asking, answer_id: FromPath[str]) -> Response[Any]:
        principal = await front.principal(request)
        after = _after(request)
        if request.query_params.get("stream") != "true":
            return Response(await followers.read(principal, answer_id), media_type=JSON)
        events = await followers.follow(principal, answer_id, after)
        return Stream(events, media_type=EVENTS, headers=STREAM_HEADERS)

    @get("/v1/responses/{answer_id:str}/input_items", media_type=MediaType.JSON)
    async def input_items(request: Asking, answer_id: FromPath[str]) -> bytes:
        principal = await front.principal(request)
        page = page_if_asked(request, PAGE_MAX, PAGE_WORDS)
        kept = await threads.find(principal, answer_id)
        return _listing(answer_id, kept.input_items, page)

    @delete("/v1/responses/{answer_id:str}", status_code=HTTP_200_OK, media_type=MediaType.JSON)
    async def forget(request: Asking, answer_id: FromPath[str]) -> dict[str, Any]:
        await followers.forget(await front.principal(request), answer_id)
        return {"id": answer_id, "object": "response", "deleted": True}

    @post(
        "/v1/responses/{answer_id:str}/cancel",
        status_code=HTTP_200_OK,
        media_type=MediaType.JSON,
    )
    async def cancel(request: Asking, answer_id: FromPath[str]) -> bytes:
        return await followers.cancel(await front.principal(request), answer_id)

    return [retrieve, input_items, forget, cancel]


def _after(request: Asking) -> int:
    """The number of the last event that the caller has; -1 if none. Raises RequestInvalid."""
    said = request.query_params.get(AFTER)
    if said is None:
        return -1
    if not (said.isascii() and said.isdecimal() and len(said) <= DIGITS_MAX):
        raise RequestInvalid("This is not the number of an event.", parameter=AFTER)
    return int(said)


def _listing(answer_id: str, items: bytes, page: PageOf | None) -> bytes:
    """The items with a name each, since clients page by it; all of them if no page is requested.

    Raises:
        RequestInvalid: there is no such page.
    """
    listed = [
        {"id": f"item_{answer_id.removeprefix('resp_')}_{index}"} | in_parts(item)
        for index, item in enumerate(msgspec.json.decode(items, type=list[dict[str, Any]]))
    ]
    names, has_more = [item["id"] for item in listed], False
    if page is not None:
        places, has_more = on_page(names, page)
        listed = [listed[place] for place in places]
        names = [item["id"] for item in listed]
    return msgspec.json.encode(
        {
            "object": "list",
            "data": listed,
            "has_more": has_more,
            "first_id": names[0] if names else None,
            "last_id": names[-1] if names else None,
        }
    )
