"""Incidents: clocks from when it was noticed, whom it concerns from the log, closed by two."""

import re
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import msgspec
import pytest

from admin.compliance import incident_room
from tests.admin import seeding
from tests.admin.chromium import window
from tests.admin.compliance.archive import PASSWORD, deeds, person
from tests.admin.listener import Browser, Listener


pytestmark = pytest.mark.anyio
AT = "/o/acme/compliance/incidents"
API = "/api/organisations/acme/compliance/incidents"
RULES = '[obligations]\ndefault = ["gdpr"]\n[obligations.organisations]\n'
ACME = 'acme = ["cert-in", "dpdp", "gdpr"]\n'
HOSTILE = "<script>alert(1)</script>\"'>"


@pytest.fixture
async def bound(tmp_path: Path, sqlite_url: str) -> AsyncIterator[Listener]:
    """A listener whose organisation says by which rules it is bound."""
    async with Listener(tmp_path, sqlite_url, f"{RULES}{ACME}") as listener:
        await listener.issue_key("first")
        yield listener


async def opened(browser: Browser, **form: str) -> str:
    given = {"title": "A key was in a public repository", "kind": "access", "q": ""} | form
    answer, page = await browser.send("POST", f"{AT}/new", given)
    assert answer.status == 303, page
    return answer.headers["location"]


async def states(browser: Browser, one: str) -> dict[str, str]:
    path = one.replace("/o/", "/api/organisations/")
    _, text = await browser.send("GET", path)
    return {each["clock"]["name"]: each["state"] for each in msgspec.json.decode(text)["clocks"]}


async def test_clocks_run_from_when_it_was_noticed_and_stop_when_it_was_reported(
    bound: Listener,
) -> None:
    key = await bound.issue_key("night")
    await bound.record(*seeding.requests(bound, key, 1))
    async with person(bound, "cora") as cora:
        one = await opened(cora, noticed="5h")
        assert await states(cora, one) == {
            "cert-in-report": "running",
            "dpdp-notice": "due now",
            "dpdp-details": "running",
            "gdpr-authority": "running",
        }
        bound.clock.advance(2 * 3600)
        await cora.sign_in_as("cora", PASSWORD)
        assert (await states(cora, one))["cert-in-report"] == "overdue"
        _, home = await cora.send("GET", "/o/acme/compliance")
        assert "2 reports of incidents are due now or overdue" in home
        _, overview = await cora.send("GET", "/")
        assert "2 reports are due now or overdue" in overview
        form = {"clock": "cert-in-report", "reported": "90m", "reference": "CERT-7"}
        assert (await cora.send("POST", f"{one}/reports", form))[0].status == 303
        again, page = await cora.send("POST", f"{one}/reports", form)
        assert (again.status, "Somebody else was faster" in page) == (409, True)
        await cora.send("POST", f"{one}/reports", {"clock": "dpdp-notice"})
        found = await states(cora, one)
        assert (found["cert-in-report"], found["dpdp-notice"]) == ("reported", "reported")
        bound.clock.advance(80 * 3600)
        await cora.sign_in_as("cora", PASSWORD)
        await cora.send("POST", f"{one}/reports", {"clock": "gdpr-authority"})
        assert (await states(cora, one))["gdpr-authority"] == "reported late"
        for wrong in ({"clock": "none"}, {"clock": "dpdp-details", "reported": "100d"}):
            answer, page = await cora.send("POST", f"{one}/reports", wrong)
            assert (answer.status, 'role="alert"' in page) == (400, True)


async def test_a_filter_of_as_many_terms_as_there_may_be_leads_to_its_requests(
    bound: Listener,
) -> None:
    key = await bound.issue_key("night")
    await bound.record(*seeding.requests(bound, key, 1))
    async with person(bound, "cora") as cora:
        one = await opened(cora, q=" ".join(f"-model:m{number}" for number in range(20)))
        _, page = await cora.send("GET", one)
        (link,) = re.findall(r'href="([^"]+)">Show these requests', page)
        answer, listed = await cora.send("GET", unescape(link))
        assert (answer.status, "1 row" in listed) == (200, True)
        long = " ".join(f"-model:{'m' * 180}{number}" for number in range(5))
        given = {"title": "A key", "kind": "access", "q": long}
        answer, page = await cora.send("POST", f"{AT}/new", given)
        assert (answer.status, "characters beside its time" in page) == (400, True)


