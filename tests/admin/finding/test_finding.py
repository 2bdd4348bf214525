"""The finder: what it finds for whom, where its ways lead, and that none of them is a deed."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from litestar.routes import HTTPRoute
from msgspec import Struct, json, structs

from admin.access import needs
from admin.finding.ways import ACTIONS, LENGTH_MAX, asked, ways_of
from gateway.audit.projecting.projector import Projector
from gateway.oversight.access import Role
from gateway.passage import NATIVE, NATIVE_FILES
from gateway.projects import Project
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.identity.teams import TeamStore
from gateway.types import Attempt
from tests.admin import seeding
from tests.admin.batches import seeding as batches
from tests.admin.chromium import window
from tests.admin.listener import ON_BOTH, Browser, Listener, browsing
from tests.gateway.audit.samples import running


pytestmark = pytest.mark.anyio
APART = """() => {
  const lineOf = (within) => {
    const mark = document.createElement('span');
    mark.style.cssText = 'display: inline-block; width: 0; height: 0';
    within.append(mark);
    const bottom = mark.getBoundingClientRect().bottom;
    mark.remove();
    return bottom;
  };
  return [...document.querySelectorAll('#ways li a')]
    .filter((each) => each.children.length === 2)
    .map((each) => Math.abs(lineOf(each.children[0]) - lineOf(each.children[1])));
}"""
"""How far the lines of a way's name and of its kind are from each other, in pixels."""

POOL = """
[providers.left]
kind = "engine"
base_url = "http://127.0.0.1:2"
jurisdiction = "in-house"
[providers.herd]
kind = "pool"
jurisdiction = "in-house"
members = ["left"]
"""
API = "/api/organisations/acme/find?find="


class Line(Struct):
    kind: str
    title: str
    href: str
    asks_first: bool = False


class Found(Struct):
    ways: list[Line]


async def _found(browser: Browser, text: str) -> list[Line]:
    answer, body = await browser.send("GET", API + text.replace(" ", "+"))
    assert answer.status == 200
    return json.decode(body, type=Found).ways


@pytest.fixture
async def key_id(listener: Listener) -> str:
    key_id = await listener.issue_key("nightly report")
    await listener.issue_key("nightly stranger", "other")
    async with listener.database() as database:
        await TeamStore(database, listener.clock).create("acme", "night", "Night shift")
    return key_id


async def _sign_in(listener: Listener, browser: Browser, role: Role) -> None:
    await seeding.person(listener, "petra", role)
    await browser.sign_in_as("petra", seeding.PASSWORD)


@ON_BOTH
async def test_objects_are_found_by_parts_of_their_names_and_ids(
    listener: Listener, browser: Browser, key_id: str
) -> None:
    await _sign_in(listener, browser, "platform_admin")

    found = await _found(browser, "NIGHT")
    assert [(each.kind, each.title) for each in found] == [
        ("key", "nightly report"),
        ("team", "Night shift"),
    ]
    assert [each.href for each in await _found(browser, key_id[:6])] == [f"/o/acme/keys/{key_id}"]
    assert [each.href for each in await _found(browser, "petra")] == ["/person/petra"]
    (request,) = await _found(browser, "req_0123")
    assert request.href == "/o/acme/traffic?q=req_0123"
    assert await _found(browser, "") == []
    assert await _found(browser, "nothing of that name") == []


@ON_BOTH
async def test_a_request_is_found_by_its_receipt_in_its_own_organisation(
    listener: Listener, browser: Browser, key_id: str
) -> None:
    """Who complains has a receipt, and no way to an id."""
    await _sign_in(listener, browser, "platform_admin")
    (record,) = seeding.requests(listener, key_id, 1)
    directory = listener.settings.path(listener.settings.audit.directory)
    async with running(directory, "w7") as log:
        receipt = str(await log.append(record))
        other = str(await log.append(structs.replace(record, organisation="other")))

    await _is_found(browser, receipt, record.request_id, other)


@ON_BOTH
async def test_a_batch_is_found_by_its_id_in_its_own_organisation(
    listener: Listener, browser: Browser, key_id: str
) -> None:
    """A caller knows no other name of it."""
    await _sign_in(listener, browser, "platform_admin")
    async with listener.database() as database:
        batch_id = await batches.batch(listener, database, key_id)
        place = Project("other", "research", "assistant")
        strange = await batches.batch(listener, database, key_id, place=place)

    (way,) = await _found(browser, f" {batch_id} ")
    assert (way.kind, way.title) == ("batch", batch_id)
    assert way.href == f"/o/acme/batches/{batch_id}"
    answer, _ = await browser.send("GET", way.href)
    assert answer.status == 200
    for wrong in (strange, batch_id[:-1], f"msg{batch_id}", "batch_"):
        assert await _found(browser, wrong) == [], wrong


