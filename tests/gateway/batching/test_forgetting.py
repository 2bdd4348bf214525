"""What a vendor is asked in vain is counted; what it could not be asked is not."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import select, update

from gateway.audit.memory import MemoryAuditLog
from gateway.batching.forgetting import (
    CANCELS_MAX,
    LOOKS_MIN,
    NEVER_ENDED,
    REFUSALS_MAX,
    Forgetting,
)
from gateway.clock import StoppedClock
from gateway.errors import UpstreamFailed, UpstreamRefused, UpstreamUnreachable
from gateway.oversight.deeds import Deeds
from gateway.parcels import VendorBatch
from gateway.providers.parcels.scripted import ParcelFaults, ScriptedParcels
from gateway.providers.scripted import ScriptedProvider
from gateway.store.batching.parcel_rows import ParcelRow
from gateway.store.batching.parcels import ParcelStore
from gateway.store.batching.unsent_lines import UnsentLines
from gateway.store.batching.vendor_copies import VendorCopies
from gateway.store.engine import Database, open_database
from gateway.store.schema.parcels import parcels, unsent_lines, vendor_copies
from tests.gateway.store.rows import filled


pytestmark = pytest.mark.anyio
OFTEN = 3 * max(LOOKS_MIN, REFUSALS_MAX)
AWAY = [UpstreamUnreachable("away"), UpstreamRefused("busy", upstream_status=503)]


class Vendor(ScriptedParcels):
    """One that cannot be reached while there is an error."""

    error: UpstreamFailed | None = None
    is_endless = False

    async def find(
        self, name: str, count: int, made_us: int, deadline_s: float
    ) -> VendorBatch | None:
        if self.error is not None:
            raise self.error
        return await super().find(name, count, made_us, deadline_s)

    async def look(self, vendor_id: str, deadline_s: float) -> VendorBatch:
        del deadline_s
        return VendorBatch(vendor_id, "under_way" if self.is_endless else "ended")

    async def cancel(self, vendor_id: str, deadline_s: float) -> None:
        del vendor_id, deadline_s
        self.cancels += 1
        if status := self.faults.cancel_status:
            raise UpstreamRefused("scripted", upstream_status=status)

    async def tidy(self, batch: VendorBatch, deadline_s: float) -> None:
        if self.error is not None:
            raise self.error
        await super().tidy(batch, deadline_s)


class Scene:
    """A parcel whose answers nobody waits for, and of which lines were erased."""

    def __init__(self, database: Database, audit: MemoryAuditLog) -> None:
        clock = StoppedClock()
        self.database = database
        self.clock = clock
        self.store = ParcelStore(database, clock)
        self.copies = VendorCopies(database, clock)
        deeds = Deeds(audit, clock)
        self.forgetting = Forgetting(self.store, self.copies, deeds, clock, poll_s=1.0)
        provider = ScriptedProvider("scripted", "in-house", "openai_chat")
        self.vendor = Vendor("in-house", "openai_chat", provider.parcels._answer)

    async def begin(self, state: str) -> None:
        row = {"id": "p", "batch_id": "b", "state": state, "vendor_id": "v1", "provider": "openai"}
        copy = {"parcel": "p", "organisation": "acme", "state": "ordered", "provider": "openai"}
        async with self.database.writing() as connection:
            made_us = self.clock.utc_us()
            await connection.execute(filled(parcels, **row, made_us=made_us))
            await connection.execute(filled(vendor_copies, **copy))

    async def row(self) -> ParcelRow | None:
        """None where it was let go of: then nothing is counted for it any more."""
        if await self.is_gone():
            assert not self.forgetting.in_vain._times
        return await self.store.take("p", "w0.1")

    async def is_gone(self) -> bool:
        async with self.database.reading() as connection:
            return (await connection.execute(select(parcels.c.id))).first() is None

    async def step(self, times: int = 1) -> None:
        for _ in range(times):
            row = await self.row()
            assert row is not None
            await self.forgetting.step(row, self.vendor)

    async def end(self) -> tuple[str, str]:
        (copy,) = await self.copies.of_organisation("acme")
        return copy.state, copy.note


@pytest.fixture
async def scene(database_url: str) -> AsyncIterator[Scene]:
    database = open_database(database_url)
    audit = MemoryAuditLog()
    await audit.start()
    yield Scene(database, audit)
    await database.close()


@pytest.mark.parametrize("error", AWAY)
async def test_a_parcel_is_given_up_as_never_sent_only_after_answers_that_it_is_not_there(
    scene: Scene, error: UpstreamFailed
) -> None:
    await scene.begin("submitting")
    scene.vendor.error = error
    await scene.step(OFTEN)
    scene.vendor.error = None
    await scene.step(LOOKS_MIN)
    assert await scene.end() == ("ordered", "")
    await scene.step()
    assert await scene.row() is None
    assert await scene.end() == ("unsent", "")


@pytest.mark.parametrize("error", AWAY)
async def test_what_a_vendor_keeps_is_believed_only_after_refusals(
    scene: Scene, error: UpstreamFailed
) -> None:
    await scene.begin("collected")
    scene.vendor.error = error
    await scene.step(OFTEN)
    scene.vendor.error = None
    scene.vendor.faults = ParcelFaults(delete_status=400)
    await scene.step(REFUSALS_MAX)
    assert await scene.end() == ("ordered", "")
    await scene.step()
    assert await scene.row() is None
    assert await scene.end() == ("kept", "the vendor refused with 400")


@pytest.mark.parametrize("status", [401, 403, 408, 409, 425, 429, 500])
async def test_a_refusal_that_may_be_mended_is_not_counted(scene: Scene, status: int) -> None:
    await scene.begin("collected")
    scene.vendor.faults = ParcelFaults(delete_status=status)
    await scene.step(OFTEN)
    scene.vendor.faults = ParcelFaults()
    await scene.step()
    assert await scene.row() is None
    assert await scene.end() == ("deleted", "")


@pytest.mark.parametrize(
    ("state", "steps", "debt"), [("new", 1, "none"), ("submitting", 3, "owed")]
)
async def test_erased_lines_of_a_parcel_that_may_have_been_sent_are_owed(
    scene: Scene, state: str, steps: int, debt: str
) -> None:
    await scene.begin(state)
    unsent = UnsentLines(scene.database, scene.clock)
    async with scene.database.writing() as connection:
        await connection.execute(filled(unsent_lines, batch_id="b", number=1, parcel="p"))
    assert await unsent.debt("b", 1) == "unknown"
    await scene.step(steps)
    assert await scene.row() is None
    assert await unsent.debt("b", 1) == debt


@pytest.mark.parametrize("status", [404, 410])
async def test_what_is_not_there_is_deleted(scene: Scene, status: int) -> None:
    await scene.begin("collected")
    scene.vendor.faults = ParcelFaults(delete_status=status)
    await scene.step()
    assert await scene.row() is None
    assert await scene.end() == ("deleted", "")


async def test_after_thirty_days_a_vendor_that_cannot_be_asked_keeps_it(scene: Scene) -> None:
    await scene.begin("collected")
    scene.vendor.error = UpstreamUnreachable("away")
    scene.clock.advance(30 * 86_400.0 - 1)
    await scene.step()
    assert await scene.end() == ("ordered", "")
    scene.clock.advance(1.0)
    await scene.step()
    assert await scene.row() is None
    assert await scene.end() == ("kept", "the vendor could not be asked for thirty days")


async def test_what_nobody_wants_is_told_to_end_so_often_from_whatever_state(scene: Scene) -> None:
    """However often it was looked at before, while somebody did."""
    await scene.begin("submitted")
    async with scene.database.writing() as connection:
        await connection.execute(update(parcels).values(tries=3 * CANCELS_MAX))
    scene.vendor.is_endless = True
    await scene.step(3 * CANCELS_MAX)
    assert scene.vendor.cancels == CANCELS_MAX
    scene.vendor.is_endless = False
    await scene.step(2)
    assert await scene.row() is None
    assert await scene.end() == ("deleted", "")


@pytest.mark.parametrize("status", [400, 404, 410, 501])
@pytest.mark.parametrize("state", ["cancelling", "collected"])
async def test_a_refusal_to_end_what_is_under_way_is_no_word_of_what_is_kept(
    scene: Scene, state: str, status: int
) -> None:
    """Nor one that it is gone: it was there a moment before, and is deleted when it has ended."""
    await scene.begin(state)
    scene.vendor.is_endless = True
    scene.vendor.faults = ParcelFaults(cancel_status=status)
    await scene.step(OFTEN)
    row = await scene.row()
    assert row is not None
    assert (row.state, scene.vendor.cancels) == (state, min(OFTEN, CANCELS_MAX))
    scene.vendor.is_endless = False
    await scene.step(2 if state == "cancelling" else 1)
    assert await scene.row() is None
    assert (await scene.end(), scene.vendor.forgotten) == (("deleted", ""), ["v1"])


async def test_what_is_under_way_again_where_it_was_taken_for_gone_is_told_to_end(
    scene: Scene,
) -> None:
    await scene.begin("collected")
    scene.vendor.is_endless = True
    await scene.step(2)
    row = await scene.row()
    assert row is not None
    assert (row.state, row.tries, scene.vendor.cancels) == ("collected", 2, 2)
    scene.clock.advance(30 * 86_400.0)
    await scene.step()
    assert await scene.row() is None
    assert await scene.end() == ("kept", NEVER_ENDED)
