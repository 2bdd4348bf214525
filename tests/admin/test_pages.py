"""What the pages show: real rows of a real database, and never markup that came from one."""

import re

import pytest

from gateway.store.migrate import migrate
from gateway.types import AuditRecord
from tests.admin.listener import Browser, Listener


pytestmark = pytest.mark.anyio

MARKUP = "<script>alert(1)</script>"
QUOTED = '"><img src=x onerror=alert(1)>'


def _outcome(number: int, **changes: object) -> AuditRecord:
    fields: dict[str, object] = {
        "stage": "outcome",
        "request_id": f"req_{number}",
        "organisation": "acme",
        "utc_us": 1_800_000_000_000_000 + number * 1_000_000,
        "model_requested": "auto",
        "target": "house",
        "jurisdiction": "in-house",
        "data_class": "S3",
        "findings": {"CREDIT_CARD": 2},
        "status": "ok",
        "http_status": 200,
        "cost_microusd": 1_234_567,
    }
    return AuditRecord(**(fields | changes))  # type: ignore[arg-type]


async def _overview(browser: Browser) -> str:
    await browser.sign_in()
    answer, page = await browser.send("GET", "/")
    assert answer.status == 200
    assert answer.content_type == "text/html"
    return page


async def test_an_empty_installation_says_that_it_is_empty(browser: Browser) -> None:
    page = await _overview(browser)

    assert "Nothing has been asked yet." in page
    assert "No key has been issued." in page
    assert "No account is limited." in page


async def test_targets_stand_with_their_jurisdiction_and_why_they_cannot_be_called(
    browser: Browser,
) -> None:
    page = await _overview(browser)

    house, claude = re.findall(r"<tr><td>(?:house|claude)</td>.*?</tr>", page, re.DOTALL)
    assert "in-house" in house
    assert "configured" in house
    assert "unavailable: no credential" in claude


async def test_keys_stand_with_their_place_and_whether_they_live(
    listener: Listener, browser: Browser
) -> None:
    live = await listener.issue_key("payroll assistant")
    ended = await listener.issue_key("old one")
    await listener.revoke_key(ended)
    page = await _overview(browser)

    rows = {key: row for row in page.split("<tr>") for key in (live, ended) if key in row}
    assert "payroll assistant" in rows[live]
    assert "acme/research/assistant" in rows[live]
    assert ">live<" in rows[live]
    assert ">ended<" in rows[ended]


async def test_budgets_stand_in_dollars(listener: Listener, browser: Browser) -> None:
    await listener.limit("org:acme", 2_500_000)
    page = await _overview(browser)

    row = page[page.index("org:acme") :]
    assert row.index("$2.50") < row.index("</tr>")


async def test_the_latest_requests_stand_newest_first_with_what_was_found(
    listener: Listener, browser: Browser
) -> None:
    refused = _outcome(2, status="refused", http_status=403, target="", cost_microusd=0)
    await listener.record(_outcome(1), refused)
    page = await _overview(browser)

    assert page.index("req_2") < page.index("req_1")
    served = page[page.index("req_1") :]
    for text in (
        "2027-01-15T08:00:01.000Z",
        "Jan 15, 2027",
        "house",
        "S3",
        "CREDIT_CARD (2)",
        "ok 200",
        "$1.23",
    ):
        assert text in served
    assert "refused 403" in page


async def test_only_the_last_fifty_requests_are_shown(listener: Listener, browser: Browser) -> None:
    await listener.record(*(_outcome(number) for number in range(60)))
    page = await _overview(browser)

    shown = set(re.findall(r"req_\d+", page))
    assert shown == {f"req_{number}" for number in range(10, 60)}


@pytest.mark.parametrize("hostile", [MARKUP, QUOTED])
async def test_markup_in_names_is_shown_as_text(
    listener: Listener, browser: Browser, hostile: str
) -> None:
    await listener.issue_key(hostile)
    await listener.record(
        _outcome(
            1,
            request_id=hostile,
            model_requested=hostile,
            target=hostile,
            jurisdiction=hostile,
            organisation=hostile,
            findings={hostile: 1},
            status=hostile,
        )
    )
    page = await _overview(browser)

    assert hostile not in page
    assert "<script>" not in page
    assert "<img" not in page
    assert page.count("&lt;") >= 6


async def test_pages_hold_no_inline_script_and_no_inline_style(browser: Browser) -> None:
    _, sign_in = await browser.send("GET", "/sign-in")
    for page in (sign_in, await _overview(browser)):
        assert re.search(r"<script(?! type=\"module\" src=)|\sstyle=|\son[a-z]+=", page) is None


@pytest.mark.parametrize("path", ["/", "/sign-in", "/viewing", "/health/ready"])
async def test_head_answers_like_get_without_a_body(browser: Browser, path: str) -> None:
    await browser.sign_in()
    full, body = await browser.send("GET", path)
    head, nothing = await browser.send("HEAD", path)

    assert head.status == full.status == 200
    assert head.content_type == full.content_type
    assert body
    assert nothing == ""


async def test_an_unknown_page_is_a_404_in_our_own_words(browser: Browser) -> None:
    answer, page = await browser.send("GET", "/nothing/here")

    assert answer.status == 404
    assert "There is no such page." in page
    assert 'href="/"' in page


async def test_a_method_that_a_page_does_not_take_is_a_405(browser: Browser) -> None:
    answer, page = await browser.send("DELETE", "/sign-in")

    assert answer.status == 405
    assert "This page does not take that." in page


async def test_a_database_that_does_not_answer_is_said_and_reported_as_not_ready(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    await migrate(listener.settings.database_url, "base")
    answer, page = await browser.send("GET", "/")
    ready, _ = await browser.send("GET", "/health/ready")

    assert answer.status == ready.status == 503
    assert "The database does not answer." in page
