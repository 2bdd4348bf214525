"""From a draft to everybody and back: in numbers before, by two people, and on record."""

import asyncio
import re

import msgspec
import pytest

from admin.policy_room.desk import Desk
from gateway.rollout.trials import Arm
from gateway.store.policies.documents import PolicyStore
from gateway.store.policies.guard import ACTOR
from policies.text.loading import load_document
from tests.admin.listener import Browser, Listener
from tests.admin.policies.people import APPROVER, WRITER, add_person, signed_in, staff
from tests.admin.policies.test_writing import HOME, TEXT, plain, saved, typed
from tests.admin.policies.traffic import EXAMPLES, record_traffic
from tests.admin.test_deeds import deeds


pytestmark = pytest.mark.anyio
STRICT = """name = "strict"
version = 1
[[constraints]]
name = "confidential-stays-home"
when = 'data_class >= "S2"'
allow_only = { in_house = true }
[[constraints]]
name = "never"
when = 'data_class > "S4"'
deny = "cannot be"
"""


async def submitted(browser: Browser, text: str, reason: str = "T-1") -> str:
    """Where the new version is."""
    _, page = await browser.send("GET", f"{HOME}/edit?as=code")
    revision = page.split('name="revision" value="')[1].partition(".")[0]
    await saved(browser, text, int(revision))
    form = {"revision": str(int(revision) + 1), "reason": reason}
    answer, page = await browser.send("POST", f"{HOME}/submit", form)
    assert answer.status == 303, plain(page)
    return answer.headers["location"]


async def stepped(browser: Browser, path: str, action: str, **more: str) -> tuple[int, str]:
    kind = "verdict" if action in ("approve", "reject") else "rollout"
    form = {"action": action, "reason": f"to {action}"} | more
    answer, page = await browser.send("POST", f"{path}/{kind}", form)
    return answer.status, plain(page)


async def test_who_approves_what_is_approved_already_is_told_so(listener: Listener) -> None:
    """In two windows at once: one approves, and the other says that it is done."""
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, APPROVER) as anton:
        path = await submitted(wanda, TEXT)
        assert (await stepped(anton, path, "approve"))[0] == 303
        status, said = await stepped(anton, path, "approve")
        assert (status, "Version 1 is approved already." in said) == (409, True)
        await stepped(anton, path, "publish")
        status, said = await stepped(anton, path, "reject")
        assert (status, "Version 1 is live: it cannot be declined now." in said) == (400, True)


async def test_who_approves_in_the_inbox_is_led_on_to_where_it_is_rolled_out(
    listener: Listener,
) -> None:
    """It said that it was done: the version acted nowhere, and nothing led to it."""
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, APPROVER) as anton:
        path = await submitted(wanda, TEXT)
        form = {"level": "organisation", "id": "1", "action": "approve", "reason": "right"}
        answer, _ = await anton.send("POST", "/o/acme/approvals/policies", form)
        there = answer.headers["location"]
        _, page = await anton.send("GET", there)
        assert "version 1 is approved but not in effect yet" in page
        assert f'<a href="{path}">roll it out</a>' in page
        assert f'<a href="{path}">view it</a>' in (await wanda.send("GET", there))[1]
        for other in (
            "organisation.2",
            "organisation.0",
            "nowhere.1",
            ".1",
            f"organisation.{9**40}",
        ):
            answer, page = await anton.send("GET", f"/o/acme/approvals?done={other}")
            assert (answer.status, "acts nowhere" in page) == (200, False), other
        await stepped(anton, path, "publish")
        assert "acts nowhere" not in (await anton.send("GET", there))[1], "it does by now"


async def test_a_version_that_was_put_aside_is_written_on_from_and_looking_saves_nothing(
    listener: Listener,
) -> None:
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, APPROVER) as anton:
        path = await submitted(wanda, TEXT)
        status, said = await stepped(anton, path, "reject")
        assert status == 303, said
        _, page = await wanda.send("GET", path)
        assert f'href="{HOME}/edit?from=1"' in page
        _, theirs = await anton.send("GET", path)
        assert "/edit?from=" not in theirs

        _, page = await wanda.send("GET", f"{HOME}/edit?from=1")
        assert typed(page) == TEXT
        assert "Not saved yet." in page
        for wrong, status in (("99", 404), ("x", 400)):
            answer, _ = await wanda.send("GET", f"{HOME}/edit?from={wrong}")
            assert answer.status == status
        _, page = await wanda.send("GET", f"{HOME}/edit?as=code")
        assert typed(page) != TEXT


