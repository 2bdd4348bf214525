"""Break-glass: a second person, a while, and a record of every reading."""

import re
from typing import Any

import msgspec
import pytest

from admin.access import STEP_UP_S
from admin.compliance import office, reveals
from gateway.audit.memory import MemoryAuditLog
from gateway.oversight.deeds import Deeds
from gateway.store.custody.orders import Reveal
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.worker.reporting import RevealReporting
from tests.admin.chromium import Window, window
from tests.admin.compliance.archive import PASSWORD, SAID, converse, deeds, person, recorded_deeds
from tests.admin.listener import Browser, Listener


pytestmark = pytest.mark.anyio
AT = "/o/acme/compliance/reveals"
API = "/api/organisations/acme/compliance/reveals"


async def ask(browser: Browser, request_id: str, **changes: str) -> str:
    """The path of the reveal."""
    form = {"request_id": request_id, "reason": "a complaint", "ticket": "T-1", "minutes": "10"}
    answer, page = await browser.send("POST", AT, form | changes)
    assert answer.status == 303, page
    return answer.headers["location"]


async def test_content_is_shown_once_a_second_person_agreed_and_while_it_is_open(
    listener: Listener,
) -> None:
    wanted, other = await converse(listener, ["ann", "bob"])
    async with person(listener, "cora") as cora, person(listener, "dan", "approver") as dan:
        one = await ask(cora, wanted)
        _, page = await cora.send("GET", one)
        assert "where dan may approve it" in page
        early, page = await cora.send("POST", f"{one}/content")
        assert (early.status, SAID in page) == (409, False)
        own, page = await cora.send("POST", f"{one}/approve")
        assert (own.status, "second person" in page) == (409, True)
        assert (await dan.send("POST", f"{one}/approve"))[0].status == 303

        answer, page = await cora.send("POST", f"{one}/content")
        assert answer.status == 200
        assert f"{SAID}ann" in page
        assert f"{SAID}bob" not in page
        assert other not in page
        _, again = await cora.send("GET", one)
        assert SAID not in again
        async with person(listener, "eve") as eve:
            stolen, page = await eve.send("POST", f"{one}/content")
        assert (stolen.status, SAID in page) == (409, False)

        listener.clock.advance(601)
        await cora.send("POST", "/prove", {"password": PASSWORD})
        late, page = await cora.send("POST", f"{one}/content")
        assert (late.status, SAID in page, "expired" in page) == (409, False, True)
        _, report = await cora.send("GET", AT)
        assert "T-1" in report

    done = [each for each in await deeds(listener) if each[1].startswith("reveal")]
    assert done == [("cora", "reveal.asked"), ("dan", "reveal.approved"), ("cora", "reveal.used")]


async def test_a_request_says_who_looked_at_it(listener: Listener) -> None:
    """Asked a year later, about one request: the answer stands beside it."""
    wanted, other = await converse(listener, ["ann", "bob"])
    of_it, of_other = f"/o/acme/traffic/{wanted}", f"/o/acme/traffic/{other}"
    async with person(listener, "cora") as cora, person(listener, "dan", "approver") as dan:
        _, page = await cora.send("GET", of_it)
        assert "Nobody: it was never revealed" in page
        one = await ask(cora, wanted)
        _, page = await cora.send("GET", of_it)
        assert ("cora, 0 readings" in page, "Not decided yet" in page) == (True, True)
        await dan.send("POST", f"{one}/approve")
        await cora.send("POST", f"{one}/content")
        _, page = await cora.send("GET", of_it)
        assert ("cora, 1 reading." in page, "Approved by dan" in page, one in page) == (True,) * 3
        _, page = await cora.send("GET", of_other)
        assert one not in page
        every = await ask(cora, "")
        await dan.send("POST", f"{every}/approve")
        _, page = await cora.send("GET", of_other)
        assert every not in page
        await cora.send("POST", f"{every}/content")
        _, page = await cora.send("GET", of_other)
        assert ("permitted for all content" in page, every in page) == (True, True)
        async with person(listener, "vic", "viewer") as vic:
            _, page = await vic.send("GET", of_it)
            assert ("Who read it" in page, one in page) == (False, False)


