"""The simulator, the inbox and the API: what would happen, what waits, and the same as JSON."""

import html
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.store.custody.orders import Custody
from tests.admin.listener import Browser, Listener
from tests.admin.policies.people import APPROVER, PASSWORD, WRITER, add_person, signed_in, staff
from tests.admin.policies.test_rolling_out import STRICT, stepped, submitted
from tests.admin.policies.test_writing import HOME, plain, saved
from tests.admin.policies.traffic import EXAMPLES, record_traffic
from tests.gateway.audit.samples import running


pytestmark = pytest.mark.anyio
SIMULATOR = "/o/acme/policies/simulator"
API = "/api/organisations/acme/policies"


async def asked(browser: Browser, method: str, path: str, body: object = None) -> tuple[int, Any]:
    text = msgspec.json.encode(body).decode() if body is not None else ""
    answer, told = await browser.send(method, f"{API}{path}", body=text)
    return answer.status, json.loads(told)


async def test_a_card_names_what_a_rule_may_be_about(listener: Listener) -> None:
    """Names of targets are nowhere else on the way to a rule, and a wrong one is found late."""
    await staff(listener)
    await record_traffic(listener, EXAMPLES)
    async with signed_in(listener, WRITER) as wanda:
        _, page = await wanda.send("GET", f"{HOME}/edit/rule?section=constraints")
        _, preference = await wanda.send("GET", f"{HOME}/edit/rule?section=preferences")
    for said in ("by name; here: claude, house", "here: in-house, us", "here: engine, managed"):
        assert said in plain(page), said
    assert plain(preference).count("here: claude, house") == 3, "first, shares, canary"
    assert "hour_utc is now 8," in plain(page)


async def test_a_request_is_decided_under_two_policies_by_its_address(listener: Listener) -> None:
    await staff(listener)
    ids = await record_traffic(listener, EXAMPLES)
    await record_traffic(listener, EXAMPLES, organisation="umbrella")
    async with signed_in(listener, WRITER) as wanda:
        await submitted(wanda, STRICT)
        facts = "fact.data_class=S2&fact.complexity_tier=mid&fact.findings=EMAIL%3D2"
        _, page = await wanda.send("GET", f"{SIMULATOR}?a=live&b=1&{facts}")
        assert "They decide differently." in plain(page)
        assert "confidential-stays-home" in page
        assert f"request={ids[3]}" not in page
        _, page = await wanda.send("GET", f"{SIMULATOR}?a=live&b=1&request={ids[1]}")
        assert "Both decide the same." in plain(page)
        assert f"request {ids[1]} as it was recorded" in plain(page)
        _, page = await wanda.send("GET", f"{SIMULATOR}?a=live&{facts}")
        said = plain(page)
        assert "route-cheap preference no auto:cheap" in said, "it is not asked, whatever it says"
        assert "hard-requests preference matched always" in said
        _, page = await wanda.send("GET", f"{SIMULATOR}?request=req_umbrella_000001")
        assert "this organisation has no decided request with this id" in plain(page)
        _, page = await wanda.send("GET", f"{SIMULATOR}?fact.complexity=much")
        assert "complexity : a number" in plain(page)


async def test_a_rule_begins_from_a_recorded_request(listener: Listener) -> None:
    await staff(listener)
    ids = await record_traffic(listener, EXAMPLES)
    async with signed_in(listener, WRITER) as wanda:
        answer, _ = await wanda.send("GET", f"/o/acme/policies/new?from={ids[1]}")
        assert answer.status == 303
        _, page = await wanda.send("GET", answer.headers["location"])
        when = 'project == "assistant" and data_class >= "S4" and findings["PAN"] > 0'
        assert when in html.unescape(page)
        assert 'name="row2.key" aria-label="Which label or header 3" value="PAN"' in page
        answer, _ = await wanda.send("GET", "/o/acme/policies/new?from=req_nobody")
        assert answer.status == 400
        answer, _ = await wanda.send("GET", "/o/acme/policies/new")
        assert answer.status == 303, "the finder leads here, with no request to begin from"
        answer, page = await wanda.send("GET", answer.headers["location"])
        assert (answer.status, "data_class &gt;=" in page) == (200, False)


