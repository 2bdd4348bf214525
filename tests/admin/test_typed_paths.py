"""Addresses that people type: without an organisation, and with rubbish in them."""

import pytest

from tests.admin.compliance.archive import person
from tests.admin.listener import Browser, Listener


pytestmark = pytest.mark.anyio


async def test_a_path_without_an_organisation_leads_to_the_only_one(
    listener: Listener, browser: Browser
) -> None:
    await listener.issue_key("one", "acme")
    await browser.sign_in()
    for path in ("/traffic", "/costs", "/costs/limits", "/compliance/reveals", "/keys"):
        answer, _ = await browser.send("GET", path)
        assert (answer.status, answer.headers["location"]) == (303, f"/o/acme{path}")
    answer, _ = await browser.send("GET", "/traffic?q=class:S3")
    assert answer.headers["location"] == "/o/acme/traffic?q=class:S3"


async def test_whoever_has_several_organisations_is_asked_which(
    listener: Listener, browser: Browser
) -> None:
    for name in ("acme", "globex"):
        await listener.issue_key("one", name)
    await browser.sign_in()
    answer, page = await browser.send("GET", "/traffic?q=class:S3")
    assert answer.status == 200
    for name in ("acme", "globex"):
        assert f'<a href="/o/{name}/traffic?q=class:S3">' in page
    async with person(listener, "vera", "viewer") as vera:
        answer, _ = await vera.send("GET", "/traffic")
        assert answer.headers["location"] == "/o/acme/traffic", "globex is not hers"
        answer, page = await vera.send("GET", "/compliance")
        assert answer.status == 403
        assert "None of your roles opens this page." in page


async def test_before_there_is_an_organisation_a_typed_path_leads_to_the_first_steps(
    browser: Browser,
) -> None:
    """The first person was told on every page of the manual that there is no such page."""
    await browser.sign_in()
    for path in ("/keys", "/costs", "/traffic?q=class:S3", "/policies"):
        answer, _ = await browser.send("GET", path)
        assert (answer.status, answer.headers["location"]) == (303, "/first-run"), path


async def test_a_path_without_an_organisation_wants_a_sign_in_first(browser: Browser) -> None:
    answer, _ = await browser.send("GET", "/traffic")
    assert (answer.status, answer.headers["location"]) == (303, "/sign-in?to=%2Ftraffic")


async def test_rubbish_in_an_address_is_not_called_a_form(browser: Browser) -> None:
    await browser.sign_in()
    for path in ("/?x=%00", "/words?q=a%00"):
        answer, page = await browser.send("GET", path)
        assert (answer.status, "form" in page) == (400, False), path
        assert "Part of this address cannot be read." in page
