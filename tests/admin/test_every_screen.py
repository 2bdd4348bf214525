"""Every page there is, with hostile text in every field: accessible, in both themes, at any width.

The pages are found by following links, so that a new one is looked at without being named here;
what no link leads to is named, with the reason.
"""

import html
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from litestar import MediaType
from msgspec import structs
from sqlalchemy import insert, update

from admin.typed_paths import TYPED
from gateway.audit.memory import MemoryAuditLog
from gateway.audit.projecting.projector import Projector
from gateway.clock import DAY_US
from gateway.configuration.guarding import GuardRules
from gateway.oversight.access import ROLES, Grant
from gateway.oversight.workers import MemberReport
from gateway.store.custody.incidents import Incident, IncidentStore
from gateway.store.custody.orders import Custody
from gateway.store.custody.reviews import Review, ReviewStore, Signature
from gateway.store.engine import Database
from gateway.store.erasure.cases import ErasureCase
from gateway.store.evidence.packing import EvidencePack, EvidencePacks
from gateway.store.evidence.retirements import Retirements, Shown
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.identity.invitations import Invitations
from gateway.store.identity.people import PeopleStore
from gateway.store.identity.teams import TeamStore
from gateway.store.policies.documents import PolicyStore
from gateway.store.policies.schedules import ScheduleTable
from gateway.store.schema.audit import audit_positions, gone_workers
from gateway.store.schema.custody import erasure_cases
from gateway.store.schema.tables import people as people_rows
from policies.text.loading import load_document
from tests.admin import seeding
from tests.admin.batches import seeding as batches
from tests.admin.chromium import Window, window
from tests.admin.crawl import follow_links, patterns_of
from tests.admin.listener import Browser, Listener, browsing
from tests.admin.profiling import profiles
from tests.admin.spoken import unspoken
from tests.gateway.store.rows import filled


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(900)]

WIDTHS = (1280, 820, 320)
"""The least is a window of 1280 that is zoomed in on four times: there nothing scrolls sideways."""
THEMES = ("light", "dark")
POLICY = """name = "acme"
version = 1
[[preferences]]
name = "cheap"
order = ["cheapest"]
"""
UNLINKED: dict[str, str] = {
    "/models/engine/drain": "only members of pools have it: `models/test_engine.py` looks at it",
    "/setup": "a link in a terminal leads to it, while nobody exists",
    "/invitation": "a link that somebody hands over leads to it",
    "/o/{organisation:str}/policies/new": "it begins a draft and leads on to the editor",
    "/system/sinks/{sink:str}/replay": "no sink is configured here; its own test looks at it",
}
"""Pages that no link leads to, and why."""


async def _fill(listener: Listener) -> None:
    """An organisation with one of everything, named by somebody who means harm."""
    await seeding.person(listener, "root", "platform_admin")
    async with listener.database() as database:
        people = PeopleStore(database, listener.clock)
        for role in ROLES:
            await people.grant("root", Grant(role, "*"))
    for number, text in enumerate(seeding.HOSTILE):
        key = await seeding.issue(listener, text)
        await seeding.limit(listener, f"key:{key}", 5_000_000, "month")
        hostile: dict[str, Any] = dict.fromkeys(
            ("model_requested", "target", "provider", "error", "actor"), text
        )
        rows = seeding.requests(listener, f"{key}{number}", 1, **hostile)
        await listener.record(*seeding.requests(listener, key, 5), *rows)
    async with listener.database() as database:
        people = PeopleStore(database, listener.clock)
        for number, text in enumerate(seeding.HOSTILE):
            await people.add(f"person-{number}")
            # As an older database has it: a title that steers anything is refused by now.
            is_it = people_rows.c.name == f"person-{number}"
            async with database.writing() as connection:
                await connection.execute(update(people_rows).where(is_it).values(title=text))
        await people.disable("person-0")
        await Invitations(database, listener.clock).make("person-1", "root")
        teams = TeamStore(database, listener.clock)
        readable = [text for text in seeding.HOSTILE if text.isprintable()]
        for number, text in enumerate(readable):
            await teams.create("acme", f"team-{number}", text, "root")
        await teams.add_member("acme", "research", "root")
    async with listener.database() as database:
        store = PolicyStore(database, listener.clock)
        document = load_document(POLICY)
        await store.draft("org:acme", document, "somebody", seeding.HOSTILE[0])
        guard = GuardRules(p95_ms_max=900, on_harm="halt")
        later = await store.draft("org:acme", document, seeding.HOSTILE[0], guard=guard)
        await store.act("org:acme", later.number, "approve", "root", reason=seeding.HOSTILE[1])
        at_us = listener.clock.utc_us() + seeding.DAY_US
        schedules, said = ScheduleTable(database, listener.clock), seeding.HOSTILE[0]
        await schedules.add(
            *("org:acme", later.number, "canary", at_us, said), percent=5.0, reason=said
        )
        await _entrust(listener, database)
        owner = await seeding.issue(listener, "nightly")
        await batches.batch(listener, database, owner)
        await batches.file(listener, database, owner)
        await seeding.models(listener, database)
    for text in seeding.HOSTILE:
        await profiles(listener, text, said=text)
    await profiles(listener, "gone", state="accepted", ended_by="root", reason=seeding.HOSTILE[0])
    await _report(listener)


