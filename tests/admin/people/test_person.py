"""People kept out and let in: at once, by whom, and never so that nobody could run the platform."""

import re

import pytest

from gateway.audit.projecting.projector import Projector
from gateway.store.evidence.sink import DatabaseAuditSink
from tests.admin import seeding
from tests.admin.listener import Browser, Listener, browsing
from tests.admin.test_deeds import deeds


pytestmark = pytest.mark.anyio


async def _project(listener: Listener) -> None:
    directory = listener.settings.path(listener.settings.audit.directory)
    async with listener.database() as database:
        await Projector(directory, DatabaseAuditSink(database, directory)).catch_up()


@pytest.fixture
async def admin(listener: Listener, browser: Browser) -> Browser:
    await listener.issue_key("assistant")
    await seeding.person(listener, "petra", "platform_admin")
    await seeding.person(listener, "olga", "app_owner", "acme")
    await browser.sign_in_as("petra", seeding.PASSWORD)
    return browser


async def test_who_is_disabled_is_out_with_the_next_request_and_back_when_enabled(
    listener: Listener, admin: Browser
) -> None:
    async with browsing(listener) as theirs:
        await theirs.sign_in_as("olga", seeding.PASSWORD)
        _, page = await admin.send("GET", "/person/olga/disable")
        assert "1 session ends at once" in page
        assert "1 role stays recorded without effect" in page
        answer, _ = await admin.send("POST", "/person/olga/disable")
        assert (answer.status, answer.headers["location"]) == (303, "/person/olga")
        assert not await theirs.is_signed_in()
        refused = await theirs.sign_in_as("olga", seeding.PASSWORD)
        assert refused.status != 303
        _, page = await admin.send("GET", "/person/olga")
        assert "1 role has no effect" in page

        await admin.send("POST", "/person/olga/enable")
        await theirs.sign_in_as("olga", seeding.PASSWORD)
        assert await theirs.is_signed_in()
    await _project(listener)
    _, page = await admin.send("GET", "/person/olga")
    assert "petra: person.disabled" in page
    assert "petra: person.enabled" in page
    _, page = await admin.send("GET", "/person/petra")
    assert "petra: person." not in page, "that was done to somebody else"
    done = [each.action for each in await deeds(listener) if each.action.startswith("person.")]
    assert done == ["person.disabled", "person.enabled"]


async def test_all_sessions_of_somebody_end_in_one_act_and_they_may_come_back(
    listener: Listener, admin: Browser
) -> None:
    """By the button and over JSON; the link that waits for them, and others' sessions, stay."""
    await admin.send("POST", "/person/olga/link")
    for way, status in (("/person/olga/sign-out", 303), ("/api/person/olga/sign-out", 204)):
        async with browsing(listener) as one, browsing(listener) as other:
            for each in (one, other):
                await each.sign_in_as("olga", seeding.PASSWORD)
                assert await each.is_signed_in()
            _, page = await admin.send("GET", "/person/olga")
            assert "2 sessions" in page
            assert 'action="/person/olga/sign-out' in page
            body = "{}" if status == 204 else ""
            kind = "application/json" if body else ""
            answer, _ = await admin.send("POST", way, body=body, content_type=kind)
            assert answer.status == status
            assert [await each.is_signed_in() for each in (one, other)] == [False, False]
            _, page = await admin.send("GET", "/person/olga")
            assert "is not signed in now" in page
            assert "A link to set a new password is valid" in page
            assert 'action="/person/olga/sign-out' not in page, "there is nothing to end"
            await one.sign_in_as("olga", seeding.PASSWORD)
            assert await one.is_signed_in()
            await one.send("POST", "/sign-out")
    found = [(each.actor, each.action) for each in await deeds(listener)]
    assert found.count(("petra", "person.signed_out")) == 2
    assert (await admin.send("POST", "/person/nobody/sign-out"))[0].status == 404


