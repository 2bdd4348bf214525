"""What holds of every page: nothing inline, problems in our own words, HEAD like GET."""

import json
import re

import pytest

from gateway.store.migrate import migrate
from tests.admin import seeding
from tests.admin.listener import Browser, Listener


pytestmark = pytest.mark.anyio


async def test_pages_hold_no_inline_script_and_no_inline_style(browser: Browser) -> None:
    _, sign_in = await browser.send("GET", "/sign-in")
    await browser.sign_in()
    _, overview = await browser.send("GET", "/")
    for page in (sign_in, overview):
        assert re.search(r"<script(?! type=\"module\" src=)|\sstyle=|\son[a-z]+=", page) is None


@pytest.mark.parametrize("path", ["/", "/sign-in", "/viewing", "/health/ready"])
async def test_head_answers_like_get_without_a_body(browser: Browser, path: str) -> None:
    await browser.sign_in()
    full, body = await browser.send("GET", path)
    head, nothing = await browser.send("HEAD", path)

    assert head.status == full.status == 200
    assert head.content_type == full.content_type
    assert body
    assert nothing == ""


async def test_an_unknown_page_is_a_404_in_our_own_words(browser: Browser) -> None:
    answer, page = await browser.send("GET", "/nothing/here")

    assert answer.status == 404
    assert "There is no such page." in page
    assert 'href="/"' in page


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/models", "/openai/deployments/auto/chat/completions"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_model_request_to_the_wrong_listener_is_told_so_as_its_client_can_show(
    browser: Browser, method: str, path: str
) -> None:
    """OpenAI's client said "Error code: 404" and nothing else: a page is no error to it."""
    answer, body = await browser.send(method, path, body="{}" if method == "POST" else "")

    assert (answer.status, answer.content_type) == (404, "application/json")
    assert "This is the admin listener" in body


async def test_a_page_that_no_role_opens_says_so_and_blames_no_other_site(
    listener: Listener, browser: Browser
) -> None:
    await seeding.person(listener, "vera", "viewer", "acme")
    await browser.sign_in_as("vera", seeding.PASSWORD)
    answer, page = await browser.send("GET", "/system")

    assert answer.status == 403
    assert "None of your roles opens this page." in page
    assert "another site" not in page


async def test_a_method_that_a_page_does_not_take_is_a_405(browser: Browser) -> None:
    answer, page = await browser.send("DELETE", "/sign-in")

    assert answer.status == 405
    assert "This page does not accept that." in page


async def test_a_database_that_does_not_answer_is_said_and_reported_as_not_ready(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    await migrate(listener.settings.database_url, "base")
    answer, page = await browser.send("GET", "/")
    ready, said = await browser.send("GET", "/health/ready")

    assert answer.status == ready.status == 503
    assert json.loads(said) == {"status": "not ready", "reason": "The database does not answer."}
    assert "The database does not answer." in page
