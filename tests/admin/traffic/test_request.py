"""One request's story: sentence, every rule, attempts, bill, and the proof of its record."""

import html
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio import run_process
from msgspec.structs import replace

from admin.overview.health import is_failure
from admin.preferences import Preferences
from admin.traffic.bill import bill_of
from admin.traffic.error_words import MEANINGS, meaning_of
from admin.traffic.story import Story, bars_of
from admin.traffic.words import verdict_of
from gateway.audit.proving import offline
from gateway.errors import GatewrightError, StartupRefused
from gateway.money.catalogue import cost
from gateway.price import Price
from gateway.store.money.price_files import PriceFiles, PriceOrder, put_in_force
from gateway.store.policies.documents import PolicyStore
from gateway.types import Attempt, AuditRecord, Usage
from policies.text.loading import load_document
from tests.admin import seeding
from tests.admin.listener import Browser, Listener, browsing
from tests.admin.models.test_prices import file_of
from tests.admin.traffic.test_list import LIST
from tests.admin.traffic.world import NOW_US, Asked, World


pytestmark = pytest.mark.anyio


@pytest.fixture
async def world(listener: Listener, browser: Browser) -> World:
    listener.clock.advance((NOW_US - listener.clock.utc_us()) / 1e6 + 60)
    await browser.sign_in()
    made = World(listener)
    await made.open()
    return made


async def test_the_page_says_in_words_why_and_shows_every_rule_with_its_values(
    world: World, browser: Browser
) -> None:
    ids = await world.write(Asked(1, data_class="S3", findings={"CREDIT_CARD": 1}, content=b"x"))
    _, page = await browser.send("GET", f"{LIST}/{ids[0]}")
    assert "Answered by in-house in 1.2 s" in page
    assert page.count("<strong>cards-stay-home</strong> matched") == 2, "verdict and decision"
    assert "data_class &gt;= &#34;S3&#34;" in page
    assert page.count("✓ matched") == 3
    assert page.count("✗ did not match") == 1
    assert "hour_utc = 11" in page
    assert "length −0.12, reasoning 0.31, words 0.00" in page
    assert "same decision" in page
    assert "People with the role compliance in acme can request it." in page
    assert f"/o/acme/policies/simulator?request={ids[0]}" in page
    assert f"/o/acme/policies/new?from={ids[0]}" in page


async def test_a_request_leads_only_to_what_its_reader_may_do_with_it(
    listener: Listener, world: World
) -> None:
    ids = await world.write(Asked(1, data_class="S3", content=b"x"))
    await world.sign()
    await seeding.person(listener, "cora", "compliance")
    async with browsing(listener) as cora:
        await cora.sign_in_as("cora", seeding.PASSWORD)
        _, page = await cora.send("GET", f"{LIST}/{ids[0]}")
        assert "Request reveal" in page
        assert "Create rule from this" not in page
        (pack,) = re.findall(r'href="([^"]+)">Evidence pack of this day<', page)
        answer, wizard = await cora.send("GET", html.unescape(pack))
    assert answer.status == 200
    assert "2 records, number 1 to 2" in wizard
    assert 'name="policies" value="on"' in wizard


async def test_an_answer_without_a_decision_is_not_called_refused_and_offers_no_dead_end(
    listener: Listener, world: World, browser: Browser
) -> None:
    (record,) = seeding.requests(listener, "k", 1, status="ok", target="claude")
    await listener.record(record)
    answer, page = await browser.send("GET", f"{LIST}/{record.request_id}")
    assert answer.status == 200
    assert "it was refused" not in page
    assert "The record contains no decision" in page
    assert "/policies/new?from=" not in page
    assert "/policies/simulator?request=" not in page


async def test_a_request_that_there_is_not_says_where_to_look(
    world: World, browser: Browser
) -> None:
    answer, page = await browser.send("GET", f"{LIST}/req_%3Cb%3E")
    assert answer.status == 404
    assert "acme has no request with the id <code>req_&lt;b&gt;</code>" in page
    assert "x-request-id" in page
    assert f'action="{LIST}"' in page


