"""The room of cost: sums are those of the records, limits are set with what they do said first."""

import csv
import html
import io
import re
from datetime import date
from html import unescape
from urllib.parse import urlencode

import msgspec
import pytest

from admin.costs import reader
from admin.costs.limits import Standing
from gateway.money.budgets import BudgetKey
from gateway.money.rates import RateLimit
from gateway.store.money.alerts import AlertTable
from gateway.store.money.leases import LeaseTable
from gateway.store.money.rate_limits import RateLimitTable
from gateway.store.money.slices import Claim, LeaseHolder
from gateway.store.policies.documents import PolicyStore
from policies.text.loading import load_document
from tests.admin.listener import ON_BOTH, Browser, Listener
from tests.admin.seeding import DAY_US, HOSTILE, PASSWORD, issue, limit, person, requests


pytestmark = pytest.mark.anyio
ROOM = "/o/acme/costs"
POLICY = """
name = "house rules"
version = 1
[[preferences]]
name = "all"
order = ["cheapest"]
"""
CHANGE = f"{ROOM}/limits/change"


@pytest.fixture
async def admin(listener: Listener, browser: Browser) -> Browser:
    """A platform admin, two projects with traffic, and another organisation."""
    first = await issue(listener, "payroll assistant", workspace="people", project="payroll")
    second = await issue(listener, "chat bot")
    theirs = await issue(listener, "theirs", organisation="umbrella")
    place = {"workspace": "people", "project": "payroll"}
    await listener.record(
        *requests(listener, first, 40, over_us=5 * DAY_US, **place),
        *requests(listener, second, 25, over_us=3 * DAY_US),
        *requests(listener, theirs, 9, organisation="umbrella"),
    )
    await person(listener, "root", "platform_admin")
    await browser.sign_in_as("root", PASSWORD)
    return browser


async def see(browser: Browser, path: str, status: int = 200) -> str:
    answer, page = await browser.send("GET", path)
    assert answer.status == status, (path, answer.status, page[-800:])
    return page


async def summary(browser: Browser, query: str = "") -> dict[str, object]:
    found: dict[str, object] = msgspec.json.decode(
        await see(browser, f"/api/organisations/acme/costs/summary{query}")
    )
    return found


async def spend(listener: Listener, account: str, window: str, microusd: int) -> None:
    """What a worker would report as spent, and hold a dollar more."""
    key = BudgetKey(account, window)  # type: ignore[arg-type]
    holder = LeaseHolder("w0", "run")
    async with listener.database() as database:
        table = LeaseTable(database, listener.clock)
        wanted = microusd + 1_000_000
        (grant,) = await table.exchange(holder, [Claim(key, -1, 0, 0, 0, wanted_microusd=wanted)])
        start, amount = grant.window_start_us, grant.amount_microusd
        await table.exchange(holder, [Claim(key, start, amount, microusd, 0)])


async def limits(browser: Browser) -> dict[str, list[int]]:
    """Limits by account, as the API has them."""
    branches = msgspec.json.decode(await see(browser, "/api/organisations/acme/limits"))
    found = branches["branches"]
    return {b["account"]: [s["limit_microusd"] for s in b["spendings"]] for b in found}


@ON_BOTH
async def test_groups_are_the_sums_of_the_records_whatever_they_are_grouped_by(
    listener: Listener, admin: Browser
) -> None:
    """The plain report reads every record; the page reads what was added up."""
    plain = {"team": "workspace", "model": "target", "route": "jurisdiction", "day": "day"}
    plain |= {"app": "app", "policy": "policy"}
    days = "since=2026-12-01&until=2027-01-31"
    for by, dimension in plain.items():
        found = await summary(admin, f"?by={by}&{days}")
        report = msgspec.json.decode(
            await see(admin, f"/api/organisations/acme/costs?by={dimension}&{days}")
        )
        names = ("requests", "input_tokens", "output_tokens", "cost_microusd")
        groups: list[dict[str, object]] = found["groups"]  # type: ignore[assignment]
        assert {(g["value"], *(g[n] for n in names)) for g in groups} == {
            (r[dimension], *(r[n] for n in names)) for r in report["rows"]
        }
        assert sum(g["requests"] for g in groups) == 65  # type: ignore[misc]


