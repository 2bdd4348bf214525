"""A path is served only in its documented spelling.

A front server that lets some paths through and blocks others compares them letter by letter, or
after its own normalisation. A second spelling that we served would bypass it.
"""

import asyncio
from typing import Any

import msgspec
import pytest

from tests.faults.envelopes import ask, untouched
from tests.running_gateway import ENGINE_TARGET, RunningGateway, Upstreams


pytestmark = pytest.mark.anyio

OTHERWISE_READ = (
    "//metrics",
    "/metrics/",
    "/%6detrics",
    "/metric%73",
    "/./metrics",
    "/v1/../metrics",
    "/Metrics",
    "/metrics;a=b",
    "/metrics%3b",
    "/metrics%20",
    "/metrics%00",
    "/health//live",
    "/health%2flive",
    "/health/live/",
    "/health/l%69ve",
    "/v1//models",
    "/v1/models/",
    "/V1/models",
    "/v1/./models",
    "/v1/x/../models",
    "/v1/models;v=1",
    "/v1;v=1/models",
    "/v1%2Fmodels",
    "/%76%31/models",
    "/v1\\models",
    "/v1%5cmodels",
    "/v1/models//auto",
    "/v1/models/%2fauto",
    "/v1/models/auto/",
    "/v1/models/auto%2f",
    "/v1/models/./auto",
    "/v1/models/x/../auto",
    "/v1/models/x%2f..%2fauto",
    "/v1/models%2fauto",
    "/openai/v1/models/",
    "/openai/v1/models/%2fauto",
    "/openai/v1//models",
    "/openai//models",
    "/openai/v1/models%2fauto",
    "//openai/v1/models",
    "/v1/files/",
    "/v1//files",
    "/v1/files/file_1%2fcontent",
    "/v1/files/file_1/%63ontent",
    "/v1/files%2ffile_1",
    "/openai/files/file_1%2fcontent",
    "/openai/v1/files/file_1/%63ontent",
    "/v1/responses/resp_1/",
    "/v1/responses//resp_1",
    "/v1/decisions/req_1/",
    "/v1/messages//batches",
    "/v1/messages/batches/",
)
"""Of paths that take GET."""
CALLED_OTHERWISE = (
    "//v1/chat/completions",
    "/v1//chat/completions",
    "/v1/chat//completions",
    "/v1/chat/completions/",
    "/v1%2fchat/completions",
    "/v1/chat%2fcompletions",
    "/v1/chat/c%6fmpletions",
    "/%76%31/chat/completions",
    "/v1/./chat/completions",
    "/v1/models/../chat/completions",
    "/V1/chat/completions",
    "/v1/chat/completions;a=b",
    "/openai/v1/chat/completions/",
    "/openai/v1/chat%2fcompletions",
    "/openai/v1//chat/completions",
    "//openai/v1/chat/completions",
    f"/openai/deployments/{ENGINE_TARGET}/chat/completions/",
    f"/openai/deployments/{ENGINE_TARGET}//chat/completions",
)


async def sent(
    gateway: RunningGateway, method: str, path: str, key: str, body: bytes = b""
) -> tuple[int, bytes]:
    """Status and body for a path that no client's library has cleared up."""
    reader, writer = await asyncio.open_connection(*gateway._socket.getsockname())
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {key}"
        f"\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    said, _, told = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(said.split()[1]), told


@pytest.mark.parametrize("path", OTHERWISE_READ)
async def test_a_path_that_is_written_otherwise_leads_nowhere(
    gateway: RunningGateway, shared_key: str, path: str
) -> None:
    for method in ("GET", "HEAD"):
        status, told = await sent(gateway, method, path, shared_key)
        assert status == 404, (method, told)
    _, told = await sent(gateway, "GET", path, shared_key)
    tree: Any = msgspec.json.decode(told)
    assert tree["error"]["message"].startswith("There is nothing at this path.")


@pytest.mark.parametrize("path", CALLED_OTHERWISE)
async def test_no_model_is_called_by_a_path_that_is_written_otherwise(
    gateway: RunningGateway, shared_key: str, upstreams: Upstreams, path: str
) -> None:
    body = msgspec.json.encode(ask("openai"))

    status, told = await sent(gateway, "POST", path, shared_key, body)

    assert status in (404, 405), told
    assert untouched(upstreams)


@pytest.mark.parametrize("target", ["/metrics#a", "/metrics#", "/metrics?a#b", "/health/live#/x"])
async def test_no_fragment_hides_the_end_of_a_path(
    gateway: RunningGateway, shared_key: str, target: str
) -> None:
    """None belongs into a request (RFC 9112, 3.2.1); the parser leaves it out of the path."""
    status, told = await sent(gateway, "GET", target, shared_key)

    assert status == 400, told


@pytest.mark.parametrize(
    "path",
    ["/v1//chat/completions", "/v1/chat/completions/", "/v1/models/", "//metrics", "/v1%2fmodels"],
)
async def test_who_wrote_a_path_otherwise_is_told_so(
    gateway: RunningGateway, shared_key: str, path: str
) -> None:
    """Such a base URL ends with a slash, and its client adds one of its own."""
    _, told = await sent(gateway, "GET", path, shared_key)

    assert b"one writing only" in told


@pytest.mark.parametrize(
    "path", ["/v1/models/auto", "/v1/models/a%75to", "/openai/v1/models/auto%3Anowhere"]
)
async def test_a_name_in_a_path_may_be_escaped(
    gateway: RunningGateway, shared_key: str, path: str
) -> None:
    """As clients do, with what is no letter; of the name nothing but the name depends."""
    status, told = await sent(gateway, "GET", path, shared_key)

    tree: Any = msgspec.json.decode(told)
    if "nowhere" in path:
        assert (status, tree["error"]["code"]) == (404, "model_not_found")
    else:
        assert (status, tree["id"]) == (200, "auto")
