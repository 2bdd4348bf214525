"""A caller who sends a long body in drops takes no place that others' bodies need."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.api.message_batches import INTAKES_MAX
from gateway.api.places import Places
from gateway.api.uploads import UPLOADS_MAX
from gateway.errors import Unavailable
from gateway.projects import Project
from gateway.store.identity.keys import Place
from tests.running_gateway import RunningGateway, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

OTHERS = Place("acme", "research", "another")
FORM = (
    b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n{}\r\n--b--\r\n'
)
BATCH = (
    b'{"requests":[{"custom_id":"a","params":{"model":"claude-opus-5-5","max_tokens":5,'
    b'"messages":[{"role":"user","content":"hi"}]}}]}'
)
PATHS = {
    "/v1/files": ("multipart/form-data; boundary=b", FORM, UPLOADS_MAX, 503),
    "/v1/messages/batches": ("application/json", BATCH, INTAKES_MAX, 529),
}


@pytest.fixture
async def gateway(
    tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams
) -> AsyncIterator[RunningGateway]:
    async with RunningGateway(tmp_path, sqlite_url, own_upstreams) as running:
        yield running


async def begun(
    gateway: RunningGateway, path: str, key: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A request whose body has begun to come."""
    kind, body, *_ = PATHS[path]
    reader, writer = await asyncio.open_connection("127.0.0.1", int(gateway.url.rpartition(":")[2]))
    head = f"POST {path} HTTP/1.1\r\nhost: here\r\nx-api-key: {key}\r\ncontent-type: {kind}\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body[:10])
    await writer.drain()
    return reader, writer


async def status(reader: asyncio.StreamReader) -> int:
    async with asyncio.timeout(30):
        return int((await reader.readline()).split()[1])


@pytest.mark.parametrize("path", PATHS)
async def test_a_project_leaves_others_places_for_their_bodies(
    gateway: RunningGateway, path: str
) -> None:
    _, body, most, refusal = PATHS[path]
    ours, theirs = await gateway.issue_key(), await gateway.issue_key(OTHERS)

    slow = [await begun(gateway, path, ours) for _ in range(most // 2)]
    await asyncio.sleep(0.5)
    one_more = await begun(gateway, path, ours)
    refused = await status(one_more[0])
    other = await begun(gateway, path, theirs)
    other[1].write(body[10:])
    served = await status(other[0])
    for _, writer in slow:
        writer.write(body[10:])
    all_of_them = [await status(reader) for reader, _ in slow]
    for _, writer in (*slow, one_more, other):
        writer.close()

    assert refused == refusal
    assert served == 200
    assert all_of_them == [200] * (most // 2)


def _refuses(places: Places, project: Project) -> bool:
    try:
        with places.place(project):
            return False
    except Unavailable as error:
        return error.message == "none left"


def test_a_place_is_free_again_whatever_became_of_its_body() -> None:
    places = Places(2, "none left")
    project, *others = (Project("acme", "research", name) for name in "abc")
    for _ in range(5):
        with suppress(ZeroDivisionError), places.place(project):
            assert _refuses(places, project)
            raise ZeroDivisionError

    with places.place(others[0]), places.place(others[1]):
        assert _refuses(places, project)
    assert not _refuses(places, project)
