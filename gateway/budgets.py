"""Money: reserve, then settle or release, on every level from the organisation to the key.

Here are the words and the arithmetic that every ledger shares, and the ledger of one process; the
one that workers share is `gateway.store.leased_ledger`. A request is charged to the window (UTC
day, UTC month, or all time) in which it was admitted. Only a true cost above what was reserved can
take an account below zero; then nothing more is admitted.
"""

import secrets
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Literal

from msgspec import Struct

from gateway.clock import Clock
from gateway.errors import BudgetExhausted
from gateway.types import Reservation, Settlement


WindowKind = Literal["total", "day", "month"]

FOREVER_US = 1 << 62
_SECOND_US = 1_000_000
_LEVELS = {"org": "organisation", "ws": "workspace", "proj": "project", "key": "key"}


class ReservationEndedError(Exception):
    """A reservation was ended twice, or never made here: a mistake of the caller's code."""


class Limit(Struct, frozen=True):
    """What an account may spend in each window."""

    account: str
    limit_microusd: int
    window: WindowKind = "total"


def window_start_us(kind: WindowKind, now_us: int) -> int:
    """When the window that holds `now_us` began; 0 for the window that never ends."""
    if kind == "total":
        return 0
    moment = datetime.fromtimestamp(now_us // _SECOND_US, UTC)
    midnight = moment.replace(hour=0, minute=0, second=0)
    return _us(midnight if kind == "day" else midnight.replace(day=1))


def window_end_us(kind: WindowKind, start_us: int) -> int:
    """When the window that began at `start_us` ends."""
    if kind == "total":
        return FOREVER_US
    start = datetime.fromtimestamp(start_us // _SECOND_US, UTC)
    if kind == "day":
        return _us(start + timedelta(days=1))
    return _us((start + timedelta(days=32)).replace(day=1))


def _us(moment: datetime) -> int:
    return int(moment.timestamp()) * _SECOND_US


class Pot:
    """Money that can be reserved without asking anybody."""

    __slots__ = ("account", "amount", "limit", "reserved", "spent", "valid_until_us")

    def __init__(self, limit: Limit) -> None:
        self.account = limit.account
        self.limit = limit
        self.amount = self.spent = self.reserved = 0
        self.valid_until_us = 0

    @property
    def free(self) -> int:
        return self.amount - self.spent - self.reserved


class ReservationBook:
    """Open reservations of one ledger, and those that were left open too long."""

    __slots__ = ("_expired", "_lease_us", "_number", "_open", "_run")

    def __init__(self, lease_s: float) -> None:
        self._lease_us = round(lease_s * _SECOND_US)
        self._run = secrets.token_hex(6)
        self._number = 0
        self._open: dict[str, tuple[list[Pot], int, int]] = {}
        self._expired: dict[str, tuple[list[Pot], int, int]] = {}

    def open(
        self, pots: list[Pot], accounts: tuple[str, ...], amount: int, now_us: int
    ) -> Reservation:
        self._number += 1
        until_us = now_us + self._lease_us
        name = f"{self._run}-{self._number}"
        for pot in pots:
            pot.reserved += amount
        self._open[name] = (pots, amount, until_us)
        return Reservation(name, accounts, amount, until_us)

    def close(self, reservation: Reservation, cost: int) -> bool:
        """Book the cost; whether some account is below zero by it."""
        assert cost >= 0
        entry = self._open.pop(reservation.reservation_id, None)
        if entry is None:
            # It expired, so its money went back; what was spent in spite of that is still booked.
            entry = self._expired.pop(reservation.reservation_id, None)
        if entry is None:
            raise ReservationEndedError(reservation.reservation_id)
        pots, held, _ = entry
        overrun = False
        for pot in pots:
            pot.reserved -= held
            pot.spent += cost
            overrun |= pot.spent > pot.amount
        return overrun

    def expire(self, now_us: int) -> int:
        """Give back what nobody ended within its lease; the number of such reservations."""
        late = []
        for name, (_, _, until_us) in self._open.items():
            if until_us > now_us:
                break  # In order of making, hence of ending, unless the clock was set back.
            late.append(name)
        for name in late:
            pots, amount, until_us = self._open.pop(name)
            for pot in pots:
                pot.reserved -= amount
            self._expired[name] = (pots, 0, until_us)
        forgotten = [
            name
            for name, (_, _, until_us) in self._expired.items()
            if until_us + self._lease_us < now_us
        ]
        for name in forgotten:
            del self._expired[name]
        return len(late)


def exhausted(account: str) -> BudgetExhausted:
    level = _LEVELS.get(account.partition(":")[0], "account")
    return BudgetExhausted(f"the budget of this {level} is used up")


def settlement(reservation: Reservation, cost: int) -> Settlement:
    return Settlement(reservation.reservation_id, reservation.amount_microusd, cost)


class MemoryLedger:
    """Budgets of one process that end with it: exact, for demonstrations and tests."""

    def __init__(
        self, limits: Iterable[Limit], clock: Clock, *, reservation_lease_s: float = 900.0
    ) -> None:
        self._clock = clock
        self._book = ReservationBook(reservation_lease_s)
        self._pots: dict[str, Pot] = {}
        for limit in limits:
            self._pots[limit.account] = self._new_pot(limit)

    async def reserve(self, accounts: tuple[str, ...], amount_microusd: int) -> Reservation:
        assert amount_microusd >= 0
        now_us = self._clock.utc_us()
        self._book.expire(now_us)
        pots = self._current(accounts, now_us)
        for pot in pots:
            if pot.free < amount_microusd:
                raise exhausted(pot.account)
        return self._book.open(pots, accounts, amount_microusd, now_us)

    def settle(self, reservation: Reservation, cost_microusd: int) -> Settlement:
        self._book.close(reservation, cost_microusd)
        return settlement(reservation, cost_microusd)

    def release(self, reservation: Reservation) -> Settlement:
        return self.settle(reservation, 0)

    def left_microusd(self, accounts: tuple[str, ...]) -> int | None:
        pots = self._current(accounts, self._clock.utc_us())
        return min((pot.free for pot in pots), default=None)

    def _current(self, accounts: tuple[str, ...], now_us: int) -> list[Pot]:
        pots = [self._pots[account] for account in accounts if account in self._pots]
        for index, pot in enumerate(pots):
            if now_us >= pot.valid_until_us:
                pots[index] = self._pots[pot.account] = self._new_pot(pot.limit)
        return pots

    def _new_pot(self, limit: Limit) -> Pot:
        pot = Pot(limit)
        pot.amount = limit.limit_microusd
        start_us = window_start_us(limit.window, self._clock.utc_us())
        pot.valid_until_us = window_end_us(limit.window, start_us)
        return pot
