"""What pages do, done by programs: the same deeds, on record under the same names."""

from typing import Any

import msgspec
import pytest

from gateway.store.identity.people import PeopleStore
from tests.admin.listener import Browser, Listener
from tests.admin.policies.people import add_person, signed_in
from tests.admin.seeding import PASSWORD
from tests.admin.test_deeds import deeds


pytestmark = pytest.mark.anyio
API = "/api/organisations/acme"
DRAFT = 'name = "drafted"\nversion = 1\n'


async def post(browser: Browser, path: str, **body: Any) -> tuple[int, Any]:
    answer, text = await browser.send("POST", path, body=msgspec.json.encode(body).decode())
    return answer.status, msgspec.json.decode(text) if text else None


async def actions(listener: Listener) -> list[tuple[str, str, str]]:
    return [(each.actor, each.action, each.status) for each in await deeds(listener)]


async def test_a_role_is_taken_by_who_could_give_it(listener: Listener) -> None:
    await listener.issue_key("assistant")
    await add_person(listener, "ann", "viewer", "approver")
    await add_person(listener, "sec", "security_admin")
    async with signed_in(listener, "sec") as sec:
        path = f"{API}/grants/revoked"
        assert (await post(sec, path, person="ann", role="viewer"))[0] == 204
        assert (await post(sec, path, person="ann", role="approver"))[0] == 403
        unknown = await post(sec, path, person="nobody", role="viewer")
        assert unknown == await post(sec, path, person="ann", role="viewer"), "not any more"
        assert unknown[0] == 400
        assert (await post(sec, "/api/grants/revoked", person="ann", role="viewer"))[0] == 403
    async with listener.database() as database:
        listed = await PeopleStore(database, listener.clock).listed()
    (ann,) = (each for each in listed if each.name == "ann")
    assert [grant.role for grant in ann.grants] == ["approver"]
    taken = [each for each in await actions(listener) if each[1] == "role.revoked"]
    refused = [("sec", "role.revoked", status) for status in ("ok", "failed")]
    assert taken == [("sec", "role.revoked", "ok"), *refused]


async def test_a_draft_is_thrown_away_as_it_was_read(listener: Listener) -> None:
    await listener.issue_key("assistant")
    await add_person(listener, "wanda", "policy_editor")
    path = f"{API}/policies/organisation/draft"
    async with signed_in(listener, "wanda") as wanda:
        assert (await post(wanda, f"{path}/discard", revision=0))[0] == 404
        assert (await post(wanda, path, text=DRAFT, revision=0))[0] == 201
        assert (await post(wanda, f"{path}/discard", revision=0))[0] == 409
        assert (await post(wanda, f"{path}/discard", revision=1))[0] == 204
        assert (await post(wanda, f"{path}/discard", revision=1))[0] == 404
    assert ("wanda", "policy.discarded", "ok") in await actions(listener)


async def test_the_release_of_a_hold_is_declined(listener: Listener) -> None:
    await listener.issue_key("assistant")
    for name in ("cora", "dan"):
        await add_person(listener, name, "compliance")
    async with signed_in(listener, "cora") as cora, signed_in(listener, "dan") as dan:
        status, hold = await post(cora, f"{API}/compliance/holds", reason="a claim")
        assert status == 201
        one = f"{API}/compliance/holds/{hold['id']}"
        assert (await post(dan, f"{one}/keep"))[0] == 400, "nobody asks for its release"
        assert (await post(cora, f"{one}/release", asked_by=""))[1] == {"released": False}
        status, said = await post(dan, f"{one}/keep")
        assert (status, said["error"]["param"]) == (400, "comment"), said
        assert (await post(dan, f"{one}/keep", comment="the case goes on"))[0] == 204
        assert (await post(dan, f"{API}/compliance/holds/absent/keep"))[0] == 404
        assert (await post(dan, f"{one}/release", asked_by="cora"))[0] == 409, "nobody asks now"
    assert ("dan", "hold.release_declined", "ok") in await actions(listener)


async def test_a_link_is_withdrawn(listener: Listener, browser: Browser) -> None:
    await browser.sign_in()
    _, invited = await post(browser, "/api/people", name="newt")
    code = invited["link"].partition("#")[2]
    assert (await post(browser, "/api/person/newt/withdraw"))[0] == 204
    assert (await post(browser, "/api/person/nobody/withdraw"))[0] == 404
    form = {"code": code, "password": PASSWORD}
    assert (await browser.send("POST", "/invitation", form))[0].status == 400
    found = await actions(listener)
    assert ("admin-token", "person.link_withdrawn", "ok") in found


async def test_a_check_of_the_log_is_begun_and_told(listener: Listener) -> None:
    await listener.issue_key("assistant")
    await add_person(listener, "cora", "compliance")
    async with signed_in(listener, "cora") as cora:
        assert (await post(cora, f"{API}/integrity/check"))[0] == 204
        found: dict[str, Any] = {}
        while not found.get("last"):
            _, text = await cora.send("GET", f"{API}/integrity")
            found = msgspec.json.decode(text)
    assert ("cora", "integrity.check_began", "ok") in await actions(listener)
