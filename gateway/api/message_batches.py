"""`/v1/messages/batches`: messages that are processed within a day, for the caller's project."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final

from litestar import MediaType, Request, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from litestar.response import Stream
from litestar.status_codes import HTTP_200_OK
from msgspec import structs

from gateway.api.batches import PAGE_LINES, Desk, Wake
from gateway.api.bodies import whole_body
from gateway.api.paging import page_asked
from gateway.api.places import Places
from gateway.api.refusals import Handlers
from gateway.batches import Batch, Line, Told
from gateway.clock import DAY_US
from gateway.dialects.bodies.strict_json import invalid
from gateway.dialects.resources.anthropic_batches import (
    ENDPOINT,
    message_batch_object,
    message_list_object,
    message_result_line,
    read_requests,
    split_requests,
)
from gateway.errors import (
    BatchUnknown,
    BodyTooLarge,
    NotReady,
    RequestInvalid,
    Unavailable,
)
from gateway.projects import project_of
from gateway.secrets.content_keys import ContentKey
from gateway.store.batching.batches import BatchStore
from gateway.store.batching.leads import LeadOver
from gateway.store.batching.lines import LineStore
from gateway.types import Principal


PATH: Final = "/v1/messages/batches"
PAGE_MAX: Final = 1_000
"""Anthropic's limit."""
INTAKES_MAX: Final = 4
"""At once on one worker, half of them for one project: each may hold a body several times over."""
GROUP_BYTES: Final = 256 * 1024
GROUP_LINES: Final = 500
"""Short lines: each is encrypted separately, and others wait for all of a group."""
CONTENT_TYPE: Final = "application/x-jsonl"


class Intake:
    """Takes in all of a message batch, or nothing."""

    def __init__(self, desk: Desk, lines: LineStore) -> None:
        self._desk = desk
        self._lines = lines
        self._places = Places(INTAKES_MAX, "Too many batches are arriving; try again.")

    async def receive(self, request: Request[Any, Any, Any], principal: Principal) -> Batch:
        """A new batch of the requests in a body.

        Raises:
            RequestInvalid: one of them is invalid, or two have the same custom_id.
            BodyTooLarge: it is too long, or its project holds too much already.
            Unavailable: too many batches arrive at once.
        """
        with self._places.place(project_of(principal)):
            return await self._receive(request, principal)

    async def _receive(self, request: Request[Any, Any, Any], principal: Principal) -> Batch:
        desk = self._desk
        body = await whole_body(request, desk.limits.file_bytes_max, desk.limits)
        project = project_of(principal)
        check = await desk.room(project, len(body))
        check(*await desk.batches.held(project))
        raws = await asyncio.to_thread(split_requests, body, desk.limits.batch_lines_max)
        new = desk.new("messages", principal, ENDPOINT, "msgbatch_")
        told = Told(headers=desk.headers(request))
        new = structs.replace(new, told=told)
        batch = await desk.batches.make(new, size_bytes=len(body), is_receiving=True, check=check)
        has_begun = False
        try:
            key = await desk.batches.content_key(batch)
            if key is None:
                raise Unavailable("The batch could not be kept.", retry_after_s=1.0)
            await self._keep(batch, key, raws)
            keep_us = round(desk.settings.keep_days * DAY_US)
            await desk.batches.begin(batch.batch_id, len(body), keep_us)
            has_begun = True
        except LeadOver:
            # Nothing more came for a long time, and its room is for others.
            raise Unavailable("The batch took too long to arrive.", retry_after_s=1.0) from None
        finally:
            if not has_begun:
                # Also if the caller leaves: what arrived would take up room for minutes.
                with suppress(NotReady):
                    await desk.batches.drop(batch.batch_id)
        return await desk.found(principal, batch.batch_id, "messages")

    async def _keep(self, batch: Batch, key: ContentKey, raws: list[bytes]) -> None:
        seen: set[str] = set()
        for group in _groups(raws, self._desk.limits.batch_line_bytes_max):
            lines: list[Line] = await asyncio.to_thread(partial(read_requests, group))
            for line in lines:
                if line.custom_id in seen:
                    place = f"requests.{line.number - 1}.custom_id"
                    raise invalid(place, "Another request has this custom_id already")
                seen.add(line.custom_id)
            await self._lines.receive(batch.batch_id, key, lines)