async def test_who_may_not_manage_people_ends_nobodys_sessions(
    listener: Listener, admin: Browser
) -> None:
    async with browsing(listener) as theirs:
        await theirs.sign_in_as("olga", seeding.PASSWORD)
        for way in ("/person/petra/sign-out", "/api/person/petra/sign-out"):
            assert (await theirs.send("POST", way))[0].status == 403
    assert await admin.is_signed_in()


async def test_nobody_disables_themselves_or_the_last_who_runs_the_platform(
    listener: Listener, admin: Browser
) -> None:
    answer, page = await admin.send("POST", "/person/petra/disable")
    assert answer.status == 400
    assert "You cannot disable yourself" in page
    await admin.send("POST", "/sign-out")
    await seeding.person(listener, "sec", "security_admin")
    await admin.sign_in_as("sec", seeding.PASSWORD)
    answer, page = await admin.send("POST", "/person/petra/disable")
    assert answer.status == 400
    assert "is the last who runs the platform" in page
    await seeding.person(listener, "paul", "platform_admin")
    answer, _ = await admin.send("POST", "/person/petra/disable")
    assert answer.status == 303
    answer, page = await admin.send("POST", "/person/petra/enable")
    assert answer.status == 400
    assert "who may do what you may not" in page


async def test_the_last_who_runs_the_platform_keeps_the_role(
    listener: Listener, admin: Browser
) -> None:
    form = {"person": "petra", "role": "platform_admin", "organisation": "*", "to": "/person/petra"}
    answer, page = await admin.send("POST", "/people/revoke", form)
    assert answer.status == 400
    assert "is the last who runs the platform" in page
    await seeding.person(listener, "paul", "platform_admin")
    answer, _ = await admin.send("POST", "/people/revoke", form)
    assert (answer.status, answer.headers["location"]) == (303, "/person/petra")


async def test_who_may_only_read_people_sees_them_and_changes_nothing(
    listener: Listener, browser: Browser
) -> None:
    await listener.issue_key("assistant")
    await seeding.person(listener, "petra", "platform_admin")
    await seeding.person(listener, "carla", "compliance")
    await browser.sign_in_as("carla", seeding.PASSWORD)
    answer, page = await browser.send("GET", "/person/petra")
    assert answer.status == 200
    assert "/disable" not in page
    for part in ("disable", "enable", "link", "withdraw"):
        answer, _ = await browser.send("POST", f"/person/petra/{part}")
        assert answer.status == 403, part
    answer, _ = await browser.send("GET", "/person/nobody")
    assert answer.status == 404


async def test_a_role_that_is_not_theirs_to_give_cannot_be_chosen_and_its_way_is_told(
    admin: Browser,
) -> None:
    for path in ("/new-person", "/person/olga"):
        _, page = await admin.send("GET", path)
        closed = set(re.findall(r'<option value="(\w+)" disabled>', page))
        assert closed == {"approver", "compliance"}, path
        assert "gatewright users grant NAME compliance" in page
        assert "gatewright users grant NAME viewer" not in page


async def test_a_page_left_open_lets_nobody_in_who_was_disabled_anew(
    listener: Listener, admin: Browser
) -> None:
    await admin.send("POST", "/person/olga/disable")
    _, page = await admin.send("GET", "/person/olga")
    (seen,) = re.findall(r'name="since_us" value="(\d+)"><button type="submit">Enable', page)
    listener.clock.advance(60.0)
    await admin.send("POST", "/person/olga/enable", {"since_us": seen})
    await admin.send("POST", "/person/olga/disable")
    answer, page = await admin.send("POST", "/person/olga/enable", {"since_us": seen})
    assert (answer.status, "Somebody changed this meanwhile" in page) == (409, True)
    async with browsing(listener) as theirs:
        assert (await theirs.sign_in_as("olga", seeding.PASSWORD)).status == 401
    (now,) = re.findall(r'name="since_us" value="(\d+)"><button type="submit">Enable', page)
    assert (await admin.send("POST", "/person/olga/enable", {"since_us": now}))[0].status == 303
