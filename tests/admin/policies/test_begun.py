"""Two who write at one level: a number says neither whose draft was seen nor what was live."""

import re
from hashlib import sha256

import msgspec
import pytest

from tests.admin.listener import Browser, Listener
from tests.admin.policies.people import APPROVER, WRITER, add_person, signed_in, staff
from tests.admin.policies.test_rolling_out import STRICT, stepped, submitted
from tests.admin.policies.test_writing import HOME, TEXT, plain, saved, typed


pytestmark = pytest.mark.anyio
API = HOME.replace("/o/", "/api/organisations/")


async def began(browser: Browser, path: str = f"{HOME}/edit?as=code") -> str:
    """What each form of a page says that it began from."""
    _, page = await browser.send("GET", path)
    (found,) = set(re.findall(r'name="revision" value="([^"]*)"', page))
    return str(found)


async def test_an_editor_that_was_open_while_another_version_went_live_does_not_undo_it(
    listener: Listener,
) -> None:
    """Its text began from version 1, and was taken for one that began from version 2."""
    await staff(listener)
    await add_person(listener, "wim", "policy_editor")
    async with (
        signed_in(listener, WRITER) as wanda,
        signed_in(listener, "wim") as wim,
        signed_in(listener, APPROVER) as anton,
    ):
        path = await submitted(wanda, TEXT)
        await stepped(anton, path, "approve")
        await stepped(anton, path, "publish")
        open_since = await began(wim)
        rule = await began(wim, f"{HOME}/edit/rule?section=constraints&place=0")
        path = await submitted(wanda, STRICT)
        await stepped(anton, path, "approve")
        await stepped(anton, path, "publish")

        mine = f"{TEXT}# mine\n"
        answer, page = await wim.send(
            "POST", f"{HOME}/edit", {"text": mine, "revision": open_since}
        )
        assert (answer.status, "another version went live, meanwhile" in plain(page)) == (409, True)
        assert typed(page) == mine, "nothing is lost"
        card = {"section": "constraints", "place": "0", "revision": rule, "name": "stay-home"}
        card |= {"written": "rows", "row0.fact": "data_class", "row0.operator": ">="}
        card |= {"row0.value": "S2", "allow_only.in_house": "true", "was": "stay-home"}
        answer, _ = await wim.send("POST", f"{HOME}/edit/rule", card)
        assert answer.status == 409
        assert "Starts from version 2" in (await wim.send("GET", f"{HOME}/edit"))[1]
        (after,) = set(re.findall(r'name="revision" value="([^"]*)"', page))
        answer, _ = await wim.send("POST", f"{HOME}/edit", {"text": mine, "revision": after})
        assert answer.status == 303, "over what was shown it is saved"


async def test_anothers_draft_of_the_same_number_is_not_saved_over_submitted_or_thrown_away(
    listener: Listener,
) -> None:
    """Each draft counts from 1: a page of an earlier one changed a later one unseen."""
    await staff(listener)
    await add_person(listener, "wim", "policy_editor")
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, "wim") as wim:
        await saved(wanda, TEXT)
        seen = await began(wim)
        review = await began(wim, f"{HOME}/submit")
        await wanda.send("POST", f"{HOME}/edit/discard", {"revision": "1"})
        await saved(wanda, STRICT)
        for part, form in {
            "edit": {"text": f"{TEXT}# mine\n", "revision": seen},
            "edit/discard": {"revision": seen},
            "submit": {"reason": "T-1", "revision": review},
        }.items():
            answer, page = await wim.send("POST", f"{HOME}/{part}", form)
            assert (answer.status, "wanda saved revision 1" in plain(page)) == (409, True), part
        digest = sha256(TEXT.encode()).hexdigest()
        for part in ("draft", "draft/discard", "versions"):
            order = {"revision": 1, "seen_sha256": digest}
            order |= {"text": TEXT} if part == "draft" else {}
            order |= {"reason": "T-1"} if part == "versions" else {}
            body = msgspec.json.encode(order).decode()
            answer, said = await wim.send("POST", f"{API}/{part}", body=body)
            assert (answer.status, "wanda saved revision 1" in said) == (409, True), part
        _, page = await wim.send("GET", f"{HOME}/edit?as=code")
        assert typed(page) == STRICT
        digest = sha256(STRICT.encode()).hexdigest()
        body = msgspec.json.encode(
            {"revision": 1, "seen_sha256": digest.upper(), "reason": "T-1"}
        ).decode()
        answer, _ = await wim.send("POST", f"{API}/versions", body=body)
        assert answer.status == 201


async def test_who_may_not_write_at_a_level_is_not_told_what_stands_there(
    listener: Listener,
) -> None:
    """A writer of one organisation learned by 409 and 404 what others do at the installation's."""
    await staff(listener)
    stale, at = {"revision": f"7.{'0' * 64}"}, f"{HOME.removesuffix('organisation')}installation"
    order = msgspec.json.encode({"revision": 7, "seen_sha256": "0" * 64}).decode()
    async with signed_in(listener, WRITER) as wanda:
        for part in ("edit", "edit/discard", "edit/rule", "edit/rules", "edit/case", "submit"):
            form = stale | ({"text": TEXT} if part == "edit" else {})
            answer, _ = await wanda.send("POST", f"{at}/{part}", form)
            assert answer.status == 403, part
        for part in ("draft", "draft/discard", "versions"):
            path = f"{API.removesuffix('organisation')}installation/{part}"
            answer, _ = await wanda.send("POST", path, body=order)
            assert answer.status == 403, part
