"""A provider's page, and the test of its connection: ordered here, taken by a worker, told here."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import get_args

import pytest

from admin.models.advice import ADVICE, UNKNOWN, advice
from gateway.assembly.places import Rotation
from gateway.assembly.wiring import make_egress, make_providers
from gateway.audit.memory import MemoryAuditLog
from gateway.oversight.checkup import CODES, Checkup, Step, StepName, skipped
from gateway.routing.board import TargetBoard
from gateway.store.checkups import CLAIM_WITHIN_US, END_WITHIN_US, CheckupTable
from gateway.worker.connecting import connection_tests
from gateway.worker.pricing import configured_targets
from tests.admin import seeding
from tests.admin.chromium import window
from tests.admin.listener import Browser, Listener, browsing
from tests.admin.models.test_credentials import deeds as secret_deeds
from tests.admin.test_deeds import deeds
from tests.upstreams import Answer, RecordingUpstream


pytestmark = pytest.mark.anyio

MORE = """
[providers.near]
kind = "engine"
base_url = "{url}"
jurisdiction = "in-house"
[providers.herd]
kind = "pool"
jurisdiction = "in-house"
members = ["near"]
[providers.kept]
kind = "openai"
base_url = "{url}"
jurisdiction = "us"
assurances = ["no_training"]
credential = {{ db = "kept" }}
[targets.big]
provider = "kept"
model = "gpt-6.2-sol"
[targets.small]
provider = "kept"
model = "gpt-6-luna"
catalogue = "in-house"
[targets.flock]
provider = "herd"
model = "house"
catalogue = "in-house"
"""
AT = "/models/providers"


UNNAMED = """
[providers.bare]
kind = "openai"
base_url = "http://127.0.0.1:9"
jurisdiction = "us"
"""


@pytest.fixture
async def upstream() -> AsyncIterator[RecordingUpstream]:
    async with RecordingUpstream() as running:
        yield running


@pytest.fixture
async def listener(
    tmp_path: Path, sqlite_url: str, upstream: RecordingUpstream
) -> AsyncIterator[Listener]:
    more = MORE.format(url=upstream.url) + UNNAMED
    async with Listener(tmp_path, sqlite_url, more) as running:
        yield running


async def work(listener: Listener) -> None:
    """What a worker's duty does once, with the parts that a worker builds."""
    settings, egress = listener.settings, make_egress(listener.settings)
    audit = MemoryAuditLog()
    await audit.start()
    async with listener.database() as database:
        providers = dict(make_providers(settings, egress, listener.clock.monotonic_s))
        rotation = Rotation(
            *(settings, database, listener.clock, egress),
            providers=providers,
            hosts={},
            publish=lambda: None,
        )
        duty = connection_tests(
            *(settings, database, audit, listener.clock),
            providers=providers,
            trial=rotation.trial,
            board=lambda: TargetBoard(
                {each.name: each for each in configured_targets(settings)}, {}
            ),
        )
        await duty.perform()
    await egress.close()


async def order(browser: Browser, name: str = "near", target: str = "") -> tuple[int, str]:
    answer, page = await browser.send("POST", f"{AT}/{name}/test", {"target": target})
    return answer.status, page


def text_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


async def test_a_test_is_ordered_taken_and_told_with_who_tested_and_what_it_cost(
    listener: Listener, browser: Browser, upstream: RecordingUpstream
) -> None:
    await browser.sign_in()
    status, _ = await order(browser)
    assert status == 303
    _, waiting = await browser.send("GET", f"{AT}/near")
    assert "Waiting for a worker" in waiting
    assert 'hx-trigger="every 1s"' in waiting
    upstream.answer(Answer(input_tokens=8, output_tokens=1))
    await work(listener)

    _, page = await browser.send("GET", f"{AT}/near")
    said = text_of(page)
    assert "It can be called." in said
    assert f"Tested by worker {listener.settings.audit.worker}, just now" in said
    assert "The call to flock took 8 tokens in and 1 out" in said
    assert 'hx-trigger="every 1s"' not in page
    assert len(upstream.calls) == 1
    (record,) = [each for each in await deeds(listener) if each.action.startswith("provider.")]
    assert (record.action, record.actor) == ("provider.test_ordered", "admin-token")
    assert json.loads(record.detail["after"])["provider"] == "near"


async def test_a_vendors_kind_without_a_named_credential_is_said_to_lack_one_and_how_to_mend_it(
    browser: Browser,
) -> None:
    await browser.sign_in()
    _, page = await browser.send("GET", f"{AT}/bare")
    assert "the settings name no credential for it" in text_of(page)
    assert "<code>providers.bare.credential</code>" in page
    assert "openai_compatible" in page
    _, listed = await browser.send("GET", "/models")
    (row,) = [
        each for each in re.findall(r"<tr\b.*?</tr>", listed, re.DOTALL) if ">bare</a>" in each
    ]
    assert "missing" in row
    assert "not asked for" not in row


