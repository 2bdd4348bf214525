"""What stands beside a hold: why its release was declined, and what was gone before it was set."""

import re

import msgspec
import pytest

from tests.admin.compliance.archive import PASSWORD, converse, deeds, person, subject
from tests.admin.compliance.test_erasures import HOLDS, asked, decided, opened
from tests.admin.listener import Browser, Listener


pytestmark = pytest.mark.anyio
HOSTILE = "<script>alert(1)</script> goes on"


async def held(browser: Browser, user: str) -> str:
    """The path of a new hold on somebody."""
    given = {"user": user, "reason": "a lawsuit"}
    answer, page = await browser.send("POST", HOLDS, given)
    assert answer.status == 303, page
    _, page = await browser.send("GET", HOLDS)
    *_, found = re.finditer(rf'action="({HOLDS}/[0-9a-f]+)/release', page)
    return found[1]


async def shown(listener: Listener, browser: Browser) -> str:
    """The list once what was done is on record."""
    await deeds(listener)
    return (await browser.send("GET", HOLDS))[1]


async def test_why_a_release_was_declined_stands_at_the_hold(listener: Listener) -> None:
    await converse(listener, ["ann"])
    async with person(listener, "cora") as cora, person(listener, "dan") as dan:
        one, other = await held(cora, "ann"), await held(cora, "bob")
        await cora.send("POST", f"{other}/release", {"asked_by": ""})
        await cora.send("POST", f"{other}/keep")
        assert "declined it" not in await shown(listener, cora), "she took it back herself"
        await cora.send("POST", f"{one}/release", {"asked_by": ""})
        await dan.send("POST", f"{one}/keep", {"comment": HOSTILE})
        page = await shown(listener, cora)
        assert page.count("dan declined it on") == 1
        assert "&lt;script&gt;alert(1)&lt;/script&gt; goes on" in page
        await cora.send("POST", f"{one}/release", {"asked_by": ""})
        assert "dan declined it on" in await shown(listener, dan), "who decides next reads it"
        await cora.send("POST", f"{one}/keep")
        assert "declined it" not in await shown(listener, cora), "that was another asking"


async def test_a_hold_says_that_content_was_erased_before_it(listener: Listener) -> None:
    await converse(listener, ["ann", "bob"])
    async with person(listener, "cora") as cora, person(listener, "dan") as dan:
        await held(cora, "bob")
        case = await opened(cora)
        await asked(cora, case)
        assert (await decided(dan, case))[0] == 303
        listener.clock.advance(60)
        assert "was erased on" not in await shown(listener, cora), "bob's was not"
        await held(cora, "ann")
        page = await shown(listener, cora)
        assert page.count("Their content was erased on") == 1
        answer, _ = await cora.send("POST", HOLDS, {"scope": "organisation", "reason": "all"})
        assert answer.status == 303
        page = await shown(listener, cora)
        assert page.count("was erased on") == 1, "not everybody's was"


async def test_who_sets_a_hold_is_told_what_it_covers_and_that_a_mistyped_name_has_nothing(
    listener: Listener,
) -> None:
    """Of a name that no request has it said nothing, and retention took what was to be held."""
    await converse(listener, ["ann"])
    async with person(listener, "cora") as cora:
        new = ""
        for user, told in (
            ("ann", "It keeps 1 content key of this audit folder"),
            ("Ann", "No content of this end user is in this audit folder"),
        ):
            form = {"user": user, "reason": "a lawsuit"}
            answer, _ = await cora.send("POST", HOLDS, form)
            new = answer.headers["location"]
            _, page = await cora.send("GET", new)
            assert told in page
            assert f"traffic?q=user%3A{subject(listener, user)}" in page, "they are a click away"
            assert told not in (await cora.send("GET", HOLDS))[1]
        async with person(listener, "gil", organisation="globex") as gil:
            await listener.issue_key("theirs", "globex")
            answer, page = await gil.send("GET", new.replace("acme", "globex"))
            assert (answer.status, "is in force and recorded" in page) == (200, False)


async def test_what_a_hold_covers_can_be_asked_later(listener: Listener) -> None:
    await converse(listener, ["ann"])
    async with person(listener, "cora") as cora:
        at = await held(cora, "ann")
        hold = at.rpartition("/")[2]
        _, page = await cora.send("GET", HOLDS)
        (link,) = re.findall(rf'href="([^"]+)" aria-label="What it covers: hold {hold}"', page)
        _, page = await cora.send("GET", link)
        assert "It keeps 1 content key of this audit folder" in page


async def test_the_reason_of_a_hold_has_a_limit(listener: Listener) -> None:
    await converse(listener, ["ann"])
    async with person(listener, "cora") as cora:
        form = {"user": "ann", "reason": "x" * 1_001}
        answer, page = await cora.send("POST", HOLDS, form)
        assert answer.status == 400
        assert "A reason has at most 1,000 characters." in page
        assert "x" * 1_001 in page, "what was typed stays"
        api = "/api/organisations/acme/compliance/holds"
        answer, said = await cora.send("POST", api, body=msgspec.json.encode(form).decode())
        assert answer.status == 400
        assert '"param":"reason"' in said
        assert "No holds in force" in (await cora.send("GET", HOLDS))[1]


async def test_what_waits_names_an_end_user_shortly_and_no_wrong_time(listener: Listener) -> None:
    await converse(listener, ["ann"])
    digest = subject(listener, "ann")
    async with person(listener, "cora") as cora, person(listener, "dan") as dan:
        one = await held(cora, "ann")
        listener.clock.advance(3600)
        await cora.sign_in_as("cora", PASSWORD)
        await dan.sign_in_as("dan", PASSWORD)
        await cora.send("POST", f"{one}/release", {"asked_by": ""})
        _, page = await dan.send("GET", "/o/acme/approvals")
        (summary,) = re.findall(r"data-matter><summary>.*?</summary>", page, re.DOTALL)
        assert f"Release the hold on end user {digest[:12]}…" in summary
        assert re.search(r"requested by cora</span>", summary), "not when the hold was set"
        assert f'id="subject-1">{digest}</code>' in page
