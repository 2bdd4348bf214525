"""An erasure waits in the inbox with its numbers; what is declined or held is not destroyed."""

import re
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import insert

from admin.access import STEP_UP_S
from gateway.audit.content_keys.keys import WrappedKey
from gateway.audit.disk import Disk
from gateway.cli.audit.custody import opened_custody
from gateway.clock import DAY_US
from gateway.continuing.kept_answers import KeptAnswer
from gateway.oversight.access import Grant
from gateway.projects import Project
from gateway.secrets.credentials import master_key
from gateway.store.erasure.erased_kept import Erased, add
from gateway.store.evidence import second_rows
from gateway.store.identity.people import PeopleStore
from gateway.store.kept_answers import DatabaseAnswers
from gateway.store.retention import keeping
from gateway.store.schema.audit import audit_second_keys
from tests.admin.chromium import come_true, window
from tests.admin.compliance.archive import PASSWORD, SAID, converse, deeds, person
from tests.admin.compliance.test_erasures import (
    AT,
    HOLDS,
    INBOX,
    asked,
    content_of,
    decided,
    opened,
)
from tests.admin.listener import Browser, Listener


pytestmark = pytest.mark.anyio
HOLDS_API = "/api/organisations/acme/compliance/holds"


async def test_an_erasure_waits_with_its_numbers_for_somebody_else(listener: Listener) -> None:
    await converse(listener, ["ann", "bob"])
    async with person(listener, "cora") as cora, person(listener, "anton", "approver") as anton:
        one = await opened(cora, scope="organisation", user="")
        assert "Nothing to approve" in (await anton.send("GET", INBOX))[1], (
            "opening asks for nothing"
        )
        assert await asked(cora, one) == 303

        _, page = await anton.send("GET", INBOX)
        assert "Erase all content of acme for good" in page
        assert "requested by cora" in page
        assert "2 keys are destroyed for good" in page
        assert "the content of 2 records, of 1 day" in page
        assert "0 batches with 0 lines, 0 files, 0 kept answers and 0 conversations" in page
        assert "1 to approve" in page
        assert one not in page, "an approver may not read the room of compliance"
        assert "cora requests to erase content of acme" in (await anton.send("GET", "/"))[1]

        _, own = await cora.send("GET", INBOX)
        assert "You requested this, so another person must decide." in own
        assert "1 to approve" not in own
        assert "cora requests to erase" not in (await cora.send("GET", "/"))[1]
        assert "waiting for a second person" in (await cora.send("GET", AT))[1]
        _, page = await cora.send("GET", one)
        assert "where anton may approve it" in page
        assert "Request permanent erasure" not in page


async def test_after_an_erasure_a_request_says_that_its_content_is_gone(
    listener: Listener,
) -> None:
    """It went on saying that it is kept sealed, and offered a reveal of it."""
    ann, bob = await converse(listener, ["ann", "bob"])
    async with person(listener, "cora") as cora, person(listener, "anton", "approver") as anton:
        one = await opened(cora)
        await asked(cora, one)
        assert (await decided(anton, one))[0] == 303
        pages = [(await cora.send("GET", f"/o/acme/traffic/{each}"))[1] for each in (ann, bob)]
    said = ["The content was destroyed" in page for page in pages]
    offered = ["Request reveal" in page for page in pages]
    assert (said, offered) == ([True, False], [False, True])


async def test_what_is_declined_is_not_destroyed_and_the_case_says_why(listener: Listener) -> None:
    (ann,) = await converse(listener, ["ann"])
    async with person(listener, "cora") as cora, person(listener, "anton", "approver") as anton:
        one = await opened(cora)
        await asked(cora, one)
        assert (await decided(anton, one, said=" "))[0] == 409, "a verdict says why"
        assert (await decided(anton, one, "think"))[0] == 400
        assert (await decided(anton, "/000000000000"))[0] == 404
        assert (await decided(anton, one, "reject", "it names another Ann"))[0] == 303
        _, page = await cora.send("GET", one)
        assert "anton declined it" in page
        assert "it names another Ann" in page
        assert (await decided(anton, one))[0] == 409, "nobody asks for it any more"
        assert f"{SAID}ann" in await content_of(listener, ann)
        assert await asked(cora, one) == 303
        recalled, _ = await cora.send("POST", f"{one}/recall")
        assert recalled.status == 303
        assert "Nothing to approve" in (await anton.send("GET", INBOX))[1]
    told = [each for each in await deeds(listener) if each[1].startswith("erasure.")]
    assert told == [
        *(("cora", "erasure.opened"), ("cora", "erasure.asked"), ("anton", "erasure.declined")),
        *(("cora", "erasure.asked"), ("cora", "erasure.recalled")),
    ]