async def test_whom_it_concerns_is_counted_from_the_log(bound: Listener) -> None:
    key, other = await bound.issue_key("night"), await bound.issue_key("day")
    odd = await seeding.issue(bound, "line\nRequests: 0")
    mine = seeding.requests(bound, key, 6, over_us=seeding.HOUR_US)
    named = [
        msgspec.structs.replace(each, subject=f"s{number // 2}" if number < 4 else "")
        for number, each in enumerate(mine)
    ]
    others = [*seeding.requests(bound, other, 3, over_us=seeding.HOUR_US)]
    others += seeding.requests(bound, odd, 1)
    await bound.record(*named, *others)
    async with person(bound, "cora") as cora:
        one = await opened(cora, q=f"key:{key}", title=f"Lost {HOSTILE}")
        _, page = await cora.send("GET", one)
        assert "<script>alert(1)" not in page
        assert "<bdi>night</bdi> (6)" in page
        assert re.search(r"<strong>6 requests</strong> of 2 named end users; 2 of them name", page)
        _, text = await cora.send("GET", f"{one}/report")
        _, of_all = await cora.send("GET", f"{await opened(cora, q='')}/report")
    assert "Requests: 6" in text
    assert "End users named by them: 2 (keyed digests)" in text
    assert f"  night ({key}): 6" in text
    assert f"  line\ufffdRequests: 0 ({odd}): 1\n" in of_all
    assert other not in text
    assert "Cause: [to be filled in]" in text
    assert "CERT-In directions of 28 April 2022" in text


async def test_an_incident_leads_to_just_the_requests_that_it_counts_and_to_a_pack_of_its_days(
    bound: Listener,
) -> None:
    key = await bound.issue_key("night")
    await bound.record(*seeding.requests(bound, key, 6, over_us=6 * seeding.DAY_US))
    async with person(bound, "cora") as cora:
        times = {"since": "2027-01-12T00:00", "until": "2027-01-14T00:00"}
        one = await opened(cora, q=f"key:{key}", noticed="1h", **times)
        _, page = await cora.send("GET", one)
        counted = int(re.search(r"<strong>(\d+) requests?</strong>", page)[1])  # type: ignore[index]
        links = [unescape(each) for each in re.findall(r'href="([^"]+)"', page)]
        (listed,) = [each for each in links if "/traffic?" in each]
        (pack,) = [each for each in links if "/packs/new" in each]
        _, requests = await cora.send("GET", listed)
        _, wizard = await cora.send("GET", pack)
        _, everything = await cora.send("GET", f"/o/acme/traffic?q=key:{key}")

    def rows(text: str) -> int:
        return len(set(re.findall(r"/o/acme/traffic/(req_\w+)", text)))

    assert 0 < counted == rows(requests) < rows(everything)
    assert 'value="2027-01-12"' in wizard
    assert 'value="2027-01-14"' in wizard
    assert "2. Create it" in wizard


async def test_whom_it_concerns_is_changed_after_it_was_counted_and_on_record(
    bound: Listener,
) -> None:
    key, other = await bound.issue_key("night"), await bound.issue_key("day")
    for each, count in ((key, 4), (other, 3)):
        await bound.record(*seeding.requests(bound, each, count, over_us=seeding.HOUR_US))
    async with person(bound, "cora") as cora, person(bound, "dan") as dan:
        one = await opened(cora, q=f"key:{key}")
        _, page = await cora.send("GET", f"{one}/scope")
        was = unescape(re.findall(r'name="was" value="([^"]+)"', page)[0])
        form = {"was": was, "q": "", "since": "", "until": ""}
        _, page = await cora.send("GET", f"{one}/scope?{urlencode(form)}")
        assert "7 requests that name no end user instead of 4 requests" in page
        assert (await cora.send("POST", f"{one}/scope", form))[0].status == 303
        _, page = await cora.send("GET", one)
        assert "<strong>7 requests</strong>" in page
        late, page = await dan.send("POST", f"{one}/scope", form | {"q": "key:none"})
        assert (late.status, "Somebody else changed or closed it" in page) == (409, True)
        for wrong in ({"q": "colour:red"}, {"since": "never"}, {"until": "2001-01-01T00:00"}):
            answer, page = await cora.send("POST", f"{one}/scope", form | {"was": ""} | wrong)
            assert (answer.status, 'role="alert"' in page) == (400, True), wrong
        path = one.replace("/o/", "/api/organisations/") + "/scope"
        body = msgspec.json.encode({"filter": f"key:{other}", "since_us": 0}).decode()
        answer, text = await cora.send("POST", path, body=body)
        assert (answer.status, msgspec.json.decode(text)["filter"]) == (201, f"key:{other}")
        await cora.send("POST", f"{one}/close", {"conclusion": "Nothing was used."})
        await dan.send("POST", f"{one}/close", {"agreed": "Nothing was used."})
        assert (await cora.send("POST", path, body=body))[0].status == 409
    done = [action for _, action in await deeds(bound) if action == "incident.rescoped"]
    assert len(done) == 2


