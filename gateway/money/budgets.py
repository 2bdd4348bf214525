"""Budgets: reserve, then settle or release, on every level from the organisation to the key.

This file has the types and the arithmetic that every ledger shares, and the ledger of one process;
the one that workers share is `gateway.store.money.leased_ledger`. A request is charged to the
window (day or month in the organisation's time zone, or all time) in which it was admitted. Only a
true cost above what was reserved can take an account below zero; then nothing more is admitted.

An account may have a limit in each kind of window at once; a request must fit into all of them.

End users have accounts too, `user:ORG/REFERENCE`, made from what a request says about its user; a
limit on `user:ORG/*` holds for each of them, from the first request on.
"""

import math
import secrets
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import count
from typing import Final, Literal, NamedTuple, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct

from gateway.clock import SECOND_US, Clock
from gateway.errors import BudgetExhausted, RequestInvalid
from gateway.types import Reservation, Settlement


WindowKind = Literal["total", "day", "month"]
WINDOWS: tuple[WindowKind, ...] = get_args(WindowKind)
_UNTIL: Mapping[WindowKind, str] = {"total": "", "day": " today", "month": " this month"}

FOREVER_US = 1 << 62
_LEVELS = {
    "org": "organisation",
    "ws": "workspace",
    "proj": "project",
    "key": "key",
    "user": "end user",
}
USER_PREFIX = "user:"
NAMING_USERS: Final = frozenset({"safety_identifier", "user", "metadata"})
_REFERENCE_LENGTH_MAX = 512
_PATHS_MAX = 10_000
"""How many callers' pots a ledger remembers; others are looked up again."""


class ReservationEndedError(Exception):
    """A reservation was ended twice, or never made here: a bug in the calling code."""


class BudgetKey(NamedTuple):
    """Names a budget: an account has at most one for each kind of window."""

    account: str
    window: WindowKind


class Limit(Struct, frozen=True):
    """What an account may spend in each window of one kind."""

    account: str
    limit_microusd: int
    window: WindowKind = "total"
    time_zone: str = "UTC"
    """The time zone of midnight, as an IANA name such as `Asia/Kolkata`."""

    @property
    def key(self) -> BudgetKey:
        return BudgetKey(self.account, self.window)


def checked_zone(name: str) -> str:
    """The name of a time zone, if it is known here.

    Raises:
        RequestInvalid: there is no such zone.
    """
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise RequestInvalid("there is no such time zone", parameter="time_zone") from None
    return name