async def test_a_request_leads_back_to_the_list_as_it_was_filtered(
    listener: Listener, world: World, browser: Browser
) -> None:
    (one,) = await world.write(Asked(1))
    filtered = f"{LIST}?q=route%3Amanaged+since%3A24h&state=%22%3E"
    for referer, back in (
        (f"{listener.url}{filtered}", filtered),
        (f"{listener.url}{LIST}", LIST),
        (f"{listener.url}/o/acme/audit?q=x", LIST),
        (f"http://elsewhere.example{filtered}", LIST),
        ("http://[", LIST),
        ("", LIST),
    ):
        _, page = await browser.send("GET", f"{LIST}/{one}", referer=referer)
        assert f'<a href="{html.escape(back)}">Requests</a>' in page, referer


async def test_the_page_names_what_of_a_request_was_not_read(
    world: World, browser: Browser
) -> None:
    unread: dict[str, Any] = {"inspection_complete": False, "data_class": "S4"}
    ids = await world.write(
        Asked(1, detail={"unread": "image, deadline"}, **unread), Asked(2, **unread)
    )
    pages = [(await browser.send("GET", f"{LIST}/{each}"))[1] for each in ids]
    said = "</strong> (not read: image, deadline), so it counts as the most sensitive."
    assert [said in page for page in pages] == [True, False]
    assert "<strong>Not complete</strong>, so it counts as the most sensitive." in pages[1]


async def test_the_page_names_what_was_paid_beside_the_answer(
    world: World, browser: Browser
) -> None:
    late = Attempt("house", 200, "hedged_away", 8_000, 90, cost_microusd=1_700, estimated=True)
    answer = Attempt("claude", 200, "", 9_000, 100, cost_microusd=3_730)
    usage = Usage(input_tokens=812, output_tokens=240, estimated=True)
    told = {"target": "claude", "usage": usage}
    ids = await world.write(Asked(1, attempts=(late, answer), outcome=told))
    _, page = await browser.send("GET", f"{LIST}/{ids[0]}")
    assert "house, also called: hedged_away" in page
    assert "(estimated)" in page
    assert "they are estimated" in page
    assert "Recorded" in page


async def test_the_page_says_what_upstreams_call_each_attempt(
    world: World, browser: Browser
) -> None:
    tried = (
        Attempt("claude", 529, "upstream_refused", 8_000, 90, upstream_ids=("req_late",)),
        Attempt("house", 0, "upstream_timeout", 9_000, 0),
        Attempt("azure", 200, "", 9_000, 100, upstream_ids=("982ef905", "eb2486b2")),
    )
    ids = await world.write(Asked(1, attempts=tried), Asked(2, attempts=tried[1:2]))
    pages = [(await browser.send("GET", f"{LIST}/{each}"))[1] for each in ids]
    assert "Attempt 1 at the upstream: <code>req_late</code>." in pages[0]
    assert "Attempt 3 at the upstream: <code>982ef905</code> and <code>eb2486b2</code>." in pages[0]
    assert pages[0].count(" at the upstream: ") == 2
    assert " at the upstream: " not in pages[1]


async def test_the_page_says_what_a_request_cost_beyond_its_reservation(
    world: World, browser: Browser
) -> None:
    """Record, event and metric told it; whoever looked at the request itself read nothing."""
    ids = await world.write(
        Asked(1, outcome={"detail": {"above_reserved_microusd": "123456789"}}),
        Asked(2, outcome={"target": "nowhere", "detail": {"above_reserved_microusd": "1500000"}}),
        Asked(3),
    )
    pages = [(await browser.send("GET", f"{LIST}/{each}"))[1] for each in ids]
    assert "$123.46 above its reservation" in pages[0]
    assert "That is $123.46 more than was reserved." in pages[0]
    assert "That is $1.50 more than was reserved." in pages[1], "without its parts"
    assert "reservation" not in pages[2]
    assert "more than was reserved" not in pages[2]