async def test_a_page_that_is_polled_gets_the_progress_alone(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    await order(browser)
    _, block = await browser.send("GET", f"{AT}/near", hx_target="div#progress")
    assert block.strip().startswith('<div id="progress"')
    assert "<html" not in block
    _, peek = await browser.send("GET", f"{AT}/near", hx_target="aside#peek")
    assert "<h2>near</h2>" in peek
    _, credential = await browser.send(
        "GET", "/models/credentials/database/kept", hx_target="aside#peek"
    )
    assert "<h2>kept</h2>" in credential


async def test_what_no_worker_takes_is_said_to_be_so_and_can_be_ordered_again(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    await order(browser)
    status, page = await order(browser)
    assert status == 429
    assert "under way" in page
    listener.clock.advance(CLAIM_WITHIN_US / 1e6 + 1)
    _, page = await browser.send("GET", f"{AT}/near")
    assert "No worker picked this up" in page
    assert "Is the data plane running" in page
    assert "gatewright serve" in page
    assert (await order(browser))[0] == 303


async def test_a_worker_that_was_stopped_in_the_middle_is_named(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    await order(browser)
    async with listener.database() as database:
        table = CheckupTable(database, listener.clock)
        claimed = await table.claim("w3", ["near"])
        assert claimed is not None
        step = Step("name", "good", "ok", "10.1.2.3", 1_500)
        await table.tell(claimed, Checkup((step,)))
        _, running = await browser.send("GET", f"{AT}/near")
        listener.clock.advance(END_WITHIN_US / 1e6 + 1)
        _, lost = await browser.send("GET", f"{AT}/near")
    assert "Worker w3 is at it" in text_of(running)
    assert "10.1.2.3" in running
    assert "1.5 ms" in running
    assert "probably stopped" in lost


async def test_a_step_that_fails_says_what_to_do_next_and_the_rest_is_skipped(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    await order(browser, "kept", "small")
    await work(listener)  # its secret is not set
    _, page = await browser.send("GET", f"{AT}/kept")
    said = text_of(page)
    assert "It cannot be called." in said
    assert "There is no credential, and the provider wants one." in said
    assert "Set it where the configuration says" in said
    assert "Not tried: a step before it failed." in said
    answer, found = await browser.send("GET", "/api/providers/kept")
    assert answer.status == 200
    steps = json.loads(found)["test"]["found"]["steps"]
    assert [each["code"] for each in steps] == ["address", "plain", "missing", "not_tried"]


async def test_the_cheapest_target_is_called_and_each_says_first_what_it_costs(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    _, page = await browser.send("GET", f"{AT}/kept")
    options = re.findall(r'<option value="(\w+)"[^>]*>([^<]*)</option>', page)
    assert options[0] == ("small", "small: costs nothing")
    assert re.fullmatch(r"big: \$0\.00\d+ at most", options[1][1])
    answer, text = await browser.send("POST", "/api/providers/kept/test", body="{}")
    assert (answer.status, json.loads(text)["target"]) == (201, "small")


async def test_only_what_is_configured_can_be_tested(listener: Listener, browser: Browser) -> None:
    await browser.sign_in()
    assert (await order(browser, "nobody"))[0] == 404
    assert (await order(browser, "near", "big"))[0] == 400
    status, page = await order(browser, "herd")
    assert status == 400
    assert "test its members" in page
    _, pool = await browser.send("GET", f"{AT}/herd")
    assert f'href="{AT}/near"' in pool
    assert f'action="{AT}/herd/test' not in pool
    assert "It was not tested yet" not in pool, "it never is"
    assert "managed" not in pool.split("<main", 1)[1]  # its members stand in the house
    async with listener.database() as database:
        assert await CheckupTable(database, listener.clock).all() == {}
    assert [each for each in await deeds(listener) if "test" in each.action] == []
    assert await secret_deeds(listener) == []


async def test_who_may_only_read_sees_the_result_and_no_button(
    listener: Listener, browser: Browser
) -> None:
    await seeding.person(listener, "ann", "viewer")
    await browser.sign_in_as("ann", seeding.PASSWORD)
    answer, page = await browser.send("GET", f"{AT}/near")
    assert answer.status == 200
    assert "Test the connection" not in page
    assert (await order(browser))[0] == 403
    await listener.issue_key("makes the organisation")
    await seeding.person(listener, "own", "viewer", "acme")
    async with browsing(listener) as other:
        await other.sign_in_as("own", seeding.PASSWORD)
        _, models = await other.send("GET", "/models")
        assert f'href="{AT}/' not in models
        assert (await other.send("GET", f"{AT}/near"))[0].status == 403


def test_every_way_to_end_has_words_and_every_failure_says_what_to_do() -> None:
    used = {code for words in ADVICE.values() for code in words}
    general = {"not_tried", "inside", "unknown_here"}
    assert used | general == set(CODES)
    for name in get_args(StepName):
        for code, words in ADVICE[name].items():
            is_good = code in ("ok", "address", "by_proxy", "plain", "tunnelled", "none_needed")
            assert words.said.endswith(".")
            assert is_good or words.then
            assert advice(Step(name, "bad", code)) == words
    assert advice(skipped("inside", "name")[0]) != UNKNOWN
    assert advice(Step("name", "bad", "quota")) == UNKNOWN


async def test_a_browser_sees_the_test_run_to_its_end_without_a_click(
    listener: Listener, upstream: RecordingUpstream
) -> None:
    await seeding.person(listener, "ops", "platform_admin")
    held = asyncio.Event()
    upstream.answer(Answer(hold=held))
    async with window(listener) as seen:
        await seen.sign_in("ops", seeding.PASSWORD)
        await seen.open(f"{AT}/near")
        await seen.page.get_by_role("button", name="Test the connection").press("Enter")
        await seen.page.get_by_text("Waiting for a worker").wait_for()
        working = asyncio.create_task(work(listener))
        await seen.page.get_by_text("is at it").wait_for()
        await seen.page.get_by_text("It asks for no credential").wait_for()
        held.set()
        await working
        await seen.page.get_by_text("It can be called.").wait_for()
        await seen.page.get_by_text("The model answered.").wait_for()
        assert await seen.violations() == []
        assert seen.problems == []