async def test_a_draft_is_weighed_agreed_on_by_another_and_rolled_out(listener: Listener) -> None:
    await staff(listener)
    await record_traffic(listener, EXAMPLES * 5)
    await record_traffic(listener, EXAMPLES, organisation="umbrella")
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, APPROVER) as anton:
        await saved(wanda, STRICT)
        _, page = await wanda.send("GET", f"{HOME}/submit")
        said = plain(page)
        # Of twenty, the five with class S2 would stay home now; the other organisation's are not
        # counted.
        assert "5 of 20 (25%) recorded requests would be decided differently" in said
        assert "5 newly sovereign; 0 no longer; 0 newly blocked" in said
        assert "20 decisions came out as recorded." in said
        assert "otherwise" not in said.partition("came out as recorded")[2][:40]
        assert "constraint confidential-stays-home was added" in said
        assert "/o/acme/traffic/req_acme_" in page
        path = await submitted(wanda, STRICT)
        assert path == f"{HOME}/versions/1"
        assert (await stepped(wanda, path, "approve"))[0] == 403
        status, said = await stepped(anton, path, "approve", reason="")
        assert (status, "give a reason" in said) == (400, True)
        # What is too long was cut at 2,000 characters, and the rest was lost without a word.
        long = {"action": "approve", "reason": f"{'x' * 2_000} and the rest"}
        answer, page = await anton.send("POST", f"{path}/verdict", long)
        assert (answer.status, "characters: these are 2,013" in page) == (400, True)
        assert long["reason"] in page
        assert (await stepped(anton, path, "approve"))[0] == 303
        for share in ("0", "100.1", "nan", "half"):
            status, said = await stepped(anton, path, "canary", percent=share)
            assert (status, "more than 0" in said) == (400, True)
        assert (await stepped(anton, path, "canary", percent="12.5"))[0] == 303
        _, page = await anton.send("GET", "/o/acme/policies")
        assert "canary 12.5%" in plain(page)
        # All of a level's traffic may be under its canary, and the page said otherwise.
        assert 'data-of="Would go to"' in (await anton.send("GET", path))[1], "cards on a phone"
        assert "levels above apply. Version 1 is a canary for 12.5% of the keys." in plain(page)
        _, page = await anton.send("GET", HOME)
        assert "is a canary for 12.5% of the keys" in plain(page)
        assert (await stepped(anton, path, "publish"))[0] == 303
        _, page = await wanda.send("GET", HOME)

    said = plain(page)
    assert "Version 1 is live: strict , written by wanda, approved by anton" in said
    assert "confidential-stays-home Requests for which confidential-stays-home matched" in said
    assert "1 of its rules can never match" in said
    actions = [each.action for each in await deeds(listener) if each.action.startswith("policy.")]
    assert actions == [
        *("policy.edited", "policy.edited", "policy.drafted"),
        *("policy.approve", "policy.canary", "policy.publish"),  # None of a share that is none.
    ]


async def count_for(listener: Listener, number: int) -> None:
    """What a worker saw of a canary."""
    canary, beside = Arm(requests=40, failures=2), Arm(requests=400, failures=4)
    canary.answer(2_000_000, 300)
    beside.answer(1_000_000, 200)
    async with listener.database() as database:
        figures = PolicyStore(database, listener.clock).figures
        await figures.report("org:acme", number, "w", canary, beside)


