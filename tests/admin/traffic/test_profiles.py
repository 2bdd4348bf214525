"""Profiles in the browser and as JSON: now beside before, what drifts, and its acceptance."""

from urllib.parse import quote

import msgspec
import pytest

from gateway.oversight.workers import MemberReport
from gateway.store.traffic.drifts import DriftTable
from tests.admin import seeding
from tests.admin.listener import Browser, Listener
from tests.admin.profiling import SAID, profiles
from tests.admin.test_deeds import deeds


pytestmark = pytest.mark.anyio
BASE = "/o/acme/traffic/profiles"
API = "/api/organisations/acme/profiles"
ORDER = '{"reason": "again"}'


async def _signed_in(listener: Listener, browser: Browser, role: str = "approver") -> None:
    await seeding.issue(listener, "the assistant")
    await seeding.person(listener, "ann", role)  # type: ignore[arg-type]
    await browser.sign_in_as("ann", seeding.PASSWORD)


async def test_now_stands_beside_before_and_what_moved_is_said(
    listener: Listener, browser: Browser
) -> None:
    await _signed_in(listener, browser, "viewer")
    await profiles(listener)
    _, listed = await browser.send("GET", BASE)
    answer, page = await browser.send("GET", f"{BASE}/prompts?of=auto")

    assert f"1 profile drifts: {SAID}." in listed
    assert f'href="{BASE}/prompts?of=auto"' in listed
    assert answer.status == 200
    assert "the calibration of the cheap tier does not apply" in page
    for said in ("8,000 to 16,000 tokens", "50.0%", "0.0%", "9 days at the same hours"):
        assert said in page
    assert "Accept as normal" not in page
    _, overview = await browser.send("GET", "/")
    told = f"Prompts of <bdi>auto</bdi>, acme: {SAID}; its calibration does not cover this"
    assert told in overview


async def test_a_profile_is_drawn_over_four_weeks_with_its_table_behind(
    listener: Listener, browser: Browser
) -> None:
    await _signed_in(listener, browser, "viewer")
    drift = await profiles(listener)
    _, text = await browser.send("GET", f"{API}/prompts?of=auto")
    history = msgspec.json.decode(text)["history"]
    _, page = await browser.send("GET", f"{BASE}/prompts?of=auto")

    assert len(history["days"]) == 28
    assert "8,000 to 16,000 tokens" in history["bins"]
    moved = history["bins"].index("8,000 to 16,000 tokens")
    shares = [day["percents"][moved] for day in history["days"] if day["count"]]
    assert (shares[0], shares[-1]) == (0.0, 50.0)
    silent = [day["percents"] for day in history["days"] if not day["count"]]
    assert silent[0] == [None] * len(history["bins"])
    begun = [day for day in history["days"] if day["has_begun"]]
    assert [day["start_us"] <= drift.began_us for day in begun] == [True]
    assert page.count("data-mark") == 1
    assert "began in these hours" in page


async def test_the_api_says_what_the_pages_show(listener: Listener, browser: Browser) -> None:
    await _signed_in(listener, browser, "viewer")
    drift = await profiles(listener, "a/b c")
    _, text = await browser.send("GET", API)
    listed = msgspec.json.decode(text)
    _, text = await browser.send("GET", f"{API}/prompts?of={quote('a/b c')}")
    found = msgspec.json.decode(text)

    assert [(line["kind"], line["scope"]) for line in listed["lines"]] == [
        ("prompts", "a/b c"),
        ("answers", "a/b c"),
    ]
    assert listed["lines"][0]["drift"]["id"] == drift.id
    assert (found["state"], found["is_withdrawn"], found["days"]) == ("drifted", True, 9)
    first = found["features"][0]
    assert (first["name"], first["shift"]["is_drift"]) == ("tokens", True)
    assert first["bins"][6] == {
        "name": "8,000 to 16,000 tokens",
        "now": 130,
        "before": 0,
        "now_percent": 50.0,
        "before_percent": 0.0,
    }


@pytest.mark.parametrize("path", ["nothing?of=auto", "prompts?of=other", "answers"])
async def test_what_has_no_traffic_is_not_there(
    listener: Listener, browser: Browser, path: str
) -> None:
    await _signed_in(listener, browser, "viewer")
    await profiles(listener)
    for base in (BASE, API):
        answer, _ = await browser.send("GET", f"{base}/{path}")
        assert answer.status == 404


async def test_accepting_takes_a_reason_a_permission_and_leaves_a_record(
    listener: Listener, browser: Browser
) -> None:
    await _signed_in(listener, browser)
    drift = await profiles(listener)
    _, page = await browser.send("GET", f"{BASE}/prompts?of=auto")
    assert "(260 so far)" in page
    path = f"{BASE}/drifts/{drift.id}/accept"
    form = {"kind": "prompts", "of": "auto", "reason": " "}
    answer, page = await browser.send("POST", path, form)
    assert (answer.status, "give a reason why this is the new normal" in page) == (400, True)

    answer, _ = await browser.send("POST", path, form | {"reason": "a <new> application"})
    assert (answer.status, answer.headers["location"]) == (303, f"{BASE}/prompts?of=auto")
    _, page = await browser.send("GET", answer.headers["location"])
    assert "accepted by ann: a &lt;new&gt; application" in page
    record = (await deeds(listener))[-1]
    assert (record.action, record.actor) == ("drift.accepted", "ann")
    assert msgspec.json.decode(record.detail["after"])["reason"] == "a <new> application"
    async with listener.database() as database:
        (after,) = await DriftTable(database, listener.clock).of("acme")
    assert (after.state, after.ended_by) == ("accepted", "ann")
    count = len(await deeds(listener))
    answer, _ = await browser.send("POST", f"{API}/drifts/{drift.id}/accept", body=ORDER)
    assert (answer.status, len(await deeds(listener))) == (400, count)
    answer, _ = await browser.send("POST", f"{API}/drifts/none/accept", body=ORDER)
    assert answer.status == 404


async def test_who_only_reads_cannot_accept(listener: Listener, browser: Browser) -> None:
    await _signed_in(listener, browser, "viewer")
    drift = await profiles(listener)
    answer, _ = await browser.send("POST", f"{API}/drifts/{drift.id}/accept", body=ORDER)
    assert answer.status == 403


async def test_an_organisation_without_profiles_says_when_there_will_be_some(
    listener: Listener, browser: Browser
) -> None:
    await _signed_in(listener, browser, "viewer")
    _, page = await browser.send("GET", BASE)

    assert "Each hour is profiled five minutes after it ends" in page


async def test_replicas_that_are_slow_or_answer_otherwise_wait_for_whoever_looks_after_them(
    listener: Listener, browser: Browser
) -> None:
    await _signed_in(listener, browser, "platform_admin")
    slow = MemberReport("pool", "a", state="slow", weight=0.6)
    odd = MemberReport("pool", "b", state="up", differs=True)
    await seeding.report(
        listener,
        seeding.worker(listener, "w0", members=(slow, odd)),
        seeding.worker(listener, "w1", members=(slow,)),
    )
    _, page = await browser.send("GET", "/")

    assert page.count("Replica a is slower than the other replicas and gets 60") == 1
    assert "Replica b gives other answers than replicas with the same weights" in page
