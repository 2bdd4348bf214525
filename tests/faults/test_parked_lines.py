"""Lines that wait for a vendor: taken over, unreadable to a later version, or sent one by one."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.batching import parking
from gateway.batching.parking import Ticket, encode_ticket
from gateway.clock import SystemClock
from gateway.providers.parcels.scripted import ParcelFaults
from gateway.store.engine import Database, open_database
from gateway.store.money.leases import LeaseTable
from gateway.types import AuditRecord
from tests.conformance.test_batches import ended, line, make
from tests.faults.test_native_batches import (
    AADHAAR,
    MORE,
    NATIVE,
    TOKENS,
    all_results,
    asking,
    live_calls,
    outcomes,
    speaking,
)
from tests.running_gateway import GPT_TARGET, RunningGateway, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(180)]
LIMIT = 100_000_000


@pytest.fixture
async def upstreams() -> AsyncIterator[Upstreams]:
    async with Upstreams() as upstreams:
        upstreams.openai.answer(TOKENS)
        yield upstreams


@asynccontextmanager
async def running(
    folder: Path, url: str, upstreams: Upstreams, *, worker: str = "w0", more: str = ""
) -> AsyncIterator[RunningGateway]:
    async with RunningGateway(
        folder, url, upstreams, more=MORE + more, managed=NATIVE, worker=worker
    ) as gateway:
        yield gateway


async def parked_batch(gateway: RunningGateway, upstreams: Upstreams, key: str) -> str:
    """A batch whose lines lie at the vendor, which takes its time."""
    upstreams.openai.batches.faults = ParcelFaults(is_slow=True)
    async with speaking(gateway.url, key) as client:
        batch = await make(client, asking(3))
    while not upstreams.openai.batches.looks:
        await asyncio.sleep(0.02)
    return str(batch.id)


async def fetched(gateway: RunningGateway, key: str, batch_id: str) -> tuple[Any, dict[str, Any]]:
    async with speaking(gateway.url, key) as client:
        batch = await ended(client, await client.batches.retrieve(batch_id))
        return batch, await all_results(client, batch)


async def given_back(gateway: RunningGateway, spent_microusd: int) -> None:
    """Wait until no worker sets anything aside any more, and just this is spent.

    Of what the others hold, a worker that rests knows what it heard last: the database is asked.
    """
    database = open_database(gateway.settings.database_url)
    try:
        async with asyncio.timeout(30):
            while await sums(database) != (spent_microusd, 0):
                await asyncio.sleep(0.05)
    finally:
        await database.close()


async def sums(database: Database) -> tuple[int, int]:
    """Spent, and held by workers."""
    (budget,) = await LeaseTable(database, SystemClock()).budgets()
    return budget.spent_microusd, budget.leased_microusd


def failed(records: list[AuditRecord]) -> list[AuditRecord]:
    return [each for each in records if each.stage == "outcome" and each.status == "failed"]


@pytest.mark.postgres
@pytest.mark.parametrize("how", ["stopped", "silent"])
async def test_a_live_worker_takes_over_the_parcels_of_one_that_is_gone(
    how: str,
    tmp_path: Path,
    postgres_server: Any,
    upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = postgres_server.create_migrated()
    if how == "silent":
        monkeypatch.setattr("gateway.store.batching.parcel_rows.TEND_US", 2_000_000)
        monkeypatch.setattr("gateway.pacing.rhythm.BATCH_LEASES_S", 0.2)
    vendor = upstreams.openai.batches
    async with running(tmp_path, url, upstreams) as first:
        await first.limit("org:acme", LIMIT)
        key = await first.issue_key()
        batch_id = await parked_batch(first, upstreams, key)
        if how == "silent":
            fall_silent(first)
        async with running(tmp_path, url, upstreams, worker="w1") as second:
            if how == "stopped":
                await first.__aexit__()  # Once more at the end, which does nothing.
            vendor.faults = ParcelFaults()
            batch, found = await fetched(second, key, batch_id)
            records = await second.records()
            spent = sum(each.cost_microusd for each in outcomes(records))
            # Also what is still set aside in the one that fell silent, for nothing.
            await given_back(second, spent)
    postgres_server.drop(url)

    assert (batch.status, len(found)) == ("completed", 3)
    assert {wire["gatewright"]["receipt"].partition(".")[0] for wire in found.values()} == {"w1"}
    assert (vendor.made, live_calls(upstreams)) == (1, [])
    assert all(each.cost_microusd > 0 for each in records if each.status == "ok")


def fall_silent(gateway: RunningGateway) -> None:
    """Its parcels are left alone from now on, without a word to anybody."""

    def cancel() -> None:
        for task in gateway.plane._upkeep._tasks:
            if task.get_name() in {"parcels", "parcel leases"}:
                task.cancel()

    gateway.loop.call_soon_threadsafe(cancel)


class LaterTicket(Ticket, frozen=True):
    """A ticket as some later version keeps it."""

    shape: int


async def test_lines_that_a_later_version_cannot_read_end_with_an_error_of_ours(
    tmp_path: Path, database_url: str, upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, database_url, upstreams) as gateway:
        await gateway.limit("org:acme", LIMIT)
        key = await gateway.issue_key()
        batch_id = await parked_batch(gateway, upstreams, key)
    upstreams.openai.batches.faults = ParcelFaults()
    monkeypatch.setattr(parking, "_TICKET", msgspec.msgpack.Decoder(LaterTicket))
    async with running(tmp_path, database_url, upstreams) as gateway:
        batch, found = await fetched(gateway, key, batch_id)
        records = await gateway.records()
        # Its vendor answered, and nobody can read for what: what was set aside is owed.
        spent = sum(each.cost_microusd for each in outcomes(records))
        assert spent == sum(each.reserved_microusd for each in records if each.stage == "intent")
        await given_back(gateway, spent)

    assert batch.status == "completed"
    assert sorted(found) == ["q-1", "q-2", "q-3"]
    for wire in found.values():
        assert wire["response"]["status_code"] == 500
        assert "cannot read what it kept" in wire["response"]["body"]["error"]["message"]
    ends = outcomes(records)
    assert [(each.status, each.error, each.http_status) for each in ends] == [
        ("failed", "internal_error", 500)
    ] * 3
    intents = {each.request_id for each in records if each.stage == "intent"}
    assert {each.request_id for each in ends} == intents
    assert all(each.intent for each in ends)
    assert {wire["response"]["request_id"] for wire in found.values()} == intents
    assert len(upstreams.openai.batches.deleted) == 2, "nothing is left at the vendor"
    assert live_calls(upstreams) == []


def without_a_plan(ticket: Ticket) -> bytes:
    kept = msgspec.msgpack.decode(encode_ticket(ticket))
    kept["plan_2"] = kept.pop("plan")
    return msgspec.msgpack.encode(kept)


@pytest.mark.parametrize("damage", [without_a_plan, lambda _: b"\xc1"])
async def test_a_line_that_cannot_be_read_before_it_is_sent_goes_nowhere_and_its_neighbours_do(
    tmp_path: Path,
    database_url: str,
    upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[Ticket], bytes],
) -> None:
    damaged: list[Ticket] = []

    def encode(ticket: Ticket) -> bytes:
        if b"mark 2" not in ticket.plan.candidates[0].body:
            return encode_ticket(ticket)
        damaged.append(ticket)
        return damage(ticket)

    monkeypatch.setattr("gateway.batching.parked_lines.encode_ticket", encode)
    async with running(tmp_path, database_url, upstreams) as gateway:
        await gateway.limit("org:acme", LIMIT)
        key = await gateway.issue_key()
        async with speaking(gateway.url, key) as client:
            batch = await ended(client, await make(client, asking(3)))
            found = await all_results(client, batch)
        records = await gateway.records()
        spent = sum(each.cost_microusd for each in records if each.stage == "outcome")
        if damage is without_a_plan:
            await given_back(gateway, spent)

    statuses = {name: wire["response"]["status_code"] for name, wire in found.items()}
    assert statuses == {"q-1": 200, "q-2": 500, "q-3": 200}
    assert (upstreams.openai.batches.made, len(upstreams.openai.batches.lines)) == (1, 2)
    (end,) = failed(records)
    assert (end.error, end.detail["line"], end.cost_microusd) == ("internal_error", "2", 0)
    if damage is without_a_plan:
        (ticket,) = damaged
        assert (end.request_id, end.intent) == (ticket.request_id, ticket.intent.leaf_hash)
        outcomes(records)


POLICY = """
name = "obliged"
version = 1
[defaults]
order = ["cheapest"]
[[constraints]]
name = "outside"
{obligation}
"""
SAID = f"Her number is {AADHAAR}."
TEXT = "Please write to Ingrid Halvorsen at ingrid@corp-mail.no about her card."


@pytest.mark.parametrize(
    ("obligation", "leaves"),
    [
        ("pseudonymise = true", False),
        ("redact = true", False),
        ('scan_output = "mask"', True),
    ],
)
async def test_lines_that_are_veiled_or_scanned_go_one_by_one_although_the_vendor_takes_batches(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, obligation: str, leaves: bool
) -> None:
    (tmp_path / "policy.toml").write_text(POLICY.format(obligation=obligation))
    more = f'\n[policy]\nfile = "{tmp_path / "policy.toml"}"\n'
    told = msgspec.structs.replace(TOKENS, text=SAID)
    upstreams.openai.answer(told)
    asked = [
        line(f"q-{at}", model=GPT_TARGET, messages=[{"role": "user", "content": TEXT}])
        for at in range(3)
    ]
    async with running(tmp_path, sqlite_url, upstreams, more=more) as gateway:
        key = await gateway.issue_key()
        async with speaking(gateway.url, key) as client:
            found = await all_results(client, await ended(client, await make(client, asked)))
        ends = outcomes(await gateway.records())

    vendor = upstreams.openai.batches
    assert (vendor.made, len(live_calls(upstreams))) == (0, 3)
    assert {each.detail.get("path", "") for each in ends} == {""}
    left = b"".join(each.body for each in upstreams.openai.requests)
    assert (b"Halvorsen" in left) == leaves
    assert (b"ingrid@corp-mail" in left) == leaves
    said = {wire["response"]["body"]["choices"][0]["message"]["content"] for wire in found.values()}
    if "scan_output" in obligation:
        assert not any(AADHAAR in each for each in said)
        assert all("[REDACTED:" in each for each in said)
        assert all(each.output_findings for each in ends)
    else:
        assert said == {SAID}