async def test_what_reaches_everybody_is_never_chosen_for_anybody(listener: Listener) -> None:
    """A canary's page proposed everybody, within a second, to who came to look at it."""
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, APPROVER) as anton:
        path, page = await submitted(wanda, TEXT), ""
        for step, proposed in (("approve", "shadow"), ("shadow", "canary"), ("canary", "canary")):
            status, said = await stepped(anton, path, step, percent="10")
            assert status == 303, said
            _, page = await anton.send("GET", path)
            assert re.findall(r'name="action" value="(\w+)" checked', page) == [proposed]
        assert 'name="percent" type="number" value="10"' in page
        assert (await stepped(anton, path, "canary", percent="10"))[0] == 303
        assert "It decides for 10% of the keys" in plain((await anton.send("GET", path))[1])


async def test_limits_of_its_own_go_with_a_version_and_wider_ones_have_to_be_seen(
    listener: Listener,
) -> None:
    await staff(listener)
    limits = {"guard.failures_excess": "2", "guard.latency_ratio": "3", "guard.p95_ms_max": "900"}
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, APPROVER) as anton:
        await saved(wanda, STRICT)
        form = {"revision": "1", "reason": "T-2"}
        answer, page = await wanda.send(
            "POST", f"{HOME}/submit", form | {"guard.requests_min": "soon"}
        )
        assert (answer.status, "a number" in plain(page)) == (400, True)
        assert 'value="soon"' in page
        answer, page = await wanda.send("POST", f"{HOME}/submit", form | limits)
        assert answer.status == 303, plain(page)
        path = f"{HOME}/versions/1"
        _, page = await anton.send("GET", path)
        said = plain(page)
        assert "guard, more failures than beside it: 5 points → 2 points" in said
        assert "I have seen it" in said
        for where, more in (
            (f"{path}/verdict", {}),
            ("/o/acme/approvals/policies", {"id": "1", "level": "organisation"}),
        ):
            order = {"action": "approve", "reason": "fine"} | more
            answer, page = await anton.send("POST", where, order)
            assert answer.status == 400
            assert "guarded more widely than the installation" in plain(page)
        assert (await stepped(anton, path, "approve", accepts_wider="yes"))[0] == 303
        await stepped(anton, path, "canary", percent="10")
        await count_for(listener, 1)
        _, page = await wanda.send("GET", path)
        _, answer_text = await wanda.send(
            "GET", "/api/organisations/acme/policies/organisation/versions/1"
        )

    said = plain(page)
    assert "Failures 5% 1% at most 2 points more than under the live version (narrower" in said
    assert "p95 time" in said
    assert "Mean cost of an answer $0.000300 $0.000200 at most 2 times the live version's" in said
    answered = msgspec.json.decode(answer_text)
    assert answered["guard"]["p95_ms_max"] == 900
    seen = ["guard, mean time, against that beside it: 2 times → 3 times"]
    assert answered["guard_wider"] == seen
    assert answered["measured"]["canary"]["requests"] == 40
    approved = [each for each in await deeds(listener) if each.action == "policy.approve"][-1]
    after = msgspec.json.decode(approved.detail["after"])
    assert (after["guard"]["failures_excess"], after["guard_wider"]) == (0.02, seen)


