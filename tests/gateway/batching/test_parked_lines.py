"""Money of lines that wait: held by one worker, and by nobody once the line has ended."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest
from msgspec import structs
from sqlalchemy import delete

from gateway.batching.parcel_journeys import SETTLING_S
from gateway.batching.parcel_runner import GATHER_S
from gateway.batching.parking import Remnant, Ticket, decode_ticket
from gateway.errors import AuditUnavailable, LeaseOver, NotReady
from gateway.money.budgets import Limit
from gateway.store.batching.parcel_rows import TEND_US
from gateway.store.batching.parcels import CRASHED_REST_US
from gateway.store.engine import open_database
from gateway.store.money.late_bookings import LateCost
from gateway.store.schema.batches import batch_lines
from tests.gateway.batching.parking_lot import (
    ACCOUNT,
    FLUSH_S,
    HELD,
    LIMIT,
    NOBODY,
    POLL_S,
    RESERVED_S,
    Lot,
    Worker,
)
from tests.gateway.batching.test_leads import before


pytestmark = [pytest.mark.anyio, pytest.mark.either]

WRITTEN_OFF_S = 91.0


@pytest.fixture
async def lot(database_url: str) -> AsyncIterator[Lot]:
    database = open_database(database_url)
    lot = Lot(database)
    await lot.begin(4)
    yield lot
    await database.close()


async def both(lot: Lot) -> tuple[Worker, Worker, list[str], list[str]]:
    """Two workers that parked half of the lines each."""
    first, second = await lot.worker("w0"), await lot.worker("w1")
    return first, second, await first.park(2), await second.park(2)


async def taken_over(lot: Lot) -> tuple[Worker, list[str]]:
    """The second does not come to its lines, so the first has them answered with its own."""
    first, second, own, others = await both(lot)
    await lot.wait(GATHER_S)
    await first.ended(own + others)
    assert set((await lot.states()).values()) == {"succeeded"}
    return second, others


async def test_each_worker_hands_over_what_it_parked_itself(lot: Lot) -> None:
    """Whoever hands over a line holds money for it: once is enough."""
    first, second, own, others = await both(lot)
    await first.tend()
    await second.tend()
    handed = [[line.call.request_id for line in each.parcel.lines] for each in lot.taken()]
    assert handed == [own, others]
    assert await lot.spent() == (0, 4 * HELD)


async def test_others_have_their_turns_while_the_lines_of_a_parcel_are_opened(
    lot: Lot, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = most = known = 0

    def opening(raw: bytes) -> Ticket | Remnant:
        nonlocal opened
        opened += 1
        return decode_ticket(raw)

    monkeypatch.setattr("gateway.batching.parked_lines.HELD_AT_ONCE", 2)
    monkeypatch.setattr("gateway.batching.parked_lines.decode_ticket", opening)
    worker = await lot.worker("w0")
    requests = await worker.park(4)
    stepping = asyncio.ensure_future(worker.step())
    while not stepping.done():
        await asyncio.sleep(0)
        most, known = max(most, opened - known), opened
    await stepping
    (taken,) = lot.taken()
    assert [line.call.request_id for line in taken.parcel.lines] == requests
    assert (opened, most) == (4, 2)


async def test_what_a_worker_holds_for_lines_that_another_ended_goes_back(lot: Lot) -> None:
    second, _ = await taken_over(lot)
    spent = sum(each.cost_microusd for each in lot.outcomes().values())
    assert await lot.spent() == (spent, 2 * HELD)
    assert second.reservations.holds_any()
    lot.hides_outcomes = True  # That their rows say it is enough.
    for _ in range(2):
        await second.reservations.drop_ended(lot.lines)
    assert await lot.spent() == (spent, 0)
    assert (await lot.stakes(), second.reservations.holds_any()) == (0, False)
    assert second.reservations._places == {}, "a worker would grow with each such line"


async def test_lines_that_a_vendor_has_once_more_are_owed_once_more_and_no_oftener(
    lot: Lot,
) -> None:
    worker = await lot.worker("w0")
    await worker.park(2)
    held = await worker.parked.hold(lot.batch, lot.key, NOBODY, [1, 2])
    for times, parcel in ((1, "parcel_1"), (1, "parcel_1"), (2, "parcel_2")):
        assert (
            await worker.reservations.pay_twice(parcel, held, worker.lot.clock.utc_us()) == 2 * HELD
        )
        assert await lot.spent() == (2 * times * HELD, 2 * HELD)


async def test_what_is_held_for_a_line_is_found_by_its_place_and_no_other(lot: Lot) -> None:
    """Where its ticket says nothing any more, this is whom and what it is charged to."""
    worker = await lot.worker("w0")
    requests = await worker.park(2)
    batch = lot.batch.batch_id
    for number, request in enumerate(requests, 1):
        held = worker.reservations.held_for(batch, number)
        assert held == (request, worker.reservations.of(request))
    for place in ((batch, 3), ("batch_other", 1)):
        assert worker.reservations.held_for(*place) == ("", None)


async def test_it_stays_aside_as_long_as_they_wait(lot: Lot) -> None:
    worker = await lot.worker("w0")
    await worker.park(4)
    await worker.tend()
    await worker.reservations.drop_ended(lot.lines)
    assert (await lot.spent(), await lot.stakes()) == ((0, 4 * HELD), 4)


async def test_of_lines_that_are_gone_it_goes_back_when_they_are_on_record(lot: Lot) -> None:
    """A batch of files keeps no line; of one that was erased its cost may still be booked."""
    second, others = await taken_over(lot)
    recorded = lot.outcomes().pop(others[0])
    lot.audit.records.remove(recorded)
    async with lot.database.writing() as connection:
        await connection.execute(delete(batch_lines))
    await second.reservations.drop_ended(lot.lines)
    assert (await lot.spent())[1] == HELD
    assert await lot.stakes() == 1
    lot.audit.records.append(structs.replace(recorded, cost_microusd=0))
    await second.reservations.drop_ended(lot.lines)
    assert (await lot.spent())[1] == 0
    assert await lot.stakes() == 0


POINTS = [
    *(("waiting", "lines"), ("parked", "hold"), ("money", "note"), ("waiting", "begin_ending")),
    *(("journeys", "deliver"), ("waiting", "end")),
]


async def overtaken(lot: Lot, owner: str, name: str, away_s: float) -> int:
    """The first is away at this point for so long, the second ends its lines; what they cost."""
    first, second = await lot.worker("w0"), await lot.worker("w1")
    requests = await first.park(4)
    await first.tend()
    await lot.spent()  # What lies idle went back, so that only what is held can be lost.

    async def take_over() -> None:
        lot.workers.remove(first)
        await lot.wait(away_s)
        for _ in range(4):
            await second.step()
            await lot.wait(SETTLING_S)
        lot.workers.append(first)

    before(getattr(first, owner), name, take_over)
    await first.step()
    await first.ended(requests)
    for worker in (first, second):
        await worker.reservations.drop_ended(lot.lines)
    assert set((await lot.states()).values()) == {"succeeded"}
    assert set(lot.outcomes()) == set(requests)
    return sum(each.cost_microusd for each in lot.outcomes().values())


@pytest.mark.parametrize(("owner", "name"), POINTS)
async def test_lines_of_a_worker_that_was_away_are_paid_once(
    lot: Lot, owner: str, name: str
) -> None:
    cost = await overtaken(lot, owner, name, TEND_US / 1e6)
    assert (await lot.spent(), await lot.stakes()) == ((cost, 0), 0)


@pytest.mark.parametrize(("owner", "name"), POINTS)
async def test_they_are_paid_once_also_where_its_leases_were_written_off(
    lot: Lot, owner: str, name: str
) -> None:
    """What it had begun to end counts as spent with its leases, and is not paid besides."""
    cost = await overtaken(lot, owner, name, 100.0)
    had_begun = name in {"deliver", "end"}
    assert (await lot.spent(), await lot.stakes()) == ((4 * HELD if had_begun else cost, 0), 0)


async def looked_at_by(lot: Lot, away: Worker, other: Worker) -> None:
    """A worker is away until another one leads its parcel, and has yet to end its lines."""
    lot.workers.remove(away)
    await lot.wait(TEND_US / 1e6)
    await other.step()
    lot.workers.append(away)


async def test_who_comes_too_late_to_end_lines_leaves_them_counted_as_they_are(lot: Lot) -> None:
    """A crash counted them as spent; of three workers the second is away, and the third ends."""
    first, second, third = [await lot.worker(f"w{number}") for number in range(3)]
    requests = await first.park(4)
    await first.tend()
    await lot.spent()

    async def crash() -> None:
        raise NotReady("ended on purpose")

    before(first.journeys, "deliver", crash)
    await first.runner.tend()
    assert [type(each) for each in await first.failures()] == [NotReady]
    lot.workers.remove(first)
    await lot.wait(100.0)
    await second.step()
    await lot.wait(SETTLING_S)
    before(second.waiting, "begin_ending", partial(looked_at_by, lot, second, third))
    await second.step()
    await third.ended(requests)
    assert await lot.spent() == (4 * HELD, 0)
    assert await lot.stakes() == 0


async def test_what_is_booked_by_who_could_not_write_it_is_not_booked_by_who_can(lot: Lot) -> None:
    """It loses the parcel before its log is back."""
    first, second = await lot.worker("w0"), await lot.worker("w1")
    requests = await first.park(4)
    await first.tend()
    lot.audit.failing = True
    await first.runner.tend()
    assert [type(each) for each in await first.failures()] == [AuditUnavailable]
    lot.audit.failing = False
    await lot.wait(CRASHED_REST_US / 1e6)
    await first.step()
    await lot.wait(SETTLING_S)
    before(first.waiting, "begin_ending", partial(looked_at_by, lot, first, second))
    await first.step()
    assert not first.reservations.holds_any(), "they are another's, with all that is known of them"
    await second.ended(requests)
    cost = sum(each.cost_microusd for each in lot.outcomes().values())
    assert (await lot.spent(), await lot.stakes()) == ((cost, 0), 0)


async def test_what_came_too_late_to_write_an_outcome_is_remembered_until_another_has(
    lot: Lot,
) -> None:
    """Its cost is booked; were that kept for ever, a worker would grow with each such line."""
    first, second = await lot.worker("w0"), await lot.worker("w1")
    requests = await first.park(4)
    await first.tend()

    async def sleep_on() -> None:
        lot.clock.advance(TEND_US / 1e6)

    before(first.journeys, "deliver", sleep_on)
    await first.runner.tend()
    assert [type(each) for each in await first.failures()] == [LeaseOver]
    await first.reservations.drop_ended(lot.lines)
    assert first.reservations.holds_any()
    await second.ended(requests)
    await first.reservations.drop_ended(lot.lines)
    assert not first.reservations.holds_any()
    cost = sum(each.cost_microusd for each in lot.outcomes().values())
    assert (await lot.spent(), await lot.stakes()) == ((cost, 0), 0)


async def test_lines_whose_outcomes_cannot_be_read_yet_are_paid_once(lot: Lot) -> None:
    """Written by a worker that comes back before the database has them, and before another ends."""
    first, second = await lot.worker("w0"), await lot.worker("w1")
    await first.park(4)
    await first.tend()
    before(first.waiting, "end", partial(looked_at_by, lot, first, second))
    await first.step()
    (cost,) = {sum(each.cost_microusd for each in lot.outcomes().values())}
    lot.hides_outcomes = True
    await lot.wait(SETTLING_S)
    await second.step()
    assert set((await lot.states()).values()) == {"succeeded"}
    assert (await lot.spent(), await lot.stakes()) == ((cost, 0), 0)


async def test_an_outcome_that_cannot_be_written_at_first_is_paid_once(lot: Lot) -> None:
    worker = await lot.worker("w0")
    requests = await worker.park(4)
    await worker.tend()
    lot.audit.failing = True
    failed: list[object] = []
    while len(failed) < 2:
        await worker.runner.tend()
        failed += await worker.failures()
        await lot.wait(POLL_S)
    lot.audit.failing = False
    assert {type(each) for each in failed} == {AuditUnavailable}
    await worker.ended(requests)
    cost = sum(each.cost_microusd for each in lot.outcomes().values())
    assert (await lot.spent(), await lot.stakes()) == ((cost, 0), 0)


async def test_a_line_whose_outcome_was_written_before_a_crash_gets_its_answer_and_no_second_one(
    lot: Lot,
) -> None:
    first = await lot.worker("w0")
    requests = await first.park(4)
    await first.tend()

    async def crash() -> None:
        raise NotReady("ended on purpose")

    before(first.waiting, "end", crash)
    await first.runner.tend()
    assert [type(each) for each in await first.failures()] == [NotReady]
    await first.ledger.flush()
    lot.workers.clear()
    costs = {name: each.cost_microusd for name, each in lot.outcomes().items()}
    assert set(costs) == set(requests)
    second = await lot.worker("w0")
    await second.ended(requests)
    await second.tend()
    assert set((await lot.states()).values()) == {"succeeded"}
    assert {name: each.cost_microusd for name, each in lot.outcomes().items()} == costs
    # What was still set aside then is lost with its leases; nothing is besides.
    assert await lot.spent() == (4 * HELD, 0)
    assert await lot.stakes() == 0


async def test_a_database_that_is_away_when_lines_end_keeps_no_money_aside(lot: Lot) -> None:
    worker = await lot.worker("w0")
    requests = await worker.park(4)
    await worker.tend()

    async def away() -> None:
        raise NotReady("away for a moment")

    before(worker.waiting, "end", away)
    await worker.runner.tend()
    assert [type(each) for each in await worker.failures()] == [NotReady]
    await lot.wait(SETTLING_S)
    await worker.ended(requests)
    await worker.tend()
    cost = sum(each.cost_microusd for each in lot.outcomes().values())
    assert set((await lot.states()).values()) == {"succeeded"}
    assert (await lot.spent(), await lot.stakes()) == ((cost, 0), 0)


async def test_what_a_killed_worker_held_is_not_paid_besides_where_nobody_asks_for_days(
    lot: Lot,
) -> None:
    """Another ended its lines, and gave its slice back, before the lease was over for long."""
    first, second = await lot.worker("w0"), await lot.worker("w1")
    requests = await first.park(4)
    await first.tend()
    await lot.spent()
    lot.workers.clear()
    lot.clock.advance(FLUSH_S)
    while lot.outcomes().keys() < set(requests):
        await second.step()
        lot.clock.advance(SETTLING_S)
        await second.ledger.flush()
    cost = sum(each.cost_microusd for each in lot.outcomes().values())
    for _ in range(12):
        await second.ledger.flush()
    for _ in range(72):
        lot.clock.advance(3600.0)
        await second.ledger.flush()
    (budget,) = await lot.table.budgets()
    assert (budget.spent_microusd, budget.leased_microusd) == (cost, 4 * HELD), "nobody asked"
    second.ledger.release(await second.ledger.reserve((ACCOUNT,), 1))
    lot.workers.append(second)
    assert (await lot.spent(), await lot.stakes()) == ((cost, 0), 0)


async def test_money_that_does_not_fit_again_is_paid_all_the_same(lot: Lot) -> None:
    first = await lot.worker("w0")
    requests = await first.park(4)
    await first.tend()
    await first.runner.close()
    await first.ledger.close()
    lot.workers.clear()
    await lot.table.set_limit(Limit(ACCOUNT, 2 * HELD + 5))
    second = await lot.worker("w0")
    await second.ended(requests)
    cost = sum(each.cost_microusd for each in lot.outcomes().values())
    assert cost > 0
    assert (await lot.spent(), await lot.stakes()) == ((cost, 0), 0)


@pytest.mark.parametrize("is_lost", [ACCOUNT, "key:k1"])
async def test_a_line_whose_money_was_taken_on_one_level_only_is_paid_on_every_one(
    lot: Lot, is_lost: str
) -> None:
    """Others that go on while a worker stands still take what they need, and not all it held."""
    lot.accounts = (ACCOUNT, "key:k1")
    await lot.table.set_limit(Limit("key:k1", LIMIT))
    slow, other = await lot.worker("w0"), await lot.worker("w1")
    requests = await slow.park(3)
    lot.clock.advance(WRITTEN_OFF_S)
    other.ledger.release(await other.ledger.reserve((is_lost,), 5))
    await slow.ended(requests)
    cost = sum(each.cost_microusd for each in lot.outcomes().values())
    assert cost > 0
    await lot.wait(12 * FLUSH_S)
    rows = await lot.table.budgets()
    sums = {row.limit.account: (row.spent_microusd, row.leased_microusd) for row in rows}
    assert sums == dict.fromkeys(lot.accounts, (cost, 0))


async def test_of_a_line_whose_money_was_taken_on_one_level_none_is_noted_on_another(
    lot: Lot,
) -> None:
    """In the next crash it would come back there, in place of what requests held by then."""
    lot.accounts = (ACCOUNT, "key:k1")
    await lot.table.set_limit(Limit("key:k1", LIMIT))
    slow, other = await lot.worker("w0"), await lot.worker("w1")
    requests = await slow.park(3)
    assert await lot.stakes() == 3 * 2
    lot.clock.advance(WRITTEN_OFF_S)
    await other.ledger.reserve((ACCOUNT,), LIMIT)
    await slow.reservations._drop_lost(requests[:2])
    assert await lot.stakes() == 1, "of the third it is not known yet"


async def test_a_worker_leaves_in_good_order_whatever_it_held_for_too_long(lot: Lot) -> None:
    worker = await lot.worker("w0")
    await worker.park(4)
    for _ in range(2):  # Ended by the ledger, and forgotten.
        lot.clock.advance(RESERVED_S)
        await worker.ledger.flush()
    await worker.runner.close()
    assert (await lot.spent(), await lot.stakes()) == ((0, 0), 0)
    assert not worker.reservations.holds_any()


async def given_up(lot: Lot, worker: Worker, request: str) -> tuple[int, int]:
    """A line was erased, and its outcome says what was set aside; what is spent, twice over."""
    late = LateCost(request, (ACCOUNT,), HELD, lot.clock.utc_us())
    await worker.reservations.charge(late)
    await worker.reservations.charge(late)
    await worker.reservations.give_up(request, HELD)
    assert await lot.stakes() == 0
    return await lot.spent()


async def test_an_erased_line_is_paid_of_what_is_held_for_it(lot: Lot) -> None:
    worker = await lot.worker("w0")
    (request,) = await worker.park(1)
    assert await given_up(lot, worker, request) == (HELD, 0)


async def test_an_erased_line_is_paid_once_where_nothing_is_held_any_more(lot: Lot) -> None:
    worker = await lot.worker("w0")
    (request,) = await worker.park(1)
    await worker.reservations.let_go()
    assert await given_up(lot, worker, request) == (HELD, 0)


async def test_an_erased_line_is_paid_once_where_the_lease_was_written_off(lot: Lot) -> None:
    worker = await lot.worker("w0")
    (request,) = await worker.park(1)
    lot.workers.clear()
    await lot.wait(100.0)
    other = await lot.worker("w1")
    other.ledger.release(await other.ledger.reserve((ACCOUNT,), 7))
    lot.workers.append(worker)
    assert await lot.stakes() == 0
    assert await given_up(lot, worker, request) == (HELD, 0)


@pytest.mark.parametrize("holds", [True, False])
async def test_an_erased_line_that_counts_as_spent_with_its_leases_is_paid(
    lot: Lot, *, holds: bool
) -> None:
    """Its worker was killed when it began to end it, and somebody may hold money again."""
    first = await lot.worker("w0")
    (request,) = await first.park(1)
    assert await lot.spent() == (0, HELD)
    assert await first.money.begin_ending([request]) == set()
    lot.workers.clear()
    second = await lot.worker("w0")
    assert (await lot.spent())[0] == HELD
    if holds:
        await second.parked.hold(lot.batch, lot.key, NOBODY, [1])
    assert await given_up(lot, second, request) == (HELD, 0)


async def test_a_line_that_another_claimed_meanwhile_is_not_parked_and_costs_nothing(
    lot: Lot,
) -> None:
    worker = await lot.worker("w0")
    (claim,) = await lot.lines.claim(lot.batch, lot.key, worker.holder, 1)
    parked = await worker.parkable(claim)
    await lot.lines.free(worker.holder)
    (again,) = await lot.lines.claim(lot.batch, lot.key, "w1.1", 1)
    await worker.parked.park(claim, lot.key, parked)
    assert (await lot.states())[again.line.number] == "running"
    (end,) = lot.outcomes().values()
    assert (end.request_id, end.cost_microusd) == (parked.ticket.request_id, 0)
    assert (await lot.spent(), await lot.stakes()) == ((0, 0), 0)


async def written_off(lot: Lot, worker: Worker) -> None:
    """It is away for long enough that somebody else finds its leases over, and comes back."""
    lot.workers.remove(worker)
    await lot.wait(100.0)
    other = await lot.worker("w9")
    other.ledger.release(await other.ledger.reserve((ACCOUNT,), 7))
    lot.workers.append(worker)


async def test_a_worker_whose_leases_were_written_off_pays_for_the_lines_that_it_still_has(
    lot: Lot,
) -> None:
    worker = await lot.worker("w0")
    requests = await worker.park(4)
    await worker.tend()
    await written_off(lot, worker)
    await worker.ended(requests)
    cost = sum(each.cost_microusd for each in lot.outcomes().values())
    assert cost > 0
    assert (await lot.spent(), await lot.stakes()) == ((cost, 0), 0)


@pytest.mark.parametrize("limit", [LIMIT, 0])
async def test_what_is_held_again_is_held_for_as_long_as_it_was_to_be(lot: Lot, limit: int) -> None:
    """A vendor may take a day, and whoever holds it again has not that day before them."""
    first = await lot.worker("w0")
    requests = await first.park(2)
    until_us = [first.reservations.of(each).leased_until_us for each in requests]
    await first.runner.close()
    await first.ledger.close()
    lot.workers.clear()
    await lot.wait(3600.0)
    await lot.table.set_limit(Limit(ACCOUNT, limit))
    second = await lot.worker("w0")
    await second.parked.hold(lot.batch, lot.key, NOBODY, [1, 2])
    held = [second.reservations.of(each) for each in requests]
    assert [each.leased_until_us for each in held] == until_us
    assert [each.amount_microusd for each in held] == [min(HELD, limit)] * 2


async def test_what_the_next_process_holds_for_lines_is_not_lost_in_its_crash(lot: Lot) -> None:
    first = await lot.worker("w0")
    requests = await first.park(4)
    await first.tend()
    await first.runner.close()
    await first.ledger.close()
    lot.workers.clear()
    second = await lot.worker("w0")
    await second.parked.hold(lot.batch, lot.key, NOBODY, [1, 2, 3, 4])
    assert (await lot.spent(), await lot.stakes()) == ((0, 4 * HELD), 4)
    lot.workers.clear()
    third = await lot.worker("w0")
    await third.ended(requests)
    cost = sum(each.cost_microusd for each in lot.outcomes().values())
    assert (await lot.spent(), await lot.stakes()) == ((cost, 0), 0)
