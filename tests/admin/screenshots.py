"""Takes the pictures of `docs/screens`: `make screenshots`, or `python -m tests.admin.screenshots`.

Everything in them is written by the parts that write it in production: keys by the store, requests
by the audit log, decisions by policies. Only who asked and for what is made up, always the same.
"""

import asyncio
import random
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs
from sqlalchemy import update

from gateway.batches import LineCounts
from gateway.clock import DAY_US
from gateway.identity import Peppers
from gateway.money.budgets import BudgetKey
from gateway.money.catalogue import cost, shipped_catalogue
from gateway.oversight.access import ROLES, Grant
from gateway.oversight.key_scope import scope_of
from gateway.oversight.workers import Applied
from gateway.price import Price
from gateway.secrets.credentials import pepper
from gateway.store.custody.reviews import Review, ReviewStore
from gateway.store.identity.key_scopes import KeyScopes
from gateway.store.identity.keys import KeyStore
from gateway.store.identity.people import PeopleStore
from gateway.store.identity.teams import TeamStore
from gateway.store.migrate import migrate
from gateway.store.money.leases import LeaseTable
from gateway.store.money.raises import BudgetRaises, RaiseWish
from gateway.store.money.slices import Claim, LeaseHolder
from gateway.store.schema.batches import batches as batch_rows
from gateway.types import AuditRecord, Usage
from gateway.worker.dear_hours import HourWatch
from tests.admin import profiling, seeding
from tests.admin.batches import seeding as batches
from tests.admin.chromium import Window, window
from tests.admin.listener import Listener, browsing
from tests.admin.models.test_prices import ENTRY, file_of
from tests.admin.policies.people import APPROVER, WRITER, signed_in, staff
from tests.admin.policies.test_rolling_out import stepped, submitted
from tests.admin.traffic.world import NOW_US, Asked, World


SATURDAY = 5
HOUR_US = seeding.HOUR_US
OUT = Path(__file__).resolve().parents[2] / "docs" / "screens"
KEYS = (
    ("payroll assistant", "people", "payroll", 40_000_000, 31_200_000, 400, 2.1),
    ("support chat", "support", "chat", 90_000_000, 44_000_000, 700, 2.9),
    ("code review", "engineering", "review", 120_000_000, 18_500_000, 300, 1.2),
)
"""Name, team, project, limit and what is spent of it, requests of two weeks, dollars a day."""
DEAR = "code review"
"""Yesterday it cost eight times what it usually does."""
POLICY = """# Agreed with the works council in May: what concerns people never leaves the house.
name = "acme"
version = 1

[[constraints]]
name = "people-data-stays-home"
when = 'data_class >= "S3" or "hr" in labels'
allow_only = { in_house = true }

[[constraints]]
name = "no-frontier-for-chat"
when = 'project == "chat" and complexity < 0.4'
forbid = { tiers = ["frontier"] }

[[preferences]]
name = "simple-is-cheap"
when = 'complexity_tier == "cheap"'
order = ["cheapest"]

[[preferences]]
name = "the-rest"
order = ["frontier", "mid", "cheap", "cheapest"]
"""
RULES = ("gdpr", "cert-in", "ai-act", "soc2")
INCIDENT = {
    "title": "A key was in a public repository",
    "kind": "access",
    "q": "pii:* route:managed",
    "noticed": "3h",
    "ticket": "SEC-204",
}
STRICTER = POLICY.replace('data_class >= "S3"', 'data_class >= "S2"')


async def fill(listener: Listener) -> str:
    """An organisation at work; the id of the request whose story is shown."""
    await staff(listener)
    await seeding.person(listener, "mira", "platform_admin")
    async with listener.database() as database:
        for role in ROLES:
            people = PeopleStore(database, listener.clock)
            await people.grant("mira", Grant(role, "*"))
    await _spend(listener)
    shown = await _ask(listener)
    await _watch(listener)
    async with signed_in(listener, WRITER) as writer, signed_in(listener, APPROVER) as approver:
        place = await submitted(writer, POLICY, "works council, T-118")
        await stepped(approver, place, "approve")
        await stepped(approver, place, "publish")
        await submitted(writer, STRICTER, "confidential stays home too, T-140")
    await _comply(listener)
    await _price(listener)
    await _ask_for_more(listener)
    return shown