def _groups(raws: list[bytes], length_max: int) -> Iterator[list[tuple[int, bytes]]]:
    """Groups of numbered requests, as many as are worth a thread's turn."""
    group: list[tuple[int, bytes]] = []
    length = 0
    for number, raw in enumerate(raws, 1):
        if len(raw) > length_max:
            raise BodyTooLarge(
                f"requests.{number - 1}: The request is longer than {length_max} bytes.",
                parameter=f"requests.{number - 1}",
            )
        group.append((number, raw))
        length += len(raw)
        if length >= GROUP_BYTES or len(group) >= GROUP_LINES:
            yield group
            group, length = [], 0
    if group:
        yield group


def message_batch_routes(
    desk: Desk, lines: LineStore, wake: Wake, errors: Handlers, base_url: str
) -> list[HTTPRouteHandler]:
    """Making, listing and cancelling batches of messages, and their results."""
    intake = Intake(desk, lines)
    told: dict[str, Any] = {"exception_handlers": errors, "media_type": MediaType.JSON}

    def shown(batch: Batch) -> dict[str, Any]:
        return message_batch_object(batch, base_url)

    @post(PATH, status_code=HTTP_200_OK, request_max_body_size=None, **told)
    async def create(request: Request[Any, Any, Any]) -> dict[str, Any]:
        batch = await intake.receive(request, await desk.front.principal(request))
        wake()
        return shown(batch)

    @get(PATH, **told)
    async def listing(request: Request[Any, Any, Any]) -> dict[str, Any]:
        principal = await desk.front.principal(request)
        page = page_asked(request, PAGE_LINES, PAGE_MAX)
        some, has_more = await desk.batches.page(project_of(principal), "messages", page)
        return message_list_object([shown(batch) for batch in some], has_more=has_more)

    @get(f"{PATH}/{{batch_id:str}}", **told)
    async def retrieve(request: Request[Any, Any, Any], batch_id: FromPath[str]) -> dict[str, Any]:
        return shown(await desk.found(await desk.front.principal(request), batch_id, "messages"))

    @post(f"{PATH}/{{batch_id:str}}/cancel", status_code=HTTP_200_OK, **told)
    async def cancel(request: Request[Any, Any, Any], batch_id: FromPath[str]) -> dict[str, Any]:
        batch = await desk.cancelled(await desk.front.principal(request), batch_id, "messages")
        wake()
        return shown(batch)

    return [create, listing, retrieve, cancel, *_routes_of_ended(desk, lines, errors)]


def _routes_of_ended(desk: Desk, lines: LineStore, errors: Handlers) -> list[HTTPRouteHandler]:
    """Reading the results of batches, and forgetting them."""

    @get(f"{PATH}/{{batch_id:str}}/results", exception_handlers=errors)
    async def results(request: Request[Any, Any, Any], batch_id: FromPath[str]) -> Stream:
        batch = await desk.found(await desk.front.principal(request), batch_id, "messages")
        key = await desk.batches.content_key(batch)
        if not batch.is_over or key is None:
            raise RequestInvalid("The batch has not ended: its results cannot be read yet.")
        headers = {"x-content-type-options": "nosniff"}
        told = _results(desk.batches, lines, batch, key)
        return Stream(told, media_type=CONTENT_TYPE, headers=headers)

    @delete(
        f"{PATH}/{{batch_id:str}}",
        status_code=HTTP_200_OK,
        media_type=MediaType.JSON,
        exception_handlers=errors,
    )
    async def forget(request: Request[Any, Any, Any], batch_id: FromPath[str]) -> dict[str, Any]:
        principal = await desk.front.principal(request)
        batch = await desk.found(principal, batch_id, "messages")
        if not batch.is_over:
            raise RequestInvalid("A batch that has not ended cannot be deleted: cancel it first.")
        if not await desk.batches.forget(project_of(principal), batch_id, "messages"):
            raise BatchUnknown("There is no such batch.")
        return {"id": batch_id, "type": "message_batch_deleted"}

    return [results, forget]


async def _results(
    batches: BatchStore, lines: LineStore, batch: Batch, key: ContentKey
) -> AsyncIterator[bytes]:
    """All results.

    Raises:
        NotReady: it was forgotten while being read; an answer cut off here cannot seem complete.
    """
    async for group in lines.ended(batch, key):
        yield b"".join(message_result_line(batch, line) for line in group)
    if await batches.led(batch.batch_id) is None:
        raise NotReady("the batch was forgotten while its results were read")