async def test_who_declines_too_late_is_told_of_which_case_and_who_was_faster(
    listener: Listener,
) -> None:
    await converse(listener, ["ann"])
    async with (
        person(listener, "cora") as cora,
        person(listener, "anton", "approver") as anton,
        person(listener, "petra", "approver") as petra,
    ):
        one = await opened(cora)
        await asked(cora, one)
        assert (await decided(anton, one))[0] == 303
        status, page = await decided(petra, one, "reject", "another Ann")
        assert status == 409
        assert "The case T-7 was agreed to and carried out by anton already." in page
        other = await opened(cora, ticket="T-2")
        assert await asked(cora, other, "T-2") == 303
        assert (await cora.send("POST", f"{other}/withdraw"))[0].status == 303
        _, page = await decided(petra, other, "reject", "another Ann")
        assert "The case T-2 was withdrawn by cora already." in page


async def test_a_hold_that_is_set_while_it_waits_is_shown_and_forbids_it(
    listener: Listener,
) -> None:
    (ann,) = await converse(listener, ["ann"])
    async with person(listener, "cora") as cora, person(listener, "dan") as dan:
        one = await opened(cora)
        await asked(cora, one)
        await cora.send("POST", HOLDS, {"user": "ann", "reason": "a lawsuit"})
        _, page = await dan.send("GET", INBOX)
        assert "prevents it: nothing is destroyed while it is in force" in page
        status, page = await decided(dan, one)
        assert (status, "a lawsuit" in page) == (409, True)
        assert f"{SAID}ann" in await content_of(listener, ann)
        _, page = await cora.send("GET", one)
        assert "Requested by cora" in page, "it still waits"


async def test_a_page_that_shows_another_who_asks_agrees_to_nothing_and_declines_nothing(
    listener: Listener,
) -> None:
    """Of a case and a hold somebody else may ask, under the same id, since the page was shown."""
    (ann,) = await converse(listener, ["ann"])
    async with (
        person(listener, "cora") as cora,
        person(listener, "dan") as dan,
        person(listener, "eve") as eve,
    ):
        one = await opened(cora)
        await asked(cora, one)
        assert _named_in((await eve.send("GET", INBOX))[1]) == ["cora"]
        await cora.send("POST", f"{one}/recall")
        assert (await decided(eve, one, seen="cora"))[0] == 409, "nobody asks any more"
        await asked(dan, one)
        for action in ("approve", "reject"):
            status, page = await decided(eve, one, action, seen="cora")
            assert (status, "Dan asks for it by now" in page) == (409, True), action
        assert f"{SAID}ann" in await content_of(listener, ann)
        assert (await decided(eve, one, "reject", seen="dan"))[0] == 303

        await cora.send("POST", HOLDS, {"user": "ann", "reason": "a lawsuit"})
        _, text = await cora.send("GET", HOLDS_API)
        (hold,) = (each["id"] for each in msgspec.json.decode(text))
        await dan.send("POST", f"{HOLDS_API}/{hold}/release", body='{"asked_by": ""}')
        assert _named_in((await eve.send("GET", INBOX))[1]) == ["dan"]
        form = {"id": hold, "reason": "it is over", "asked_by": "cora"}
        for action in ("approve", "reject"):
            answer, _ = await eve.send("POST", f"{INBOX}/holds", form | {"action": action})
            assert answer.status == 409, action
        _, text = await cora.send("GET", HOLDS_API)
        assert [each["release_by"] for each in msgspec.json.decode(text)] == ["dan"]
        form |= {"asked_by": "dan", "action": "approve"}
        assert (await eve.send("POST", f"{INBOX}/holds", form))[0].status == 303
        assert (await cora.send("GET", HOLDS_API))[1] == "[]"


def _named_in(page: str) -> list[str]:
    """Whom the forms of the inbox say to have seen asking."""
    return re.findall(r'name="asked_by" value="([^"]*)"', page)