async def test_what_waited_says_by_which_policy_it_was_ruled_again(
    world: World, browser: Browser
) -> None:
    by, then = "5" * 64, "6" * 64
    ids = await world.write(
        Asked(1, outcome={"policy_digest": then, "detail": {"ruled_again": by}}),
        Asked(2, outcome={"policy_digest": by, "detail": {"ruled_again": by}}),
        Asked(3),
    )
    pages = [(await browser.send("GET", f"{LIST}/{each}"))[1] for each in ids]
    assert [
        page.count("decided again just before it was sent, under policy <code>555555555555<")
        for page in pages
    ] == [1, 1, 0]
    assert ["not the policy that first allowed it" in page for page in pages] == [
        True,
        False,
        False,
    ]


async def test_an_answer_that_was_given_again_says_whose_and_whether_it_was_waited_for(
    world: World, browser: Browser
) -> None:
    again = {"cache": "hit", "cache_of": "req_1", "cache_age_s": "12", "cache_saved_microusd": "9"}
    waited = again | {"cache_age_s": "0", "cache_waited_ms": "250"}
    details = (again, waited, again | {"cache": "like"})
    ids = await world.write(
        *(Asked(at, outcome={"detail": each}) for at, each in enumerate(details, start=1))
    )
    pages = [(await browser.send("GET", f"{LIST}/{each}"))[1] for each in ids]

    told = [
        re.sub("<[^>]+>", "", each.partition("No model was called: ")[2])[:99] for each in pages
    ]
    assert told[0].startswith("the same request had been answered 12 s before, as req_1.")
    assert told[1].startswith(
        "the same request was being answered, and this one waited 250 ms for the answer to req_1"
    )
    assert told[2].startswith("a very similar question had been answered 12 s before, as req_1.")


async def test_the_parts_of_a_cost_are_at_the_prices_in_force(
    world: World, browser: Browser
) -> None:
    """Also where they were put in force in the database, after this listener was started."""
    ids = await world.write(Asked(1, outcome={"target": "claude", "price_as_of": "2026-11-02"}))
    _, page = await browser.send("GET", f"{LIST}/{ids[0]}")
    assert "$123.46" not in page
    text = file_of(output_microusd_per_mtok=123_456_789, as_of="2026-11-02")
    async with world.listener.database() as database:
        number = await PriceFiles(database, world.listener.clock).add("a.toml", text, "petra")
        async with database.writing() as connection:
            await put_in_force(connection, PriceOrder(1, number, "anton", "agreed", NOW_US))
    _, page = await browser.send("GET", f"{LIST}/{ids[0]}")
    assert re.search(r"<td>Output</td><td[^>]*>240</td><td[^>]*>\$123.46</td>", page)
    assert "today's prices (of Nov 2, 2026)" in page


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (Asked(1, model_requested="nobody", data_class="S4"), "nothing was sent anywhere"),
        (Asked(2, status=""), "no outcome is recorded yet"),
        (Asked(3, status="cancelled"), "The caller disconnected after"),
        (Asked(4, status="incomplete", outcome={"error": "broken"}), "Broke off after"),
        (
            Asked(
                5,
                status="failed",
                outcome={"http_status": 502, "error": "upstream_error"},
                attempts=(Attempt("a", 503, "down", 10, 0), Attempt("b", 500, "down", 20, 0)),
            ),
            "and 2 attempts with “upstream_error” (HTTP 502)",
        ),
    ],
)
async def test_every_ending_has_its_sentence(
    world: World, browser: Browser, asked: Asked, said: str
) -> None:
    ids = await world.write(asked)
    answer, page = await browser.send("GET", f"{LIST}/{ids[0]}")
    assert answer.status == 200
    assert said in page


