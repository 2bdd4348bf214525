"""Where a parcel goes, step by step, as its vendor takes it, refuses it or says nothing."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import delete, update

from gateway.batching.forgetting import CANCELS_MAX, LOOKS_MIN, NEVER_ENDED, SLOWEST
from gateway.batching.parcel_journeys import (
    OVERDUE_S,
    RESENDS_MAX,
    SUBMIT_S,
    WAITS_MAX,
)
from gateway.batching.parcel_results import READS_MAX
from gateway.batching.parcel_runner import PARCELS_MAX
from gateway.batching.parking import Remnant
from gateway.errors import (
    ClientGone,
    NotReady,
    UpstreamFailed,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.parcels import FULL_STATUSES, Parcel, VendorBatch, VendorState, number_of
from gateway.providers.parcels.scripted import ParcelFaults
from gateway.store.batching.vendor_copies import VendorCopies
from gateway.store.engine import open_database
from gateway.store.schema.batches import batch_lines
from gateway.store.schema.parcels import parcels, vendor_copies
from tests.gateway.batching.parking_lot import POLL_S, RESERVED_S, Lot, Worker
from tests.gateway.batching.test_leads import before
from tests.gateway.store.rows import filled


pytestmark = [pytest.mark.anyio, pytest.mark.either]

SLOWEST_STEPS = int(SLOWEST) + 2


@pytest.fixture
async def lot(database_url: str) -> AsyncIterator[Lot]:
    database = open_database(database_url)
    lot = Lot(database)
    await lot.begin(3)
    yield lot
    await database.close()


def refused(status: int) -> UpstreamRefused:
    return UpstreamRefused("words", upstream_status=status)


async def handing_over(lot: Lot, faults: ParcelFaults) -> Worker:
    worker = await lot.worker("w0")
    await worker.park(3)
    lot.vendor.faults = faults
    return worker


async def sent(lot: Lot, worker: Worker) -> int:
    """How often the parcel was, until it is no more."""
    names = set()
    while rows := await lot.rows():
        names |= {(each.parcel_id, each.tries) for each in rows if each.state == "submitting"}
        await worker.tend()
    return len({name for name, _ in names})


@pytest.mark.parametrize("status", [500, 503])
async def test_a_vendor_that_fails_at_every_parcel_gets_its_lines_one_by_one_in_the_end(
    lot: Lot, status: int
) -> None:
    worker = await handing_over(lot, ParcelFaults(submit_status=status))
    await worker.tend()
    assert await sent(lot, worker) == RESENDS_MAX + 1
    assert set((await lot.states()).values()) == {"waiting"}
    assert [each.cost_microusd for each in lot.outcomes().values()] == [0, 0, 0]
    assert (await lot.spent(), await lot.stakes()) == ((0, 0), 0)
    # What came back once is not parked again.
    claims = await lot.lines.claim(lot.batch, lot.key, worker.holder, 3)
    assert [each.failures for each in claims] == [1, 1, 1]


@pytest.mark.parametrize("status", [500, 503])
async def test_a_parcel_that_was_taken_in_spite_of_what_its_vendor_said_is_not_sent_again(
    lot: Lot, status: int
) -> None:
    worker = await handing_over(lot, ParcelFaults(made_status=status))
    await worker.tend()
    assert await sent(lot, worker) == 1
    assert len(lot.taken()) == 1
    assert set((await lot.states()).values()) == {"succeeded"}


@pytest.mark.parametrize("status", sorted(FULL_STATUSES))
async def test_a_vendor_that_has_no_room_is_asked_a_few_times(lot: Lot, status: int) -> None:
    worker = await handing_over(lot, ParcelFaults(submit_status=status))
    await worker.tend()
    for tries in range(1, WAITS_MAX + 1):
        (row,) = await lot.rows()
        assert (row.state, row.tries) == ("new", tries)
        while (await lot.rows())[:1] == [row]:
            await worker.tend()
    assert await lot.rows() == []
    assert set((await lot.states()).values()) == {"waiting"}


async def test_a_parcel_whose_sending_was_broken_off_is_looked_for_before_it_is_sent_again(
    lot: Lot,
) -> None:
    worker = await handing_over(lot, ParcelFaults(submit_status=500))
    await worker.tend()
    (first,) = await lot.rows()
    lot.vendor.faults = ParcelFaults()
    looks = 0
    while (row := (await lot.rows())[0]).state == "submitting":
        looks += row.tries >= looks
        await worker.tend()
    assert looks == LOOKS_MIN + 1
    assert (row.state, row.resent, lot.taken()) == ("new", 1, [])
    assert row.parcel_id != first.parcel_id


async def test_a_parcel_that_may_not_go_there_stays_and_its_lines_go_one_by_one(lot: Lot) -> None:
    worker = await handing_over(lot, ParcelFaults())
    lot.vendor._jurisdiction = "elsewhere"
    await worker.tend()
    assert (lot.taken(), await lot.rows()) == ([], [])
    assert set((await lot.states()).values()) == {"waiting"}


async def test_a_parcel_that_nobody_wants_any_more_is_not_sent(lot: Lot) -> None:
    worker = await handing_over(lot, ParcelFaults())
    assert await lot.batches.cancel(lot.batch)
    await worker.tend()
    assert (lot.taken(), await lot.rows()) == ([], [])
    assert {each.error for each in lot.outcomes().values()} == {ClientGone.code}
    assert set((await lot.states()).values()) == {"waiting"}


async def test_nor_is_one_that_another_has_by_then(
    lot: Lot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped between writing down that it sends and sending."""
    worker = await handing_over(lot, ParcelFaults())
    begin_sending = worker.store.begin_sending

    async def begins(*given: Any) -> bool:
        has_begun = await begin_sending(*given)
        lot.clock.advance(SUBMIT_S)
        return has_begun

    monkeypatch.setattr(worker.store, "begin_sending", begins)
    await worker.step()
    assert lot.taken() == []
    (row,) = await lot.rows()
    assert row.state == "submitting"


