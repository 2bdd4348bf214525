"""`/v1/files`: the inputs and results of batches, for the project that owns them."""

from functools import partial
from typing import Any

from litestar import MediaType, Request, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from litestar.response import Stream
from litestar.status_codes import HTTP_200_OK

from gateway.api.batches import Desk
from gateway.api.front import Front
from gateway.api.paging import page_asked
from gateway.api.uploads import Uploads
from gateway.batches import KeptFile
from gateway.dialects.resources.openai_batches import file_object, list_object
from gateway.errors import FileUnknown, RouteUnknown
from gateway.projects import project_of
from gateway.store.batching.files import FileStore
from gateway.types import Principal


LIST_MAX = 10_000
CONTENT_TYPE = "application/jsonl"
OTHERS_HEADER = "anthropic-version"
NOT_ANTHROPICS = (
    "Files here are those of OpenAI's API, for its batches; Anthropic's are not kept."
    " Send documents and images inline."
)
NOT_FOUND = "There is no such file."


async def _caller(front: Front, request: Request[Any, Any, Any]) -> Principal:
    principal = await front.principal(request)
    if OTHERS_HEADER in request.headers:
        raise RouteUnknown(NOT_ANTHROPICS)
    return principal


async def _found(files: FileStore, principal: Principal, file_id: str) -> KeptFile:
    file = await files.find(project_of(principal), file_id)
    if file is None:
        raise FileUnknown(NOT_FOUND)
    return file


def file_routes(desk: Desk, uploads: Uploads) -> list[HTTPRouteHandler]:
    """Keeping, listing, reading and forgetting files."""
    files = desk.files

    caller, found = partial(_caller, desk.front), partial(_found, files)

    # The body is bounded where it is read: the framework's own bound is meant for small bodies.
    @post(
        "/v1/files",
        status_code=HTTP_200_OK,
        media_type=MediaType.JSON,
        request_max_body_size=None,
    )
    async def create(request: Request[Any, Any, Any]) -> dict[str, Any]:
        principal = await caller(request)
        stored_bytes = await desk.stored_bytes(project_of(principal))
        return file_object(await uploads.receive(request, principal, stored_bytes))

    @get("/v1/files", media_type=MediaType.JSON)
    async def listing(request: Request[Any, Any, Any]) -> dict[str, Any]:
        principal = await caller(request)
        page = page_asked(request, LIST_MAX, LIST_MAX)
        purpose = request.query_params.get("purpose", "")
        some, has_more = await files.page(project_of(principal), page, purpose)
        return list_object([file_object(file) for file in some], has_more=has_more)

    @get("/v1/files/{file_id:str}", media_type=MediaType.JSON)
    async def retrieve(request: Request[Any, Any, Any], file_id: FromPath[str]) -> dict[str, Any]:
        return file_object(await found(await caller(request), file_id))

    @get("/v1/files/{file_id:str}/content")
    async def content(request: Request[Any, Any, Any], file_id: FromPath[str]) -> Stream:
        file = await found(await caller(request), file_id)
        headers = {
            "content-length": str(file.size_bytes),
            "content-disposition": "attachment",
            "x-content-type-options": "nosniff",
        }
        return Stream(files.content(file), media_type=CONTENT_TYPE, headers=headers)

    @delete("/v1/files/{file_id:str}", status_code=HTTP_200_OK, media_type=MediaType.JSON)
    async def forget(request: Request[Any, Any, Any], file_id: FromPath[str]) -> dict[str, Any]:
        if not await files.forget(project_of(await caller(request)), file_id):
            raise FileUnknown(NOT_FOUND)
        return {"id": file_id, "object": "file", "deleted": True}

    return [create, listing, retrieve, content, forget]