async def test_a_proof_holds_for_the_offline_verifier_and_only_for_the_exact_bytes(
    world: World, browser: Browser, tmp_path: Path
) -> None:
    ids = await world.write(*(Asked(n, ago_s=9 - n) for n in range(9)))
    path = "/api/organisations/acme/proofs/7"
    assert (await browser.send("GET", path))[0].status == 404
    await world.sign()
    answer, text = await browser.send("GET", path)
    assert answer.status == 200
    proof = json.loads(text)
    file = tmp_path / "proof.json"
    file.write_text(text)
    done = await run_process([sys.executable, offline.__file__, "--proof", str(file)], check=False)
    assert done.returncode == 0, done.stdout
    assert ids[3] in proof["record"]
    proof["record"] = proof["record"].replace("acme", "acne")
    with pytest.raises(offline.Wrong):
        offline.check_proof(proof, [])
    for absent in ("0", "-1", "999"):
        answer, _ = await browser.send("GET", f"/api/organisations/acme/proofs/{absent}")
        assert answer.status == 404
    _, page = await browser.send("GET", f"{LIST}/{ids[3]}")
    assert 'data-proof="/api/organisations/acme/proofs/7"' in page
    assert "18 records, signed" in page


def test_an_answer_from_the_response_cache_is_told_as_one() -> None:
    detail = {"cache_of": "req_1", "cache_age_s": "12", "cache_saved_microusd": "1500"}
    intent = AuditRecord(stage="intent", request_id="r", organisation="o", utc_us=1_000)
    outcome = AuditRecord(
        *("outcome", "r", "o", 2_000),
        status="ok",
        target="gpt",
        jurisdiction="us",
        duration_us=900,
        detail=detail,
    )
    story = Story("r", "o", intent, outcome, "", None, False, (), 0, None, (), "managed")

    said = verdict_of(story, Preferences())

    assert said.sentence == (
        "Answered from the response cache in 900 µs, with an answer of gpt (us), at no cost."
    )
    assert said.kind == "managed"


def test_the_spans_of_a_request_follow_each_other_and_fill_its_time() -> None:
    intent = AuditRecord(stage="intent", request_id="r", organisation="o", utc_us=1_000_300)
    outcome = AuditRecord(
        stage="outcome",
        request_id="r",
        organisation="o",
        utc_us=1_010_000,
        duration_us=10_000,
        attempts=(Attempt("a", 503, "down", 2_000, 0), Attempt("b", 200, "", 7_000, 3_000)),
    )
    bars = bars_of(intent, outcome)
    assert [(bar.kind, bar.start_us, bar.duration_us) for bar in bars] == [
        ("deciding", 0, 300),
        ("failed", 300, 2_000),
        ("waiting", 2_300, 3_000),
        ("answering", 5_300, 4_000),
        ("ending", 9_300, 700),
    ]
    assert bars_of(intent, None) == ()
    assert [bar.kind for bar in bars_of(None, outcome)] == ["deciding"]