async def _report(listener: Listener) -> None:
    """Workers that are not well, one of them with hostile words in all it says."""
    text = seeding.HOSTILE[1]
    member = MemberReport(text, text, text, "down", text, (text,))
    said: dict[str, Any] = dict.fromkeys(("host", "version", "schema", "settings_digest"), text)
    said |= dict.fromkeys(("snapshot_digest", "policies_digest", "prices_digest"), text)
    said |= {"problems": (text,), "breakers": {text: "open"}, "unavailable": {text: text}}
    hostile = seeding.worker(listener, "w1", members=(member,), metrics={text: 1.0}, **said)
    now_us, text = listener.clock.utc_us(), seeding.HOSTILE[0]
    gone = seeding.worker(listener, "w2", seen_us=now_us - seeding.HOUR_US)
    await seeding.report(listener, seeding.worker(listener), hostile, gone)
    async with listener.database() as database:
        async with database.writing() as connection:
            retired = {"worker": "w3", "retired_us": now_us, "retired_by": text, "reason": text}
            await connection.execute(filled(gone_workers, **retired))
            await connection.execute(filled(audit_positions, worker="w2", segment=1))
        shown = Shown((1, 0), (1, 0), now_us, requests=3, lines=1)
        await Retirements(database, listener.clock).ask("w2", shown, text, text)


async def _entrust(listener: Listener, database: Database) -> None:
    """A reveal that was asked for, an erasure case and a pack, each with hostile words."""
    text, now_us = seeding.HOSTILE[0], listener.clock.utc_us()
    log = MemoryAuditLog()
    await log.start()
    custody = Custody(database, log, listener.clock)
    await custody.ask_reveal("ann", "acme", text, reason=text, ticket=text, minutes=5)
    case = ErasureCase(
        *("0" * 12, "acme", "", "gdpr", text, text, now_us, now_us + 1),
        asked_by=text,
        asked_us=now_us,
        declined_by=text,
        comment=text,
    )
    async with database.writing() as connection:
        values = structs.asdict(case)
        del values["copies"]
        await connection.execute(insert(erasure_cases).values(values))
    reviews = ReviewStore(database, listener.clock)
    review = Review(
        *("0" * 12, "acme", text, "audit", "", 7, "root", text, now_us, None, now_us - 9 * DAY_US)
    )
    await reviews.make(review)
    signed = Signature(
        *(review.id, review.looked_until_us, review.looked_until_us + 1, now_us, text, 1),
        *(False, text, 1, "0" * 64, now_us),
    )
    await reviews.sign(signed)
    incident = Incident(
        *("0" * 12, "acme", text, "loss", text, "", now_us - 1, 0, now_us - DAY_US, "gdpr dpdp"),
        *(text, now_us, text, text),
    )
    await IncidentStore(database, listener.clock).open(incident)
    packs = EvidencePacks(database, listener.folder, listener.clock)
    pack = EvidencePack(
        "0" * 12,
        "acme",
        "acme",
        text,
        0,
        1,
        with_policies=True,
        made_by=text,
        made_us=now_us,
        state="failed",
    )
    await packs.ask(structs.replace(pack, problem=text))