@ON_BOTH
async def test_each_group_stands_beside_as_many_days_before_and_leads_to_its_requests(
    listener: Listener, admin: Browser
) -> None:
    """What grew, and by how much: without it a sum says nothing."""
    by_day = await summary(admin, "?by=day&since=2026-12-01&until=2027-01-31")
    days = [day["value"] for day in by_day["groups"]]  # type: ignore[attr-defined]
    since, until = days[-2], days[-1]
    for by in ("team", "app", "key", "model", "route", "provider"):
        now = await summary(admin, f"?by={by}&since={since}&until={until}")
        before: list[str] = now["before"]  # type: ignore[assignment]
        was = await summary(admin, f"?by={by}&since={before[0]}&until={before[1]}")
        costs = {each["value"]: each["cost_microusd"] for each in was["groups"]}  # type: ignore[attr-defined]
        groups: list[dict[str, object]] = now["groups"]  # type: ignore[assignment]
        assert {g["value"]: g["before_microusd"] for g in groups} == {
            g["value"]: costs.get(g["value"], 0) for g in groups
        }
        assert now["total"]["before_microusd"] == was["total"]["cost_microusd"]  # type: ignore[index]
        assert any(costs.values())
        for group in groups:
            if not group["value"]:
                assert not group["traffic"], "refused before there was one: no filter finds it"
                continue
            path = f"/api/organisations/acme/traffic?{urlencode({'q': group['traffic']})}"
            found = msgspec.json.decode(await see(admin, path))
            assert len(found["rows"]) == group["requests"], group
    assert {day["before_microusd"] for day in by_day["groups"]} == {None}  # type: ignore[attr-defined]
    assert ">requests</a>" in await see(admin, f"{ROOM}?by=team")
    before = (await summary(admin, f"?by=team&since={since}&until={until}"))["before"]  # type: ignore[assignment]
    first, last = (date.fromisoformat(day) for day in before)
    told = " to ".join(f"{day:%b} {day.day}, {day.year}" for day in (first, last))
    page = await see(admin, f"{ROOM}?by=team&since={since}&until={until}")
    assert f"the same number of days just before, {told}." in page
    page = await see(admin, f"{ROOM}?by=day&since={since}&until={until}")
    day = date.fromisoformat(until)
    assert f'<td class="cut">{day:%b} {day.day}, {day.year}</td>' in page


async def test_the_tree_of_limits_calls_teams_what_all_pages_call_them(admin: Browser) -> None:
    page = await see(admin, f"{ROOM}/limits")
    assert '<span class="small soft">team' in page
    assert '<span class="small soft">workspace' not in page


async def test_the_page_and_its_csv_show_the_same_and_nothing_of_others(
    listener: Listener, admin: Browser
) -> None:
    await issue(listener, '=HYPERLINK("x")', project="odd")
    page = await see(admin, f"{ROOM}?by=key")
    text = await see(admin, f"{ROOM}/export.csv?by=key")
    rows = list(csv.reader(io.StringIO(text)))
    assert rows[0][:3] == ["key", "name", "requests"]
    for row in rows[1:]:
        assert row[1] in page
    assert {row[1] for row in rows[1:]} == {"payroll assistant", "chat bot"}
    assert "theirs" not in page + text
    await see(admin, f"{ROOM}/export.csv?by=password", 400)
    await see(admin, "/o/umbrella/costs/export.csv?by=key&since=soon", 400)


async def test_the_file_holds_what_was_recorded_since_a_page_was_read(
    listener: Listener, admin: Browser
) -> None:
    """Also where nobody reads the page: a program fetches the file each month."""
    key = await issue(listener, "late")
    await listener.record(*requests(listener, key, 3))
    text = await see(admin, f"{ROOM}/export.csv?by=key&since=2026-12-01")
    counted = {row[1]: row[2] for row in csv.reader(io.StringIO(text))}
    assert counted == {
        "name": "requests",
        "payroll assistant": "40",
        "chat bot": "25",
        "late": "3",
    }