def test_the_parts_of_a_bill_add_up_to_what_was_recorded_or_it_says_estimated() -> None:
    price = Price(3_000_000, 15_000_000, 300_000, 3_750_000, 6_000_000, 50, "a", "2026-11-01")
    usage = Usage(input_tokens=1000, output_tokens=200, cache_read_tokens=600)
    record = AuditRecord(
        stage="outcome",
        request_id="r",
        organisation="o",
        utc_us=1,
        usage=usage,
        cost_microusd=cost(price, usage),
        price_as_of="2026-11-01",
    )
    bill = bill_of(record, price)
    assert bill is not None
    assert bill.is_exact
    spent = sum(part.tokens * part.microusd_per_mtok for part in bill.parts)
    assert -(-spent // 10**6) == record.cost_microusd
    assert [part.tokens for part in bill.parts] == [400, 600, 200]
    assert bill.saved_microusd == 600 * 2_700_000 // 10**6
    searching = replace(price, web_search_microusd=10_000)
    used = replace(usage, web_searches=2)
    dearer = replace(record, usage=used, cost_microusd=cost(searching, used))
    searched = bill_of(dearer, searching)
    assert searched is not None
    assert searched.is_exact
    assert searched.searches * searched.search_microusd == 20_000
    bound = replace(usage, inference_geo="us")
    there = replace(price, us_percent=110)
    dearer = replace(record, usage=bound, cost_microusd=cost(there, bound))
    placed = bill_of(dearer, there)
    assert placed is not None
    assert (placed.place_percent, placed.percent, bill.place_percent) == (110, 100, 100)
    assert placed.is_exact
    later = Price(1, 1, 1, 1, 1, 50, "a", "2026-12-01")
    estimated = bill_of(record, later)
    assert estimated is not None
    assert not estimated.is_exact
    assert bill_of(record, None) is None


@pytest.mark.parametrize(
    ("tokens", "microusd_per_mtok", "said"),
    [
        (33, 20_000, "$0.00000066"),
        (36, 80_000, "$0.00000288"),
        (400, 3_000_000, "$0.001200"),
        (1_500_000, 3_000_000, "$4.50"),
        (0, 3_000_000, "$0.00"),
    ],
)
def test_a_part_of_a_bill_is_not_rounded(tokens: int, microusd_per_mtok: int, said: str) -> None:
    """Rounded down one by one, $0.00 and $0.000002 stood above a sum of $0.000004."""
    assert Preferences().price_of(tokens, microusd_per_mtok) == said


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("hedged_away", "another target answered first"),
        ("cascaded_away", "too long to be judged"),
        ("taken_over", "another worker"),
        ("client_gone", "the caller disconnected"),
        ("worker_stopped", "worker was stopped"),
    ],
)
def test_what_we_gave_up_is_no_failure_of_its_target(code: str, said: str) -> None:
    attempt = Attempt("gpt", 200, code, 7_000, 90)
    record = AuditRecord(
        stage="outcome", request_id="r", organisation="o", utc_us=9_000, attempts=(attempt,)
    )
    bars = bars_of(replace(record, stage="intent"), record)
    (bar,) = [each for each in bars if "Attempt 1" in each.name]
    assert said in bar.name
    assert (bar.kind, "failed" in bar.name) == ("waiting", False)
    assert not is_failure(attempt)
    assert is_failure(replace(attempt, error="upstream_failed"))


def test_what_was_paid_beside_an_answer_stands_beside_its_parts() -> None:
    price = Price(3_000_000, 15_000_000, 300_000, 3_750_000, 6_000_000, 50, "a", "2026-11-01")
    usage = Usage(input_tokens=1000, output_tokens=200)
    answer = Attempt("gpt", 200, "", 9_000, 100, cost_microusd=cost(price, usage))
    failed = Attempt("gpt", 200, "upstream_failed", 7_000, 90, cost_microusd=40, estimated=True)
    late = Attempt("claude", 200, "hedged_away", 8_000, 90, cost_microusd=700)
    free = Attempt("house", 503, "upstream_refused", 80, 70)
    record = AuditRecord(
        stage="outcome",
        request_id="r",
        organisation="o",
        utc_us=1,
        target="gpt",
        usage=usage,
        attempts=(failed, free, answer, late),
        cost_microusd=answer.cost_microusd + 740,
        price_as_of="2026-11-01",
    )
    bill = bill_of(record, price)
    assert bill is not None
    assert bill.is_exact
    assert bill.others == (failed, late)
    silent = replace(record, attempts=(Attempt("gpt", 200, "", 9_000, 100),))
    unknown = bill_of(silent, price)
    assert unknown is not None
    assert (unknown.is_exact, unknown.others) == (False, ())