async def test_nor_is_one_of_which_lines_were_erased_just_before(lot: Lot) -> None:
    worker = await handing_over(lot, ParcelFaults())

    async def erase() -> None:
        async with lot.database.writing() as connection:
            await connection.execute(delete(batch_lines).where(batch_lines.c.number == 2))
            await connection.execute(update(parcels).values(is_erased=1))

    before(worker.store, "begin_sending", erase)
    await worker.step()
    assert lot.taken() == []
    await worker.step()
    (taken,) = lot.taken()
    assert [number_of(line.custom_id, taken.parcel.name) for line in taken.parcel.lines] == [1, 3]
    (row,) = await lot.rows()
    assert (row.state, row.is_erased, row.lines) == ("submitted", False, 2)


async def slow(lot: Lot) -> Worker:
    """Its lines are with a vendor that takes its time."""
    worker = await handing_over(lot, ParcelFaults(is_slow=True))
    await worker.tend()
    assert [each.state for each in await lot.rows()] == ["submitted"]
    return worker


def check_given_back(lot: Lot, *, may_cost: bool) -> None:
    """Each line has its outcome, and is free only where its vendor can have done nothing."""
    ends = lot.outcomes().values()
    assert {each.error for each in ends} == {UpstreamTimeout.code}
    assert [each.cost_microusd > 0 for each in ends] == [may_cost] * 3


async def test_a_vendors_batch_that_is_not_there_any_more_gives_its_lines_back(lot: Lot) -> None:
    worker = await slow(lot)
    lot.vendor.taken.clear()
    while await lot.rows():
        await worker.tend()
    assert set((await lot.states()).values()) == {"waiting"}
    check_given_back(lot, may_cost=True)


@pytest.mark.parametrize("status", [404, 410])
async def test_a_vendor_that_does_not_find_its_batch_at_first_keeps_its_lines(
    lot: Lot, status: int
) -> None:
    """What was made a moment ago may not be known everywhere yet; it would be done twice."""
    worker = await slow(lot)
    lot.vendor.error = refused(status)
    while (await lot.rows())[0].tries < LOOKS_MIN:
        await worker.tend()
    assert set((await lot.states()).values()) == {"parked"}
    lot.vendor.error, lot.vendor.faults = None, ParcelFaults()
    while await lot.rows():
        await worker.tend()
    assert set((await lot.states()).values()) == {"succeeded"}
    assert len(lot.taken()) == 1


