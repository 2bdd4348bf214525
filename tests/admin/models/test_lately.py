"""How providers do: attempts of recent outcomes, breakers of live workers, credentials."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from admin.models.lately import breakers_of
from gateway.oversight.workers import WorkerReport
from gateway.secrets.credentials import master_key
from gateway.secrets.secret import Secret
from gateway.store.sealing.sealed_secrets import SealedSecretTable
from gateway.store.workers import WorkerTable
from gateway.types import Attempt
from tests.admin import seeding
from tests.admin.listener import Browser, Listener, browsing


pytestmark = pytest.mark.anyio

MORE = """
[providers.kept]
kind = "openai"
jurisdiction = "us"
assurances = ["no_training"]
credential = { db = "kept" }
[targets.big]
provider = "kept"
model = "gpt-6.2-sol"
"""
TARGETS = {"big": "kept", "small": "kept", "house": "engine"}


@pytest.fixture
async def listener(tmp_path: Path, sqlite_url: str) -> AsyncIterator[Listener]:
    async with Listener(tmp_path, sqlite_url, MORE) as running:
        yield running


def report(worker: str, **breakers: str) -> WorkerReport:
    return WorkerReport(worker, 1, breakers=breakers)


def test_breakers_of_a_provider_are_those_of_its_targets_on_every_worker() -> None:
    found = breakers_of(
        "kept",
        TARGETS,
        [
            report("w0", big="open", small="closed", house="open"),
            report("w1", big="half_open", small="open"),
            report("w2", big="closed", small="closed"),
            report("w3", house="open"),
        ],
    )

    assert (found.workers, found.open, found.half_open) == (3, ("w0", "w1"), ("w1",))
    assert found.targets == ("big", "small")
    assert found.word == "open"
    assert breakers_of("kept", TARGETS, [report("w2", big="half_open")]).word == "half-open"
    assert breakers_of("kept", TARGETS, [report("w2", big="closed")]).word == "closed"
    assert breakers_of("kept", TARGETS, [report("w3", house="open")]).word == ""


async def tried(listener: Listener, organisation: str, *attempts: Attempt) -> None:
    key = await seeding.issue(listener, "payroll", organisation=organisation)
    rows = seeding.requests(
        listener, key, 1, over_us=0, organisation=organisation, attempts=attempts, target="big"
    )
    await listener.record(*rows)


def row_of(page: str, provider: str) -> str:
    rows = re.findall(r"<tr\b.*?</tr>", page, re.DOTALL)
    row = next(each for each in rows if "<td" in each and f"{provider}" in each[:220])
    return " ".join(re.sub(r"<[^>]+>", " ", row).split())


async def test_a_provider_stands_with_its_attempts_breakers_terms_and_dates(
    listener: Listener, browser: Browser
) -> None:
    good = Attempt("big", 200, "", 5_000, 80_000)
    bad = Attempt("big", 503, "upstream_failed", 5_000, 0)
    await tried(listener, "acme", good, good, good, bad)
    now_us = listener.clock.utc_us()
    async with listener.database() as database:
        table = WorkerTable(database)
        await table.put(WorkerReport("w0", now_us, breakers={"big": "open"}))
        await table.put(WorkerReport("w1", now_us, breakers={"big": "closed"}))
    await browser.sign_in()
    _, page = await browser.send("GET", "/models")
    row = row_of(page, "kept")
    wanted = ("unavailable", "open on 1 of 2 big", "no training", "missing", ", 2026")
    assert [each for each in wanted if each not in row] == []
    _, one = await browser.send("GET", "/models/providers/kept")
    assert "It cannot be called: its credential is missing." in one
    async with listener.database() as database:
        sealed = SealedSecretTable(database, master_key(listener.settings), listener.clock)
        await sealed.seal("kept", Secret("sk-value"), "ann")
    _, page = await browser.send("GET", "/models")
    assert "strained 25% of 4 failed, p95 80 ms" in row_of(page, "kept")
    assert "present" in row_of(page, "kept")
    _, one = await browser.send("GET", "/models/providers/kept")
    assert "1 of 2 workers ask others first" in one
    _, lately = await browser.send("GET", "/api/models/lately")
    assert json.loads(lately)["kept"]["part"]["attempts"] == 4


async def test_who_sees_one_organisation_is_told_of_its_attempts_alone(
    listener: Listener,
) -> None:
    good = Attempt("big", 200, "", 5_000, 80_000)
    await tried(listener, "acme", good)
    await tried(listener, "umbrella", good, good)
    await seeding.person(listener, "ann", "viewer", "acme")
    await seeding.person(listener, "bob", "viewer")
    for name, attempts in (("ann", 1), ("bob", 3)):
        async with browsing(listener) as browser:
            await browser.sign_in_as(name, seeding.PASSWORD)
            _, lately = await browser.send("GET", "/api/models/lately")
            assert json.loads(lately)["kept"]["part"]["attempts"] == attempts


async def test_a_quiet_provider_and_a_lost_worker_are_said_to_be_so(
    listener: Listener, browser: Browser
) -> None:
    async with listener.database() as database:
        now_us = listener.clock.utc_us()
        await WorkerTable(database).put(WorkerReport("w0", now_us, breakers={"big": "open"}))
    listener.clock.advance(120)
    await browser.sign_in()
    _, page = await browser.send("GET", "/models")
    assert "no worker tells" in row_of(page, "kept")
    _, one = await browser.send("GET", "/models/providers/engine")
    assert "Nothing was asked of it in the last 15 minutes." in one