async def _addresses(listener: Listener, browser: Browser) -> dict[str, str]:
    await seeding.limit(listener, "org:acme", 90_000_000, "month")
    await browser.sign_in_as("root", seeding.PASSWORD)
    # What was done here stands in the audit log as well, once it is projected.
    directory = listener.settings.path(listener.settings.audit.directory)
    async with listener.database() as database:
        await Projector(directory, DatabaseAuditSink(database, directory)).catch_up()
    patterns = {
        path: pattern
        for path, pattern in patterns_of(listener.application).items()
        if not path.startswith(("/api/", "/static/", "/sign-in", "/health/"))
    }
    return await follow_links(browser, patterns, ["/"])


async def _look(seen: Window, theme: str, width: int) -> list[str]:
    await seen.page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    await seen.page.set_viewport_size({"width": width, "height": 900})
    found = [*await seen.faults(), *await seen.violations()]
    return [f"{theme} {width}: {each}" for each in found]


def _views(number: int) -> list[tuple[str, int]]:
    """All six in the long run; in the short one each page one of them, in turn."""
    every = [(theme, width) for theme in THEMES for width in WIDTHS]
    if os.environ.get("GATEWRIGHT_TEST_EVERY_VIEW"):
        return every
    return [every[number % 6]]


async def test_every_screen_can_be_read_by_everybody_and_runs_nobodys_text(
    listener: Listener, browser: Browser
) -> None:
    await _fill(listener)
    addresses = await _addresses(listener, browser)
    wrong: dict[str, list[str]] = {}
    async with window(listener) as seen:
        await seen.sign_in("root", seeding.PASSWORD)
        for number, (name, path) in enumerate(sorted(addresses.items())):
            status = await seen.open(path)
            found = [f"status {status}"] if status != 200 else []
            for theme, width in _views(number):
                found += await _look(seen, theme, width)
            found += await unspoken(seen.page)
            found += seen.problems
            seen.problems.clear()
            if found:
                wrong[name] = found

    assert wrong == {}


@pytest.mark.long
async def test_links_lead_to_every_page_and_no_reading_breaks(
    tmp_path: Path, database_url: str
) -> None:
    async with Listener(tmp_path, database_url) as listener, browsing(listener) as browser:
        await _fill(listener)
        reached = await _addresses(listener, browser)
        readings = [path for path in patterns_of(listener.application) if path.startswith("/api/")]
        answered = {path: await _status(browser, path) for path in readings}
        drawers = {path: await _drawer(browser, at) for path, at in reached.items()}

    assert {path: status for path, status in answered.items() if status >= 500} == {}
    assert list(answered.values()).count(200) > 30
    assert set(UNLINKED) & set(reached) == set()
    shown = {path: drawer for path, drawer in drawers.items() if drawer}
    assert len(shown) >= 12, "lists show a row beside themselves"
    for path, drawer in shown.items():
        at = html.escape(quote(unquote(reached[path].partition("?")[0])))
        assert "data-closes-peek>Close<" in drawer, path
        assert f'href="{at}">Open<' in drawer, path
    assert _pages(listener) - set(reached) == {*UNLINKED, *TYPED}


async def _drawer(browser: Browser, path: str) -> str:
    """What a list would show beside itself of this page; nothing where no list does."""
    _, page = await browser.send("GET", path, hx_target="aside#peek")
    return "" if "<html" in page else page


async def _status(browser: Browser, path: str) -> int:
    """What a path answers with acme in it, and with something that there is not."""
    address = re.sub(r"\{[^}]+\}", "1", path.replace("{organisation:str}", "acme"))
    return (await browser.send("GET", address))[0].status


def _pages(listener: Listener) -> set[str]:
    """Paths whose handlers answer with a page."""
    return {
        route.path
        for route in listener.application.routes
        for handler in getattr(route, "route_handlers", [])
        if "GET" in handler.http_methods and handler.media_type == MediaType.HTML
        if not route.path.startswith("/sign-in")
    }
