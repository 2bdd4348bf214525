"""Files over HTTP with the official client: kept, listed, read and forgotten, and nobody else's."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import openai
import pytest

from gateway.store.identity.keys import Place
from tests.running_gateway import RunningGateway


pytestmark = pytest.mark.anyio

SETTINGS = """
[limits]
file_bytes_max = 3000000
project_bytes_max = 5000000
"""
LINES = b'{"custom_id":"a"}\n' * 100_000
OTHERS = [Place("acme", "research", "other"), Place("rival", "research", "assistant")]


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[openai.AsyncOpenAI]:
    """With a project of its own, whose room is empty."""
    key = await gateway.issue_key(Place("acme", "files", f"p{len(_made)}"))
    _made.append(key)
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=key, max_retries=0
    ) as client:
        yield client


_made: list[str] = []


async def test_a_file_is_kept_listed_read_and_forgotten(client: openai.AsyncOpenAI) -> None:
    made = await client.files.create(file=("../we/ird\n.jsonl", LINES), purpose="batch")
    assert made.id.startswith("file-")
    assert len(made.id) == len("file-") + 48
    assert (made.bytes, made.purpose, made.status) == (len(LINES), "batch", "processed")
    assert made.filename == "ird.jsonl"
    assert made.expires_at == made.created_at + 30 * 86_400

    assert await client.files.retrieve(made.id) == made
    assert (await client.files.content(made.id)).content == LINES
    assert [file.id async for file in client.files.list(purpose="batch")] == [made.id]
    assert [file.id async for file in client.files.list(purpose="batch_output")] == []
    gone = await client.files.delete(made.id)
    assert (gone.id, gone.deleted) == (made.id, True)
    for read in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError) as caught:
            await read(made.id)
        assert caught.value.code == "file_not_found"


async def test_a_list_is_paged_with_its_last_id(client: openai.AsyncOpenAI) -> None:
    made = [(await client.files.create(file=b"{}", purpose="batch")).id for _ in range(5)]

    assert [file.id async for file in client.files.list(limit=2)] == made[::-1]
    assert [file.id async for file in client.files.list(limit=2, order="asc")] == made


async def test_a_file_can_ask_to_expire_sooner_than_others(client: openai.AsyncOpenAI) -> None:
    made = await client.files.create(
        file=b"{}", purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    assert made.expires_at == made.created_at + 3600
    with pytest.raises(openai.BadRequestError) as caught:
        await client.files.create(
            file=b"{}", purpose="batch", expires_after={"anchor": "created_at", "seconds": 1}
        )
    assert caught.value.param == "expires_after.seconds"


async def test_a_file_that_arrives_slowly_is_kept_from_when_it_was_made(
    gateway: RunningGateway, client: openai.AsyncOpenAI
) -> None:
    async def form() -> AsyncIterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n{'
        await asyncio.sleep(1.1)
        yield b"}\r\n--b--\r\n"

    headers = {
        "authorization": f"Bearer {client.api_key}",
        "content-type": "multipart/form-data; boundary=b",
    }
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{gateway.url}/v1/files", data=form(), headers=headers) as answer,
    ):
        made = await answer.json()
    assert made["expires_at"] == made["created_at"] + 30 * 86_400


@pytest.mark.parametrize("place", OTHERS)
async def test_nobody_elses_file_is_found(
    gateway: RunningGateway, client: openai.AsyncOpenAI, place: Place
) -> None:
    made = await client.files.create(file=b"{}", purpose="batch")
    stranger = client.with_options(api_key=await gateway.issue_key(place))

    for read in (stranger.files.retrieve, stranger.files.content, stranger.files.delete):
        with pytest.raises(openai.NotFoundError):
            await read(made.id)
    assert [file.id async for file in stranger.files.list()] == []
    assert (await client.files.retrieve(made.id)).id == made.id


async def test_a_key_is_needed_before_a_byte_of_the_body_is_read(
    client: openai.AsyncOpenAI,
) -> None:
    stranger = client.with_options(api_key="sk-not-one")
    with pytest.raises(openai.AuthenticationError):
        await stranger.files.create(file=LINES, purpose="batch")
    with pytest.raises(openai.AuthenticationError):
        await stranger.files.retrieve("file-1")
    with pytest.raises(openai.AuthenticationError):
        await stranger.files.content("file-1")


async def test_a_file_that_is_too_long_is_refused_and_nothing_of_it_stays(
    client: openai.AsyncOpenAI,
) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        await client.files.create(file=b"x" * 3_000_001, purpose="batch")
    assert caught.value.status_code == 413
    assert [file.id async for file in client.files.list()] == []


async def test_a_project_has_room_for_so_many_bytes_and_gets_it_back(
    client: openai.AsyncOpenAI,
) -> None:
    first = await client.files.create(file=b"x" * 3_000_000, purpose="batch")
    await client.files.create(file=b"x" * 2_000_000, purpose="batch")
    with pytest.raises(openai.APIStatusError) as caught:
        await client.files.create(file=b"x", purpose="batch")
    assert caught.value.status_code == 413
    await client.files.delete(first.id)
    await client.files.create(file=b"x", purpose="batch")


async def test_a_file_that_was_no_batch_takes_no_room_once_it_is_deleted(
    client: openai.AsyncOpenAI,
) -> None:
    """Its batch has no line, and nobody could delete that."""
    for _ in range(3):
        file = await client.files.create(file=b"x" * 2_400_000, purpose="batch")
        batch = await client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        while batch.status == "validating":
            await asyncio.sleep(0.05)
            batch = await client.batches.retrieve(batch.id)
        assert batch.status == "failed"
        await client.files.delete(file.id)


@pytest.mark.parametrize("purpose", ["assistants", "fine-tune", "vision", "batch_output"])
async def test_a_file_for_another_purpose_is_refused(
    client: openai.AsyncOpenAI, purpose: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.files.create(file=b"{}", purpose=purpose)  # type: ignore[arg-type]
    assert caught.value.param == "purpose"


HEAD = b'--b\r\nContent-Disposition: form-data; name="'
FILE = HEAD + b'file"; filename="a"\r\n\r\n{}\r\n'
PURPOSE = HEAD + b'purpose"\r\n\r\nbatch\r\n'
END = b"--b--\r\n"
FORM = "multipart/form-data; boundary=b"


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b"{}"),
        ("multipart/form-data", FILE + PURPOSE + END),
        ("multipart/form-data; boundary=other", FILE + PURPOSE + END),
        (FORM, b""),
        (FORM, FILE + PURPOSE),
        (FORM, PURPOSE + END),
        (FORM, FILE + END),
        (FORM, FILE + FILE + PURPOSE + END),
        (FORM, FILE + PURPOSE + PURPOSE + END),
        (FORM, FILE + HEAD + b'purpose"\r\n\r\n' + b"x" * 2000 + b"\r\n" + END),
        (FORM, FILE + PURPOSE + b"".join(HEAD + b'%d"\r\n\r\nx\r\n' % n for n in range(9)) + END),
        (FORM, HEAD + b'file"; filename="a"\r\n\r\n\r\n' + PURPOSE + END),
        (FORM, FILE + HEAD + b'purpose"\r\n\r\n\xff\xfe\r\n' + END),
        (FORM, b"--b\r\n" + b"A" * 10_000 + b": x\r\n\r\n{}\r\n" + PURPOSE + END),
    ],
)
async def test_a_form_that_is_not_one_is_refused_and_nothing_stays(
    gateway: RunningGateway, client: openai.AsyncOpenAI, kind: str, body: bytes
) -> None:
    headers = {"authorization": f"Bearer {client.api_key}", "content-type": kind}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{gateway.url}/v1/files", data=body, headers=headers) as response,
    ):
        assert response.status == 400
        error = (await response.json())["error"]
    assert error["code"] == "invalid_request"
    assert [file.id async for file in client.files.list()] == []


async def test_a_good_form_is_taken_in_either_order(
    gateway: RunningGateway, client: openai.AsyncOpenAI
) -> None:
    headers = {"authorization": f"Bearer {client.api_key}", "content-type": FORM}
    async with aiohttp.ClientSession() as http:
        for body in (FILE + PURPOSE + END, PURPOSE + FILE + END):
            url = f"{gateway.url}/v1/files"
            async with http.post(url, data=body, headers=headers) as response:
                assert response.status == 200
        async with http.post(
            f"{gateway.url}/v1/files", data=FILE, headers=headers | {"content-encoding": "gzip"}
        ) as response:
            assert response.status == 415


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "order=up", "after=a&before=b"])
async def test_a_page_that_makes_no_sense_is_refused(
    gateway: RunningGateway, client: openai.AsyncOpenAI, query: str
) -> None:
    headers = {"authorization": f"Bearer {client.api_key}"}
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"{gateway.url}/v1/files?{query}", headers=headers) as response,
    ):
        assert response.status == 400
