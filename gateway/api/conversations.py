"""`/v1/conversations`: lists of items that are kept for the caller's project."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from litestar import MediaType, Request, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from litestar.status_codes import HTTP_200_OK
from msgspec import Struct

from gateway.admission.bounds import check_values
from gateway.api.bodies import whole_body
from gateway.api.front import Front
from gateway.api.paging import on_page, page_asked
from gateway.api.refusals import REQUEST_ID
from gateway.api.responses import response_routes
from gateway.api.room import UNCOUNTED_BYTES, Room
from gateway.background.following import Followers
from gateway.configuration.settings import Limits
from gateway.continuing.conversing import Conversations, require_item
from gateway.continuing.threads import Threads
from gateway.dialects.registry import DIALECTS
from gateway.dialects.resources.openai_conversations import (
    Told,
    as_asked,
    check_include,
    conversation_object,
    deleted_object,
    item_list,
    item_object,
    read_addition,
    read_description,
    read_order,
)
from gateway.errors import RequestInvalid
from gateway.intake import Intake
from gateway.passage import Arrival
from gateway.types import Principal


PATH = "/v1/conversations"
METADATA_BYTES_MAX = 64 * 1024
PAGE_ITEMS, PAGE_MAX = 20, 100

Asking = Request[Any, Any, Any]


class Desk(Struct, frozen=True):
    """What the routes of conversations need."""

    front: Front
    conversations: Conversations
    intake: Intake
    limits: Limits
    room: Room

    @asynccontextmanager
    async def holding(self, request: Asking) -> AsyncIterator[bytes]:
        """A body with items, counted as held while it is classified; raises Unavailable."""
        most = self.limits.body_bytes_max
        said = request.headers.get("content-length", "")
        is_told = said.isdecimal() and said.isascii() and "content-encoding" not in request.headers
        held_bytes = min(int(said[:20]), most) if is_told else most
        if held_bytes <= UNCOUNTED_BYTES:
            held_bytes = 0
        self.room.take(held_bytes)
        try:
            raw = await whole_body(request, most, self.limits)
            check_values(raw, self.limits.keys_max)
            yield raw
        finally:
            self.room.give_back(held_bytes)

    async def weighed(self, request: Asking, principal: Principal, told: Told) -> str:
        """The data class of items to be kept, as for a request that contains them.

        Raises:
            RequestInvalid: one of them is invalid; tells its place in the body.
            Forbidden: policy denies such a request, or does not let all of it be kept.
        """
        if not told.items:
            return "S0"
        arrival = Arrival(
            request_id=request.scope["state"][REQUEST_ID],
            endpoint=PATH,
            dialect=DIALECTS["openai_responses"],
            headers=[*request.scope["headers"]],
            arrived_us=self.front.clock.utc_us(),
            snapshot=self.front.snapshots.current(),
        )
        try:
            return await self.intake.weigh(arrival, principal, as_asked(told.items))
        except RequestInvalid as error:
            place = error.parameter or ""
            if place.startswith("input"):
                error.parameter = "items" + place.removeprefix("input")
                error.message = error.message.replace(place, error.parameter, 1)
            raise


def kept_routes(
    front: Front, threads: Threads, intake: Intake, limits: Limits, followers: Followers
) -> list[HTTPRouteHandler]:
    """All routes about kept answers and conversations, besides the doors."""
    room = Room(limits.held_body_bytes_max)
    desk = Desk(front, threads.conversations, intake, limits, room)
    return [
        *response_routes(front, threads, followers),
        *_conversation_routes(desk),
        *_item_routes(desk),
    ]


def _conversation_routes(desk: Desk) -> list[HTTPRouteHandler]:
    """Making, reading, describing and forgetting."""
    front, conversations = desk.front, desk.conversations

    @post(PATH, status_code=HTTP_200_OK, media_type=MediaType.JSON, request_max_body_size=None)
    async def create(request: Asking) -> dict[str, Any]:
        principal = await front.principal(request)
        async with desk.holding(request) as raw:
            told = read_order(raw)
            data_class = await desk.weighed(request, principal, told)
            made = await conversations.create(principal, told.items, told.metadata, data_class)
        return conversation_object(made)

    @get(PATH + "/{conversation_id:str}", media_type=MediaType.JSON)
    async def retrieve(request: Asking, conversation_id: FromPath[str]) -> dict[str, Any]:
        principal = await front.principal(request)
        return conversation_object(await conversations.find(principal, conversation_id))

    @post(
        PATH + "/{conversation_id:str}",
        status_code=HTTP_200_OK,
        media_type=MediaType.JSON,
        request_max_body_size=None,
    )
    async def describe(request: Asking, conversation_id: FromPath[str]) -> dict[str, Any]:
        principal = await front.principal(request)
        told = read_description(await whole_body(request, METADATA_BYTES_MAX, desk.limits))
        changed = await conversations.describe(principal, conversation_id, told.metadata)
        return conversation_object(changed)

    @delete(PATH + "/{conversation_id:str}", status_code=HTTP_200_OK, media_type=MediaType.JSON)
    async def forget(request: Asking, conversation_id: FromPath[str]) -> dict[str, Any]:
        await conversations.forget(await front.principal(request), conversation_id)
        return deleted_object(conversation_id)

    return [create, retrieve, describe, forget]


def _item_routes(desk: Desk) -> list[HTTPRouteHandler]:
    """Listing, adding, reading and deleting items of one conversation."""
    front, conversations = desk.front, desk.conversations
    items = PATH + "/{conversation_id:str}/items"
    item = items + "/{item_id:str}"

    @get(items, media_type=MediaType.JSON)
    async def listing(request: Asking, conversation_id: FromPath[str]) -> dict[str, Any]:
        principal = await front.principal(request)
        include = _included(request)
        page = page_asked(request, PAGE_ITEMS, PAGE_MAX)
        found = await conversations.find(principal, conversation_id)
        entries = [*found.shown]
        some, has_more = on_page([entry.item_id for entry in entries], page)
        return item_list([entries[place] for place in some], include, has_more=has_more)

    @post(items, status_code=HTTP_200_OK, media_type=MediaType.JSON, request_max_body_size=None)
    async def add(request: Asking, conversation_id: FromPath[str]) -> dict[str, Any]:
        principal = await front.principal(request)
        include = _included(request)
        async with desk.holding(request) as raw:
            told = read_addition(raw)
            await conversations.find(principal, conversation_id)
            data_class = await desk.weighed(request, principal, told)
            added = await conversations.add(principal, conversation_id, told.items, data_class)
        return item_list(added, include, has_more=False)

    @get(item, media_type=MediaType.JSON)
    async def retrieve(
        request: Asking, conversation_id: FromPath[str], item_id: FromPath[str]
    ) -> dict[str, Any]:
        principal = await front.principal(request)
        include = _included(request)
        found = await conversations.find(principal, conversation_id)
        return item_object(require_item(found, item_id), include)

    @delete(item, status_code=HTTP_200_OK, media_type=MediaType.JSON)
    async def remove(
        request: Asking, conversation_id: FromPath[str], item_id: FromPath[str]
    ) -> dict[str, Any]:
        principal = await front.principal(request)
        return conversation_object(await conversations.remove(principal, conversation_id, item_id))

    return [listing, add, retrieve, remove]


def _included(request: Asking) -> frozenset[str]:
    """The additional details of items that are requested; raises RequestInvalid."""
    query = request.query_params
    names = frozenset([*query.getall("include", []), *query.getall("include[]", [])])
    check_include(names)
    return names