async def test_its_end_stays_where_only_the_filter_is_changed(bound: Listener) -> None:
    async with person(bound, "cora") as cora:
        one = await opened(cora, since="3h", until="2h")
        _, before = await cora.send("GET", f"{one}/scope")
        (until,) = re.findall(r'<input[^>]* name="until"[^>]* value="([^"]+)"', before)
        was = unescape(re.findall(r'name="was" value="([^"]+)"', before)[0])
        form = {"was": was, "q": "key:k", "since": "", "until": until}
        _, page = await cora.send("GET", f"{one}/scope?{urlencode(form)}")
        assert len(re.findall(r"From <time[^>]*>[^<]*</time> until <time", page)) == 1
        assert (await cora.send("POST", f"{one}/scope", form))[0].status == 303
        path = one.replace("/o/", "/api/organisations/")
        _, text = await cora.send("GET", path)
        found = msgspec.json.decode(text)["incident"]
        assert (found["filter"], found["until_us"] // 1_000_000 * 1_000_000) == (
            *("key:k", int(was.split()[1]) // 1_000_000 * 1_000_000),
        )
        form |= {"until": "", "was": f"{found['since_us']} {found['until_us']} key:k"}
        _, page = await cora.send("GET", f"{one}/scope?{urlencode(form)}")
        assert re.search(r"From <time[^>]*>[^<]*</time> until now \(ongoing\)\.", page)


async def test_the_report_says_what_two_people_said_and_what_it_leaves_out(
    bound: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "It was the intern."
    async with person(bound, "cora") as cora, person(bound, "dan") as dan:
        one = await opened(cora)

        async def report() -> str:
            return (await cora.send("GET", f"{one}/report"))[1]

        assert "What came of it: [to be filled in]" in await report()
        await cora.send("POST", f"{one}/close", {"conclusion": said})
        assert f"What came of it: {said} [so cora; a second person is to agree]" in await report()
        await dan.send("POST", f"{one}/keep-open")
        assert "What came of it: [to be filled in]" in await report(), "it was declined"
        _, page = await cora.send("GET", one)
        assert f">{said}</textarea>" in page, "but nobody types it again"
        assert "earlier ones" not in page
        assert "earlier deeds" not in await report()
        await deeds(bound)  # So that they are in the database.
        monkeypatch.setattr(incident_room, "DEEDS_MAX", 2)
        assert "[earlier deeds are in the audit log alone]" in await report()
        assert "The newest 2; earlier ones are in the log" in (await cora.send("GET", one))[1]
        await cora.send("POST", f"{one}/close", {"conclusion": said})
        await dan.send("POST", f"{one}/close", {"agreed": said})
        assert f"What came of it: {said}\n" in await report()


async def test_two_people_close_it_and_each_step_is_a_deed(bound: Listener) -> None:
    async with person(bound, "cora") as cora, person(bound, "dan") as dan:
        one = await opened(cora)
        silent, _ = await cora.send("POST", f"{one}/close", {"conclusion": " "})
        assert silent.status == 400
        said = {"conclusion": "The key was revoked; it was never used."}
        assert (await cora.send("POST", f"{one}/close", said))[0].status == 303
        alone, page = await cora.send("POST", f"{one}/close")
        assert (alone.status, "second person" in page) == (400, True)
        await dan.send("POST", f"{one}/keep-open")
        declined, _ = await dan.send("POST", f"{one}/keep-open")
        assert declined.status == 409
        await cora.send("POST", f"{one}/close", said)
        closed, _ = await dan.send("POST", f"{one}/close", {"agreed": said["conclusion"]})
        assert closed.status == 303
        _, page = await dan.send("GET", one)
        assert "at the request of cora" in page
        over, _ = await cora.send("POST", f"{one}/reports", {"clock": "gdpr-authority"})
        assert over.status == 409
    done = [each for each in await deeds(bound) if each[1].startswith("incident.")]
    assert done == [
        ("cora", "incident.opened"),
        ("cora", "incident.close_asked"),
        ("dan", "incident.kept_open"),
        ("cora", "incident.close_asked"),
        ("dan", "incident.closed"),
    ]


async def test_a_second_person_closes_it_with_the_conclusion_that_they_read_alone(
    bound: Listener,
) -> None:
    first, other = "It was never used.\nThe key is gone.", "Five people are told."
    async with person(bound, "cora") as cora, person(bound, "dan") as dan:
        one = await opened(cora)
        await cora.send("POST", f"{one}/close", {"conclusion": first})
        _, page = await dan.send("GET", one)
        (read,) = re.findall(r'name="agreed" value="([^"]+)"', page)
        assert unescape(read) == first
        await cora.send("POST", f"{one}/keep-open")
        reopened, page = await dan.send("POST", f"{one}/close", {"agreed": first})
        assert (reopened.status, "Somebody else was faster" in page) == (409, True)
        await cora.send("POST", f"{one}/close", {"conclusion": other})
        for form in ({"agreed": first}, {"conclusion": "Mine."}, {"conclusion": other}, {}):
            answer, page = await dan.send("POST", f"{one}/close", form)
            assert (answer.status, "Somebody else was faster" in page) == (409, True), form
            assert f'name="agreed" value="{other}"' in page
        api = one.replace("/o/", "/api/organisations/") + "/close"
        for body in ({"agreed": first}, {"conclusion": first}, {"agreed": ""}):
            text = msgspec.json.encode(body).decode()
            assert (await dan.send("POST", api, body=text))[0].status == 409, body
        answer, _ = await dan.send("POST", f"{one}/close", {"agreed": f" {other}\r\n"})
        assert answer.status == 303
    done = [action for _, action in await deeds(bound) if action == "incident.closed"]
    assert len(done) == 1, "what was refused is not even begun"


async def test_what_makes_no_sense_is_said_beside_its_field(bound: Listener) -> None:
    async with person(bound, "cora") as cora:
        for wrong in (
            {"title": " "},
            {"kind": "x"},
            {"q": "nonsense:("},
            {"noticed": "2999-01-01T00:00"},
            {"noticed": "soon"},
            {"since": "1h", "until": "2h"},
            {"since": "1950-01-01T00:00"},
            {"since": "2999-01-01T00:00"},
            {"since": "1h", "until": "2999-01-01T00:00"},
        ):
            answer, page = await cora.send(
                "POST", f"{AT}/new", {"title": "t", "kind": "loss"} | wrong
            )
            assert (answer.status, "Open an incident" in page) == (400, True), wrong
        for name, moment in (("since_us", 1_800 * 10**15), ("noticed_us", -(10**15))):
            body = msgspec.json.encode({"title": "t", name: moment}).decode()
            assert (await cora.send("POST", API, body=body))[0].status == 400, name
        assert (await cora.send("GET", f"{AT}/000000000000"))[0].status == 404
        _, text = await cora.send("GET", API)
        assert msgspec.json.decode(text) == []


async def test_its_pages_stand_at_every_width(bound: Listener) -> None:
    key = await bound.issue_key("night")
    await bound.record(*seeding.requests(bound, key, 6, over_us=seeding.HOUR_US))
    async with person(bound, "cora") as cora:
        one = await opened(cora, title=f"{HOSTILE}{'x' * 80}", noticed="7h", ticket=HOSTILE)
    async with window(bound) as seen:
        await seen.sign_in("cora", PASSWORD)
        async for view in seen.views():
            for path in (AT, f"{AT}/new", one, "/o/acme/compliance", "/"):
                assert await seen.open(path) == 200, path
                assert await seen.violations() == [], (path, view)
                wide = await seen.page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, (path, view, wide)
        assert seen.problems == []


@pytest.mark.parametrize("width", [640, 390])
async def test_when_a_report_is_due_is_in_sight_on_a_small_screen(
    bound: Listener, width: int
) -> None:
    """Also at twice the size: 640 pixels are a screen of 1,280 then."""
    async with person(bound, "cora") as cora:
        one = await opened(cora, title="Card numbers in answers of the support chat", noticed="1h")
    async with window(bound, width=width) as seen:
        await seen.sign_in("cora", PASSWORD)
        await seen.open("/o/acme/compliance")
        table = seen.page.get_by_role("region", name="What is due")
        assert await table.evaluate("(e) => e.scrollWidth - e.clientWidth") == 0
        assert await table.locator("th >> text=Due").is_visible()
        duties = seen.page.get_by_role("region", name="Obligations")
        assert await duties.evaluate("(e) => e.scrollWidth - e.clientWidth") == 0
        assert await seen.violations() == []
        for path, name in ((AT, "Incidents"), (one, "Reports")):
            await seen.open(path)
            table = seen.page.get_by_role("region", name=name, exact=True)
            edge = await table.evaluate("(e) => e.getBoundingClientRect().right")
            states = table.locator(".chip:has-text('due'), .chip:has-text('left')")
            assert await states.count() > 0
            for state in await states.all():
                box = await state.bounding_box()
                assert box is not None
                assert box["x"] + box["width"] <= edge, name
            assert await seen.faults() == []
            assert await seen.violations() == []


async def test_a_time_that_clocks_show_twice_says_which_of_the_two_is_meant(
    bound: Listener,
) -> None:
    async with person(bound, "cora") as cora:
        view = {"zone": "Europe/Berlin", "locale": "en_GB", "currency": "USD", "theme": "system"}
        assert (await cora.send("POST", "/viewing", view))[0].status == 303
        twice = {"noticed": "2026-10-25T02:30", "since": "2026-10-25T02:10", "q": ""}
        given = {"title": "Keys were public", "kind": "access"} | twice
        answer, page = await cora.send("POST", f"{AT}/new", given)
        assert (answer.status, "show this time twice: say which" in page) == (400, True)
        assert 'value="first">the first one, 00:30 UTC<' in page
        assert 'value="second">the second one, 01:10 UTC<' in page
        left_out = given | {"noticed": "2026-03-29T02:30"}
        skipped, said = await cora.send("POST", f"{AT}/new", left_out)
        assert (skipped.status, "no clock in Europe/Berlin shows this time" in said) == (400, True)
        which = {"noticed_turn": "second", "since_turn": "first"}
        one = await opened(cora, **twice, **which)
        _, page = await cora.send("GET", one)
        assert "25 Oct 2026, 02:30:00 (UTC+01:00)" in page
        assert "25 Oct 2026, 02:10:00 (UTC+02:00)" in page

        _, page = await cora.send("GET", f"{one}/scope")
        was = unescape(re.findall(r'name="was" value="([^"]+)"', page)[0])
        times = {"since": "2026-10-25T02:10", "until": "2026-10-25T02:40", "since_turn": "first"}
        asked = urlencode({"was": was, "q": ""} | times)
        _, page = await cora.send("GET", f"{one}/scope?{asked}")
        assert 'name="until_turn"' in page
        _, page = await cora.send("GET", f"{one}/scope?{asked}&until_turn=second")
        shown = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page)
        form = {name: unescape(value) for name, value in shown}
        assert (await cora.send("POST", f"{one}/scope", form))[0].status == 303
        _, page = await cora.send("GET", one)
        assert "25 Oct 2026, 02:40:00 (UTC+01:00)" in page
        _, page = await cora.send("GET", f"{one}/scope")
        assert '<option value="second" selected>the second one, 01:40 UTC<' in page

        _, page = await cora.send("GET", one)
        (clock, *_) = re.findall(r'<select id="field-clock"[^>]*><option value="([^"]+)"', page)
        report = {"clock": clock, "reported": "2026-10-25T02:50", "reference": "T-1"}
        answer, page = await cora.send("POST", f"{one}/reports", report)
        assert (answer.status, 'name="reported_turn"' in page) == (400, True)
        report["reported_turn"] = "second"
        assert (await cora.send("POST", f"{one}/reports", report))[0].status == 303
