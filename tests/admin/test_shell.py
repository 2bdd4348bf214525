"""What stands around the pages: the rail, ways of reading, kept drafts; seen in a real browser."""

import html
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from babel.numbers import format_decimal
from sqlalchemy import event
from sqlalchemy.engine import Engine

from admin.interrupted import Draft, carried_in, is_own_path
from admin.preferences import COOKIE, LOCALES, Preferences, preferences_of
from gateway.clock import DAY_US
from gateway.configuration.sections import CurrencySettings
from gateway.oversight.access import Grant
from gateway.secrets.secret import Secret
from gateway.store.identity.people import PeopleStore
from tests.admin import seeding
from tests.admin.chromium import ROOT, window
from tests.admin.listener import Browser, Listener, browsing


pytestmark = pytest.mark.anyio

PASSWORD = "a password for tests only"


async def _person(listener: Listener, name: str, role: str) -> None:
    async with listener.database() as database:
        people = PeopleStore(database, listener.clock)
        await people.add(name, password=Secret(PASSWORD))
        await people.grant(name, Grant(role, "*"))  # type: ignore[arg-type]


async def test_the_frame_stands_in_a_browser_without_a_fault(listener: Listener) -> None:
    async with window(listener) as seen:
        await seen.sign_in_with_token(listener.token)
        async for view in seen.views():
            for path in ("/", "/viewing"):
                await seen.open(path)
                assert await seen.violations() == [], (path, view)
        await seen.page.keyboard.press("Control+k")
        await seen.page.keyboard.type("over")
        await seen.page.keyboard.press("Enter")
        await seen.page.wait_for_url(f"{listener.url}/")
        await seen.page.focus("details.right summary")
        await seen.page.keyboard.press("Enter")
        await seen.page.keyboard.press("Tab")
        assert await seen.page.evaluate("document.activeElement.pathname") == "/viewing"
        await seen.page.keyboard.press("Escape")
        assert await seen.page.evaluate(MENU) == ["SUMMARY", 0], "closed, and back at its name"
        await seen.page.keyboard.press("Enter")
        await seen.page.keyboard.press("Shift+Tab")
        assert (await seen.page.evaluate(MENU))[1] == 0, "nor left open behind the focus"
        await seen.page.emulate_media(forced_colors="active")
        marks = await seen.page.evaluate(MARKS)
        assert marks == ["3px", "0px"], "the room one is in, without its background"

        assert seen.problems == []


MENU = "[document.activeElement.tagName, document.querySelectorAll('details.menu[open]').length]"
MARKS = """() => [".rail a[aria-current]", ".rail a:not([aria-current])"]
  .map((which) => getComputedStyle(document.querySelector(which)).borderLeftWidth)"""


