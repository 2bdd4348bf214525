"""Parked lines that do not open any more: each ends alone, and costs what it has cost."""

from collections.abc import AsyncIterator

import msgspec
import pytest
from sqlalchemy import update

from gateway.batches import UNREADABLE, Line
from gateway.batching.parcel_runner import GATHER_S
from gateway.batching.parking import Remnant, RemnantReservation
from gateway.batching.remnants import ON_RECORD_US, loss_of
from gateway.batching.unanswered import LOST, UNENDED, UNREAD, UNTAKEN
from gateway.errors import AuditUnavailable, GatewrightError, NotReady
from gateway.parcels import VendorBatch, VendorResult
from gateway.providers.parcels.scripted import ParcelFaults
from gateway.store.batching.parcel_rows import ParkedLine
from gateway.store.engine import open_database
from gateway.store.schema.batches import batch_lines
from gateway.store.schema.parcels import parked_lines
from gateway.types import AuditRecord, Receipt
from tests.gateway.batching.parking_lot import HELD, POLL_S, Lot


pytestmark = [pytest.mark.anyio, pytest.mark.either]
GOOD = 4
DAMAGED = (
    *((batch_lines, "sealed_body"), (batch_lines, "sealed_id"), (parked_lines, "sealed_ticket")),
)
"""Of the lines 1, 2 and 3."""


@pytest.fixture
async def lot(database_url: str) -> AsyncIterator[Lot]:
    database = open_database(database_url)
    lot = Lot(database)
    await lot.begin(GOOD)
    yield lot
    await database.close()


async def damage(lot: Lot) -> None:
    async with lot.database.writing() as connection:
        for number, (table, column) in enumerate(DAMAGED, 1):
            row = update(table).where(table.c.number == number)
            await connection.execute(row.values({column: b"not what was sealed"}))


async def lose(lot: Lot, *numbers: int) -> None:
    """Tickets of these lines."""
    async with lot.database.writing() as connection:
        row = update(parked_lines).where(parked_lines.c.number.in_(numbers))
        await connection.execute(row.values(sealed_ticket=b"not what was sealed"))


async def errors(lot: Lot) -> list[str]:
    """What the results say of all lines that failed."""
    (group,) = [group async for group in lot.lines.ended(lot.batch, lot.key)]
    bodies = [line.end.body for line in group if line.end and line.state == "errored"]
    return [msgspec.json.decode(body)["error"]["message"] for body in bodies]


def costs(lot: Lot, requests: list[str]) -> list[tuple[int, str]]:
    """What each is recorded to cost, and how that is known; each is recorded by its own name."""
    ends = lot.outcomes()
    assert ends.keys() == set(requests)
    return [(ends[each].cost_microusd, ends[each].detail.get("cost", "")) for each in requests]


async def check_books(lot: Lot) -> None:
    """What is recorded is booked, and nothing is set aside any more."""
    for worker in lot.workers:
        await worker.reservations.drop_ended(lot.lines)
    total_microusd = sum(each.cost_microusd for each in lot.outcomes().values())
    assert await lot.spent() == (total_microusd, 0)
    assert await lot.stakes() == 0


@pytest.mark.parametrize("is_handed_over", [False, True])
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_damaged_lines_end_alone_for_what_they_cost(
    lot: Lot, is_handed_over: bool, is_restarted: bool
) -> None:
    """By what the vendor counted, where the ticket has its price, else what was set aside."""
    worker = await lot.worker("w0")
    requests = await worker.park(GOOD)
    if is_handed_over:
        await worker.tend()
    await damage(lot)
    if is_restarted:
        await worker.reservations.let_go()
        worker = await lot.worker("w1")
        await lot.wait(GATHER_S + 60.0)
    await worker.ended(requests)

    handed = [len(each.parcel.lines) for each in lot.taken()]
    assert handed == [GOOD if is_handed_over else 1]
    assert await lot.states() == {1: "errored", 2: "errored", 3: "errored", GOOD: "succeeded"}
    (*lost, (cost_microusd, _)) = costs(lot, requests)
    assert 0 < cost_microusd < HELD
    counted = (cost_microusd, "")
    assert lost == ([counted, counted, (HELD, "reserved")] if is_handed_over else [(0, "")] * 3)
    ends = lot.outcomes()
    assert {ends[each].error for each in requests[:3]} == {"internal_error"}
    assert [ends[each].detail["line"] for each in requests] == ["1", "2", "3", "4"]
    assert {ends[each].target for each in requests} == {"scripted/one"}
    assert await errors(lot) == [UNREADABLE] * 3
    await check_books(lot)


