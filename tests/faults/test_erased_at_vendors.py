"""An erasure also reaches vendors' batch APIs; the case says what became of the data there."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest

from gateway.audit.projecting.export import segment_rows
from gateway.cli.audit.custody import opened_custody, subject_of
from gateway.clock import SystemClock
from gateway.providers.parcels.scripted import ParcelFaults
from gateway.secrets.credentials import master_key
from gateway.store.erasure.cases import ErasureCase
from gateway.store.erasure.certificates import certified
from gateway.store.erasure.erasing import Erasures
from gateway.store.erasure.outstanding import Reach
from gateway.store.evidence.integration import Integration
from gateway.types import AuditRecord
from tests.conformance.test_batches import ended, line, make, results
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, RunningGateway, Upstreams
from tests.vendor_batches import VendorBatches


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(180)]
NATIVE = "native_batches = true"
MORE = """
[inspection]
deadline_s = 30.0
[batches]
native_poll_s = 0.05
"""
SLOW = ParcelFaults(is_slow=True)
TARGETS = {"openai": GPT_TARGET, "anthropic": CLAUDE_TARGET}
vendors = pytest.mark.parametrize("vendor", ["openai", "anthropic"])


@pytest.fixture
async def upstreams() -> AsyncIterator[Upstreams]:
    async with Upstreams() as upstreams:
        yield upstreams


@asynccontextmanager
async def running(
    folder: Path, database_url: str, upstreams: Upstreams, more: str = ""
) -> AsyncIterator[tuple[RunningGateway, openai.AsyncOpenAI]]:
    async with RunningGateway(
        folder, database_url, upstreams, more=MORE + more, managed=NATIVE
    ) as gateway:
        url, key = f"{gateway.url}/v1", await gateway.issue_key()
        async with openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=5) as client:
            yield gateway, client


def asked(vendor: str, *users: str) -> list[bytes]:
    return [
        line(f"of-{user}", model=TARGETS[vendor], user=user, messages=_said_by(user))
        for user in users
    ]


def _said_by(user: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"the heron of {user}"}]


def words_at(name: str, vendor: VendorBatches) -> str:
    """What a vendor still holds: OpenAI in files, Anthropic in the batch itself."""
    if name == "openai":
        return "".join([content.decode() for _, content in vendor.files.values()])
    return "".join([repr(batch["lines"]) for batch in vendor.batches.values()])


@contextmanager
def handed_over(upstreams: Upstreams, name: str) -> Iterator[VendorBatches]:
    """A vendor that works for as long as it is not told to end."""
    vendor: VendorBatches = getattr(upstreams, name).batches
    vendor.faults = SLOW
    yield vendor


async def until_looked_at(vendor: VendorBatches) -> None:
    while not vendor.looks:
        await asyncio.sleep(0.02)


class Desk:
    """Where erasures are ordered, beside a running gateway."""

    def __init__(self, gateway: RunningGateway) -> None:
        self._settings = gateway.settings

    @asynccontextmanager
    async def _erasures(self) -> AsyncIterator[Erasures]:
        settings, clock = self._settings, SystemClock()
        async with opened_custody(settings) as (custody, database):
            master = master_key(settings)
            parts = Integration(settings, database, clock, master)
            yield Erasures(settings, database, custody, parts, master, clock)

    async def erase(self, user: str | None) -> ErasureCase:
        subject = subject_of(self._settings, "acme", user) or ""
        async with self._erasures() as erasures:
            told = await erasures.consequences("acme", subject or None)
            assert told.kept.at_vendors == 1
            case = await erasures.cases.open("cora", "acme", subject, "gdpr", "T-7")
            await erasures.ask("cora", case)
            asked = await erasures.cases.found(case.id)
            return await erasures.approve("anton", asked, "agreed with the ticket")

    async def case(self) -> ErasureCase:
        async with self._erasures() as erasures:
            (case,) = await erasures.cases.of("acme")
            return case

    async def until_ended(self) -> ErasureCase:
        while (case := await self.case()).copies[0].state == "ordered":
            await asyncio.sleep(0.05)
        return case


def states(case: ErasureCase) -> list[tuple[str, str, int]]:
    return [(each.state, each.provider, each.lines) for each in case.copies]


async def deeds(gateway: RunningGateway) -> list[AuditRecord]:
    """What was done with vendors' copies, as the operators' log has it."""
    rows = segment_rows(gateway.audit_folder)
    records = [row.projected.record async for row in rows]
    return [each for each in records if each.action.startswith("erasure.vendor_")]


async def all_results(client: openai.AsyncOpenAI, batch: Any) -> dict[str, Any]:
    found = await results(client, batch.output_file_id) if batch.output_file_id else {}
    errors = await results(client, batch.error_file_id) if batch.error_file_id else {}
    return found | errors


@vendors
async def test_an_erasure_cancels_a_vendors_batch_and_has_it_deleted(
    tmp_path: Path, database_url: str, upstreams: Upstreams, vendor: str
) -> None:
    with handed_over(upstreams, vendor) as there:
        async with running(tmp_path, database_url, upstreams) as (gateway, client):
            batch = await make(client, asked(vendor, "ann", "bob"))
            await until_looked_at(there)
            assert "the heron of ann" in words_at(vendor, there)
            desk = Desk(gateway)
            case = await desk.erase("ann")
            assert [each.state for each in case.copies] in (["ordered"], ["deleted"])
            case = await desk.until_ended()
            assert states(case) == [("deleted", case.copies[0].provider, 1)]
            assert "the heron" not in words_at(vendor, there)
            batch = await ended(client, batch)
            found = await all_results(client, batch)
        written = await deeds(gateway)
    # The other line went its way alone and was answered.
    assert {name: wire["response"]["status_code"] for name, wire in found.items()} == {
        "of-bob": 200
    }
    assert there.cancelled
    said = msgspec.json.decode(certified(case, Reach()))
    assert said["vendor_copies_left"] == 0
    (copy,) = said["vendor_copies"]
    assert (copy["state"], copy["vendor_id"], copy["lines"]) == (
        "deleted",
        there.cancelled[0],
        1,
    )
    assert bool(copy["note"]) is (vendor == "openai")  # Its API deletes files, not batches.
    assert [(each.action, each.actor, each.detail["case"]) for each in written] == [
        ("erasure.vendor_deleted", "gateway", case.id)
    ]
    assert written[0].detail["vendor_batch"] == there.cancelled[0]


async def test_where_settings_say_so_a_batch_of_others_too_is_waited_for(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    with handed_over(upstreams, "openai") as there:
        more = "erasure_cancels = false\n"
        async with running(tmp_path, database_url, upstreams, more) as (gateway, client):
            batch = await make(client, asked("openai", "ann", "bob"))
            await until_looked_at(there)
            desk = Desk(gateway)
            await desk.erase("ann")
            looks = there.looks
            while there.looks < looks + 3:
                await asyncio.sleep(0.02)
            case = await desk.case()
            assert (case.copies[0].state, case.copies[0].parcel_state) == ("ordered", "submitted")
            assert msgspec.json.decode(certified(case, Reach()))["vendor_copies_left"] == 1
            there.faults = ParcelFaults()
            case = await desk.until_ended()
            found = await all_results(client, await ended(client, batch))
    assert not there.cancelled
    assert list(found) == ["of-bob"]
    assert case.copies[0].state == "deleted"
    assert there.files == {}


async def test_a_batch_that_nobody_else_is_in_is_cancelled_whatever_settings_say(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    with handed_over(upstreams, "anthropic") as there:
        more = "erasure_cancels = false\n"
        async with running(tmp_path, database_url, upstreams, more) as (gateway, client):
            batch = await make(client, asked("anthropic", "ann", "ann2")[:1])
            await until_looked_at(there)
            desk = Desk(gateway)
            await desk.erase("ann")
            case = await desk.until_ended()
            await ended(client, batch)
    assert there.cancelled
    assert (case.copies[0].state, there.batches) == ("deleted", {})


@vendors
async def test_an_erased_organisation_leaves_nothing_at_a_vendor(
    tmp_path: Path, database_url: str, upstreams: Upstreams, vendor: str
) -> None:
    with handed_over(upstreams, vendor) as there:
        async with running(tmp_path, database_url, upstreams) as (gateway, client):
            await make(client, asked(vendor, "ann", "bob"))
            await until_looked_at(there)
            desk = Desk(gateway)
            await desk.erase(None)
            case = await desk.until_ended()
    assert states(case) == [("deleted", case.copies[0].provider, 2)]
    assert "the heron" not in words_at(vendor, there)


async def test_a_vendor_that_cannot_delete_now_is_asked_until_it_has(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    with handed_over(upstreams, "anthropic") as there:
        async with running(tmp_path, database_url, upstreams) as (gateway, client):
            batch = await make(client, asked("anthropic", "ann", "bob"))
            await until_looked_at(there)
            there.faults = ParcelFaults(is_slow=True, delete_status=503)
            desk = Desk(gateway)
            await desk.erase("ann")
            while (await desk.case()).copies[0].parcel_state != "collected":
                await asyncio.sleep(0.02)
            looks = there.looks
            while there.looks < looks + 2:
                await asyncio.sleep(0.02)
            assert (await desk.case()).copies_left == 1
            there.faults = SLOW
            case = await desk.until_ended()
            await ended(client, batch)
    assert (case.copies[0].state, case.copies_left, there.batches) == ("deleted", 0, {})


async def test_a_vendor_that_deletes_nothing_is_named_in_case_and_certificate(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    with handed_over(upstreams, "openai") as there:
        async with running(tmp_path, database_url, upstreams) as (gateway, client):
            batch = await make(client, asked("openai", "ann", "bob"))
            await until_looked_at(there)
            there.faults = ParcelFaults(is_slow=True, delete_status=405)
            desk = Desk(gateway)
            await desk.erase("ann")
            case = await desk.until_ended()
            await ended(client, batch)
        written = await deeds(gateway)
    assert (case.copies[0].state, case.copies[0].note) == ("kept", "the vendor refused with 405")
    said = msgspec.json.decode(certified(case, Reach()))
    assert (said["vendor_copies_left"], said["vendor_copies"][0]["state"]) == (1, "kept")
    assert [each.action for each in written] == ["erasure.vendor_kept"]