async def test_a_vendor_that_finds_its_batch_every_other_time_keeps_its_lines(
    lot: Lot, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await slow(lot)
    asked, looked = lot.vendor.look, 0

    async def look(vendor_id: str, deadline_s: float) -> VendorBatch:
        nonlocal looked
        looked += 1
        if looked % 2:
            raise refused(404)
        return await asked(vendor_id, deadline_s)

    monkeypatch.setattr(lot.vendor, "look", look)
    while looked < 2 * LOOKS_MIN + 3:
        await worker.tend()
        assert set((await lot.states()).values()) == {"parked"}


@pytest.mark.parametrize(("state", "may_cost"), [("failed", False), ("gone", True)])
async def test_a_batch_that_failed_as_a_whole_costs_nothing_and_one_whose_results_are_gone_may(
    lot: Lot, monkeypatch: pytest.MonkeyPatch, state: VendorState, *, may_cost: bool
) -> None:
    worker = await slow(lot)

    async def look(vendor_id: str, deadline_s: float) -> VendorBatch:
        del deadline_s
        return VendorBatch(vendor_id, state)

    monkeypatch.setattr(lot.vendor, "look", look)
    while "parked" in (await lot.states()).values():
        await worker.tend()
    assert set((await lot.states()).values()) == {"waiting"}
    check_given_back(lot, may_cost=may_cost)


@pytest.mark.parametrize(
    "error", [UpstreamUnreachable("away"), *(refused(status) for status in (401, 403, 429, 500))]
)
async def test_a_vendor_that_cannot_be_asked_now_keeps_its_lines(
    lot: Lot, error: UpstreamFailed
) -> None:
    worker = await slow(lot)
    lot.vendor.error = error
    await worker.tend(20)
    assert set((await lot.states()).values()) == {"parked"}
    lot.vendor.error = None
    lot.vendor.faults = ParcelFaults()
    while await lot.rows():
        await worker.tend()
    assert set((await lot.states()).values()) == {"succeeded"}


async def test_a_vendor_that_takes_longer_than_a_day_is_told_to_end(lot: Lot) -> None:
    worker = await slow(lot)
    lot.clock.advance(OVERDUE_S - 2 * POLL_S)
    await worker.step()
    assert not lot.taken()[0].is_cancelled
    lot.clock.advance(2 * POLL_S * SLOWEST)
    await worker.ledger.flush()
    await worker.tend(4)
    assert lot.taken()[0].is_cancelled
    assert set((await lot.states()).values()) == {"waiting"}


@pytest.mark.parametrize("status", [404, 409, 410])
async def test_what_cannot_be_told_to_end_is_waited_for_and_no_line_is_sent_twice(
    lot: Lot, status: int
) -> None:
    """That what it asks to end is not there is no word of the batch, which is there."""
    worker = await handing_over(lot, ParcelFaults(is_slow=True, cancel_status=status))
    await worker.tend(2)
    lot.clock.advance(OVERDUE_S)
    await worker.ledger.flush()
    while lot.vendor.cancels < 2:
        await worker.tend()
    assert set((await lot.states()).values()) == {"parked"}
    lot.vendor.faults = ParcelFaults()
    while await lot.rows():
        await worker.tend()
    assert set((await lot.states()).values()) == {"succeeded"}
    assert len(lot.taken()) == 1


async def test_a_vendor_that_does_not_end_what_it_is_told_to_is_not_waited_for(lot: Lot) -> None:
    worker = await slow(lot)
    assert await lot.batches.cancel(lot.batch)
    lot.vendor.error = UpstreamUnreachable("away")
    times = 0
    while set((await lot.states()).values()) == {"parked"}:
        (row,) = await lot.rows()
        times = max(times, row.tries)
        await worker.tend()
    assert times == CANCELS_MAX
    assert {each.error for each in lot.outcomes().values()} == {UpstreamTimeout.code}
    assert [each.state for each in await lot.rows()] == ["collected"]


async def test_an_answer_that_comes_long_after_its_money_was_set_aside_is_read_and_charged(
    lot: Lot,
) -> None:
    """The ledger has given that back, and forgotten it: it is set aside again."""
    worker = await slow(lot)
    lot.clock.advance(RESERVED_S + 3600.0)
    await worker.ledger.flush()
    lot.clock.advance(3600.0)
    await worker.ledger.flush()
    lot.vendor.faults = ParcelFaults()
    await worker.tend(int(SLOWEST) + 4)
    assert set((await lot.states()).values()) == {"succeeded"}
    costs = [each.cost_microusd for each in lot.outcomes().values()]
    assert len(costs) == 3
    assert await lot.spent() == (sum(costs), 0)


@pytest.mark.parametrize("is_wanted", [True, False])
async def test_a_batch_that_never_ends_is_told_to_so_often_and_not_again(
    lot: Lot, *, is_wanted: bool
) -> None:
    """Its lines cost what a call does whose answer never came, and that is on record."""
    worker = await handing_over(lot, ParcelFaults(is_slow=True, is_endless=True))
    await worker.tend(3)
    if is_wanted:
        lot.clock.advance(OVERDUE_S)
        await worker.ledger.flush()
    else:
        assert await lot.batches.cancel(lot.batch)
    while set((await lot.states()).values()) == {"parked"}:
        await worker.tend()
    await worker.tend(60)
    assert lot.vendor.cancels == CANCELS_MAX + 1
    (row,) = await lot.rows()
    assert (row.state, row.tries > CANCELS_MAX) == ("collected", True)
    outcomes = lot.outcomes().values()
    assert {each.error for each in outcomes} == {UpstreamTimeout.code}
    assert {each.status for each in outcomes} == {"failed"}
    costs = [each.cost_microusd for each in outcomes]
    assert min(costs) > 0
    (deed,) = [each for each in lot.audit.records if each.action == "batch.never_ended"]
    said = {name: deed.detail[name] for name in ("batch", "vendor_batch", "lines", "organisation")}
    assert said == {
        "batch": lot.batch.batch_id,
        "vendor_batch": "scripted-1",
        "lines": "3",
        "organisation": "acme",
    }
    assert await lot.spent() == (sum(costs), 0)


@pytest.mark.parametrize("does_end", [True, False])
async def test_what_never_ended_is_deleted_when_it_does_and_given_up_after_thirty_days(
    lot: Lot, *, does_end: bool
) -> None:
    worker = await handing_over(lot, ParcelFaults(is_slow=True, is_endless=True))
    await worker.tend(3)
    (row,) = await lot.rows()
    async with lot.database.writing() as connection:
        copy = {"parcel": row.parcel_id, "organisation": "acme", "state": "ordered"}
        await connection.execute(filled(vendor_copies, **copy, provider="scripted"))
    assert await lot.batches.cancel(lot.batch)
    while set((await lot.states()).values()) == {"parked"}:
        await worker.tend()
    if does_end:
        lot.vendor.faults = ParcelFaults()
    else:
        lot.clock.advance(30 * 86_400.0)
        await worker.ledger.flush()
    await worker.tend(SLOWEST_STEPS)
    assert await lot.rows() == []
    (copy_left,) = await VendorCopies(lot.database, lot.clock).of_organisation("acme")
    told = ("deleted", "") if does_end else ("kept", NEVER_ENDED)
    assert (copy_left.state, copy_left.note) == told
    assert len(lot.outcomes()) == 3


async def test_results_that_are_cut_again_and_again_are_read_a_few_times(lot: Lot) -> None:
    worker = await handing_over(lot, ParcelFaults())
    await worker.tend()
    reads = 0
    while set((await lot.states()).values()) == {"parked"} or reads <= READS_MAX:
        lot.vendor.faults = ParcelFaults(cut_after=0)
        await worker.tend()
        reads += lot.vendor.faults.cut_after is None
    assert reads == READS_MAX + 1
    assert set((await lot.states()).values()) == {"waiting"}
    check_given_back(lot, may_cost=True)


async def test_a_line_that_is_in_no_result_is_looked_for_in_all_readings(lot: Lot) -> None:
    worker = await handing_over(lot, ParcelFaults(lost=frozenset({2}), is_doubled=True))
    while await lot.rows() or not lot.taken():
        await worker.tend()
    assert await lot.states() == {1: "succeeded", 2: "waiting", 3: "succeeded"}


async def test_a_provider_that_is_not_there_any_more_gives_lines_back(lot: Lot) -> None:
    worker = await slow(lot)
    lot.service = None
    await worker.tend(2)
    assert await lot.rows() == []
    assert set((await lot.states()).values()) == {"waiting"}
    check_given_back(lot, may_cost=True)


async def test_what_cannot_be_looked_for_within_a_day_gives_lines_back(lot: Lot) -> None:
    worker = await handing_over(lot, ParcelFaults(submit_status=500))
    await worker.tend()
    lot.vendor.error = UpstreamUnreachable("away")
    await worker.tend(20)
    assert [each.state for each in await lot.rows()] == ["submitting"]
    lot.clock.advance(OVERDUE_S)
    await worker.ledger.flush()
    await worker.runner.tend()
    await worker.failures()  # Of some the ledger does not know any more.
    await worker.tend(3)
    assert await lot.rows() == []
    assert set((await lot.states()).values()) == {"waiting"}


async def test_a_line_that_is_on_record_as_failed_is_not_sent_again_with_its_parcel(
    lot: Lot,
) -> None:
    """Ended on purpose between the outcomes of what a vendor refused and the end of its lines."""
    worker = await handing_over(lot, ParcelFaults(submit_status=403))

    async def crash() -> None:
        raise NotReady("ended on purpose")

    before(worker.waiting, "end", crash)
    await worker.runner.tend()
    assert [type(each) for each in await worker.failures()] == [NotReady]
    lot.vendor.faults = ParcelFaults()
    while await lot.rows():
        await worker.tend()
    assert lot.taken() == []
    assert len(lot.outcomes()) == 3
    assert set((await lot.states()).values()) == {"waiting"}
    assert (await lot.spent(), await lot.stakes()) == ((0, 0), 0)


async def test_a_parcel_whose_lines_are_all_erased_is_let_go_of_and_its_order_says_so(
    lot: Lot,
) -> None:
    worker = await handing_over(lot, ParcelFaults())

    async def erase() -> None:
        copies = VendorCopies(lot.database, lot.clock)
        async with lot.database.writing() as connection:
            await copies.order(connection, "", "acme", lot.batch.batch_id, frozenset())
            await connection.execute(delete(batch_lines))

    before(worker.store, "begin_sending", erase)
    await worker.step()
    await worker.step()
    assert (lot.taken(), await lot.rows()) == ([], [])
    (copy,) = await VendorCopies(lot.database, lot.clock).of_organisation("acme")
    assert (copy.state, copy.lines) == ("unsent", 3)
    assert [each.action for each in lot.audit.records if each.action] == ["erasure.vendor_unsent"]


async def test_a_parcel_of_which_no_line_can_be_read_is_not_sent(
    lot: Lot, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await handing_over(lot, ParcelFaults())
    monkeypatch.setattr("gateway.batching.parked_lines.decode_ticket", lambda _: Remnant())
    await worker.tend()
    assert (lot.taken(), await lot.rows()) == ([], [])
    assert set((await lot.states()).values()) == {"errored"}
    await worker.reservations.drop_ended(lot.lines)
    assert (await lot.spent(), await lot.stakes()) == ((0, 0), 0)


async def test_a_step_that_takes_long_is_taken_once_and_only_a_few_at_once(lot: Lot) -> None:
    worker = await slow(lot)
    async with lot.database.writing() as connection:
        for at in range(2 * PARCELS_MAX):
            row = {"id": f"p-{at}", "batch_id": lot.batch.batch_id, "state": "submitted"}
            until_us = {"made_us": lot.clock.utc_us(), "vendor_id": "scripted-1"}
            await connection.execute(filled(parcels, **row, **until_us))
    terms = sum(each.term for each in await lot.rows())
    goes_on = asyncio.Event()
    looked: list[str] = []

    async def looks(vendor_id: str, deadline_s: float) -> VendorBatch:
        del deadline_s
        looked.append(vendor_id)
        await goes_on.wait()
        return VendorBatch(vendor_id, "under_way")

    lot.vendor.look = looks  # type: ignore[method-assign]
    for _ in range(3):
        lot.clock.advance(POLL_S)
        await worker.runner.tend()
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        while len(looked) < PARCELS_MAX:
            await asyncio.sleep(0.01)
    assert sum(each.term for each in await lot.rows()) == terms + PARCELS_MAX
    goes_on.set()
    assert await worker.failures() == []
    assert len(looked) == PARCELS_MAX


async def test_whoever_leaves_gives_back_its_money_and_its_parcels_at_once(lot: Lot) -> None:
    first = await slow(lot)
    await first.runner.close()
    assert (await lot.spent(), await lot.stakes()) == ((0, 0), 0)
    second = await lot.worker("w1")
    lot.vendor.faults = ParcelFaults()
    await second.tend()
    assert set((await lot.states()).values()) == {"succeeded"}


async def test_the_next_process_of_a_worker_goes_on_at_once(lot: Lot) -> None:
    await slow(lot)
    lot.workers.clear()
    lot.vendor.faults = ParcelFaults()
    other = await lot.worker("w1")
    await other.step()
    assert set((await lot.states()).values()) == {"parked"}
    again = await lot.worker("w0")
    await again.step()
    assert set((await lot.states()).values()) == {"succeeded"}


async def test_a_vendors_batch_of_which_lines_were_erased_is_told_to_end(lot: Lot) -> None:
    worker = await slow(lot)
    async with lot.database.writing() as connection:
        await connection.execute(delete(batch_lines).where(batch_lines.c.number == 2))
        await connection.execute(update(parcels).values(is_erased=1))
    await worker.tend(4)
    assert lot.taken()[0].is_cancelled
    assert await lot.states() == {1: "waiting", 3: "waiting"}


async def test_a_vendor_that_says_when_it_has_room_is_asked_then(
    lot: Lot, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await handing_over(lot, ParcelFaults())
    asked: list[int] = []

    async def submits(parcel: Parcel, deadline_s: float) -> str:
        del parcel, deadline_s
        asked.append(lot.clock.utc_us())
        raise UpstreamRefused("full", upstream_status=429, retry_after_s=20 * POLL_S)

    monkeypatch.setattr(lot.vendor, "submit", submits)
    while len(asked) < 2:
        await worker.tend()
    assert asked[1] - asked[0] >= 20 * POLL_S * 1e6


async def test_each_line_gets_what_its_vendor_said_of_it(lot: Lot) -> None:
    faults = ParcelFaults(refused=frozenset({1}), unsent=frozenset({2}), is_doubled=True)
    worker = await handing_over(lot, faults)
    await worker.tend()
    while set((await lot.states()).values()) == {"parked"}:
        await worker.tend()
    assert await lot.states() == {1: "errored", 2: "waiting", 3: "succeeded"}
    ends = {each.detail["line"]: each for each in lot.outcomes().values()}
    assert [ends[number].status for number in "123"] == ["failed", "failed", "ok"]
    assert [ends[number].cost_microusd > 0 for number in "123"] == [False, False, True]
    assert ends["2"].error == UpstreamTimeout.code
    usage = ends["3"].usage
    assert usage is not None
    assert usage.service_tier == "batch"


async def test_a_download_that_is_cut_once_is_read_again_before_anything_goes_alone(
    lot: Lot,
) -> None:
    worker = await handing_over(lot, ParcelFaults(cut_after=1))
    await worker.tend()
    while await lot.rows():
        await worker.tend()
    assert set((await lot.states()).values()) == {"succeeded"}