async def test_a_count_that_cannot_be_costs_no_more_than_was_set_aside(
    lot: Lot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of lines that nobody can read any more, and of one that is whole."""
    worker = await lot.worker("w0")
    requests = await worker.park(GOOD)
    await worker.tend()
    await damage(lot)
    results = lot.vendor.results

    async def impossible(
        batch: VendorBatch, lines: int, deadline_s: float
    ) -> AsyncIterator[VendorResult]:
        async for each in results(batch, lines, deadline_s):
            tree = msgspec.json.decode(each.body)
            tree["usage"]["prompt_tokens"] = 9 * 10**8
            yield msgspec.structs.replace(each, body=msgspec.json.encode(tree))

    monkeypatch.setattr(lot.vendor, "results", impossible)
    await worker.ended(requests)

    (*lost, (cost_microusd, _)) = costs(lot, requests)
    assert lost == [(HELD, "reserved")] * 3
    assert 0 < cost_microusd <= HELD
    whole = lot.outcomes()[requests[-1]].usage
    assert whole is not None
    assert whole.disbelieved == 9 * 10**8
    await check_books(lot)


async def test_a_ticket_that_is_lost_waits_for_its_intent_and_ends_once(lot: Lot) -> None:
    """Its worker has gone, so that only the log knows whose it is."""
    first = await lot.worker("w0")
    requests = await first.park(GOOD)
    await first.tend()
    await lose(lot, 1)
    await first.reservations.let_go()
    second = await lot.worker("w1")
    await lot.wait(90.0)
    lot.hides_outcomes = True
    await second.runner.tend()
    (failure,) = await second.failures()
    assert isinstance(failure, NotReady)
    assert "1" not in {each.detail["line"] for each in lot.outcomes().values()}
    lot.hides_outcomes = False
    await second.ended(requests)
    assert costs(lot, requests)[0] == (HELD, "reserved")
    await check_books(lot)


async def test_a_ticket_that_is_lost_and_never_was_on_record_keeps_no_parcel_for_ever(
    lot: Lot,
) -> None:
    first = await lot.worker("w0")
    requests = await first.park(GOOD)
    await first.tend()
    await lose(lot, 1)
    await first.reservations.let_go()
    lot.audit.records = [each for each in lot.audit.records if each.request_id != requests[0]]
    second = await lot.worker("w1")
    await lot.wait(ON_RECORD_US / 1e6)
    await second.ended(requests[1:])
    assert (await lot.states())[1] == "errored"
    (lost,) = [each for each in lot.outcomes().values() if each.request_id not in requests[1:]]
    assert (lost.request_id in requests, lost.cost_microusd) == (False, 0)
    assert lost.detail["cost"] == "unknown"


async def test_a_lost_line_whose_end_cannot_be_written_is_paid_once(lot: Lot) -> None:
    first = await lot.worker("w0")
    requests = await first.park(GOOD)
    await first.tend()
    await damage(lot)
    append = lot.audit.append
    tries: list[AuditRecord] = []

    async def failing(record: AuditRecord, content: bytes | None = None) -> Receipt:
        if record.stage == "outcome" and record.detail["line"] == "3" and len(tries) < 3:
            tries.append(record)
            raise AuditUnavailable("The disk is away for a moment.")
        receipt: Receipt = await append(record, content)
        return receipt

    lot.audit.append = failing
    while len(tries) < 3:
        await first.runner.tend()
        await first.failures()
        await lot.wait(POLL_S)
    await first.ended(requests)
    assert costs(lot, requests)[2] == (HELD, "reserved")
    await check_books(lot)


async def test_a_line_that_its_vendor_refused_or_never_came_to_is_free(lot: Lot) -> None:
    worker = await lot.worker("w0")
    requests = await worker.park(GOOD)
    await worker.tend()
    await damage(lot)
    lot.vendor.faults = ParcelFaults(refused=frozenset({1}), unsent=frozenset({3}))
    await worker.ended(requests)
    (refused, counted, unsent, whole) = costs(lot, requests)
    assert (refused, unsent, counted) == ((0, ""), (0, ""), whole)
    assert whole[0] > 0
    await check_books(lot)


@pytest.mark.parametrize(
    ("said", "owed"), [(None, 0), (LOST, 0), (UNTAKEN, 0), (UNENDED, HELD), (UNREAD, HELD)]
)
def test_what_no_vendor_answered_is_free_unless_nobody_knows(
    said: GatewrightError | None, owed: int
) -> None:
    remnant = Remnant("req-1", 5, reservation=RemnantReservation(("org:acme",), HELD))
    line = ParkedLine(Line(1, "", b"", is_damaged=True), b"", 0, False, "scripted/one")
    loss = loss_of(line, remnant, remnant, said)
    assert (loss.cost_microusd, loss.is_unknown) == (owed, False)