async def test_who_holds_every_role_does_not_erase_alone(listener: Listener) -> None:
    (ann,) = await converse(listener, ["ann"])
    async with person(listener, "cora") as cora:
        async with listener.database() as database:
            people = PeopleStore(database, listener.clock)
            await people.grant("cora", Grant("approver", "acme"))
        one = await opened(cora)
        _, page = await cora.send("GET", one)
        assert "Nobody else can yet" in page
        assert "gatewright users grant NAME approver --organisation acme" in page
        await asked(cora, one)
        assert (await decided(cora, one))[0] == 409
        api = f"/api/organisations/acme/compliance/erasures/{one.rpartition('/')[2]}"
        answer, _ = await cora.send("POST", f"{api}/approve", body='{"comment": "mine"}')
        assert answer.status == 400
    assert f"{SAID}ann" in await content_of(listener, ann)


async def test_the_json_asks_agrees_and_declines_the_same_with_a_fresh_proof(
    listener: Listener,
) -> None:
    (ann,) = await converse(listener, ["ann"])
    at = "/api/organisations/acme/compliance/erasures"
    async with person(listener, "cora") as cora, person(listener, "anton", "approver") as anton:
        _, text = await cora.send("POST", at, body='{"ticket": "T-7", "user": "ann"}')
        one = f"{at}/{msgspec.json.decode(text)['id']}"
        said = '{"comment": "as the ticket says"}'
        answer, text = await cora.send("POST", f"{one}/ask")
        assert (answer.status, msgspec.json.decode(text)["asked_by"]) == (200, "cora")
        assert (await cora.send("POST", f"{one}/recall"))[0].status == 200
        assert (await anton.send("POST", f"{one}/approve", body=said))[0].status == 400
        assert (await anton.send("POST", f"{one}/ask"))[0].status == 403, (
            "he opens and asks nothing"
        )
        await cora.send("POST", f"{one}/ask")
        answer, text = await anton.send("POST", f"{one}/decline", body=said)
        declined = msgspec.json.decode(text)
        assert (answer.status, declined["asked_by"], declined["declined_by"]) == (200, "", "anton")
        assert (await cora.send("POST", f"{one}/ask"))[0].status == 200
        listener.clock.advance(STEP_UP_S + 1)
        stale, _ = await anton.send("POST", f"{one}/approve", body=said)
        assert stale.status == 403
        await anton.send("POST", "/prove", {"password": PASSWORD})
        answer, text = await anton.send("POST", f"{one}/approve", body=said)
        assert answer.status == 200, text
        done = msgspec.json.decode(text)
        assert (done["state"], done["closed_by"], done["keys"]) == ("done", "anton", 1)
        await cora.sign_in_as("cora", PASSWORD)
        assert (await cora.send("POST", f"{one}/withdraw"))[0].status == 400
    assert f"{SAID}ann" not in await content_of(listener, ann)


async def test_the_json_says_whom_its_sender_saw_asking_and_decides_nothing_of_anothers(
    listener: Listener,
) -> None:
    """A program that showed cora asking agreed with dan, who asked after it had looked."""
    (ann,) = await converse(listener, ["ann"])
    at = "/api/organisations/acme/compliance/erasures"

    async def judged(by: Browser, path: str, **order: str) -> int:
        return (await by.send("POST", path, body=msgspec.json.encode(order).decode()))[0].status

    async with (
        person(listener, "cora") as cora,
        person(listener, "dan") as dan,
        person(listener, "eve") as eve,
    ):
        one = f"{at}/{(await opened(cora)).rpartition('/')[2]}"
        await cora.send("POST", f"{one}/ask")
        await cora.send("POST", f"{one}/recall")
        await dan.send("POST", f"{one}/ask")
        for verdict in ("approve", "decline"):
            assert await judged(eve, f"{one}/{verdict}", comment="yes", asked_by="cora") == 409
            assert await judged(eve, f"{one}/{verdict}", comment="yes", asked_by="") == 409
        _, text = await eve.send("GET", one)
        assert msgspec.json.decode(text)["asked_by"] == "dan", "it still waits"
        assert f"{SAID}ann" in await content_of(listener, ann)

        await cora.send("POST", HOLDS, {"user": "bob", "reason": "a lawsuit"})
        _, text = await cora.send("GET", HOLDS_API)
        hold = f"{HOLDS_API}/{msgspec.json.decode(text)[0]['id']}"
        await dan.send("POST", f"{hold}/release", body='{"asked_by": ""}')
        assert await judged(eve, f"{hold}/keep", comment="no", asked_by="cora") == 409
        assert await judged(eve, f"{hold}/keep", comment="no", asked_by="dan") == 204
        assert await judged(eve, f"{one}/approve", comment="yes", asked_by="dan") == 200
    assert f"{SAID}ann" not in await content_of(listener, ann)


