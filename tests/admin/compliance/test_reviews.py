"""Reviews: due again and again, signed once per span, and said to be overdue when they are."""

import asyncio

import msgspec
import pytest

from admin.compliance.reviewing import SETTLED_US
from gateway.audit.projecting.projector import Projector
from gateway.clock import DAY_US
from gateway.store.custody.reviews import Review, ReviewStore, Signature
from gateway.store.evidence.sink import DatabaseAuditSink
from tests.admin import seeding
from tests.admin.chromium import window
from tests.admin.listener import Browser, Listener
from tests.admin.test_deeds import deeds


pytestmark = pytest.mark.anyio
ROOM = "/o/acme/compliance/reviews"
API = "/api/organisations/acme/compliance/reviews"
FORM = {"name": "PII outside", "room": "traffic", "q": "route:managed since:24h", "every_days": "1"}


@pytest.fixture
async def cora(listener: Listener, browser: Browser) -> Browser:
    key = await listener.issue_key("assistant")
    await seeding.person(listener, "cora", "compliance", "acme")
    await seeding.person(listener, "carl", "compliance", "acme")
    rows = seeding.requests(listener, key, 4, over_us=seeding.HOUR_US, status="ok", target="claude")
    rows += seeding.requests(
        listener, f"{key[:-1]}x", 3, over_us=seeding.HOUR_US, status="ok", jurisdiction="in-house"
    )
    await listener.record(*rows)
    await browser.sign_in_as("cora", seeding.PASSWORD)
    return browser


async def _made(cora: Browser, **form: str) -> str:
    answer, page = await cora.send("POST", f"{ROOM}/new", FORM | form)
    assert answer.status == 303, page
    return answer.headers["location"]


async def _detail(cora: Browser, path: str) -> dict[str, object]:
    _, text = await cora.send("GET", f"{API}/{path.rpartition('/')[2]}")
    found: dict[str, object] = msgspec.json.decode(text)
    return found


async def _sign(cora: Browser, path: str, comment: str = "") -> int:
    detail = await _detail(cora, path)
    form = {"since_us": str(detail["since_us"]), "until_us": str(detail["until_us"])}
    answer, _ = await cora.send("POST", f"{path}/sign", form | {"comment": comment})
    return answer.status


async def test_what_is_to_be_signed_names_the_keys_and_what_was_found(
    listener: Listener, cora: Browser
) -> None:
    key = await seeding.issue(listener, "payroll")
    await listener.record(*seeding.requests(listener, key, 1, findings={"IN_PAN": 3}, status="ok"))
    listener.clock.advance(61)
    _, page = await cora.send("GET", await _made(cora, q="pii:IN_PAN"))

    assert ">payroll</td>" in page
    assert "IN_PAN ×3" in page


async def test_a_review_of_what_nothing_can_be_found_as_is_not_made(cora: Browser) -> None:
    """It would say zero for ever, and somebody would sign that no personal data went out."""
    for unknown in ("pii:ANY", "pii:IBAN,E-MAIL", "-pii:none* route:managed"):
        answer, page = await cora.send("POST", f"{ROOM}/new", FORM | {"q": unknown})
        assert answer.status == 400, unknown
        assert "-pii:NONE is any of them" in page
    for known in ("pii:iban", "pii:in_*", "-pii:NONE", "pii:NONE,EMAIL"):
        await _made(cora, q=known)


async def test_a_review_is_due_at_once_and_signing_it_tells_who_saw_how_much_and_the_log(
    listener: Listener, cora: Browser
) -> None:
    listener.clock.advance(1)
    path = await _made(cora)
    detail = await _detail(cora, path)
    assert detail["line"]["review"]["filter"] == "route:managed"  # type: ignore[index]
    assert detail["line"]["state"] == "due"  # type: ignore[index]
    shown = int(str(detail["records"]))
    assert shown > 0
    _, page = await cora.send("GET", path)
    assert f"Sign off {shown} record" in page
    assert await _sign(cora, path, "three looked odd, asked the team") == 303

    _, page = await cora.send("GET", path)
    assert "three looked odd, asked the team" in page
    assert "Signed by cora until" in page
    record = (await deeds(listener))[-1]
    after = msgspec.json.decode(record.detail["after"])
    assert (record.action, record.actor) == ("review.signed", "cora")
    assert (after["records"], after["is_all"], after["filter"]) == (shown, True, "route:managed")
    assert after["until_us"] - after["since_us"] == DAY_US - SETTLED_US
    assert after["checkpoint_size"] == 0


async def test_what_is_due_stands_in_compliance_and_in_the_overview_until_it_is_signed(
    listener: Listener, cora: Browser
) -> None:
    path = await _made(cora)
    for page in ("/", "/o/acme/compliance", ROOM):
        assert "PII outside" in (await cora.send("GET", page))[1], page
    assert await _sign(cora, path) == 303
    for page in ("/", "/o/acme/compliance"):
        assert "PII outside" not in (await cora.send("GET", page))[1], page


async def test_overdue_is_said_with_the_periods_that_nobody_signed(
    listener: Listener, cora: Browser
) -> None:
    path = await _made(cora)
    assert await _sign(cora, path) == 303
    listener.clock.advance(3.5 * 86_400)
    await cora.sign_in_as("cora", seeding.PASSWORD)
    _, page = await cora.send("GET", path)
    said = " ".join(page.split())
    assert "Overdue for" in said
    assert "2 full periods have passed without a signature" in said
    _, home = await cora.send("GET", "/o/acme/compliance")
    assert "1 review is overdue" in home
    _, overview = await cora.send("GET", "/")
    assert "2 periods missed" in overview
    assert await _sign(cora, path) == 303
    _, page = await cora.send("GET", path)
    assert ">late</span>" in page.replace("\n", "")