async def _watch(listener: Listener) -> None:
    """What runs it and who looks at it: workers with an engine each sees, teams, a review due."""
    async with listener.database() as database:
        peppers = Peppers({1: pepper(listener.settings)})
        revision = (await KeyStore(database, peppers, listener.clock).table()).revision
    applied = (Applied(revision, listener.clock.utc_us() - 40_000_000),)
    serving: dict[str, Any] = {"revision": revision, "applied": applied}
    first = seeding.worker(listener, breakers={"claude": "half_open", "house": "closed"}, **serving)
    away_us = first.seen_us - 900_000
    second = seeding.worker(listener, "w1", host="gate-2", seen_us=away_us, **serving)
    await seeding.report(listener, first, second)
    now_us = listener.clock.utc_us()
    async with listener.database() as database:
        teams = TeamStore(database, listener.clock)
        for name, title, owner in (
            ("people", "People & culture", "mira"),
            ("support", "Customer support", "mira"),
            ("engineering", "Engineering", ""),
        ):
            team = await teams.team("acme", name)
            assert team is not None
            await teams.change("acme", name, title=title, owner=owner, revision=team.revision)
        review = Review(
            id="5e1f0c2d9a47",
            organisation="acme",
            name="Personal data that left the house",
            room="traffic",
            filter="pii:* route:managed",
            every_days=7,
            responsible="mira",
            made_by="mira",
            made_us=now_us - 20 * DAY_US,
            ended_us=None,
            looked_until_us=now_us - 8 * DAY_US,
        )
        await ReviewStore(database, listener.clock).make(review)


async def _comply(listener: Listener) -> None:
    """Rules that hold, an incident, work that is sent by night, and a profile that drifts."""
    home = "/o/acme/compliance"
    async with browsing(listener) as browser:
        await browser.sign_in_as("mira", seeding.PASSWORD)
        order = {"regimes": RULES, "reason": "the board, minutes of May", "seen": 0}
        body = msgspec.json.encode(order).decode()
        await browser.send(
            "POST", f"/api{home.replace('/o/', '/organisations/')}/obligations", body=body
        )
        await browser.send("POST", f"{home}/incidents/new", INCIDENT)
    await profiling.profiles(listener)
    key = await seeding.issue(listener, "nightly summaries")
    now_us = listener.clock.utc_us()
    async with listener.database() as database:
        for lines, done in ((40, 0), (120, 117)):
            batch = await batches.batch(listener, database, key, lines=lines)
            counts = LineCounts(succeeded=done, errored=lines - done)
            if done:
                await batches.end(listener, database, batch, counts)
            began_us = now_us - (7 if done else 1) * HOUR_US
            async with database.writing() as connection:
                mine = update(batch_rows).where(batch_rows.c.id == batch)
                await connection.execute(mine.values(created_us=began_us))
            lines_told = [_line(key, batch, n, began_us) for n in range(1, done or 11)]
            await listener.record(*lines_told)
        await batches.file(listener, database, key)


def _line(key: str, batch: str, number: int, began_us: int) -> AuditRecord:
    """One answered line of a nightly batch, half a minute after the one before."""
    return AuditRecord(
        stage="outcome",
        request_id=f"req_{batch}_{number}",
        organisation="acme",
        workspace="research",
        project="assistant",
        key_id=key,
        utc_us=began_us + number * 30_000_000,
        model_requested="auto",
        target="claude",
        provider="managed",
        jurisdiction="us",
        data_class="S1",
        status="ok",
        http_status=200,
        usage=Usage(12_000 + 97 * number, 640),
        cost_microusd=31_000,
        duration_us=2_400_000 + 31_000 * number,
        detail={"batch": batch, "line": str(number)},
    )


