"""Every address of the admin listener has one writing, so that a proxy before it can choose."""

import asyncio

import pytest

from admin.access import COOKIE
from tests.admin.listener import Browser, Listener


pytestmark = pytest.mark.anyio

PLAIN = ("/sign-in", "/api/people", "/api/providers/engine", "/api/providers/%65ngine")
OTHERWISE = (
    "//sign-in",
    "/sign-in/",
    "/sign%2din",
    "/Sign-In",
    "/./sign-in",
    "/sign-in;a=b",
    "//api/people",
    "/api//people",
    "/api/people/",
    "/api%2fpeople",
    "/api/p%65ople",
    "/%61pi/people",
    "/static/../api/people",
    "/api/providers//engine",
    "/api/providers/engine/",
    "/api/providers/engine%2f",
    "/api/providers%2fengine",
    "/api/pr%6fviders/engine",
    "/api/openapi%2ejson",
)
CHANGES = ("//sign-in", "/sign-in/", "/sign-out/", "//sign-out", "/api//grants", "/api/gr%61nts")


async def status_of(listener: Listener, session: str, path: str, method: str = "GET") -> int:
    """For a path that no client's library has cleared up."""
    reader, writer = await asyncio.open_connection(*listener._socket.getsockname())
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
        f"cookie: {COOKIE}={session}\r\n\r\n"
    )
    writer.write(head.encode())
    said = await reader.read()
    writer.close()
    await writer.wait_closed()
    return int(said.split()[1])


@pytest.fixture
async def session(browser: Browser) -> str:
    """Of somebody who may see everything."""
    await browser.sign_in()
    return browser.session_id


@pytest.mark.parametrize("path", OTHERWISE)
async def test_an_address_that_is_written_otherwise_leads_nowhere(
    listener: Listener, session: str, path: str
) -> None:
    assert await status_of(listener, session, path) == 404
    assert await status_of(listener, session, path, "HEAD") == 404


@pytest.mark.parametrize("path", PLAIN)
async def test_an_address_as_it_is_documented_leads_there(
    listener: Listener, session: str, path: str
) -> None:
    assert await status_of(listener, session, path) == 200


@pytest.mark.parametrize("path", CHANGES)
async def test_nothing_is_changed_at_an_address_that_is_written_otherwise(
    listener: Listener, session: str, path: str
) -> None:
    assert await status_of(listener, session, path, "POST") == 404
