"""Whoever may only look, before every form and body that changes something: nothing is done."""

import msgspec
import pytest
from sqlalchemy import select

from admin.sign_in.protection import SAFE_METHODS
from gateway.audit.projecting.export import segment_rows
from gateway.oversight.access import ROLE_PERMISSIONS, Grant, Permission
from gateway.store.schema.tables import metadata
from tests.admin.listener import Browser, Listener
from tests.admin.test_access import PASSWORD
from tests.admin.test_access_of_pages import handlers
from tests.admin.test_foreign_ids import Asking, reading, seen, subject
from tests.admin.two_organisations import OWN, employ, furnished


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]
BY_BEING_THERE = {"admin_sessions"}
"""Tables in which it stands when somebody was last seen."""


async def all_rows(listener: Listener) -> dict[str, list[str]]:
    found = {}
    async with listener.database() as database, database.reading() as connection:
        for name, table in metadata.tables.items():
            if name not in BY_BEING_THERE:
                rows = (await connection.execute(select(table))).all()
                found[name] = sorted(map(repr, rows))
    return found


async def test_a_viewer_changes_nothing_and_nothing_is_recorded_as_done(
    listener: Listener, browser: Browser
) -> None:
    """With ids of things that are there, and with every field that the route takes filled in."""
    await employ(listener, "ann", PASSWORD, [Grant("viewer", OWN)])
    await browser.sign_in_as("ann", PASSWORD)
    own, _ = await furnished(listener)
    _, text = await browser.send("GET", "/api/openapi.json")
    asking = Asking(msgspec.json.decode(text), reading(listener.application), own.ids)
    folder = listener.settings.path(listener.settings.audit.directory)
    before = await all_rows(listener)
    records = [row.projected.record async for row in segment_rows(folder)]
    asked = 0

    for method, path, access, where in subject(handlers(listener.application)):
        is_permitted = Permission(access) in ROLE_PERMISSIONS["viewer"] and where != "everywhere"
        if method in SAFE_METHODS or is_permitted:
            continue
        for attempt in (
            asking.by_path(method, path, own.ids),
            *asking.by_fields(method, path, own.ids, apart=False),
        ):
            told, said = await seen(browser, attempt, frozenset())
            assert told.status == 403, (method, path, told.status)
            assert own.said not in said, (method, path)
            asked += 1

    assert asked > 150
    assert await all_rows(listener) == before
    done = [row.projected.record async for row in segment_rows(folder)][len(records) :]
    assert [each.action for each in done] == []