async def _price(listener: Listener) -> None:
    """Prices that somebody proposes, and an hour that was dear, found by a worker."""
    await seeding.person(listener, "petra", "platform_admin")
    async with browsing(listener) as browser:
        await browser.sign_in_as("petra", seeding.PASSWORD)
        dearer = ENTRY.output_microusd_per_mtok * 6 // 5
        text = file_of(output_microusd_per_mtok=dearer, as_of="2027-01-11")
        await browser.send("POST", "/models/prices/files", {"text": text, "name": "2027.toml"})
        why = {"seen": "0", "reason": "the vendor's letter of 11 January"}
        await browser.send("POST", "/models/prices/files/1/propose", why)
    async with listener.database() as database:
        await HourWatch(
            database, listener.clock, listener.settings.alerts.dear_hour_microusd
        ).tend()


async def _ask_for_more(listener: Listener) -> None:
    """A key that is to do more, a limit that is to be larger, and content that is to be erased."""
    key = await seeding.issue(listener, "field service", models=frozenset({"house"}))
    async with listener.database() as database:
        scopes = KeyScopes(database, listener.clock)
        seen = scope_of(["house"], None, [], "warn")
        wanted = scope_of(["house", "claude"], None, [], "warn")
        reason = "manuals with drawings, T-151"
        await scopes.propose("acme", key, wanted, seen=seen, actor="petra", reason=reason)
        march_us = int(datetime(2027, 3, 1, tzinfo=UTC).timestamp()) * 1_000_000
        reason = "the audit of the year runs until February, T-160"
        wish = RaiseWish("org:acme", "month", 450_000_000, march_us, reason)
        raises = BudgetRaises(database, listener.clock)
        await raises.ask("acme", wish, "petra", seen_microusd=300_000_000)
    async with browsing(listener) as browser:
        await browser.sign_in_as("mira", seeding.PASSWORD)
        case = {"scope": "user", "user": "4711", "law": "gdpr", "ticket": "DSR-88", "deed": "open"}
        answer, _ = await browser.send("POST", "/o/acme/compliance/erasures", case)
        await browser.send("POST", f"{answer.headers['location']}/ask", {"typed": "DSR-88"})


async def _spend(listener: Listener) -> None:
    """Keys with limits, what they spent, and two weeks of requests."""
    spent = []
    target = listener.settings.targets["claude"]
    price = shipped_catalogue().models[target.catalogue or target.model].price
    for name, workspace, project, limit, used, count, dollars in KEYS:
        key = await seeding.issue(listener, name, workspace=workspace, project=project)
        await seeding.limit(listener, f"key:{key}", limit, "month")
        spent.append((f"key:{key}", used))
        place: dict[str, Any] = {
            "workspace": workspace,
            "project": project,
            "over_us": 14 * seeding.DAY_US,
        }
        asked = seeding.requests(listener, key, count, **place)
        long = _long(listener, key, dollars, is_dear=name == DEAR, **place)
        await listener.record(*(_billed(each, price) for each in (*asked, *long)))
        if name == DEAR:
            hour_us = listener.clock.utc_us() - HOUR_US
            lines = [_line(key, "loop", number, hour_us) for number in range(1, 60)]
            again = {"workspace": workspace, "project": project, "cost_microusd": 164_000}
            await listener.record(*(structs.replace(each, detail={}, **again) for each in lines))
    await seeding.limit(listener, "org:acme", 300_000_000, "month")
    spent.append(("org:acme", sum(used for _, used in spent)))
    async with listener.database() as database:
        table, holder = LeaseTable(database, listener.clock), LeaseHolder("w0", "run")
        for account, used in spent:
            key_of = BudgetKey(account, "month")
            claim = Claim(key_of, -1, 0, 0, 0, wanted_microusd=used + 2_000_000)
            (held,) = await table.exchange(holder, [claim])
            reported = Claim(key_of, held.window_start_us, held.amount_microusd, used, 0)
            await table.exchange(holder, [reported])