async def test_a_version_goes_live_at_its_time_in_the_readers_zone_or_is_refused_aloud(
    listener: Listener,
) -> None:
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, APPROVER) as anton:
        first = await submitted(wanda, STRICT)
        await stepped(anton, first, "approve")
        kolkata = {"zone": "Asia/Kolkata"}
        past = await stepped(anton, first, "publish", at="2020-01-01T00:00", **kolkata)
        assert (past[0], "within a year" in past[1]) == (400, True)
        shadow = await stepped(anton, first, "shadow", at="2027-01-15T13:34", **kolkata)
        assert (shadow[0], "may be left to a time" in shadow[1]) == (400, True)
        # The listener's clock stands at 08:00 UTC of that day: 26 to two there is 08:04.
        assert (await stepped(anton, first, "publish", at="2027-01-15T13:34", **kolkata))[0] == 303
        _, page = await wanda.send("GET", first)
        said = plain(page)
        assert "It goes live for everybody on Jan 15, 2027, 8:04:00" in said
        assert "Scheduled by anton" in said
        assert "Cancel the schedule" not in said, "she may not publish"
        assert "goes live for everybody on" in plain((await wanda.send("GET", HOME))[1])

        second = await submitted(wanda, STRICT.replace("S2", "S1"))
        await stepped(anton, second, "approve")
        await stepped(anton, second, "publish")
        _, page = await anton.send("GET", first)
        assert "As things stand, it will be refused: version 2 is live now" in plain(page)
        listener.clock.advance(241.0)
        refused = ""
        for _ in range(100):
            refused = plain((await anton.send("GET", HOME))[1])
            if "was refused" in refused:
                break
            await asyncio.sleep(0.1)
        assert "Version 1 was scheduled for Jan 15, 2027, 8:04:00" in refused
        overview = plain((await anton.send("GET", "/"))[1])
        assert "was scheduled and refused: version 2 is live now" in overview

        again = await stepped(
            anton, first, "canary", percent="5", at="2027-01-16T00:00", zone="UTC"
        )
        assert again[0] == 303, again[1]
        assert "was refused" not in plain((await anton.send("GET", HOME))[1])
        answer, _ = await anton.send("POST", f"{first}/unschedule", {"reason": "not yet"})
        assert answer.status == 303
        assert await _steps_of_a_schedule(anton)
        _, listed = await wanda.send(
            "GET", "/api/organisations/acme/policies/organisation/schedules"
        )

    assert [each["state"] for each in msgspec.json.decode(listed)] == ["refused", "cancelled"]
    found = [each for each in await deeds(listener) if each.action.startswith("policy.")]
    assert [(each.actor, each.action, each.error) for each in found[-4:]] == [
        (APPROVER, "policy.publish", ""),
        ("schedule", "policy.publish", "conflict"),
        (APPROVER, "policy.scheduled", ""),
        (APPROVER, "policy.unscheduled", ""),
    ]


async def _steps_of_a_schedule(browser: Browser) -> bool:
    """Whether the history has all of them in words."""
    history = plain((await browser.send("GET", f"{HOME}/history"))[1])
    said = (
        f"scheduled by {APPROVER} — canary for 5% of the keys at",
        f"taken off the schedule by {APPROVER} — not yet",
        "refused at the scheduled time by schedule",
    )
    return all(f"Version 1 : {each}" in history for each in said)


async def test_nobody_approves_what_they_wrote_also_with_both_roles(listener: Listener) -> None:
    await staff(listener)
    await add_person(listener, "boss", "policy_editor", "approver")
    async with signed_in(listener, "boss") as boss:
        path = await submitted(boss, STRICT)
        status, said = await stepped(boss, path, "approve")
        _, page = await boss.send("GET", path)
        async with listener.database() as database:
            store = PolicyStore(database, listener.clock)
            await store.draft("org:acme", load_document(STRICT), "os:boss")
        _, typed = await boss.send("GET", f"{HOME}/versions/2")
        sneaked, _ = await boss.send(
            "POST", f"{path}/verdict", {"action": "publish", "reason": "past the proof"}
        )

    assert (status, "approved by somebody else than its author" in said) == (403, True)
    assert "You wrote this version" in plain(page)
    assert "You wrote this version" in plain(typed), "from a shell"
    assert sneaked.status == 400