async def test_a_pasted_body_is_inspected_and_not_kept_in_an_address(listener: Listener) -> None:
    await staff(listener)
    await record_traffic(listener, EXAMPLES)
    body = {"model": "auto", "messages": [{"role": "user", "content": "mail ann@example.com"}]}
    async with signed_in(listener, WRITER) as wanda:
        form = {"body": json.dumps(body), "level": "organisation", "a": "live"}
        answer, page = await wanda.send("POST", SIMULATOR, form)
        assert answer.status == 200
        assert "data class S" in plain(page)
        permalink = page.split("Permalink</a>")[0].rsplit('href="', 1)[1]
        assert "ann" not in permalink
        _, page = await wanda.send("POST", SIMULATOR, form | {"body": '{"messages": 7}'})
        assert "body : no request" in plain(page)


async def test_what_waits_is_listed_counted_and_decided_by_a_second_person(
    listener: Listener,
) -> None:
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda:
        path = await submitted(wanda, STRICT, "T-7 <b>bold</b>")
        _, page = await wanda.send("GET", "/o/acme/approvals")
        assert "None of your roles may approve policies" in plain(page)
        assert "to approve" not in plain(page).replace("another person must approve", "")
    async with signed_in(listener, APPROVER) as anton:
        _, page = await anton.send("GET", "/o/acme/policies")
        assert "1 to approve" in plain(page)
        _, page = await anton.send("GET", "/o/acme/approvals")
        assert "T-7 <b>bold</b>" in plain(page)
        assert "<b>bold" not in page
        form = {"id": "1", "level": "organisation", "action": "approve", "reason": ""}
        answer, page = await anton.send("POST", "/o/acme/approvals/policies", form)
        assert (answer.status, "give a reason" in plain(page)) == (400, True)
        answer, _ = await anton.send("POST", "/o/acme/approvals/policies", form | {"reason": "ok"})
        assert answer.status == 303
        _, page = await anton.send("GET", "/o/acme/approvals")
        assert "Nothing to approve" in plain(page)
        assert (await stepped(anton, path, "publish"))[0] == 303


async def test_what_somebody_may_decide_comes_first_and_is_open(
    listener: Listener, tmp_path: Path
) -> None:
    """An officer had to look for what waits for her below drafts that others approve."""
    await staff(listener)
    await add_person(listener, "carla", "compliance")
    async with signed_in(listener, WRITER) as wanda:
        await submitted(wanda, STRICT)
    async with listener.database() as database, running(tmp_path / "other") as log:
        custody = Custody(database, log, listener.clock)
        said = {"reason": "a complaint", "ticket": "C-1"}
        await custody.ask_reveal("ulf", "acme", "req_1", minutes=15, **said)
    firsts = {}
    for name in ("carla", APPROVER):
        async with signed_in(listener, name) as each:
            _, page = await each.send("GET", "/o/acme/approvals")
        matters = re.findall(r'<details class="panel matter"( open)?.*?</summary>', page, re.DOTALL)
        assert matters == [" open", ""]
        open_one = re.search(r'<details class="panel matter" open.*?</summary>', page, re.DOTALL)
        assert open_one is not None
        firsts[name] = plain(open_one[0])
        assert page.count("others decide") == (name == "carla")
    assert "Read req_1" in firsts["carla"]
    assert "version 1" in firsts[APPROVER]


async def test_a_reveal_and_a_release_wait_for_a_second_person_too(
    listener: Listener, tmp_path: Path
) -> None:
    await staff(listener)
    await add_person(listener, "carla", "compliance")
    async with listener.database() as database, running(tmp_path / "other") as log:
        custody = Custody(database, log, listener.clock)
        said = {"reason": "a complaint", "ticket": "C-1"}
        reveal = await custody.ask_reveal("ulf", "acme", "req_1", minutes=15, **said)
        foreign = await custody.ask_reveal("ulf", "umbrella", "req_2", minutes=15, **said)
        other = await custody.ask_reveal("ulf", "acme", "req_3", minutes=15, **said)
        hold = await custody.set_hold("ulf", "acme", "", "a lawsuit")
        await custody.release_hold("ulf", hold.id)
        mine = await custody.set_hold("ulf", "acme", "s1", "another lawsuit")
        await custody.release_hold("os:carla", mine.id)
        async with signed_in(listener, "carla") as carla:
            _, page = await carla.send("GET", "/o/acme/approvals")
            assert "3 to approve" in plain(page), "not what she asked for from a shell"
            assert plain(page).count("You requested this, so another person must decide.") == 1
            assert "Read req_1 for 15 minutes" in plain(page)
            assert "Release the hold on everybody" in plain(page)
            assert "req_2" not in page
            path = "/o/acme/approvals"
            form = {"id": other.id, "action": "reject", "reason": "it is not needed"}
            declined, _ = await carla.send("POST", f"{path}/reveals", form)
            assert declined.status == 303
            for unsaid in ({}, {"action": "approved"}):
                for kind, wanted in (("reveals", reveal.id), ("holds", hold.id)):
                    answer, page = await carla.send(
                        "POST", f"{path}/{kind}", {"id": wanted} | unsaid
                    )
                    assert (answer.status, "approve or reject" in plain(page)) == (400, True)
            agreed = {"action": "approve"}
            statuses = [
                (await carla.send("POST", f"{path}/{kind}", {"id": wanted} | agreed))[0].status
                for kind, wanted in (
                    *(("reveals", foreign.id), ("reveals", reveal.id), ("reveals", reveal.id)),
                    *(("holds", hold.id), ("holds", hold.id)),
                )
            ]
        assert statuses == [404, 303, 409, 303, 404]
        ends = {each.request_id: each.ended_by for each in await custody.reveals(0, "acme")}
        assert ends == {"req_1": "", "req_3": "carla"}
        assert not any(each.is_waiting for each in await custody.reveals(0, "acme"))
        assert [each.id for each in await custody.holds("acme")] == [mine.id]


