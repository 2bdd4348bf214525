"""An engine's places: what asks for more of them than there are is no matter of waiting."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.local_engine.served import client_of, served


MESSAGES = [{"role": "user", "content": "hello"}]
pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def client(tiny_model_for_module: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Of an engine with three places."""
    options = {"max_running": 2, "max_waiting": 1}
    async with (
        served(tiny_model_for_module, **options) as place,
        client_of(place.engine) as found,
    ):
        yield found


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/chat/completions", {"messages": MESSAGES, "n": 4}, "n"),
        ("/v1/completions", {"prompt": "one", "n": 4}, "n"),
        ("/v1/completions", {"prompt": ["one", "two"], "n": 2}, "n"),
        ("/v1/completions", {"prompt": ["one"] * 4}, "prompt"),
    ],
)
async def test_a_request_that_no_engine_of_the_kind_could_take_is_not_told_to_come_back(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], param: str, *, stream: bool
) -> None:
    asked = {"model": "tiny", "max_tokens": 1, "stream": stream, **body}
    answer = await client.post(path, json=asked)
    assert answer.status_code == 400
    assert "retry-after" not in answer.headers
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("invalid_value", param)
    assert "4 answers" in error["message"]
    assert "3 places" in error["message"]


async def test_a_request_may_have_every_place(client: httpx.AsyncClient) -> None:
    body = {"model": "tiny", "prompt": "one", "n": 3, "max_tokens": 1, "ignore_eos": True}
    answer = await client.post("/v1/completions", json=body)
    assert [choice["index"] for choice in answer.json()["choices"]] == [0, 1, 2]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": MESSAGES}, "model"),
        ({"model": "tiny"}, "messages"),
        ({"model": "tiny", "messages": [{"content": "a"}]}, "messages[0].role"),
    ],
)
async def test_what_is_missing_is_named(
    client: httpx.AsyncClient, body: dict[str, Any], param: str
) -> None:
    answer = await client.post("/v1/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