async def test_a_page_that_waits_offers_the_content_and_leaves_it_when_its_time_is_over(
    listener: Listener,
) -> None:
    (wanted,) = await converse(listener, ["ann"])
    async with person(listener, "cora") as cora, person(listener, "dan", "approver") as dan:
        one = await ask(cora, wanted)
        polling: Any = {"hx_target": "div#standing", "hx_request": "true"}
        answer, piece = await cora.send("GET", one, **polling)
        assert ("Withdraw" in piece, "Show the content" in piece) == (True, False)
        await dan.send("POST", f"{one}/approve")
        answer, piece = await cora.send("GET", one, **polling)
        assert ("Show the content" in piece, "hx-redirect" in answer.headers) == (True, False)
        listener.clock.advance(601)
        answer, piece = await cora.send("GET", one, **polling)
        assert "Expired" in piece
        assert answer.headers["hx-redirect"] == one, "a page that shows content is left"


async def test_no_page_shows_content_longer_because_the_clock_was_set_back(
    listener: Listener,
) -> None:
    (wanted,) = await converse(listener, ["ann"])
    async with person(listener, "cora") as cora, person(listener, "dan", "approver") as dan:
        one = await ask(cora, wanted)
        await dan.send("POST", f"{one}/approve")
        listener.clock.advance(540)
        listener.clock.jump(-500)
        _, page = await cora.send("POST", f"{one}/content")
        assert SAID in page
        assert "for another 1 min" in page
        listener.clock.advance(61)
        polling: Any = {"hx_target": "div#standing", "hx_request": "true"}
        answer, piece = await cora.send("GET", one, **polling)
        assert ("Expired" in piece, answer.headers.get("hx-redirect")) == (True, one)
        _, listed = await cora.send("GET", AT)
        assert ("left" in listed, "expired" in listed) == (False, True)
        late, page = await cora.send("POST", f"{one}/content")
        assert (late.status, SAID in page) == (409, False)