@pytest.mark.parametrize(
    "query",
    [
        *("by=password", "since=soon", "since=2026-01-01&until=2025-01-01"),
        *("since=9999-12-31&until=9999-12-31", "since=0001-01-01&until=0001-01-02"),
    ],
)
async def test_a_question_that_makes_no_sense_is_said_on_the_page(
    admin: Browser, query: str
) -> None:
    page = await see(admin, f"{ROOM}?{query}", 400)
    assert "Spent this month" in page
    assert 'role="alert"' in page


async def test_savings_unpriced_usage_alerts_and_tight_limits_are_said(
    listener: Listener, admin: Browser
) -> None:
    before = await summary(admin)
    await limit(listener, "org:acme", 10_000_000, "month")
    await spend(listener, "org:acme", "month", 8_500_000)
    key = await issue(listener, "tight one")
    for account in (f"key:{key}", "ws:acme/people", "user:acme/*"):
        await limit(listener, account, 10_000_000, "month")
        if "user" not in account:
            await spend(listener, account, "month", 8_500_000)
    async with listener.database() as database:
        alerts = AlertTable(database, listener.clock)
        budgets = await LeaseTable(database, listener.clock).budgets()
        due = await alerts.claim(budgets, (80,))
        for each in due:
            await alerts.sent(each)
    free = requests(listener, "k", 1, status="ok", target="claude", cost_microusd=0)
    await listener.record(*free)
    after = await summary(admin)
    page = await see(admin, ROOM)

    assert before["unpriced"] == []
    assert before["tight"] == []
    savings: dict[str, object] = after["savings"]  # type: ignore[assignment]
    # The page has the day as it has days.
    method, _, rest = str(savings["method"]).partition("(as of ")
    assert method + "(as of " in page
    assert rest.partition(")")[2] in page
    assert after["unpriced"] == [{"target": "claude", "requests": 1}]
    tight = {each["account"] for each in after["tight"]}  # type: ignore[attr-defined]
    assert tight == {"org:acme", "ws:acme/people", f"key:{key}"}
    assert [each["percent"] for each in after["alerts"]] == [80] * 3  # type: ignore[attr-defined]
    assert "Some answers were recorded at no cost" in page
    assert '<a href="/o/acme/traffic?q=target%3Aclaude">claude</a>: 1 request.' in page
    for name in ("all of acme", "team people", "key tight one"):
        assert f"{name}: 80%" in page
        assert f">{name}</a>" in page


async def test_a_change_of_a_limit_says_what_it_does_before_it_does_it(
    listener: Listener, admin: Browser
) -> None:
    await limit(listener, "org:acme", 50_000_000, "month")
    await spend(listener, "org:acme", "month", 20_000_000)
    low = await see(admin, f"{CHANGE}?account=org:acme&window=month&limit_microusd=20")
    high = await see(admin, f"{CHANGE}?account=org:acme&window=month&limit_microusd=70.50")

    assert "within a second every request is refused" in low
    assert "$20.50 more than now" in high
    assert (await limits(admin))["org:acme"] == [50_000_000]
    form = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', high))
    assert form.pop("deed") == "remove", "of the form below that removes the limit"
    answer, _ = await admin.send("POST", CHANGE, form)
    assert answer.status == 303
    assert (await limits(admin))["org:acme"] == [70_500_000]


@ON_BOTH
async def test_two_people_who_change_one_limit_do_not_overwrite_each_other(
    listener: Listener, admin: Browser
) -> None:
    await limit(listener, "org:acme", 50_000_000, "month")
    form = {"account": "org:acme", "window": "month", "limit_microusd": "60", "was": "50000000"}
    await admin.send("POST", CHANGE, form)
    answer, page = await admin.send("POST", CHANGE, form | {"limit_microusd": "99"})
    assert answer.status == 409
    assert "Somebody else changed it meanwhile" in page
    assert "$60.00" in page
    assert 'value="99"' in page
    removal = {"account": "org:acme", "window": "month", "deed": "remove"}
    answer, _ = await admin.send("POST", CHANGE, removal | {"was": "50000000"})
    assert (answer.status, (await limits(admin))["org:acme"]) == (409, [60_000_000])
    answer, _ = await admin.send("POST", CHANGE, removal | {"was": "60000000"})
    assert (answer.status, (await limits(admin))["org:acme"]) == (303, [])