@ON_BOTH
async def test_a_file_is_found_by_its_id_in_its_own_organisation(
    listener: Listener, browser: Browser, key_id: str
) -> None:
    await _sign_in(listener, browser, "platform_admin")
    async with listener.database() as database:
        file_id = await batches.file(listener, database, key_id)
        place = Project("other", "research", "assistant")
        strange = await batches.file(listener, database, key_id, place=place)

    (way,) = await _found(browser, file_id)
    assert (way.kind, way.href) == ("file", f"/o/acme/files/{file_id}")
    answer, _ = await browser.send("GET", way.href)
    assert answer.status == 200
    assert await _found(browser, strange) == []


@ON_BOTH
async def test_what_a_vendor_calls_it_leads_to_the_request_or_the_batch(
    listener: Listener, browser: Browser, key_id: str
) -> None:
    """Somebody with a vendor's ticket has none of our names; the ways lead to pages that are."""
    await _sign_in(listener, browser, "platform_admin")
    first, second, third = seeding.requests(listener, key_id, 3)
    directory = listener.folder / "log-of-w7"
    async with listener.database() as database:
        batch_id = await batches.batch(listener, database, key_id)
        native = {"path": NATIVE, NATIVE: "batch_v1", NATIVE_FILES: "file-in file-out"}
        lines = [
            structs.replace(first, attempts=(_called("req_One"), _called("z-2"))),
            structs.replace(second, detail={"batch": batch_id, "line": "1", **native}),
            structs.replace(third, detail={"batch": f"batch_{'0' * 48}", NATIVE: "msgbatch_gone"}),
            structs.replace(
                first, organisation="other", request_id="req_0", attempts=(_called("strange-1"),)
            ),
        ]
        async with running(directory, "w7") as log:
            for record in lines:
                await log.append(record)
            await Projector(directory, DatabaseAuditSink(database)).catch_up()

    hrefs = {
        "req_One": f"/o/acme/traffic/{first.request_id}",
        "batch_v1": f"/o/acme/batches/{batch_id}",
        "file-in": f"/o/acme/batches/{batch_id}",
        "file-out": f"/o/acme/batches/{batch_id}",
        "msgbatch_gone": f"/o/acme/traffic/{third.request_id}",
    }
    for name, href in hrefs.items():
        ways = [each for each in await _found(browser, name) if "?" not in each.href]
        assert [each.href for each in ways] == [href], name
        answer, _ = await browser.send("GET", href)
        assert answer.status == 200, name
    for wrong in ("z-2", "strange-1", "batch_v", "req_on"):
        assert [each for each in await _found(browser, wrong) if "?" not in each.href] == []


def _called(name: str) -> Attempt:
    return Attempt("small", 200, "", 9, 5, upstream_ids=(name,))


@ON_BOTH
async def test_a_receipt_of_another_machine_is_found_in_the_database(
    listener: Listener, browser: Browser, key_id: str
) -> None:
    """Its segments are not here, and never were; the tree says which record it is."""
    await _sign_in(listener, browser, "platform_admin")
    (record,) = seeding.requests(listener, key_id, 1)
    directory = listener.folder / "another-machine"
    async with listener.database() as database, running(directory, "w7") as log:
        for number in range(5):
            await log.append(structs.replace(record, request_id=f"req_before_{number}"))
        receipt = str(await log.append(record))
        other = str(await log.append(structs.replace(record, organisation="other")))
        await Projector(directory, DatabaseAuditSink(database)).catch_up()

    await _is_found(browser, receipt, record.request_id, other)


async def _is_found(browser: Browser, receipt: str, request_id: str, other: str) -> None:
    """By its receipt, and by none that is another log's or does not hold."""
    (way,) = await _found(browser, receipt)
    assert way.href == f"/o/acme/traffic/{request_id}"
    stem, _, digest = receipt.rpartition(".")
    for wrong in (
        other,
        f"{stem}.{digest[::-1]}",
        f"w8{receipt[2:]}",
        f"w7_db{receipt[2:]}",
        f"w7.1.7.{digest}",
        f"../{receipt}",
    ):
        assert await _found(browser, wrong) == [], wrong


async def test_a_verb_leads_to_the_page_that_asks_first(
    listener: Listener, browser: Browser, key_id: str
) -> None:
    await _sign_in(listener, browser, "platform_admin")

    (way,) = await _found(browser, "revoke nightly")
    assert (way.href, way.asks_first) == (f"/o/acme/keys/{key_id}/revoke", True)
    answer, page = await browser.send("GET", way.href)
    assert answer.status == 200
    assert "nightly report" in page
    (archive,) = await _found(browser, "archive night")
    assert archive.href == "/o/acme/teams/night/archive"
    async with listener.database() as database:
        (team,) = [
            each
            for each in await TeamStore(database, listener.clock).teams("acme")
            if each.name == "night"
        ]
    assert not team.archived_us
    _, listed = await browser.send("GET", "/api/organisations/acme/keys")
    assert '"revoked_us":null' in listed