async def test_nothing_is_rolled_out_over_a_version_that_went_live_since_the_page_was_read(
    listener: Listener,
) -> None:
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, APPROVER) as anton:
        paths = []
        for text in (STRICT, STRICT.replace("S2", "S1"), STRICT.replace("S2", "S3")):
            paths.append(await submitted(wanda, text))
            await stepped(anton, paths[-1], "approve")
        await stepped(anton, paths[0], "publish")
        _, page = await anton.send("GET", paths[1])
        assert '<input type="hidden" name="live" value="1">' in page
        assert (await stepped(anton, paths[2], "publish", live="1"))[0] == 303
        for action, more in (
            *(("publish", {}), ("canary", {"percent": "5"})),
            ("publish", {"at": "2027-01-16T00:00", "zone": "UTC"}),
        ):
            status, said = await stepped(anton, paths[1], action, live="1", **more)
            assert (status, "Version 3 is live by now" in said) == (409, True), action
        order = {"to": "1", "reason": "back", "live": "1"}
        answer, page = await anton.send("POST", f"{HOME}/rollback", order)
        assert (answer.status, "Version 3 is live by now" in plain(page)) == (409, True)
        assert (await stepped(anton, paths[1], "shadow", live="3"))[0] == 303
        assert (await stepped(anton, paths[1], "stop", live="1"))[0] == 303, "harm ends at once"
        body = msgspec.json.encode({"action": "publish", "reason": "now", "live": 0}).decode()
        api = paths[1].replace("/o/", "/api/organisations/")
        assert (await anton.send("POST", f"{api}/rollout", body=body))[0].status == 409
        _, page = await anton.send("GET", paths[1])
        assert '<input type="hidden" name="live" value="3">' in page
        assert (await stepped(anton, paths[1], "publish", live="3"))[0] == 303
        async with listener.database() as database:
            versions = await PolicyStore(database, listener.clock).versions("org:acme")
    assert [(each.number, each.state) for each in versions] == [
        *((3, "retired"), (2, "live"), (1, "retired"))
    ]


async def test_a_rollback_ends_the_canary_that_was_seen_and_says_so(listener: Listener) -> None:
    await staff(listener)
    api = HOME.replace("/o/", "/api/organisations/")
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, APPROVER) as anton:
        paths = []
        for text in (STRICT, STRICT.replace("S2", "S1"), STRICT.replace("S2", "S3")):
            paths.append(await submitted(wanda, text))
            await stepped(anton, paths[-1], "approve")
        for path in paths[:2]:
            await stepped(anton, path, "publish")
        page = await shown(anton, paths[0])
        assert "No canary is running" in page
        seen = {"to": "1", "live": "2", "canary": "0", "reason": "back"}
        assert '<input type="hidden" name="canary" value="0">' in page.partition('id="rollback"')[2]
        await stepped(anton, paths[2], "canary", percent="25")
        answer, page = await anton.send("POST", f"{HOME}/rollback", seen)
        assert (answer.status, "Version 3 is a canary by now" in plain(page)) == (409, True)
        assert "Version 3, a canary for 25% of the keys, also ends" in plain(page)
        body = msgspec.json.encode({"to": 1, "reason": "back", "live": 2, "canary": 0}).decode()
        assert (await anton.send("POST", f"{api}/rollback", body=body))[0].status == 409
        order = seen | {"canary": "3"}
        assert (await anton.send("POST", f"{HOME}/rollback", order))[0].status == 303
        page = await shown(anton, paths[2])
    assert f"stopped by {APPROVER} — version 4 went live" in plain(page)
    async with listener.database() as database:
        versions = await PolicyStore(database, listener.clock).versions("org:acme")
    assert [(each.number, each.state, each.percent) for each in versions] == [
        *((4, "live", 0.0), (3, "approved", 0.0), (2, "retired", 0.0), (1, "retired", 0.0))
    ]


async def test_a_first_version_is_taken_out_of_force_with_the_canary_that_was_seen(
    listener: Listener,
) -> None:
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, APPROVER) as anton:
        paths = []
        for text in (STRICT, STRICT.replace("S2", "S1")):
            paths.append(await submitted(wanda, text))
            await stepped(anton, paths[-1], "approve")
        await stepped(anton, paths[0], "publish")
        await stepped(anton, paths[1], "canary", percent="5")
        page = await shown(anton, paths[0])
        assert "Version 2, a canary for 5% of the keys, also ends" in plain(page)
        order = {"live": "1", "canary": "0", "reason": "out"}
        assert (await anton.send("POST", f"{HOME}/rollback", order))[0].status == 409
        order["canary"] = "2"
        assert (await anton.send("POST", f"{HOME}/rollback", order))[0].status == 303
        said = plain(await shown(anton, paths[1]))
    assert f"stopped by {APPROVER} — version 1 went out of force" in said