async def test_a_request_says_how_what_was_found_in_it_was_sent(
    world: World, browser: Browser
) -> None:
    attempts = (Attempt("managed-mid", 200, "", 1, 2),)
    plain = Asked(1, findings={"PHONE": 1}, attempts=attempts)
    unsent = Asked(2, findings={"PHONE": 1}, outcome={"attempts": ()})
    nothing = Asked(3, attempts=attempts)
    ids = await world.write(plain, unsent, nothing)
    world.document = load_document(
        "name = 'acme'\nversion = 1\n[[constraints]]\nname = 'veiled'\npseudonymise = true\n"
        "scan_output = 'mask'\nno_cache = true\naudit_content = 'redacted'\n"
    )
    async with world.listener.database() as database:
        await PolicyStore(database, world.listener.clock).keep(world.document)
    ids += await world.write(Asked(4, findings={"PHONE": 1}, attempts=attempts))
    pages = [(await browser.send("GET", f"{LIST}/{each}"))[1] for each in ids]
    said = [re.findall(r"Findings were sent ([a-z ]+)\.", page) for page in pages]
    assert said == [["as written"], [], [], ["as surrogates"]]
    assert "and sensitive values were redacted." in pages[3]
    assert "The response cache was neither read nor written." in pages[3]
    assert "kept with findings redacted" in pages[3]
    _, peek = await browser.send("GET", f"{LIST}/{ids[3]}", hx_request="true", hx_target="a#peek")
    assert "sent as surrogates" in peek


def _codes(kind: type[GatewrightError] = GatewrightError) -> Iterator[str]:
    yield kind.code
    for each in kind.__subclasses__():
        yield from () if issubclass(each, StartupRefused) else _codes(each)


def test_every_error_of_the_api_is_said_in_words_that_help() -> None:
    of_admin_alone = {"conflict", "permission_denied"}
    assert set(MEANINGS) == {*_codes()} - of_admin_alone
    assert [said for said in MEANINGS.values() if not said.endswith(".")] == []
    assert meaning_of("") == meaning_of("a vendor's own") == ""


async def test_a_refusal_says_which_error_it_was_and_not_that_it_was_sent(
    world: World, browser: Browser
) -> None:
    """Of 429 nobody saw whether to wait or to raise a budget, and it was said to be sent."""
    quota = {"http_status": 429, "error": "insufficient_quota"}
    ids = await world.write(Asked(1, status="refused", outcome=quota))
    _, page = await browser.send("GET", f"{LIST}/{ids[0]}")
    verdict = page[page.index("Refused after") :].partition("</div>")[0]
    assert "with “insufficient_quota” (HTTP 429): nothing was sent anywhere." in verdict
    assert "exceeded a budget" in verdict
    assert "Sent to" not in verdict
    _, text = await browser.send("GET", f"/api/organisations/acme/traffic/{ids[0]}")
    told = json.loads(text)
    assert told["meaning"] == MEANINGS["insufficient_quota"]
    assert told["reason"] == ""


async def test_what_a_limit_refused_leads_to_the_limits_and_does_not_deny_that_policy_was_asked(
    listener: Listener, browser: Browser
) -> None:
    """It said that no policy was asked, of what policy had let through before the money was due."""
    key = await seeding.issue(listener, "the assistant")
    quota: dict[str, Any] = {
        "status": "refused",
        "http_status": 429,
        "error": "insufficient_quota",
    }
    await listener.record(*seeding.requests(listener, key, 1, usage=None, **quota))
    await browser.sign_in()
    _, page = await browser.send("GET", f"{LIST}/req_{key}_0")
    assert "no policy decision" not in page
    at = f"/o/acme/costs/limits?open=key:{key}#key:{key}"
    assert f'Not enough left: see <a href="{at}">' in page
    answer, limits = await browser.send("GET", at)
    assert (answer.status, f'id="key:{key}"' in limits) == (200, True)