def window_start_us(kind: WindowKind, now_us: int, time_zone: str = "UTC") -> int:
    """When the window that contains `now_us` began; 0 for the window that never ends."""
    if kind == "total":
        return 0
    moment = datetime.fromtimestamp(now_us // SECOND_US, ZoneInfo(time_zone))
    # `fold=0`: where the clocks go back over midnight, the day began at the first of the two.
    midnight = moment.replace(hour=0, minute=0, second=0, fold=0)
    return _us(midnight if kind == "day" else midnight.replace(day=1))


def window_end_us(kind: WindowKind, start_us: int, time_zone: str = "UTC") -> int:
    """When the window that contains `start_us` ends; days of 23 or 25 hours end at midnight too."""
    if kind == "total":
        return FOREVER_US
    start = datetime.fromtimestamp(start_us // SECOND_US, ZoneInfo(time_zone))
    start = start.replace(hour=0, minute=0, second=0)
    if kind == "day":
        return _us(start + timedelta(days=1))
    return _us((start.replace(day=1) + timedelta(days=32)).replace(day=1))


def _us(moment: datetime) -> int:
    return int(moment.timestamp()) * SECOND_US


def end_user_reference(tree: Mapping[str, object]) -> str:
    """What a request says about its end user, in any dialect's field; empty if it says nothing.

    OpenAI's `safety_identifier` or `user`, Anthropic's `metadata.user_id`. It is the caller's
    claim: it can split a key's money among users, but never add to it.
    """
    if NAMING_USERS.isdisjoint(tree):
        return ""
    metadata = tree.get("metadata")
    named = metadata.get("user_id") if isinstance(metadata, dict) else None
    for found in (tree.get("safety_identifier"), tree.get("user"), named):
        if found and isinstance(found, str):
            return found[:_REFERENCE_LENGTH_MAX]
    return ""


def account_of_end_user(organisation: str, subject: str) -> str:
    """The account of an end user, under the pseudonym that records have."""
    return f"{USER_PREFIX}{organisation}/{subject}"


def end_user_subject(organisation: str, reference: str, digest: Callable[[str], bytes]) -> str:
    """An end user as a keyed digest, because references are often mail addresses."""
    return digest(f"end user {organisation} {reference}").hex()[:32]


@lru_cache(maxsize=4096)
def template_of(account: str) -> str:
    """The account whose limit applies to this end user; empty for every other account."""
    if not account.startswith(USER_PREFIX):
        return ""
    return account.rpartition("/")[0] + "/*"


def others_of(account: str) -> str:
    """The account that an organisation's end users share once it has too many for separate ones."""
    return account.rpartition("/")[0] + "/others"


class Pot:
    """Money that can be reserved without asking anybody."""

    __slots__ = ("account", "amount", "limit", "open", "reserved", "spent", "valid_until_us")

    def __init__(self, limit: Limit) -> None:
        self.account = limit.account
        self.limit = limit
        self.amount = self.spent = self.reserved = 0
        self.open = 0
        """How many reservations may still be settled on it, including those of nothing."""
        self.valid_until_us = 0

    @property
    def free(self) -> int:
        return self.amount - self.spent - self.reserved


class ReservationBook:
    """Open reservations of one ledger, and those that were left open too long."""

    __slots__ = ("_expired", "_lease_us", "_next", "_number", "_open", "_run")

    def __init__(self, lease_s: float) -> None:
        self._lease_us = round(lease_s * SECOND_US)
        self._run = secrets.token_hex(6) + "-"
        self._number = count(1).__next__
        self._open: dict[str, tuple[Iterable[Pot], int, int]] = {}
        self._expired: dict[str, tuple[Iterable[Pot], int, int]] = {}
        """The last item is when it expired: a clock that was set far ahead must not forget at once
        all that it ends."""
        self._next = FOREVER_US
        """No open reservation ends before this."""

    def open(
        self,
        pots: Iterable[Pot],
        accounts: tuple[str, ...],
        amount: int,
        now_us: int,
        lease_s: float,
    ) -> Reservation:
        until_us = now_us + max(self._lease_us, round(lease_s * SECOND_US))
        name = self._run + str(self._number())
        for pot in pots:
            pot.reserved += amount
            pot.open += 1
        self._open[name] = (pots, amount, until_us)
        self._next = min(self._next, until_us)
        return Reservation(name, accounts, amount, until_us, now_us)

    def close(self, reservation: Reservation, cost: int) -> bool:
        """Book the cost; whether this takes some account below zero."""
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
            pot.open -= 1
            spent = pot.spent = pot.spent + cost
            if spent > pot.amount:
                overrun = True
        return overrun

    def pots(self, reservation: Reservation) -> tuple[Pot, ...]:
        """Where an open reservation's money is set aside; empty once it has ended."""
        return tuple(self._open.get(reservation.reservation_id, ((), 0, 0))[0])

    def expire(self, now_us: int) -> int:
        """Give back reservations that nobody ended within their lease; returns their number."""
        if now_us < self._next and not self._expired:
            return 0
        # All of them are looked at: after the clock was set they are in no order.
        late = [name for name, (_, _, until_us) in self._open.items() if until_us <= now_us]
        for name in late:
            pots, amount, _ = self._open.pop(name)
            for pot in pots:
                pot.reserved -= amount
            self._expired[name] = (pots, 0, now_us)
        self._next = min((until_us for _, _, until_us in self._open.values()), default=FOREVER_US)
        forgotten = [
            name
            for name, (_, _, since_us) in self._expired.items()
            if since_us + self._lease_us < now_us
        ]
        for name in forgotten:
            for pot in self._expired.pop(name)[0]:
                pot.open -= 1
        return len(late)


def level_of(account: str) -> str:
    """The word for an account's level, for messages."""
    return _LEVELS.get(account.partition(":")[0], "account")


def exhausted(
    gone: Iterable[tuple[Limit, int]], amount_microusd: int, *, is_held: bool
) -> BudgetExhausted:
    """The error for a caller whose budget has no room.

    Args:
        gone: limits without room, each with a moment of its current window.
        amount_microusd: what was to be set aside.
        is_held: see `BudgetExhausted`.
    """
    ends = [(limit, now_us, _fits_us(limit, amount_microusd, now_us)) for limit, now_us in gone]
    limit, now_us, end_us = max(ends, key=lambda end: end[2])
    # Not "used up": for a large request's worst price that would often not be true.
    said = f"The budget of this {level_of(limit.account)} has not enough left for this request"
    said = f"{said}{_UNTIL[limit.window]}; a smaller one may fit."
    wait_s = None
    if end_us < FOREVER_US:
        wait_s = float(math.ceil((end_us - now_us) / SECOND_US))
        until = datetime.fromtimestamp(end_us // SECOND_US, ZoneInfo(limit.time_zone))
        said = f"{said} There is more from {until:%Y-%m-%d} on ({limit.time_zone})."
    error = BudgetExhausted(f"{said} A platform administrator can raise it.", retry_after_s=wait_s)
    error.is_held = is_held
    return error


def _fits_us(limit: Limit, amount_microusd: int, now_us: int) -> int:
    """When the next window begins in which the amount fits, if nobody is faster; or never."""
    if amount_microusd > limit.limit_microusd:
        return FOREVER_US
    return window_end_us(limit.window, now_us, limit.time_zone)


def settlement(reservation: Reservation, cost: int) -> Settlement:
    return Settlement(reservation.reservation_id, reservation.amount_microusd, cost)


class MemoryLedger:
    """Exact budgets of one process, which end with it: for demonstrations and tests."""

    def __init__(
        self, limits: Iterable[Limit], clock: Clock, *, reservation_lease_s: float = 900.0
    ) -> None:
        self._clock = clock
        self._book = ReservationBook(reservation_lease_s)
        self._limits = {limit.key: limit for limit in limits}
        self._pots: dict[BudgetKey, Pot] = {}
        self._paths: dict[tuple[str, ...], list[Pot]] = {}

    async def reserve(
        self,
        accounts: tuple[str, ...],
        amount_microusd: int,
        lease_s: float = 0.0,
        admitted_us: int | None = None,
    ) -> Reservation:
        assert amount_microusd >= 0
        now_us = self._clock.utc_us()
        self._book.expire(now_us)
        pots = self._paths.get(accounts)
        if pots is None:
            pots = self._find(accounts, now_us)
        if any(now_us >= pot.valid_until_us for pot in pots):
            self._paths.clear()
            return await self.reserve(accounts, amount_microusd, lease_s, admitted_us)
        if admitted_us is not None:
            pots = [pot for pot in pots if self._begun_us(pot, now_us) <= admitted_us]
        gone = [pot for pot in pots if 0 < amount_microusd > pot.free]
        if gone:
            is_held = all(pot.amount - pot.spent >= amount_microusd for pot in gone)
            places = [(pot.limit, now_us) for pot in gone]
            raise exhausted(places, amount_microusd, is_held=is_held)
        return self._book.open(pots, accounts, amount_microusd, now_us, lease_s)

    def settle(self, reservation: Reservation, cost_microusd: int) -> Settlement:
        self._book.close(reservation, cost_microusd)
        return settlement(reservation, cost_microusd)

    def release(self, reservation: Reservation) -> Settlement:
        return self.settle(reservation, 0)

    async def left_now_microusd(self, accounts: tuple[str, ...]) -> int | None:
        return self.left_microusd(accounts)

    def left_microusd(self, accounts: tuple[str, ...]) -> int | None:
        pots = self._find(accounts, self._clock.utc_us())
        return min((pot.free for pot in pots), default=None)

    def limits_end_users(self, organisation: str) -> bool:
        template = f"{USER_PREFIX}{organisation}/*"
        return any(account == template for account, _ in self._limits)

    def _find(self, accounts: tuple[str, ...], now_us: int) -> list[Pot]:
        """The pots of these accounts in their current windows."""
        pots = []
        for key in (BudgetKey(account, window) for account in accounts for window in WINDOWS):
            template = BudgetKey(template_of(key.account), key.window)
            limit = self._limits.get(key) or self._limits.get(template)
            if limit is None:
                continue
            pot = self._pots.get(key)
            if pot is None or now_us >= pot.valid_until_us:
                pot = self._pots[key] = self._new_pot(limit)
            pots.append(pot)
        if len(self._paths) >= _PATHS_MAX:
            self._paths.clear()
        self._paths[accounts] = pots
        return pots

    def _begun_us(self, pot: Pot, now_us: int) -> int:
        return window_start_us(pot.limit.window, now_us, pot.limit.time_zone)

    def _new_pot(self, limit: Limit) -> Pot:
        pot = Pot(limit)
        pot.amount = limit.limit_microusd
        pot.valid_until_us = window_end_us(limit.window, self._clock.utc_us(), limit.time_zone)
        return pot