async def test_an_erasure_is_agreed_to_by_keys_in_every_theme_and_width(
    listener: Listener,
) -> None:
    await converse(listener, ["ann"])
    async with person(listener, "cora") as cora:
        one = await opened(cora)
        await asked(cora, one)
    async with person(listener, "dan"), window(listener) as seen:
        page = seen.page
        await seen.sign_in("dan", PASSWORD)
        async for view in seen.views():
            for path in (INBOX, one):
                assert await seen.open(path) == 200
                assert await seen.violations() == [], (path, view)
        await seen.open(INBOX)
        await come_true(page, "document.querySelector('button[data-key=a]') !== null")
        await page.keyboard.press("a")
        await page.wait_for_selector("input[name=reason]:focus")
        await page.keyboard.type("as the ticket says")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("text=Done and recorded.")
        assert "Nothing to approve" in await page.inner_text("main")
        await seen.open(one)
        assert "1 key destroyed" in await page.inner_text("main")
        # What the certificate rests on is folded on the screen, and printed.
        checkpoint = page.locator("details.certified pre")
        shown = "(each) => each.checkVisibility({contentVisibilityAuto: true})"
        assert not await checkpoint.evaluate(shown)
        await page.emulate_media(media="print")
        assert await checkpoint.evaluate(shown)
        assert seen.problems == []


async def test_enter_in_the_comment_agrees_to_nothing_without_scripts(listener: Listener) -> None:
    (ann,) = await converse(listener, ["ann"])
    async with person(listener, "cora") as cora:
        one = await opened(cora)
        await asked(cora, one)
    async with person(listener, "dan"), window(listener, scripts=False) as seen:
        page, sent = seen.page, list[str]()
        page.on("request", lambda request: sent.append(request.method))
        await seen.sign_in("dan", PASSWORD)
        await seen.open(INBOX)
        sent.clear()
        await page.fill("#reason-1", "as the ticket s")
        await page.press("#reason-1", "Enter")
        await page.press("#reason-1", "Enter")
        await page.fill("#reason-1", "it names another Ann")
        assert "POST" not in sent
        await page.click("button:has-text('Decline')")
        await page.wait_for_selector("text=Done and recorded.")
    assert f"{SAID}ann" in await content_of(listener, ann)
    told = [action for _, action in await deeds(listener) if action.startswith("erasure.")]
    assert told == ["erasure.opened", "erasure.asked", "erasure.declined"]


async def test_a_start_destroys_again_what_was_erased_from_here_and_a_backup_brought_back(
    tmp_path: Path, sqlite_url: str
) -> None:
    """Also where no worker has these lists: they lie beside who agreed to the erasure."""
    async with Listener(tmp_path, sqlite_url) as first:
        settings, clock = first.settings, first.clock
    async with opened_custody(settings) as (_, database):
        master = master_key(settings)
        answers, place = DatabaseAnswers(database, master), Project("acme", "research", "assistant")
        day, until_us = clock.utc_us() // DAY_US, clock.utc_us() + 10**12
        for name, user in (("lost", "ann"), ("kept", "bob")):
            said = msgspec.json.encode({"id": name, "user": user})
            answer = KeptAnswer(name, place, "key1", "", "S0", 1, until_us, b"[]", said)
            await answers.keep(answer)
        wrapped = [WrappedKey(name, "acme", day, master.key_id, b"w", 1) for name in ("k1", "k2")]
        rows = [second_rows.line_of(each) for each in wrapped]
        async with database.writing() as connection:
            await connection.execute(insert(audit_second_keys), rows)
        lists = settings.path(settings.audit.checkpoint_directory)
        add(lists, [Erased(1, answer="lost")], Disk())
        await keeping.destroy(settings, database, wrapped[:1], clock.utc_us())
        async with database.writing() as connection:
            await connection.execute(insert(audit_second_keys), rows[:1])
    async with Listener(tmp_path, sqlite_url), opened_custody(settings) as (_, database):
        answers = DatabaseAnswers(database, master)
        left = [await answers.find(place, name, 0) is not None for name in ("lost", "kept")]
        assert left == [False, True]
        second = second_rows.SecondContents(database)
        assert [each.key for each in await second.matching_keys("acme", None)] == ["k2"]
