"""Windows of budgets, and limits that change."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.clock import StoppedClock
from gateway.errors import BudgetExhausted
from gateway.money import budgets
from gateway.money.budgets import (
    FOREVER_US,
    Limit,
    MemoryLedger,
    Pot,
    ReservationBook,
    ReservationEndedError,
    WindowKind,
    window_end_us,
    window_start_us,
)


def us(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("kind", "now", "start", "end"),
    [
        ("day", "2028-02-29T23:59:59", "2028-02-29T00:00:00", "2028-03-01T00:00:00"),
        ("day", "2028-03-01T00:00:00", "2028-03-01T00:00:00", "2028-03-02T00:00:00"),
        ("month", "2027-12-31T23:59:59", "2027-12-01T00:00:00", "2028-01-01T00:00:00"),
        ("month", "2028-01-31T12:00:00", "2028-01-01T00:00:00", "2028-02-01T00:00:00"),
    ],
)
def test_a_window_begins_and_ends_at_midnight_utc(
    kind: WindowKind, now: str, start: str, end: str
) -> None:
    assert window_start_us(kind, us(now) + 999_999) == us(start)
    assert window_end_us(kind, us(start)) == us(end)


def test_the_total_has_no_end() -> None:
    assert window_start_us("total", us("2028-01-31T12:00:00")) == 0
    assert window_end_us("total", 0) == FOREVER_US


@given(st.integers(0, 4_000_000_000_000_000), st.sampled_from(["total", "day", "month"]))
def test_every_moment_lies_in_its_window_and_windows_do_not_overlap(
    now_us: int, kind: WindowKind
) -> None:
    start = window_start_us(kind, now_us)
    end = window_end_us(kind, start)
    assert start <= now_us < end
    assert window_start_us(kind, end - 1) == start
    if kind != "total":
        assert window_start_us(kind, end) == end


SECOND_US = 1_000_000


def pot(amount: int) -> Pot:
    made = Pot(Limit("org:acme", amount))
    made.amount = amount
    return made


def test_each_reservation_expires_at_its_own_time_and_gives_back_its_own_amount() -> None:
    book, held = ReservationBook(10.0), pot(100)
    book.open((held,), (), 1, 0, 0.0)
    book.open((held,), (), 2, 0, 40.0)
    book.open((held,), (), 4, 0, 30.0)
    seen = []
    for second in (9, 10, 11, 25, 30, 39, 40):
        expired = book.expire(second * SECOND_US)
        seen.append((second, expired, held.reserved))

    assert seen == [
        (9, 0, 7),
        (10, 1, 6),
        (11, 0, 6),
        (25, 0, 6),
        (30, 1, 2),
        (39, 0, 2),
        (40, 1, 0),
    ]


def test_what_expired_can_be_booked_for_another_lease_and_is_forgotten_then() -> None:
    book, held = ReservationBook(10.0), pot(100)
    late, lost = (book.open((held,), (), 30, 0, 0.0) for _ in range(2))
    book.expire(10 * SECOND_US)
    book.expire(20 * SECOND_US)
    book.close(late, 25)
    assert (held.spent, held.reserved, held.open) == (25, 0, 1)

    book.expire(20 * SECOND_US + 1)
    assert held.open == 0, "what cannot be settled any more keeps no slice leased"

    for ended in (late, lost):
        with pytest.raises(ReservationEndedError):
            book.close(ended, 25)
    assert held.spent == 25


def test_an_overrun_is_told_only_where_an_account_is_below_zero() -> None:
    book, roomy, tight = ReservationBook(10.0), pot(100), pot(50)
    made = [(book.open((tight, roomy), (), 10, 0, 0.0), cost) for cost in (30, 20, 1)]
    told = [book.close(reservation, cost) for reservation, cost in made]

    assert told == [False, False, True]
    assert (roomy.spent, tight.spent, tight.free) == (51, 51, -1)


def test_reservations_of_several_ledgers_have_names_of_their_own() -> None:
    """One of an earlier process, which a line still names, ends none of this one's."""
    names = {
        book.open((), (), 1, 0, 0.0).reservation_id
        for book in (ReservationBook(10.0), ReservationBook(10.0))
        for _ in range(2)
    }
    assert len(names) == 4


@pytest.mark.anyio
async def test_what_a_ledger_in_memory_remembers_of_callers_has_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(budgets, "_PATHS_MAX", 3)
    ledger = MemoryLedger([Limit("org:acme", 100)], StoppedClock())
    remembered = set()
    for number in range(8):
        path = ("org:acme", f"key:{number}")
        ledger.settle(await ledger.reserve(path, 10), 10)
        remembered.add(len(ledger._paths))
    assert max(remembered) == 3
    assert ledger.left_microusd(("org:acme",)) == 20


def test_where_money_is_set_aside_is_known_until_it_ends() -> None:
    book, held = ReservationBook(10.0), pot(100)
    reservation = book.open((held,), (), 10, 0, 0.0)
    assert book.pots(reservation) == (held,)
    book.close(reservation, 0)
    assert book.pots(reservation) == ()


@pytest.mark.anyio
async def test_what_is_left_is_the_least_of_all_limits_and_what_costs_nothing_needs_none() -> None:
    limits = [Limit("org:acme", 100), Limit("key:k1", 40), Limit("key:k2", 400)]
    ledger, path = MemoryLedger(limits, StoppedClock()), ("org:acme", "key:k1")
    assert ledger.left_microusd(path) == 40
    assert ledger.left_microusd(("org:acme", "key:k2")) == 100
    ledger.settle(await ledger.reserve(path, 40), 50)
    assert (await ledger.reserve(path, 0)).amount_microusd == 0
    with pytest.raises(BudgetExhausted):
        await ledger.reserve(path, 1)