async def test_the_api_checks_weighs_explains_saves_and_steps(listener: Listener) -> None:
    await staff(listener)
    await record_traffic(listener, EXAMPLES * 5)
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, APPROVER) as anton:
        wrong = STRICT.replace("data_class >=", "data_clas >=")
        status, told = await asked(wanda, "POST", "/organisation/check", {"text": wrong})
        assert status == 200
        assert (told["ok"], told["marks"][0]["line"], told["marks"][0]["column"]) == (False, 5, 9)
        _, told = await asked(wanda, "POST", "/organisation/impact", {"text": STRICT})
        assert told["impact"]["newly_in_house"] == 5
        question = {"text": STRICT, "facts": {"data_class": "S4"}}
        _, told = await asked(wanda, "POST", "/organisation/explain", question)
        assert told["decision"]["candidates"] == ["house"]
        order = {"text": STRICT, "revision": 0}
        assert await asked(wanda, "POST", "/organisation/draft", order) == (201, {"revision": 1})
        status, told = await asked(wanda, "POST", "/organisation/draft", order)
        assert (status, told["error"]["code"]) == (409, "conflict")
        order = {"revision": 1, "reason": "by program"}
        _, told = await asked(wanda, "POST", "/organisation/versions", order)
        assert told["state"] == "draft"
        step = {"action": "approve", "reason": "fine"}
        _, told = await asked(anton, "POST", "/organisation/versions/1/verdict", step)
        assert told["approver"] == APPROVER
        step = {"action": "publish", "reason": "now"}
        assert (await asked(anton, "POST", "/organisation/versions/1/verdict", step))[0] == 400
        assert (await asked(anton, "POST", "/organisation/versions/1/rollout", step))[0] == 201
        _, told = await asked(wanda, "GET", "/organisation/versions/1")
        assert told["text"] == STRICT
        _, told = await asked(wanda, "GET", "/organisation/history?at=2100-01-01T00:00")
        assert told["acting"]["live"] == 1
        _, told = await asked(wanda, "GET", "/vocabulary")
        assert "data_class" in {each["name"] for each in told["facts"]}
        assert (await asked(wanda, "GET", "/organisation/versions/9"))[0] == 404


async def test_a_draft_of_200_kb_outlives_its_session(listener: Listener) -> None:
    await staff(listener)
    long = STRICT + "".join(
        f"# line {number} of what must not be lost\n" for number in range(5_600)
    )
    assert len(long) > 200_000
    async with signed_in(listener, WRITER) as wanda:
        await saved(wanda, STRICT)
        await wanda.send("POST", "/sign-out", {})
        form = {"text": long, "revision": "1"}
        answer, page = await wanda.send("POST", f"{HOME}/edit", form)
        assert answer.status == 401
        kept = fields(page)
        form = {"name": WRITER, "password": PASSWORD} | kept
        answer, page = await wanda.send("POST", "/sign-in", form)
        assert answer.status == 200
        again = fields(page)
        assert again["text"].replace("\r\n", "\n") == long
        path = html_attribute(page, "action")
        answer, _ = await wanda.send("POST", path, again)
        assert answer.status == 303


def fields(page: str) -> dict[str, str]:
    """The hidden fields of a page."""
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', page)
    return {name: html.unescape(value) for name, value in found}


def html_attribute(page: str, name: str) -> str:
    return html.unescape(page.split(f'{name}="')[1].split('"', maxsplit=1)[0])