async def test_what_was_seen_live_is_asked_for_again_where_it_is_replaced(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when two click within milliseconds: both were let through before either had written."""

    async def passed(*_: object) -> None:
        """Nobody had written yet."""

    monkeypatch.setattr(Desk, "require_live", passed)
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, APPROVER) as anton:
        paths = []
        for text in (STRICT, STRICT.replace("S2", "S1")):
            paths.append(await submitted(wanda, text))
            await stepped(anton, paths[-1], "approve")
        assert (await stepped(anton, paths[0], "publish", live="0"))[0] == 303
        status, said = await stepped(anton, paths[1], "publish", live="0")
        assert (status, "Version 1 is live by now" in said) == (409, True)
        order = {"to": "1", "reason": "back", "live": "2"}
        answer, page = await anton.send("POST", f"{HOME}/rollback", order)
        assert (answer.status, "Version 1 is live by now" in plain(page)) == (409, True)
        order = {"to": "1", "reason": "back", "live": "1", "canary": "2"}
        answer, page = await anton.send("POST", f"{HOME}/rollback", order)
        assert (answer.status, "Version 2 is a canary no more" in plain(page)) == (409, True)
        api = HOME.replace("/o/", "/api/organisations/")
        for path, body in (
            (f"{api}/versions/2/rollout", {"action": "publish", "reason": "now", "live": 0}),
            (f"{api}/rollback", {"to": 1, "reason": "back", "live": 2}),
        ):
            text = msgspec.json.encode(body).decode()
            assert (await anton.send("POST", path, body=text))[0].status == 409, path


async def test_a_page_that_shows_another_canary_than_runs_rolls_nothing_out(
    listener: Listener,
) -> None:
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, APPROVER) as anton:
        paths = []
        for text in (STRICT, STRICT.replace("S2", "S1")):
            paths.append(await submitted(wanda, text))
            await stepped(anton, paths[-1], "approve")
        first, second = paths
        none, its = {"live": "0", "canary": "0"}, {"live": "0", "canary": "1"}
        assert '<input type="hidden" name="canary" value="0">' in await shown(anton, first)
        assert (await stepped(anton, first, "canary", percent="25", **none))[0] == 303
        page = await shown(anton, first)
        assert '<input type="hidden" name="canary" value="1">' in page
        assert 'name="percent" type="number" value="25"' in page, "not another share by itself"
        said = plain(await shown(anton, second))
        assert "Version 1 is a canary for 25% of the keys; it ends when this one" in said
        for more in ({"percent": "5"}, {"percent": "5", "at": "2027-01-16T00:00", "zone": "UTC"}):
            status, said = await stepped(anton, second, "canary", **none, **more)
            assert (status, "Version 1 is a canary by now" in said) == (409, True)
        async with listener.database() as database:
            store = PolicyStore(database, listener.clock)
            await store.act("org:acme", 1, "stop", ACTOR, reason="failures: 9 of 20")
        status, said = await stepped(anton, first, "publish", **its)
        assert (status, "Version 1 is a canary no more" in said) == (409, True)
        assert "As a canary it did harm and was halted: failures: 9 of 20" in said
        body = {"action": "publish", "reason": "now", "canary": 1}
        api = first.replace("/o/", "/api/organisations/")
        text = msgspec.json.encode(body).decode()
        assert (await anton.send("POST", f"{api}/rollout", body=text))[0].status == 409
        assert (await stepped(anton, first, "publish", **none))[0] == 303, "seen, and meant"


async def shown(browser: Browser, path: str) -> str:
    return (await browser.send("GET", path))[1]


async def test_history_compares_says_what_was_live_and_brings_a_version_back(
    listener: Listener,
) -> None:
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, APPROVER) as anton:
        for number, text in enumerate((STRICT, STRICT.replace("S2", "S1")), start=1):
            path = await submitted(wanda, text + f"# number {number}\n")
            await stepped(anton, path, "approve")
            listener.clock.advance(60.0)
            await stepped(anton, path, "publish")
        _, page = await wanda.send("GET", f"{HOME}/history?a=1&b=2")
        said = plain(page)
        assert 'when: data_class >= "S2" → data_class >= "S1"' in said
        assert "- # number 1" in said
        assert "Version 2 : published by anton" in said
        at = "1970-01-01T00:00"
        _, page = await wanda.send("GET", f"{HOME}/history?at={at}")
        assert "no version of this level was live" in plain(page)
        for wrong, said in (
            *(("nonsense", "a time is written as"), ("0001-01-01T00:00", "from the year 1970")),
            ("9999-12-31T23:59-12:00", "from the year 1970"),
        ):
            answer, page = await wanda.send("GET", f"{HOME}/history?at={wrong}")
            assert (answer.status, said in plain(page)) == (400, True), wrong
        for none in ("²", "9" * 5_000, "-1"):
            answer, page = await wanda.send("GET", f"{HOME}/history?a={none}&b=2")
            assert (answer.status, "From version" in page) == (200, False), none
        _, page = await anton.send("GET", f"{HOME}/versions/2")
        assert f'href="{HOME}/versions/1#rollback">Roll back to version 1' in page
        answer, _ = await anton.send("POST", f"{HOME}/rollback", {"to": "1", "reason": "a drill"})
        assert answer.headers["location"] == f"{HOME}/versions/3"
        _, page = await wanda.send("GET", f"{HOME}/edit?as=code")

    assert "# number 1" in page, "comments come back with the version"
    async with listener.database() as database:
        versions = await PolicyStore(database, listener.clock).versions("org:acme")
    assert [(each.number, each.state) for each in versions] == [
        *((3, "live"), (2, "retired"), (1, "retired"))
    ]
    assert versions[0].digest == versions[2].digest
    record = (await deeds(listener))[-1]
    assert (record.action, record.actor) == ("policy.rolled_back", APPROVER)
    assert msgspec.json.decode(record.detail["after"])["to"] == 1


async def test_the_first_version_is_taken_out_of_force_and_brought_back(listener: Listener) -> None:
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, APPROVER) as anton:
        path = await submitted(wanda, STRICT)
        await stepped(anton, path, "approve")
        await stepped(anton, path, "publish")
        _, page = await anton.send("GET", path)
        assert "only the levels above apply within a second, for everybody" in plain(page)
        assert "Take version 1 out of force" in page
        _, page = await wanda.send("GET", path)
        assert "out of force" not in page, "who may not publish is offered nothing"
        form = {"reason": "it closed too much", "live": "1"}
        answer, _ = await wanda.send("POST", f"{HOME}/rollback", form)
        assert answer.status == 403
        answer, _ = await anton.send("POST", f"{HOME}/rollback", form)
        assert (answer.status, answer.headers["location"]) == (303, path)
        answer, page = await anton.send("POST", f"{HOME}/rollback", form)
        assert (answer.status, "No version is live any more" in page) == (409, True)
        assert 'value="it closed too much"' in page, "what was typed stays in the form"
        _, level = await anton.send("GET", HOME)
        _, page = await anton.send("GET", path)
        said = plain(page)
        assert "was taken out of force; only the levels above apply" in said
        assert "taken out of force by anton" in said
        _, overview = await anton.send("GET", "/")
        answer, _ = await anton.send("POST", f"{HOME}/rollback", {"to": "1", "reason": "a drill"})

    assert answer.headers["location"] == f"{HOME}/versions/2"
    assert "No version of its own is live here: only the levels above apply." in plain(level)
    assert "version 1 was taken out of force" in plain(overview)
    record = (await deeds(listener))[-2]
    assert (record.action, record.actor) == ("policy.rolled_back", APPROVER)


async def test_a_stricter_rule_is_marked_as_one_that_narrows(listener: Listener) -> None:
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, APPROVER) as anton:
        path = await submitted(wanda, STRICT)
        assert (await stepped(anton, path, "approve"))[0] == 303
        assert (await stepped(anton, path, "publish"))[0] == 303
        _, page = await anton.send("GET", path)
        assert "No version of this level was live before" in page
        _, page = await wanda.send("GET", f"{HOME}/edit?as=code")
        revision = int(page.split('name="revision" value="')[1].partition(".")[0])
        await saved(wanda, STRICT.replace('"S4"', '"S3"'), revision)
        _, page = await wanda.send("GET", f"{HOME}/submit")

    assert "narrows constraint never changed: " in plain(page)
    assert "may widen" not in page.lower()
