"""Whatever changes something over HTTP leaves an admin record with the person who is signed in."""

import re
import secrets

import msgspec
import pytest
from litestar import Litestar, post

from admin.access import SIGNED_IN, require_declarations
from gateway.audit.export import segment_rows
from gateway.errors import StartupRefused
from gateway.oversight.access import Grant, Permission, Role
from gateway.oversight.deeds import OPERATORS
from gateway.types import AuditRecord
from tests.admin.listener import Browser, Listener
from tests.admin.test_access import OWN, PASSWORD, call, declared, person, world


pytestmark = pytest.mark.anyio


async def deeds(listener: Listener) -> list[AuditRecord]:
    folder = listener.settings.path(listener.settings.audit.directory)
    records = [row.projected.record async for row in segment_rows(folder)]
    assert {record.organisation for record in records} <= {OPERATORS}
    return records


async def test_every_change_over_http_is_on_record_with_its_person(
    listener: Listener, browser: Browser
) -> None:
    await world(listener)
    roles: tuple[Role, ...] = ("platform_admin", "security_admin", "compliance")
    await person(listener, "ann", *(Grant(role, "*") for role in roles))
    await browser.sign_in_as("ann", PASSWORD)
    seen = len(await deeds(listener))
    for method, path, opt in declared(listener.application):
        # What is done to one of its things is tested in the thing's own room.
        is_of_a_thing = re.search(r"\{(?!organisation|level)", path) is not None
        if method != "POST" or is_of_a_thing or opt["records"].startswith("nothing"):
            continue
        if opt["access"] in (Permission.POLICIES_APPROVE, Permission.POLICIES_PUBLISH):
            continue  # Takes a second person: `policies/test_rolling_out.py`.
        if path.endswith("/versions"):
            continue  # Takes a draft: there, too.
        status, _ = await call(browser, method, path, OWN)
        assert status in (201, 204), (path, status)
        (record,) = (await deeds(listener))[seen:]
        seen += 1
        assert (record.stage, record.action, record.actor) == ("admin", opt["records"], "ann")
        # Custody records in words of its own: what was found, whose case, which reason.
        assert "after" in record.detail or "/compliance/" in path
        assert record.detail


async def test_a_key_is_on_record_when_issued_and_when_revoked_and_its_secret_never_is(
    listener: Listener, browser: Browser
) -> None:
    await world(listener)
    await person(listener, "ann", Grant("platform_admin", OWN), Grant("app_owner", OWN))
    await browser.sign_in_as("ann", PASSWORD)
    _, issued = await call(browser, "POST", "/api/organisations/{organisation}/keys", OWN)
    path = f"/api/organisations/{OWN}/keys/{issued['key_id']}/revoke"
    answer, _ = await browser.send("POST", path)
    assert answer.status == 204

    records = await deeds(listener)

    assert [each.action for each in records] == ["session.began", "key.issued", "key.revoked"]
    after = msgspec.json.decode(records[1].detail["after"])
    assert after["key_id"] == issued["key_id"]
    assert msgspec.json.decode(records[2].detail["before"]) == {"name": "new", "revoked_us": None}
    assert issued["key"] not in str(records)


async def test_signing_in_failing_to_and_signing_out_are_on_record(
    listener: Listener, browser: Browser
) -> None:
    await person(listener, "ann")
    wrong = secrets.token_hex(8) + "!"
    await browser.sign_in_as("ann", wrong)
    await browser.sign_in_as(wrong, "typed into the wrong field")
    await browser.sign_in_as("ann", PASSWORD)
    await browser.send("POST", "/sign-out")

    records = await deeds(listener)

    assert [(each.action, each.actor, each.status) for each in records] == [
        ("session.refused", "ann", "failed"),
        ("session.refused", "-", "failed"),
        ("session.began", "ann", "ok"),
        ("session.ended", "ann", "ok"),
    ]
    assert wrong not in str(records)


def test_a_handler_that_changes_something_and_does_not_say_what_it_records_stops_the_start() -> (
    None
):
    @post("/api/quiet", opt=SIGNED_IN)
    async def quiet() -> None: ...

    with pytest.raises(StartupRefused, match="does not say what it records"):
        require_declarations(Litestar([quiet], openapi_config=None))