async def test_spans_follow_each_other_without_a_gap_and_nobody_signs_one_twice(
    listener: Listener, cora: Browser
) -> None:
    path = await _made(cora)
    first = await _detail(cora, path)
    assert await _sign(cora, path) == 303
    form = {"since_us": str(first["since_us"]), "until_us": str(first["until_us"])}
    answer, page = await cora.send("POST", f"{path}/sign", form | {"comment": "mine, too"})
    assert answer.status == 409
    assert "meanwhile" in page
    assert "mine, too" in page
    assert "Sign off 0 records" not in page, "the span behind it is empty"
    assert "there is nothing to sign yet" in page
    listener.clock.advance(60)
    second = await _detail(cora, path)
    assert second["since_us"] == first["until_us"]
    form = {"since_us": str(second["since_us"]), "until_us": str(int(str(second["until_us"])) + 1)}
    answer, _ = await cora.send("POST", f"{path}/sign", form)
    assert answer.status == 400


async def test_who_signs_a_span_signs_for_no_request_behind_it(
    listener: Listener, cora: Browser
) -> None:
    """Nobody looked at what came after it, which is of the next span."""
    path = await _made(cora, q="status:ok")
    detail = await _detail(cora, path)
    assert detail["records"], "all of the last hour"
    until_us = listener.clock.utc_us() - 2 * seeding.HOUR_US
    form = {"since_us": str(detail["since_us"]), "until_us": str(until_us)}
    answer, _ = await cora.send("POST", f"{path}/sign", form)
    assert answer.status == 303
    after = await _detail(cora, path)
    assert [each["records"] for each in after["signatures"]] == [0]  # type: ignore[attr-defined]
    assert (after["since_us"], after["records"]) == (until_us, detail["records"])


async def test_of_two_who_sign_a_span_at_once_one_does(listener: Listener, cora: Browser) -> None:
    now_us = listener.clock.utc_us()
    review = Review(
        *("a" * 12, "acme", "x", "audit", "", 1, "cora", "cora", now_us, None, now_us - DAY_US)
    )
    async with listener.database() as database:
        store = ReviewStore(database, listener.clock)
        await store.make(review)
        signatures = [
            Signature(
                *(review.id, review.looked_until_us, now_us, now_us, name, 0, True, "", 0, "", 0)
            )
            for name in ("cora", "carl")
        ]
        done = await asyncio.gather(*map(store.sign, signatures))
        kept = await store.signatures(review)

    assert sorted(done) == [False, True]
    assert len(kept) == 1


async def test_a_stand_in_is_named_and_an_ended_review_is_due_no_more(
    listener: Listener, cora: Browser
) -> None:
    path = await _made(cora, responsible="carl")
    assert await _sign(cora, path) == 303
    _, page = await cora.send("GET", path)
    assert "as a stand-in" in page
    answer, _ = await cora.send("POST", f"{path}/end")
    assert answer.status == 303
    done = [(each.actor, each.action) for each in await deeds(listener)]
    assert ("cora", "review.ended") in done
    listener.clock.advance(5 * 86_400)
    await cora.sign_in_as("cora", seeding.PASSWORD)
    _, home = await cora.send("GET", "/o/acme/compliance")
    assert "PII outside" not in home
    assert await _sign(cora, path) == 409


async def test_a_review_of_the_audit_log_counts_deeds_about_the_organisation(
    listener: Listener, cora: Browser
) -> None:
    path = await _made(cora, room="audit", q="action:review.*")
    directory = listener.settings.path(listener.settings.audit.directory)
    async with listener.database() as database:
        await Projector(directory, DatabaseAuditSink(database, directory)).catch_up()
    listener.clock.advance(120)
    detail = await _detail(cora, path)

    assert detail["records"] == 1
    assert [row["action"] for row in detail["sample"]] == ["review.made"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"name": ""}, "a name has 1 to 80"),
        ({"every_days": "0"}, "every 1 to 366 days"),
        ({"every_days": "weekly"}, "not a whole number"),
        ({"responsible": "nobody"}, "nobody with that name may sign"),
        ({"q": "kind:nothing"}, "kind"),
        ({"room": "kitchen"}, "there is no such list"),
    ],
)
async def test_what_cannot_be_a_review_is_said_in_place(
    cora: Browser, form: dict[str, str], said: str
) -> None:
    answer, page = await cora.send("POST", f"{ROOM}/new", FORM | form)

    assert answer.status == 400
    assert said in page


async def test_who_may_not_sign_reads_and_signs_nothing(listener: Listener, cora: Browser) -> None:
    path = await _made(cora)
    await seeding.person(listener, "petra", "platform_admin")
    await cora.sign_in_as("petra", seeding.PASSWORD)
    _, page = await cora.send("GET", path)
    assert "Sign off" not in page
    for part in ("/sign", "/end"):
        answer, _ = await cora.send("POST", f"{path}{part}")
        assert answer.status == 403, part
    answer, _ = await cora.send("GET", f"{ROOM.replace('acme', 'umbrella')}")
    assert answer.status == 404


async def test_signatures_show_all_their_columns_on_a_screen_of_1280(
    listener: Listener, cora: Browser
) -> None:
    """How the log stood then was cut off behind the span and the comment."""
    path = await _made(cora)
    assert await _sign(cora, path, "Two went as surrogates, one left with a name in it") == 303
    async with window(listener) as seen:
        await seen.sign_in("cora", seeding.PASSWORD)
        await seen.open(path)
        table = seen.page.locator("main .scroll:has-text('Log then')")
        assert await table.evaluate("each => each.scrollWidth - each.clientWidth") <= 1
