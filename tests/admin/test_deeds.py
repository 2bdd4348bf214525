"""Whatever changes something over HTTP leaves an admin record with the person who is signed in."""

import asyncio
import re
import secrets
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from litestar import Litestar, post

from admin.access import SIGNED_IN, require_declarations
from admin.refusals import AT_ONCE_MAX, PER_SECOND_MAX
from gateway.audit.projecting.export import segment_rows
from gateway.errors import AuditUnavailable, StartupRefused
from gateway.oversight.access import Grant, Permission, Role
from gateway.oversight.deeds import OPERATORS, Deeds
from gateway.types import AuditRecord
from tests.admin.listener import Browser, Listener, browsing
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
        if path.endswith("/integrity/check"):
            continue  # Its end is on record as well, whenever that is: `audit/test_integrity.py`.
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


async def test_of_a_flood_of_refused_sign_ins_some_are_on_record_and_the_rest_is_counted(
    listener: Listener, browser: Browser
) -> None:
    await person(listener, "ann")
    for path, form in (("/sign-in", {"token": "wrong"}), ("/invitation", {"code": "wrong"})):
        said = {(await browser.send("POST", path, form))[0].status for _ in range(AT_ONCE_MAX + 3)}
        assert said in ({401}, {400}), "whoever floods is not told"
    await browser.sign_in_as("ann", "wrong")
    listener.clock.advance(1 / PER_SECOND_MAX + 1)
    await browser.send("POST", "/sign-in", {"token": "wrong"})
    await browser.send("POST", "/sign-in", {"token": "wrong"})

    records = [each for each in await deeds(listener) if each.action == "session.refused"]
    found = Counter(each.actor for each in records)
    assert found == {"-": AT_ONCE_MAX + 1, "invitation": AT_ONCE_MAX, "ann": 1}
    assert [each.detail.get("left_out") for each in records if each.actor == "-"] == [
        *([None] * AT_ONCE_MAX),
        "3",
    ]


async def test_what_a_flood_left_out_is_on_record_soon_after_it_and_at_the_end(
    tmp_path: Path, listener_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("admin.services.FORGET_EVERY_S", 0.02)

    async def left_out(listener: Listener) -> list[str | None]:
        return [each.detail.get("left_out") for each in await deeds(listener)][AT_ONCE_MAX:]

    async with Listener(tmp_path, listener_url) as listener, browsing(listener) as browser:
        for _ in range(AT_ONCE_MAX + 3):
            await browser.send("POST", "/sign-in", {"token": "wrong"})
        assert await left_out(listener) == [], "no more of that name, so long as the flood lasts"
        listener.clock.advance(1 / PER_SECOND_MAX + 1)
        async with asyncio.timeout(10):
            while not await left_out(listener):
                await asyncio.sleep(0.02)
        for _ in range(2):
            await browser.send("POST", "/sign-in", {"token": "wrong"})
    assert await left_out(listener) == ["2", "1"], "each record is one of those it counts"


async def test_a_refused_sign_in_that_cannot_be_recorded_is_counted_in_the_next(
    listener: Listener, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object, **__: object) -> None:
        raise AuditUnavailable("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(Deeds, "record", full)
        answer, _ = await browser.send("POST", "/sign-in", {"token": "wrong"})
    assert answer.status == 503
    await browser.send("POST", "/sign-in", {"token": "wrong"})

    assert [each.detail.get("left_out") for each in await deeds(listener)] == ["1"]


def test_a_handler_that_changes_something_and_does_not_say_what_it_records_stops_the_start() -> (
    None
):
    @post("/api/quiet", opt=SIGNED_IN)
    async def quiet() -> None: ...

    with pytest.raises(StartupRefused, match="does not say what it records"):
        require_declarations(Litestar([quiet], openapi_config=None))
