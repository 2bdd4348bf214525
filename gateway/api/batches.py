"""`/v1/batches`: files of requests that are processed within a day, for the caller's project."""

from collections.abc import Callable
from typing import Any

from litestar import MediaType, Request, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from litestar.status_codes import HTTP_200_OK
from msgspec import Struct, structs

from gateway.api.bodies import whole_body
from gateway.api.front import Front
from gateway.api.paging import page_asked
from gateway.batches import Batch, BatchKind, Told
from gateway.clock import DAY_US, HOUR_US
from gateway.configuration.sections import BatchSettings
from gateway.configuration.settings import Limits
from gateway.dialects.resources.openai_batches import batch_object, list_object, read_order
from gateway.errors import BatchUnknown, BodyTooLarge, Exhausted, FileUnknown, RequestInvalid
from gateway.projects import Project, project_of
from gateway.store.batching.batches import BatchStore
from gateway.store.batching.files import FULL, FileStore
from gateway.types import Principal


ORDER_BYTES_MAX = 64 * 1024
PAGE_LINES, PAGE_MAX = 20, 100
NOT_FOUND = "There is no such batch."

Wake = Callable[[], None]


class Desk(Struct, frozen=True):
    """Takes in batches."""

    front: Front
    batches: BatchStore
    files: FileStore
    settings: BatchSettings
    limits: Limits
    header_names: frozenset[bytes]
    """Headers of the request that makes a batch that also apply to its lines."""

    def new(self, kind: BatchKind, principal: Principal, endpoint: str, prefix: str) -> Batch:
        """A new batch; until it is kept, its name is only a prefix."""
        now_us = self.front.clock.utc_us()
        return Batch(
            batch_id=prefix,
            kind=kind,
            project=project_of(principal),
            key_id=principal.key_id,
            endpoint=endpoint,
            state="validating",
            created_us=now_us,
            expires_us=now_us + round(self.settings.window_hours * HOUR_US),
            keep_until_us=now_us + round(self.settings.keep_days * DAY_US),
        )

    def headers(self, request: Request[Any, Any, Any]) -> tuple[tuple[bytes, bytes], ...]:
        return tuple(
            (name, value) for name, value in request.scope["headers"] if name in self.header_names
        )

    async def stored_bytes(self, project: Project) -> int:
        """The total length of everything that a project has stored here."""
        files = await self.files.stored_bytes(project)
        return files + (await self.batches.held(project))[0]

    async def room(self, project: Project, more_bytes: int) -> Callable[[int, int], None]:
        """Whether a project may have one more batch of this length, judged by the others.

        The returned check raises:
            BodyTooLarge: it would hold more than it may.
            Exhausted: too many of its batches are unfinished.
        """
        files_bytes = await self.files.stored_bytes(project)

        def check(held_bytes: int, open_count: int) -> None:
            open_max, total_bytes = self.settings.open_max, files_bytes + held_bytes
            if open_count >= open_max:
                reason = f"{open_max} batches of this project are not over yet."
                raise Exhausted(reason, retry_after_s=60.0)
            if total_bytes + more_bytes > self.limits.project_bytes_max:
                raise BodyTooLarge(FULL.format(total_bytes))

        return check

    async def found(self, principal: Principal, batch_id: str, kind: BatchKind) -> Batch:
        """A batch of this principal's project; raises BatchUnknown."""
        batch = await self.batches.find(project_of(principal), batch_id, kind)
        if batch is None:
            raise BatchUnknown(NOT_FOUND)
        return batch

    async def cancelled(self, principal: Principal, batch_id: str, kind: BatchKind) -> Batch:
        """The batch, cancelled or being cancelled.

        Raises:
            BatchUnknown
            RequestInvalid: it is over, or its last line has ended.
        """
        batch = await self.found(principal, batch_id, kind)
        if batch.may_be_cancelled:
            await self.batches.cancel(batch)
            batch = await self.found(principal, batch_id, kind)
        if batch.state not in {"cancelling", "cancelled"}:
            raise RequestInvalid(f"A batch that is {batch.state} cannot be cancelled.")
        return batch


def batch_routes(desk: Desk, wake: Wake) -> list[HTTPRouteHandler]:
    """Making, listing, reading and cancelling batches of files; `wake` starts them at once."""

    @post(
        "/v1/batches",
        status_code=HTTP_200_OK,
        media_type=MediaType.JSON,
        request_max_body_size=None,
    )
    async def create(request: Request[Any, Any, Any]) -> dict[str, Any]:
        principal = await desk.front.principal(request)
        order = read_order(await whole_body(request, ORDER_BYTES_MAX, desk.limits))
        project = project_of(principal)
        file = await desk.files.find(project, order.input_file_id)
        if file is None:
            raise FileUnknown("There is no such file.", parameter="input_file_id")
        if file.purpose != "batch":
            raise RequestInvalid("This file is no batch.", parameter="input_file_id")
        check = await desk.room(project, file.size_bytes)
        expiry = order.output_expires_after
        told = Told(order.metadata or {}, desk.headers(request), expiry.seconds if expiry else 0)
        batch = structs.replace(
            desk.new("file", principal, order.endpoint, "batch_"),
            input_file_id=file.file_id,
            told=told,
        )
        made = await desk.batches.make(batch, size_bytes=file.size_bytes, check=check)
        wake()
        return batch_object(made)

    @get("/v1/batches", media_type=MediaType.JSON)
    async def listing(request: Request[Any, Any, Any]) -> dict[str, Any]:
        principal = await desk.front.principal(request)
        page = page_asked(request, PAGE_LINES, PAGE_MAX)
        some, has_more = await desk.batches.page(project_of(principal), "file", page)
        return list_object([batch_object(batch) for batch in some], has_more=has_more)

    @get("/v1/batches/{batch_id:str}", media_type=MediaType.JSON)
    async def retrieve(request: Request[Any, Any, Any], batch_id: FromPath[str]) -> dict[str, Any]:
        return batch_object(await desk.found(await desk.front.principal(request), batch_id, "file"))

    @post("/v1/batches/{batch_id:str}/cancel", status_code=HTTP_200_OK, media_type=MediaType.JSON)
    async def cancel(request: Request[Any, Any, Any], batch_id: FromPath[str]) -> dict[str, Any]:
        batch = await desk.cancelled(await desk.front.principal(request), batch_id, "file")
        wake()
        return batch_object(batch)

    return [create, listing, retrieve, cancel]