async def test_what_was_seen_of_a_limit_is_asked_for_again_where_it_is_written(
    listener: Listener, admin: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when two send at once: both were let through before either had written."""
    monkeypatch.setattr(Standing, "was", property(lambda _: "50000000"))
    monkeypatch.setattr(Standing, "rate_was", property(lambda _: "none"))
    await limit(listener, "org:acme", 60_000_000, "month")
    form = {"account": "org:acme", "window": "month", "limit_microusd": "99", "was": "50000000"}
    for each in (form, form | {"deed": "remove"}):
        answer, page = await admin.send("POST", CHANGE, each)
        assert (answer.status, "Somebody else changed it meanwhile" in page) == (409, True)
    assert (await limits(admin))["org:acme"] == [60_000_000]
    rate = {"account": "org:acme", "was": "none", "requests_per_minute": "60"}
    assert (await admin.send("POST", f"{ROOM}/limits/rate", rate))[0].status == 303
    for number in ("7", ""):
        form = rate | {"requests_per_minute": number}
        answer, page = await admin.send("POST", f"{ROOM}/limits/rate", form)
        assert (answer.status, "Somebody else changed it meanwhile" in page) == (409, True)
    async with listener.database() as database:
        assert [each.requests_per_minute for each in await RateLimitTable(database).all()] == [60]


async def test_rates_are_set_and_removed_and_keep_apart_what_two_people_type(
    listener: Listener, admin: Browser
) -> None:
    path = f"{ROOM}/limits/rate"
    page = await see(admin, f"{path}?account=ws:acme/people")
    assert re.search(r"busiest hour of the last day it sent \d+ requests", page)
    form = {"account": "ws:acme/people", "was": "none", "requests_per_minute": "60"}
    answer, _ = await admin.send("POST", path, form)
    assert answer.status == 303
    answer, page = await admin.send("POST", path, form | {"requests_per_minute": "7"})
    assert answer.status == 409
    assert 'value="7"' in page
    answer, page = await admin.send("POST", path, form | {"tokens_per_minute": "many"})
    assert answer.status == 400
    async with listener.database() as database:
        (rate,) = await RateLimitTable(database).all()
    assert rate.requests_per_minute == 60
    page = await see(admin, f"{path}?account=ws:acme/people")
    was = re.search(r'name="was" value="([^"]*)"', page)
    assert was is not None
    answer, _ = await admin.send("POST", path, {"account": "ws:acme/people", "was": was[1]})
    assert answer.status == 303
    async with listener.database() as database:
        assert await RateLimitTable(database).all() == []


@pytest.mark.parametrize("account", ["org:umbrella", "key:nothere00000", "ws:acme", "", "x" * 300])
async def test_accounts_of_others_are_not_there(admin: Browser, account: str) -> None:
    await see(admin, f"{CHANGE}?account={account}", 404)
    form = {"account": account, "window": "month", "limit_microusd": "1", "was": "none"}
    assert (await admin.send("POST", CHANGE, form))[0].status == 404
    body = msgspec.json.encode({"account": account, "limit_microusd": 1}).decode()
    answer, _ = await admin.send("POST", "/api/organisations/acme/budgets", body=body)
    assert answer.status == 404


async def test_requests_of_each_end_user_are_not_said_to_be_none(admin: Browser) -> None:
    """Sums are of keys: nobody counts what end users ask for."""
    await see(admin, ROOM)  # Adds up what was recorded.
    asked = f"{CHANGE}?window=month&limit_microusd=1&account="
    page = await see(admin, f"{asked}org:acme")
    assert re.search(r"[1-9][0-9]* requests of the last day were charged to it", page)
    page = await see(admin, f"{asked}user:acme/*")
    assert ("charged to it" in page, "Requests in progress are not interrupted" in page) == (
        False,
        True,
    )
    page = await see(admin, f"{ROOM}/limits/rate?account=user:acme/*")
    assert ("busiest hour" in page, "are refused with 429" in page) == (False, True)


@ON_BOTH
async def test_a_new_limit_stands_beside_what_the_account_costs(
    listener: Listener, admin: Browser
) -> None:
    """Nobody can choose an amount who does not see what is spent."""
    keys: list[dict[str, object]] = (await summary(admin, "?by=key"))["groups"]  # type: ignore[assignment]
    (key,) = [str(each["value"]) for each in keys if "payroll" in str(each["label"])]
    for by, account, value in (
        *(
            ("team", "ws:acme/people", "people"),
            ("app", "proj:acme/people/payroll", "people/payroll"),
        ),
        *(("key", f"key:{key}", key), ("route", "org:acme", "")),
    ):
        found = await summary(admin, f"?by={by}")
        groups = {g["value"]: g["cost_microusd"] for g in found["groups"]}  # type: ignore[attr-defined]
        cost = groups[value] if value else found["total"]["cost_microusd"]  # type: ignore[index]
        page = await see(admin, f"{CHANGE}?account={account}&window=month&limit_microusd=50")
        said = re.search(r"it cost <strong>[$]([0-9.]+)</strong> this month so far", page)
        assert said is not None, account
        assert float(said[1]) == pytest.approx(cost / 1e6, rel=0.01)
        assert f"the ${said[1]} spent so far this month do not count" in page
        assert "of a limit, but <strong>nobody is notified</strong>" in page
    assert "it cost" not in await see(admin, f"{CHANGE}?account=user:acme/*&window=month")
    assert "it cost" not in await see(admin, f"{CHANGE}?account=org:acme&window=total")
    assert "yesterday" in await see(admin, f"{CHANGE}?account=org:acme&window=day")


async def test_amounts_that_are_none_are_said_and_kept(admin: Browser) -> None:
    path = f"{CHANGE}?account=org:acme&window=month&limit_microusd="
    for typed in (
        *("-1", "1e99", "NaN", "a lot", "0.0000001", "9" * 40),
        *("12,50", "1,2500", "1.250,00", ",125", "1,,250"),
    ):
        page = await see(admin, f"{path}{typed}", 400)
        assert f'value="{typed}"' in page
        assert "What will happen" not in page
    for typed, meant in (
        *(("1,250.50", "1,250.50"), ("$1250.5", "1,250.50")),
        *(("1,00,000", "100,000.00"), ("1,234,567", "1,234,567.00")),
    ):
        assert f"Set ${meant} each month" in await see(admin, f"{path}{typed}"), typed


async def test_who_may_only_read_is_shown_no_way_to_change(
    listener: Listener, admin: Browser
) -> None:
    await person(listener, "vera", "viewer", "acme")
    await admin.send("POST", "/sign-out")
    await admin.sign_in_as("vera", PASSWORD)
    page = await see(admin, f"{ROOM}/limits")
    assert "payroll" in page
    assert "limits/change" not in page
    assert "People with the role <em>platform admin</em> in acme set limits" in page
    await see(admin, f"{CHANGE}?account=org:acme", 403)


async def test_hostile_names_are_text_in_every_table(listener: Listener, admin: Browser) -> None:
    key_id = ""
    for name in HOSTILE[:2]:
        key_id = await issue(listener, name)
        await limit(listener, f"key:{key_id}", 5, "day")
        await listener.record(*requests(listener, key_id, 2))
    for path in (f"{ROOM}?by=key", f"{ROOM}/limits", f"{CHANGE}?account=key:{key_id}"):
        page = await see(admin, path)
        assert "<script>alert" not in page
        assert "<img" not in page


async def test_a_page_shows_the_dearest_of_very_many_groups_and_says_how_many_lack(
    admin: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "the CSV file has all of them" not in await see(admin, f"{ROOM}?by=key")
    monkeypatch.setattr(reader, "GROUPS_SHOWN", 1)
    first = await see(admin, f"{ROOM}?by=key")
    assert "1–1 of 2; the CSV file has all of them" in first
    following = unescape(re.findall(r'href="([^"]+)" rel="next"', first)[0])
    second = await see(admin, following)
    assert "2–2 of 2" in second
    assert 'rel="next"' not in second
    assert "payroll assistant</a></td>" in first
    assert "chat bot</a></td>" in second
    assert "payroll assistant</a></td>" not in second
    file = await see(admin, f"{ROOM}/export.csv?by=key&from=1")
    assert ("payroll assistant" in file, "chat bot" in file) == (True, True)


async def test_policies_are_called_what_people_call_them_and_apps_by_their_team(
    listener: Listener, admin: Browser
) -> None:
    """Also in the file, where a project of another team has a line of its own."""
    store_clock = listener.clock
    document = load_document(POLICY)
    async with listener.database() as database:
        policies = PolicyStore(database, store_clock)
        drafted = await policies.draft("org:acme", document, "ann")
    key = await issue(listener, "same name", workspace="people", project="assistant")
    place = {"workspace": "people", "project": "assistant"}
    decided = {"policy_digest": document.digest}
    await listener.record(*requests(listener, key, 12, over_us=DAY_US, **place, **decided))

    found = await summary(admin, "?by=policy&since=2026-12-01&until=2027-01-31")
    groups: list[dict[str, object]] = found["groups"]  # type: ignore[assignment]
    names = {group["value"]: (group["label"], group["requests"]) for group in groups}
    assert names == {
        document.digest: (f"house rules: version {drafted.number} of org:acme", 12),
        "": ("", 65),
    }
    page = await see(admin, f"{ROOM}?by=policy")
    assert f"house rules: version {drafted.number} of org:acme" in page
    assert "not recorded at that time" in page
    text = await see(admin, f"{ROOM}/export.csv?by=app&since=2026-12-01")
    counted = {row[0]: row[2] for row in csv.reader(io.StringIO(text))}
    assert counted == {
        "app": "requests",
        "people/payroll": "40",
        "research/assistant": "25",
        "people/assistant": "12",
    }


async def test_the_api_overwrites_no_limit_that_was_changed_since_it_was_read(
    listener: Listener, admin: Browser
) -> None:
    async def send(path: str, **said: object) -> int:
        body = msgspec.json.encode({"account": "ws:acme/people"} | said).decode()
        answer, _ = await admin.send("POST", f"/api/organisations/acme/{path}", body=body)
        return answer.status

    async def standing() -> tuple[list[int], list[RateLimit]]:
        async with listener.database() as database:
            budgets = await LeaseTable(database, listener.clock).budgets()
            found = [each.limit.limit_microusd for each in budgets]
            return found, await RateLimitTable(database).all()

    assert await send("budgets", limit_microusd=5, was="none") == 204
    assert await send("budgets", limit_microusd=6, was="none") == 409
    assert await send("budgets", limit_microusd=6, was=5) == 204
    assert await send("budgets", limit_microusd=7, was=5) == 409
    assert await send("budgets/removed", was=5) == 409
    assert await send("rate_limits", tokens_per_minute=9, was="none") == 204
    assert await send("rate_limits", tokens_per_minute=8, was="none") == 409
    had = {"account": "ws:acme/people", "tokens_per_minute": 9}
    assert await send("rate_limits", was=had | {"tokens_per_minute": 8}) == 409
    rate = RateLimit("ws:acme/people", tokens_per_minute=9)
    assert await standing() == ([6], [rate])

    assert await send("rate_limits", token_per_minute=3) == 400, "misspelt, it would remove them"
    assert await send("budgets", limit_microusd=7, was="5") == 400
    assert await standing() == ([6], [rate])
    assert await send("budgets/removed", was=6) == 204
    assert await send("rate_limits", was=had) == 204
    assert await standing() == ([], [])
    assert await send("budgets", limit_microusd=7) == 204, "who did not look, as before"


async def test_last_month_is_one_press_away(admin: Browser) -> None:
    page = await see(admin, f"{ROOM}?by=project")
    (last,) = re.findall(r'href="([^"]+)">Last month<', page)
    assert last == f"{ROOM}?by=project&amp;since=2026-12-01&amp;until=2026-12-31"
    assert re.search(r'aria-current="true">Last month<', await see(admin, html.unescape(last)))