def _billed(record: AuditRecord, price: Price) -> AuditRecord:
    """At list price, most of the input read from the provider's cache; our own engine is free."""
    if record.target != "claude" or record.usage is None:
        return record
    cached = structs.replace(record.usage, cache_read_tokens=record.usage.input_tokens // 2)
    return structs.replace(record, usage=cached, cost_microusd=cost(price, cached))


def _long(
    listener: Listener, key: str, dollars: float, *, is_dear: bool, over_us: int, **place: Any
) -> list[AuditRecord]:
    """Nine weeks of long documents, fewer of them on Saturdays and Sundays."""
    found: list[AuditRecord] = []
    for back in range(1, 64):
        now_us = listener.clock.utc_us() - back * DAY_US
        is_weekend = datetime.fromtimestamp(now_us / 1e6, UTC).weekday() >= SATURDAY
        much = dollars * (0.3 if is_weekend else 1) * (8 if is_dear and back == 1 else 1)
        # A dollar is nearly a million tokens, half of them from the cache; five requests pay.
        tokens = much * 950_000 / 5 * (1 + back % 3 / 10)
        found += [
            AuditRecord(
                **place,
                stage="outcome",
                request_id=f"req_{key}_long_{back}_{number}",
                organisation="acme",
                utc_us=now_us - number * 7_000_000_000,
                key_id=key,
                model_requested="auto",
                target="claude" if number else "house",
                provider="managed" if number else "engine",
                jurisdiction="us" if number else "in-house",
                data_class="S1",
                status="ok",
                http_status=200,
                usage=Usage(round(tokens), 900),
                duration_us=9_000_000,
            )
            for number in range(6)
        ]
    return found


async def _ask(listener: Listener) -> str:
    """Requests of the last day, decided by a policy; one of them with everything to be told."""
    world, draw = World(listener), random.Random(7)
    await world.open()
    ahead_s = (listener.clock.utc_us() - NOW_US) / 1e6
    kinds: tuple[dict[str, Any], ...] = (
        {"data_class": "S0"},
        {"data_class": "S1", "complexity": 0.7, "complexity_tier": "frontier"},
        {"data_class": "S3", "findings": {"CREDIT_CARD": 1, "EMAIL": 1}},
        {"data_class": "S2", "findings": {"PERSON": 2}},
    )
    asked = [
        Asked(number, ago_s=draw.random() * 80_000 - ahead_s, **draw.choice(kinds))
        for number in range(220)
    ]
    asked += [Asked(999, ago_s=40 - ahead_s, content=b"sealed", **kinds[2])]
    ids = await world.write(*asked)
    await world.sign()
    return ids[-1]


async def take(seen: Window, name: str, path: str, *, wait_ms: int = 500) -> None:
    status = await seen.open(path)
    assert status == 200, f"{path}: {status}"
    await seen.page.wait_for_timeout(wait_ms)
    await seen.page.screenshot(path=OUT / f"{name}.png")


async def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite+aiosqlite:///{folder}/g.sqlite3"
        await migrate(url)
        async with Listener(Path(folder), url) as listener, browsing(listener):
            shown = await fill(listener)
            home = "/o/acme"
            pages = {
                "overview": "/",
                "traffic": f"{home}/traffic",
                "request": f"{home}/traffic/{shown}",
                "policies": f"{home}/policies",
                "editor": f"{home}/policies/organisation/edit?as=code",
                "version": f"{home}/policies/organisation/versions/2",
                "simulator": f"{home}/policies/simulator?request={shown}",
                "approvals": f"{home}/approvals",
                "keys": f"{home}/keys",
                "costs": f"{home}/costs",
                "audit": f"{home}/audit",
                "integrity": f"{home}/integrity",
                "reviews": f"{home}/compliance/reviews",
                "obligations": f"{home}/compliance/obligations",
                "incidents": f"{home}/compliance/incidents",
                "limits": f"{home}/costs/limits",
                "prices": "/models/prices/files/1",
                "profile": f"{home}/traffic/profiles/prompts?of=auto",
                "batches": f"{home}/batches",
                "files": f"{home}/files",
                "teams": f"{home}/teams",
                "engine": "/models/engine",
                "models": "/models",
                "workers": "/system",
            } | dict(pair.split("=", 1) for pair in sys.argv[1:])
            for theme in ("light", "dark"):
                async with window(listener, theme=theme) as seen:
                    await seen.sign_in("mira", seeding.PASSWORD)
                    for name, path in pages.items():
                        if theme == "light" or name in ("overview", "request"):
                            end = "" if theme == "light" else "-dark"
                            await take(seen, f"{name}{end}", path)


if __name__ == "__main__":
    asyncio.run(main())