async def test_a_long_reading_says_that_it_is_cut(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    await converse(listener, ["ann", "bob", "eve"])
    async with person(listener, "cora") as cora, person(listener, "dan", "approver") as dan:
        one = await ask(cora, "")
        await dan.send("POST", f"{one}/approve")
        _, page = await cora.send("POST", f"{one}/content")
        assert (page.count(SAID), "Only the" in page) == (3, False)
        for module in (office, reveals):
            monkeypatch.setattr(module, "REVEALED_MAX", 2)
        _, page = await cora.send("POST", f"{one}/content")
        assert (page.count(SAID), "Only the 2 oldest records" in page) == (2, True)


async def test_a_reveal_is_ended_or_declined_at_once_and_for_good(listener: Listener) -> None:
    (wanted,) = await converse(listener, ["ann"])
    async with person(listener, "cora") as cora, person(listener, "dan", "approver") as dan:
        declined, ended = await ask(cora, wanted), await ask(cora, wanted, ticket="T-2")
        await dan.send("POST", f"{declined}/end", {"comment": "no complaint of that number"})
        refused, _ = await dan.send("POST", f"{declined}/approve")
        await dan.send("POST", f"{ended}/approve")
        await dan.send("POST", f"{ended}/end")
        shut, page = await cora.send("POST", f"{ended}/content")
        _, said = await cora.send("GET", declined)
        again, _ = await dan.send("POST", f"{ended}/end")

    assert (refused.status, shut.status, again.status) == (409, 409, 409)
    assert SAID not in page
    assert "Declined by dan: no complaint of that number. No content was shown." in said


async def test_who_declines_a_reveal_says_why_and_who_asked_reads_it(listener: Listener) -> None:
    (wanted,) = await converse(listener, ["ann"])
    async with person(listener, "cora") as cora, person(listener, "dan", "approver") as dan:
        by_page, by_inbox, by_api, own = [
            await ask(cora, wanted, ticket=f"T-{number}") for number in range(4)
        ]
        for path in (by_page, f"{API}/{by_api[-12:]}"):
            silent, said = await dan.send("POST", f"{path}/end", {} if path == by_page else None)
            assert (silent.status, "Say why" in said) == (409 if path == by_page else 400, True)
        form = {"id": by_inbox[-12:], "action": "reject"}
        silent, said = await dan.send("POST", "/o/acme/approvals/reveals", form)
        assert (silent.status, "Say why" in said) == (409, True)
        _, page = await cora.send("GET", by_page)
        assert "Not decided yet" in page

        await dan.send("POST", f"{by_page}/end", {"comment": "why one"})
        await dan.send("POST", "/o/acme/approvals/reveals", form | {"reason": "why two"})
        order = msgspec.json.encode({"comment": "why three"}).decode()
        answer, said = await dan.send("POST", f"{API}/{by_api[-12:]}/end", body=order)
        assert answer.status == 201, said
        await cora.send("POST", f"{own}/end")
        pages = [(await cora.send("GET", path))[1] for path in (by_page, by_inbox, by_api, own)]
        _, story = await cora.send("GET", f"/o/acme/traffic/{wanted}")

    assert all("<dt>Ended</dt>" in page for page in pages)
    for page, why in zip(pages, ("why one", "why two", "why three"), strict=False):
        assert f"Declined by dan: {why}. No content was shown." in page
        assert f"Declined by dan: {why}." in story
    assert "Withdrawn by cora. No content was shown." in pages[-1]
    told = [each for each in await recorded_deeds(listener) if each.action == "reveal.declined"]
    comments = [each.detail.get("comment", "") for each in told]
    assert comments == ["why one", "why two", "why three", ""]


async def test_the_inbox_leads_nobody_to_a_page_that_they_may_not_read(listener: Listener) -> None:
    (wanted,) = await converse(listener, ["ann"])
    async with (
        person(listener, "cora") as cora,
        person(listener, "dan", "approver") as dan,
        person(listener, "eve") as eve,
    ):
        one = await ask(cora, wanted)
        await ask(cora, wanted, minutes="1")
        _, of_dan = await dan.send("GET", "/o/acme/approvals")
        _, of_eve = await eve.send("GET", "/o/acme/approvals")
        refused, _ = await dan.send("GET", one)
    assert refused.status == 403
    assert (f'"{one}"' in of_dan, f'"{one}"' in of_eve) == (False, True)
    assert f"Read {wanted} for 10 minutes<" in of_dan
    assert f"Read {wanted} for 1 minute<" in of_dan


async def test_approving_in_the_inbox_asks_for_no_reason_to_decline(listener: Listener) -> None:
    (wanted,) = await converse(listener, ["ann"])
    async with person(listener, "cora") as cora:
        first, second = await ask(cora, wanted), await ask(cora, wanted, ticket="T-2")
    async with person(listener, "dan"), window(listener) as seen:
        await seen.sign_in("dan", PASSWORD)
        await seen.open("/o/acme/approvals")
        marked = "getComputedStyle(document.querySelector('.field > label'), '::after').content"
        assert await seen.page.evaluate(marked) == "none"
        await seen.page.click("button:has-text('Decline') >> nth=0")
        assert await seen.page.evaluate("document.activeElement.name") == "reason"
        await seen.page.click("button:has-text('Approve') >> nth=0")
        await seen.page.wait_for_selector("text=Done and recorded.")
        await seen.open(second if "Open:" in await _text(seen, first) else first)
        await seen.page.click("button:has-text('Decline')")
        assert await seen.page.evaluate("document.activeElement.name") == "comment"
        await seen.page.fill("[name=comment]", "asked for twice")
        await seen.page.click("button:has-text('Decline')")
        await seen.page.wait_for_selector("text=Declined by dan: asked for twice.")
        assert await seen.violations() == []
        assert seen.problems == []


async def _text(seen: Window, path: str) -> str:
    await seen.open(path)
    return await seen.page.inner_text("main")


async def test_reading_wants_a_fresh_proof_and_an_own_organisation(listener: Listener) -> None:
    (wanted,) = await converse(listener, ["ann"])
    await converse(listener, ["zoe"], "umbrella")
    async with (
        person(listener, "cora") as cora,
        person(listener, "dan", "approver") as dan,
        person(listener, "uma", organisation="umbrella") as uma,
    ):
        one = await ask(cora, wanted)
        await dan.send("POST", f"{one}/approve")
        foreign = one.replace("/o/acme/", "/o/umbrella/")
        for path in (foreign, one):
            assert (await uma.send("GET", path))[0].status == 404
        assert (await uma.send("POST", f"{foreign}/content"))[0].status == 404
        listener.clock.advance(STEP_UP_S + 1)
        answer, page = await cora.send("POST", f"{one}/content")

    assert answer.status == 403
    assert "Confirm who you are" in page
    assert SAID not in page


async def test_what_was_asked_for_long_ago_and_approved_now_is_shown_as_open(
    listener: Listener,
) -> None:
    (wanted,) = await converse(listener, ["ann"])
    async with person(listener, "cora") as cora:
        one = await ask(cora, wanted)
    listener.clock.advance(8 * 86_400)
    async with person(listener, "dan", "approver") as dan, person(listener, "eve") as eve:
        await dan.send("POST", f"{one}/approve")
        _, standing = await eve.send("GET", "/api/organisations/acme/compliance")
        told = msgspec.json.decode(standing)["reveals"]
        assert (told["open"], told["asked"], told["approved"]) == (1, 1, 1)


async def test_a_form_that_is_not_complete_comes_back_as_it_was(listener: Listener) -> None:
    (wanted,) = await converse(listener, ["ann"])
    whole = {"reason": "what & why", "ticket": "T-9", "minutes": "5", "request_id": wanted}
    async with person(listener, "cora") as cora:
        for wrong in (
            *({"reason": " "}, {"ticket": ""}, {"minutes": "0"}, {"minutes": "61"}),
            *({"minutes": "x"}, {"minutes": "²"}, {"minutes": "٥"}, {"minutes": "9" * 5_000}),
        ):
            answer, page = await cora.send("POST", AT, whole | wrong)
            assert (answer.status, 'role="alert"' in page) == (400, True), wrong
            (marked,) = re.findall(r'name="(\w+)"[^>]* aria-invalid="true"', page)
            assert marked in wrong, "what is wrong is said where it is"
            assert "what &amp; why" in page or "reason" in wrong
        answer, _ = await cora.send("POST", AT, whole | {"minutes": " 60 "})
        assert answer.status == 303


async def test_a_request_that_is_not_here_is_refused_before_anything_is_on_record(
    listener: Listener,
) -> None:
    (wanted,) = await converse(listener, ["ann"])
    (foreign,) = await converse(listener, ["ann"], "globex")
    refused = set()
    async with person(listener, "cora") as cora:
        before = await deeds(listener)
        for unknown in (foreign, f"{wanted}x", "req_nowhere"):
            form = {"request_id": unknown, "reason": "why & how", "ticket": "T", "minutes": "10"}
            answer, page = await cora.send("POST", AT, form)
            assert (answer.status, unknown in page, "why &amp; how" in page) == (400, True, True)
            body = msgspec.json.encode({"request_id": unknown, "reason": "why", "ticket": "T"})
            told, text = await cora.send("POST", API, body=body.decode())
            refused |= {(told.status, text), (answer.status, page.count(office.UNKNOWN_REQUEST))}
        assert len(refused) == 2, "a foreign id reads like one that is nobody's"
        assert (400, 2) in refused, "above the form, and at its field"
        assert await deeds(listener) == before
        assert await ask(cora, f" {wanted} ")
        assert await ask(cora, ""), "all of the organisation's"


async def test_the_api_says_the_same_as_the_pages(listener: Listener) -> None:
    (wanted,) = await converse(listener, ["ann"])
    async with person(listener, "cora") as cora, person(listener, "dan") as dan:
        order = msgspec.json.encode({"request_id": wanted, "reason": "why", "ticket": "T-3"})
        answer, text = await cora.send("POST", API, body=order.decode())
        asked = msgspec.json.decode(text, type=Reveal)
        _, text = await dan.send("POST", f"{API}/{asked.id}/approve")
        approved = msgspec.json.decode(text, type=Reveal)
        _, text = await cora.send("POST", f"{API}/{asked.id}/content")
        shown = msgspec.json.decode(text)
        bad, problem = await cora.send("POST", API, body='{"reason": "x", "ticket": ""}')

    assert answer.status == 201
    assert (approved.approved_by, approved.asked_by) == ("dan", "cora")
    assert [each["content"] for each in shown] == [f"{SAID}ann"]
    assert (bad.status, "reason and a ticket" in problem) == (400, True)


async def test_the_weekly_report_is_shown_and_waits_for_whoever_may_read_it(
    listener: Listener,
) -> None:
    (wanted,) = await converse(listener, ["ann"])
    async with person(listener, "cora") as cora:
        await ask(cora, wanted)
        listener.clock.advance(8 * 86_400)
        async with listener.database() as database:
            log = MemoryAuditLog()
            await log.start()
            reporting = RevealReporting(
                database,
                DatabaseAuditSink(database),
                Deeds(log, listener.clock),
                listener.clock,
            )
            await reporting.tend()
        await cora.sign_in_as("cora", PASSWORD)
        _, page = await cora.send("GET", AT)
        assert 'id="reports"' in page
        _, raw = await cora.send("GET", "/api/overview")
        needs = [need for need in msgspec.json.decode(raw)["needs"] if need["kind"] == "reported"]
        assert [(need["organisation"], need["subject"], need["count"]) for need in needs] == [
            ("acme", "1", 0)
        ]
        _, overview = await cora.send("GET", "/")
        assert "/compliance/reveals#reports" in overview
        listener.clock.advance(3 * 86_400)
        async with person(listener, "otto", "viewer", "umbrella") as otto:
            _, raw = await otto.send("GET", "/api/overview")
            assert "reported" not in raw
