"""`/v1/responses/{id}`: answers that were kept, for the project that asked for them."""

from typing import Any

import msgspec
from litestar import MediaType, Request, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from litestar.status_codes import HTTP_200_OK

from gateway.api.front import Front
from gateway.continuing.items import in_parts
from gateway.continuing.threads import Threads
from gateway.dialects.loss import unsupported
from gateway.errors import FeatureUnsupported


def response_routes(front: Front, threads: Threads) -> list[HTTPRouteHandler]:
    """Reading, listing the input of, and forgetting a kept answer; nothing runs that could end."""

    @get("/v1/responses/{answer_id:str}", media_type=MediaType.JSON)
    async def retrieve(request: Request[Any, Any, Any], answer_id: FromPath[str]) -> bytes:
        kept = await threads.find(await front.principal(request), answer_id)
        if request.query_params.get("stream") == "true":
            # A client that waits for events would take a whole answer for an empty one.
            raise unsupported("stream", "Kept responses are read whole", rule=54)
        return kept.response

    @get("/v1/responses/{answer_id:str}/input_items", media_type=MediaType.JSON)
    async def input_items(request: Request[Any, Any, Any], answer_id: FromPath[str]) -> bytes:
        kept = await threads.find(await front.principal(request), answer_id)
        return _listing(answer_id, kept.input_items)

    @delete("/v1/responses/{answer_id:str}", status_code=HTTP_200_OK, media_type=MediaType.JSON)
    async def forget(request: Request[Any, Any, Any], answer_id: FromPath[str]) -> dict[str, Any]:
        await threads.forget(await front.principal(request), answer_id)
        return {"id": answer_id, "object": "response", "deleted": True}

    @post("/v1/responses/{answer_id:str}/cancel", media_type=MediaType.JSON)
    async def cancel(request: Request[Any, Any, Any], answer_id: FromPath[str]) -> bytes:
        await threads.find(await front.principal(request), answer_id)
        raise FeatureUnsupported("Only answers made in the background can be cancelled.")

    return [retrieve, input_items, forget, cancel]


def _listing(answer_id: str, items: bytes) -> bytes:
    """The items with a name each, since clients page by it."""
    listed = [
        {"id": f"item_{answer_id.removeprefix('resp_')}_{index}"} | in_parts(item)
        for index, item in enumerate(msgspec.json.decode(items, type=list[dict[str, Any]]))
    ]
    names = [item["id"] for item in listed]
    return msgspec.json.encode(
        {
            "object": "list",
            "data": listed,
            "has_more": False,
            "first_id": names[0] if names else None,
            "last_id": names[-1] if names else None,
        }
    )
