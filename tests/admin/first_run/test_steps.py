"""The five steps: what is done is said, what is wrong is said in place, one address is asked."""

import pytest

from tests.admin.listener import Browser, Listener
from tests.admin.seeding import PASSWORD, issue, person, requests


pytestmark = pytest.mark.anyio


@pytest.fixture
async def root(listener: Listener, browser: Browser) -> Browser:
    await person(listener, "root", "platform_admin")
    await browser.sign_in_as("root", PASSWORD)
    return browser


async def see(browser: Browser, path: str = "/first-run") -> str:
    answer, page = await browser.send("GET", path)
    assert answer.status == 200
    return page


async def test_steps_are_done_when_what_they_leave_is_there(
    listener: Listener, root: Browser
) -> None:
    assert "1 of 5" in await see(root)
    place = {"organisation": "acme", "workspace": "research", "project": "bot"}
    answer, _ = await root.send("POST", "/first-run/place", place)
    assert answer.status == 303
    assert "2 of 5" in await see(root)
    answer, page = await root.send("POST", "/first-run/key", {})
    assert answer.status == 201
    assert "gw_live_" in page
    assert "gw_live_" not in await see(root)
    assert "3 of 5" in await see(root)
    await listener.record(*requests(listener, "k", 1, status="ok"))
    page = await see(root)
    assert "5 of 5" in page
    assert "/o/acme/traffic/req_k_0" in page


async def test_who_can_answer_is_said_before_the_first_request(
    listener: Listener, root: Browser
) -> None:
    """A first request that is refused with 503 is a poor welcome."""
    page = await see(root)
    assert "engine may answer it. managed: no credential. " in " ".join(page.split())
    assert 'href="/models/credentials">Credentials</a>' in page
    await issue(listener, "first")
    await listener.record(*requests(listener, "k", 1, status="ok"))
    assert "may answer it." not in await see(root)


async def test_another_organisation_is_made_from_the_menu_and_begins_with_a_key(
    listener: Listener, root: Browser
) -> None:
    await issue(listener, "first", organisation="acme")
    assert 'href="/first-run#another"' in await see(root, "/")
    assert 'id="another"' in await see(root)
    place = {"organisation": "umbrella", "workspace": "labs", "project": "bot"}
    answer, _ = await root.send("POST", "/first-run/place", place)
    assert answer.headers["location"] == "/o/umbrella/keys/new?workspace=labs&project=bot"
    form = await see(root, answer.headers["location"])
    assert ('value="labs"' in form, 'value="bot"' in form) == (True, True)


async def test_a_wrong_place_is_said_beside_its_field_and_kept(root: Browser) -> None:
    wrong = {"organisation": "acme", "workspace": "Not One", "project": "bot"}
    answer, page = await root.send("POST", "/first-run/place", wrong)

    assert answer.status == 400
    assert 'value="Not One"' in page
    assert "1 of 5" in page


@pytest.mark.parametrize("key", ["", "nothing", "gw_live_" + "0" * 12 + "_" + "0" * 49])
async def test_only_a_key_of_this_installation_is_tried(root: Browser, key: str) -> None:
    form = {"key": key, "url": "http://127.0.0.1:1/", "host": "elsewhere"}
    answer, _ = await root.send("POST", "/first-run/run", form)
    assert answer.status == 400


async def test_a_data_plane_that_is_not_there_is_said_in_place(
    listener: Listener, root: Browser
) -> None:
    await issue(listener, "first")
    _, page = await root.send("POST", "/first-run/key", {})
    key = page.partition('id="the-key">')[2].partition("<")[0]
    answer, page = await root.send("POST", "/first-run/run", {"key": key})

    assert answer.status == 201
    assert "The data plane does not answer at its address" in page
    assert "4. A request, streamed" in page


async def test_who_may_not_issue_keys_only_reads_the_steps(
    listener: Listener, browser: Browser
) -> None:
    await issue(listener, "first")
    await person(listener, "vera", "viewer")
    await browser.sign_in_as("vera", PASSWORD)
    page = await see(browser)

    assert "/first-run/key" not in page
    assert "/first-run/place" not in page
    for path in ("place", "key", "run"):
        answer, _ = await browser.send("POST", f"/first-run/{path}", {"key": "x"})
        assert answer.status == 403
