"""A listener with something to show: people, keys, limits and a week of recorded requests."""

import random
from typing import Any

from sqlalchemy import update

from gateway.identity import Peppers
from gateway.money.budgets import Limit
from gateway.oversight.access import Grant, Role
from gateway.oversight.checkup import Checkup, Step, skipped
from gateway.oversight.workers import Applied, EngineMemory, MemberReport, WorkerReport
from gateway.secrets.credentials import master_key, pepper
from gateway.secrets.secret import Secret
from gateway.store.checkups import CheckupTable
from gateway.store.engine import Database
from gateway.store.identity.keys import KeyStore, NewKey, Place
from gateway.store.identity.people import PeopleStore
from gateway.store.money.leases import LeaseTable
from gateway.store.schema.tables import virtual_keys
from gateway.store.schema.version import newest_schema
from gateway.store.sealing.sealed_secrets import SealedSecretTable
from gateway.store.workers import WorkerTable
from gateway.types import AuditRecord, Usage
from tests.admin.listener import Listener


PASSWORD = "a password for tests only"
HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\u202egnp.exe",
    "x" * 150,
)
"""What somebody may type into a field that people read; a name has room for 200 characters."""
TARGETS = (("house", "engine", "in-house", 0), ("claude", "managed", "us", 1_800))


async def person(listener: Listener, name: str, role: Role, organisation: str = "*") -> None:
    """Somebody with one role, who signs in with PASSWORD."""
    async with listener.database() as database:
        people = PeopleStore(database, listener.clock)
        await people.add(name, title=name.capitalize(), password=Secret(PASSWORD))
        await people.grant(name, Grant(role, organisation))


async def issue(
    listener: Listener,
    name: str,
    *,
    project: str = "assistant",
    workspace: str = "research",
    organisation: str = "acme",
    **more: Any,
) -> str:
    """A key's id; what no key is called today, keys of old databases are."""
    async with listener.database() as database:
        store = KeyStore(database, Peppers({1: pepper(listener.settings)}), listener.clock)
        place = Place(organisation, workspace, project)
        taken = name if name.isprintable() else "plain"
        key_id = (await store.issue(NewKey(place, taken, "ann", **more))).key_id
        if taken != name:
            is_it = virtual_keys.c.id == key_id
            async with database.writing() as connection:
                await connection.execute(update(virtual_keys).where(is_it).values(name=name))
        return key_id


async def limit(listener: Listener, account: str, limit_microusd: int, window: Any) -> None:
    async with listener.database() as database:
        await LeaseTable(database, listener.clock).set_limit(Limit(account, limit_microusd, window))


def requests(
    listener: Listener, key_id: str, count: int, *, over_us: int = 7 * DAY_US, **changes: object
) -> list[AuditRecord]:
    """Outcomes of a key, evenly over a time that ends now; the same for the same key and count."""
    draw = random.Random(f"{count}")
    now_us = listener.clock.utc_us()
    found = []
    for number in range(count):
        target, provider, jurisdiction, price = draw.choice(TARGETS)
        status = draw.choice(["ok"] * 18 + ["failed", "refused"])
        is_sent = status != "refused"
        tokens = (draw.randrange(50, 4_000), draw.randrange(20, 900))
        fields: dict[str, object] = {
            "stage": "outcome",
            "request_id": f"req_{key_id}_{number}",
            "organisation": "acme",
            "utc_us": now_us - (count - 1 - number) * over_us // max(count, 1),
            "workspace": "research",
            "project": "assistant",
            "key_id": key_id,
            "model_requested": "auto",
            "target": target if is_sent else "",
            "provider": provider if is_sent else "",
            "jurisdiction": jurisdiction if is_sent else "",
            "data_class": draw.choice(["S1", "S2", "S3"]),
            "findings": draw.choice([{}, {}, {"EMAIL": 1}]),
            "status": status,
            "http_status": {"ok": 200, "failed": 502, "refused": 403}[status],
            "error": {"ok": "", "failed": "upstream_failed", "refused": "policy_refused"}[status],
            "usage": Usage(*tokens) if status == "ok" else None,
            "cost_microusd": price * sum(tokens) // 100 if status == "ok" else 0,
            "duration_us": draw.randrange(80_000, 4_000_000),
        }
        found.append(AuditRecord(**(fields | changes)))  # type: ignore[arg-type]
    return found


def worker(listener: Listener, name: str = "w0", **changes: object) -> WorkerReport:
    """A worker's word about itself, as of now; everything well unless it is said otherwise."""
    now_us = listener.clock.utc_us()
    member = MemberReport(
        provider="engine",
        member="engine",
        engine="gatewright",
        state="up",
        models=("house",),
        calls=2,
        waiting=1,
        running=12,
        blocks_used=310,
        blocks_total=1_024,
        cache_use_share=0.303,
        prefix_hit_share=0.62,
        read_tokens_per_s=5_210.0,
        generated_tokens_per_s=812.4,
        figures_age_s=1.2,
        memory=EngineMemory(
            weight_bytes=15_240_000_000,
            kv_bytes=32_212_254_720,
            kv_used_bytes=9_751_756_800,
            kv_block_tokens=16,
            kv_token_bytes=1_966_080,
            kv_tokens=16_384,
            host_bytes=8 << 30,
            host_used_bytes=3 << 30,
            longest_context_tokens=8_192,
            device_bytes=80 << 30,
            device_free_bytes=33_500_000_000,
        ),
    )
    fields: dict[str, object] = {
        "worker": name,
        "seen_us": now_us - 1_200_000,
        "pid": 4711,
        "host": "gate-1",
        "version": "0.1.0",
        "schema": newest_schema(),
        "started_us": now_us - 3 * HOUR_US,
        "settings_digest": "5e" * 16,
        "snapshot_digest": "a1" * 16,
        "policies_digest": "b2" * 16,
        "prices_digest": "c3" * 16,
        "revision": 0,
        "applied": (Applied(0, now_us - 2 * HOUR_US),),
        "stale_s": 0.2,
        "requests_in_flight": 3,
        "breakers": {target: "closed" for target, *_ in TARGETS},
        "members": (member,),
        "metrics": {"gatewright_requests_total": 1_204.0, "gatewright_audit_healthy": 1.0},
    }
    return WorkerReport(**(fields | changes))  # type: ignore[arg-type]


async def report(listener: Listener, *workers: WorkerReport) -> None:
    """Workers that said something, as they do it themselves."""
    async with listener.database() as database:
        for each in workers:
            await WorkerTable(database).put(each)


async def models(listener: Listener, database: Database) -> None:
    """A sealed secret, a worker with an engine, and a connection test, all with hostile words."""
    text, clock = HOSTILE[0], listener.clock
    sealed = SealedSecretTable(database, master_key(listener.settings), clock)
    await sealed.seal("open-ai", Secret("sk-value"), text)
    seen = MemberReport(
        "engine", "engine", text, "down", text, (text,), waiting=1, cache_use_share=0.5
    )
    said = WorkerReport(text, clock.utc_us(), breakers={"claude": "open"}, members=(seen,))
    await WorkerTable(database).put(said)
    tests = CheckupTable(database, clock)
    await tests.ask("t", "engine", "house", text)
    if claimed := await tests.claim(text, ["engine"]):
        found = Checkup((Step("name", "good", "ok", text, 1), *skipped("not_tried", "call")), "ab")
        await tests.tell(claimed, found, is_end=True)