async def test_who_types_drain_is_led_to_the_engine_and_to_the_page_that_asks_first(
    tmp_path: Path, listener_url: str
) -> None:
    """Only a member of a pool can be drained, once; a viewer is led nowhere that is closed."""
    async with Listener(tmp_path, listener_url, POOL) as listener, browsing(listener) as browser:
        await listener.issue_key("nightly report")
        await _sign_in(listener, browser, "platform_admin")
        everywhere, left = (await _found(browser, "drain"))[:1], await _found(browser, "drain left")
        assert [each.href for each in everywhere] == ["/models/engine"]
        (way,) = left
        assert (way.href, way.asks_first) == ("/models/engine/drain?member=left", True)
        answer, page = await browser.send("GET", way.href)
        assert (answer.status, "Drain left" in page) == (200, True)
        alone = [each.href for each in await _found(browser, "drain engine")]
        assert "/models/engine/drain?member=engine" not in alone, "no pool has it"
        assert [each.href for each in await _found(browser, "left")] == ["/models/providers/left"]
        await browser.send("POST", "/models/engine/drain", {"member": "left"})
        found = await _found(browser, "drain left")
        assert [each.href for each in found] == ["/models/providers/left"], "it is drained"
        await seeding.person(listener, "vera", "viewer", "acme")
        await browser.sign_in_as("vera", seeding.PASSWORD)
        assert await _found(browser, "drain") == []
        assert await _found(browser, "left") == []


async def test_nobody_is_shown_a_way_that_is_closed_to_them(
    listener: Listener, browser: Browser, key_id: str
) -> None:
    await _sign_in(listener, browser, "viewer")

    assert [each.href for each in await _found(browser, "nightly")] == [f"/o/acme/keys/{key_id}"]
    assert await _found(browser, "revoke nightly") == []
    assert await _found(browser, "petra") == []
    assert await _found(browser, "new") == []


async def test_every_action_leads_to_a_page_that_asks_for_the_same_permission(
    listener: Listener, browser: Browser, key_id: str
) -> None:
    served = {
        route.path: handler.opt
        for route in listener.application.routes
        if isinstance(route, HTTPRoute)
        for handler in route.route_handlers
        if "GET" in handler.http_methods
    }

    for action in ACTIONS:
        opt = served[action.path.replace("{organisation}", "{organisation:str}")]
        where = "everywhere" if action.is_everywhere else "organisation"
        assert (opt["access"], opt["where"]) == (action.needs, where), action.title
        assert needs(action.needs)["access"] == action.needs
    statuses: dict[str, set[int]] = {action.title: set() for action in ACTIONS}
    for role in ("platform_admin", "compliance", "policy_editor"):
        await seeding.person(listener, role.replace("_", "-"), role)
        await browser.sign_in_as(role.replace("_", "-"), seeding.PASSWORD)
        for action in ACTIONS:
            answer, _ = await browser.send("GET", action.path.replace("{organisation}", "acme"))
            statuses[action.title].add(answer.status)
    for title, found in statuses.items():
        assert (bool(found & {200, 303}), found - {200, 303, 403}) == (True, set()), title


async def test_without_scripts_the_finder_is_a_page(
    listener: Listener, browser: Browser, key_id: str
) -> None:
    await _sign_in(listener, browser, "platform_admin")
    await listener.issue_key("<script>alert(1)</script>")

    _, page = await browser.send("GET", "/o/acme/find?find=nightly")
    assert f'href="/o/acme/keys/{key_id}"' in page
    _, page = await browser.send("GET", "/o/acme/find?find=script")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    _, page = await browser.send("GET", f"/o/acme/find?find={'x' * 5000}")
    assert "Nothing found." in page


async def test_what_is_found_and_its_kind_stand_on_one_line(
    listener: Listener, key_id: str
) -> None:
    """The kind, in smaller letters, stood up to three pixels above the name."""
    async with window(listener) as seen:
        await seen.sign_in_with_token(listener.token)
        await seen.open("/o/acme/keys")
        await seen.page.keyboard.press("Control+k")
        await seen.page.keyboard.type("nightly re")
        await seen.page.wait_for_selector("#ways li a")
        apart = await seen.page.evaluate(APART)
        assert apart
        assert max(apart) < 1


async def test_by_keyboard_alone_a_key_is_found_and_opened(listener: Listener, key_id: str) -> None:
    async with window(listener) as seen:
        await seen.sign_in_with_token(listener.token)
        await seen.open("/o/acme/keys")
        await seen.page.keyboard.press("Control+k")
        await seen.page.keyboard.type("nightly re")
        await seen.page.wait_for_selector(f'#ways a[href="/o/acme/keys/{key_id}"]')
        assert await seen.violations() == []
        await seen.page.keyboard.press("Enter")
        await seen.page.wait_for_url(f"{listener.url}/o/acme/keys/{key_id}")

        assert seen.problems == []


@given(st.text(max_size=300), st.text(max_size=30))
def test_no_text_breaks_the_finder(text: str, name: str) -> None:
    question = asked(text)

    assert len(question.text) <= LENGTH_MAX
    for way in ways_of(question, "key", name, "/x", verbs=[("Revoke", "/x/revoke")]):
        assert way.href in {"/x", "/x/revoke"}