async def test_amounts_are_read_in_the_chosen_currency_and_language(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    form = {"locale": "de_DE", "zone": "Asia/Kolkata", "currency": "USD", "theme": "dark"}
    answer, _ = await browser.send("POST", "/viewing", form | {"to": "/viewing"})
    assert answer.status == 303
    _, page = await browser.send("GET", answer.headers["location"])

    assert 'data-theme="dark"' in page
    assert "1.234.567" in page
    assert "selected>Asia/Kolkata" in page


async def test_days_of_rates_and_prices_are_said_as_other_days(
    tmp_path: Path, listener_url: str
) -> None:
    rate = '[currencies.INR]\nper_usd = "83"\nas_of = "2026-11-01"\n'
    way = {"locale": "en_US", "zone": "UTC", "currency": "INR", "theme": "system"}
    async with Listener(tmp_path, listener_url, rate) as listener, browsing(listener) as browser:
        await seeding.issue(listener, "assistant")
        await browser.sign_in()
        await browser.send("POST", "/viewing", way | {"to": "/"})
        pages = {}
        for path in ("/o/acme/costs", "/models", "/models/providers/managed", "/models/prices"):
            answer, page = await browser.send("GET", path)
            assert answer.status == 200
            pages[path] = page
            written = re.findall(r"[^=\"]\b20[0-9]{2}-[0-9]{2}-[0-9]{2}\b(?!T)", pages[path])
            assert written == [], path

    assert "at 83 a dollar, the rate of Nov 1, 2026" in pages["/o/acme/costs"]
    assert "The newest was read on Nov" in pages["/models/prices"]


async def test_single_letters_do_nothing_where_somebody_turned_them_off(
    listener: Listener,
) -> None:
    async with window(listener) as seen:
        await seen.sign_in_with_token(listener.token)
        for keys, is_open in (("off", False), ("on", True)):
            await seen.open("/viewing")
            await seen.page.select_option("#field-keys", keys)
            await seen.page.click("button:has-text('Save')")
            await seen.page.wait_for_url(f"{listener.url}/")
            await seen.page.keyboard.press("?")
            assert await seen.page.is_visible("#keys") == is_open
        await seen.page.keyboard.press("Escape")
        await seen.page.keyboard.press("Control+k")
        assert await seen.page.is_visible("#finder")


async def test_every_page_leads_to_its_words_and_they_mean_what_the_glossary_says(
    browser: Browser,
) -> None:
    await browser.sign_in()
    _, page = await browser.send("GET", "/viewing")
    assert 'href="/words"' in page
    _, page = await browser.send("GET", "/words")
    told = re.findall(r"<dt>(.+?)</dt><dd>(.+?)</dd>", page)
    glossary = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    for word, meaning in told:
        written = html.unescape(re.sub("</?code>", "`", meaning))
        assert f"**{word}**: {written}\n" in glossary
    assert len(told) > 30


@pytest.mark.parametrize(
    "wrong", [{"locale": "xx"}, {"zone": "Nowhere"}, {"currency": "QQQ"}, {"theme": "pink"}]
)
async def test_a_way_of_reading_that_is_not_one_is_refused(
    browser: Browser, wrong: dict[str, str]
) -> None:
    await browser.sign_in()
    form = {"locale": "en_IN", "zone": "UTC", "currency": "USD", "theme": "dark"}
    answer, _ = await browser.send("POST", "/viewing", form | wrong)

    assert answer.status == 400


def test_whoever_reads_in_a_currency_whose_rate_is_gone_reads_dollars() -> None:
    rupees = CurrencySettings(per_usd="100", as_of="2026-11-01")
    asked: Any = SimpleNamespace(cookies={COOKIE: "locale=en_US&currency=INR"}, headers={})
    before, after = (preferences_of(asked, known) for known in ({"INR": rupees}, {}))

    assert (before.money(2_000_000), after.money(2_000_000)) == ("₹200.00", "$2.00")
    assert (after.currency, after.rate) == ("USD", None)


def test_an_amount_has_the_digits_of_its_size_and_the_grouping_of_its_reader() -> None:
    rupees = CurrencySettings(per_usd="100", as_of="2026-11-01")
    indian = Preferences(locale="en_IN", currency="INR", rate=rupees)

    assert Preferences().date("2026-11-01") == "Nov 1, 2026"
    assert Preferences().date("of old") == "of old", "what is no day breaks no page"
    assert Preferences().money(1_234_567_890_000) == "$1,234,567.89"
    assert Preferences().money(31_200) == "$0.0312"
    assert Preferences().money(42) == "$0.000042"
    for moment_us, year in ((-(10**18), "1"), (-62_135_596_800_000_000, "1"), (10**18, "9999")):
        for zone in ("America/Los_Angeles", "Asia/Kolkata", "UTC"):
            way = Preferences(zone=zone)
            shown = f"{way.moment(moment_us)}{way.day(moment_us)}"
            assert shown.count(f", {year}") >= 2, (moment_us, zone)
            assert way.moment_short(moment_us, 0), "what no calendar has breaks no page"
    assert indian.money(12_345_678_900) == "₹12,34,567.89"


@pytest.mark.parametrize(
    ("seconds", "in_hours", "in_days"),
    [
        (30 * 86_400, "720 hours", "30 days"),
        (72 * 3_600, "72 hours", "3 days"),
        (48 * 3_600 - 1, "47 hours", "47 hours"),
        (2 * 3_600 - 1, "119 minutes", "119 minutes"),
        (119, "119 seconds", "119 seconds"),
        (0, "0 seconds", "0 seconds"),
    ],
)
def test_what_is_left_of_a_deadline_is_counted_in_its_own_unit(
    seconds: int, in_hours: str, in_days: str
) -> None:
    left_us = seconds * 1_000_000
    assert (Preferences().left(left_us), Preferences().left(left_us, "days")) == (in_hours, in_days)
    assert Preferences(locale="de_DE").left(72 * 3_600_000_000) == "72 Stunden"


async def test_a_form_outlives_the_end_of_its_session(listener: Listener, browser: Browser) -> None:
    await browser.sign_in()
    form = {"locale": "en_IN", "zone": "Europe/Zurich", "currency": "USD", "theme": "dark"}
    await browser.send("POST", "/sign-out", {})
    answer, page = await browser.send("POST", "/viewing", form)
    assert answer.status == 401
    assert "what you were sending is kept" in page

    kept = dict(re.findall(r'name="(carried[^"]*)" value="([^"]*)"', page))
    assert kept["carried.zone"] == "Europe/Zurich"
    answer, page = await browser.send("POST", "/sign-in", {"token": listener.token} | kept)
    assert answer.status == 200
    again = dict(re.findall(r'name="([^"]+)" value="([^"]*)"', page))
    assert {name: again[name] for name in form} == form
    assert set(again) == {*form, "csrf"}
    assert 'action="/viewing"' in page


@pytest.mark.parametrize(
    "path",
    [
        *("//evil.example/x", "https://evil.example", "/\\evil.example", "x", "", "/a\r\nb"),
        *("javascript:alert(1)", "\\\\evil.example", "/\tevil", " //evil.example"),
        # What the library that takes addresses apart does not even read.
        *("//[", "x://[", "//\u2100"),
    ],
)
def test_a_carried_form_leads_nowhere_else(path: str) -> None:
    assert not is_own_path(path)


@pytest.mark.parametrize("path", ["/", "/o/acme/keys?q=a//b", "/person/ü", "/.//x", "/[", "/a:b"])
def test_a_path_of_this_listener_leads_back_to_it(path: str) -> None:
    assert is_own_path(path)


def test_what_a_form_carries_comes_back_as_it_was() -> None:
    draft = Draft("/o/acme/policies?x=1", (("text", "a=1&b\n"), ("text", "again"), ("empty", "")))
    from urllib.parse import urlencode

    assert carried_in(urlencode(draft.hidden()).encode()) == draft


async def test_a_page_without_scripts_can_be_read_and_left(listener: Listener) -> None:
    await _person(listener, "ann", "viewer")
    async with window(listener, scripts=False) as seen:
        await seen.sign_in("ann", PASSWORD)
        assert await seen.page.inner_text("h1") == "Overview"
        await seen.page.click(".menu.right summary")
        await seen.page.click("text=Sign out")
        assert await seen.page.inner_text("h1") == "Sign in"


@pytest.mark.parametrize("scripts", [True, False])
async def test_something_is_found_from_every_page_with_scripts_and_without(
    listener: Listener, *, scripts: bool
) -> None:
    """Without scripts "Go to" was gone, and a hint at keys that did nothing stood there."""
    await listener.issue_key("payroll assistant")
    await _person(listener, "ann", "viewer")
    async with window(listener, scripts=scripts) as seen:
        await seen.sign_in("ann", PASSWORD)
        await seen.open("/o/acme/traffic")
        bar, foot = seen.page.locator(".bar"), seen.page.locator(".rail .foot")
        assert await bar.get_by_text("Go to …").is_visible() == scripts
        assert await foot.is_visible() == scripts
        find = bar.locator("noscript a, a.button").filter(has_text="Find")
        assert (await find.count() > 0 and await find.is_visible()) == (not scripts)
        if not scripts:
            await find.click()
            await seen.page.fill("main input[type=search]", "payroll")
            await seen.page.keyboard.press("Enter")
            await seen.page.wait_for_url("**/o/acme/find?*")
            assert "payroll assistant" in await seen.page.inner_text("main")
            assert await seen.faults() == []
        assert seen.problems == []


@pytest.mark.parametrize("locale", LOCALES)
def test_numbers_that_are_read_again_are_written_as_the_first_time_and_by_locale(
    locale: str,
) -> None:
    way, other = Preferences(locale=locale), Preferences(locale="de_CH", currency="EUR")

    for value in (0, 1, 1.5, 1.0, 1234567, 0.25, -42, 1234567):
        assert way.number(value) == format_decimal(value, locale=locale)
        assert other.number(value) == format_decimal(value, locale="de_CH")
    assert way.money(1_500_000) != other.money(1_500_000)
    assert way.money(1_500_000) == Preferences(locale=locale).money(1_500_000)


@pytest.mark.parametrize("path", ["/o/acme/traffic", "/o/acme/policies/organisation/history"])
async def test_what_stands_around_a_page_is_asked_for_once(
    listener: Listener, browser: Browser, path: str
) -> None:
    await listener.issue_key("a key")
    await browser.sign_in()
    asked: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        asked.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    answer, _ = await browser.send("GET", path)
    event.remove(Engine, "before_cursor_execute", note)

    assert answer.status == 200
    assert sum("FROM audit_checkpoints" in each for each in asked) == 1


async def test_a_page_that_is_not_shown_leads_on_to_the_rooms_that_are_open(
    listener: Listener, browser: Browser
) -> None:
    await listener.issue_key("assistant")
    _, page = await browser.send("GET", "/o/acme/keys/nobodys")
    assert 'aria-label="Rooms"' not in page
    await seeding.person(listener, "vera", "viewer", "acme")
    await browser.sign_in_as("vera", seeding.PASSWORD)
    await browser.send("GET", "/o/acme/keys")
    for path, status in (("/o/acme/keys/nobodys", 404), ("/system", 403)):
        answer, page = await browser.send("GET", path)
        ways = re.findall(r'<li><a href="([^"]*)">', page)
        assert answer.status == status
        assert ways[:3] == ["/", "/o/acme/traffic", "/o/acme/policies"], path
        assert not {"/system", "/o/acme/compliance"} & {*ways}, path


@pytest.mark.parametrize("width", [390, 820])
async def test_on_a_narrow_window_every_room_and_every_screen_of_it_can_be_reached(
    listener: Listener, width: int
) -> None:
    await _person(listener, "root", "platform_admin")
    async with window(listener, scripts=False, width=width) as seen:
        await seen.sign_in("root", PASSWORD)
        await seen.open("/system/sinks")
        links = await seen.page.locator(".rail nav a").all()
        boxes = {}
        for each in links:
            boxes[await each.inner_text()] = await each.bounding_box()

    assert {"Overview", "System", "Workers", "Gone workers", "Configuration"} <= boxes.keys()
    for name, box in boxes.items():
        assert box is not None, name
        assert box["x"] >= 0, name
        assert box["x"] + box["width"] <= width, name


@pytest.mark.parametrize(
    ("days", "said"),
    [(1, "1 day"), (6, "6 days"), (7, "7 days"), (26, "26 days"), (30, "30 days"), (60, "60 days")],
)
def test_a_span_of_up_to_two_months_is_said_in_days(days: int, said: str) -> None:
    assert Preferences().span(days * DAY_US) == said
    assert Preferences().span(400 * DAY_US) == "1 year"
    assert Preferences(locale="de_CH").span(30 * DAY_US) == "30 Tage"


def test_the_last_day_of_what_ends_at_midnight_is_the_day_before_by_its_own_calendar() -> None:
    """It was shown to run until midnight of the day after, and a reader gave it a day too much."""
    end_us = 1_803_859_200_000_000
    assert "Feb 28, 2027" in Preferences(zone="Asia/Tokyo").last_day(end_us, "UTC")
    assert "Mar 1, 2027" in Preferences().last_day(end_us + 1_000_000, "UTC")
    assert "Mar 1, 2027" in Preferences(zone="Asia/Tokyo").first_day(end_us, "UTC")
    assert "12:00:01" in Preferences().first_day(end_us + 1_000_000, "UTC")
    kolkata_us = end_us - 19_800_000_000
    assert "Feb 28, 2027" in Preferences().last_day(kolkata_us, "Asia/Kolkata")
