"""Limits on requests, tokens and concurrency per account: all are charged, or none.

Each limit is a bucket that refills evenly and holds a minute's worth, like the vendors' own. A
request must fit into every bucket of every account on its path; if one is too empty, nothing is
taken from any. Tokens are charged by estimate and corrected when the true number is known, so a
bucket may be in debt. This file has the types, and the limits of one worker; those that workers
share are in `gateway.store.money.shared_rates`.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from gateway.clock import Clock
from gateway.errors import Exhausted
from gateway.money.budgets import level_of, template_of
from gateway.ports import Allowance, Standing


MINUTE_S = 60.0
_KEY_PREFIX = "key:"
CONCURRENCY_WAIT_S = 1.0
"""Nobody knows when another request ends, so the caller may ask again after this time."""
RATE_MAX = 10**12
"""A larger limit is never meant, and would soon exceed what a database can store."""
_ACCOUNTS_MAX = 10_000
_KINDS = ("requests per minute", "tokens per minute", "concurrent requests")


class RateLimit(Struct, frozen=True):
    """What an account may do; None means no limit. `user:ORG/*` is the limit of each end user."""

    account: str
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None


class Permit(Struct, frozen=True):
    """A request that was let through; has to be given back exactly once."""

    limits: tuple[RateLimit, ...]
    tokens: int
    """What was charged for it in advance."""
    permit_id: str = ""
    """Empty for a permit of this worker alone."""
    standing: Standing | None = None
    """State of the key's own limits; a key must not see what others have used of theirs."""


NO_LIMITS = Permit((), 0)


class Rates(Protocol):
    """Decides whether a request may begin now."""

    @property
    def tells_end_users_apart(self) -> frozenset[str]:
        """Organisations whose end users have limits of their own."""
        ...

    def publish(self, limits: Iterable[RateLimit]) -> None:
        """Apply these limits from now on."""
        ...

    async def admit(self, accounts: tuple[str, ...], tokens: int) -> Permit:
        """Count a request on every limited account, or on none.

        Raises:
            Exhausted: some limit is reached; with the seconds after which it may fit.
        """
        ...

    def release(self, permit: Permit, tokens: int) -> None:
        """The request ended and used so many tokens."""
        ...

    def take_back(self, permit: Permit) -> None:
        """The request was refused after all: it counts as never made."""
        ...

    def renew(self, permit: Permit) -> None:
        """The request is still under way: a permit that would expire does not.

        For requests that hold a permit longer than a waiting caller's would.
        """
        ...

    async def close(self) -> None: ...


class LimitBook:
    """Which limits hold for a path of accounts."""

    def __init__(self) -> None:
        self._by_account: Mapping[str, RateLimit] = {}
        self._paths: dict[tuple[str, ...], tuple[RateLimit, ...]] = {}

    def publish(self, limits: Iterable[RateLimit]) -> None:
        self._by_account = {limit.account: limit for limit in limits}
        self._paths = {}

    def of(self, accounts: tuple[str, ...]) -> tuple[RateLimit, ...]:
        known = self._paths.get(accounts)
        if known is not None:
            return known
        found = []
        for account in accounts:
            limit = self._by_account.get(account)
            if limit is None and (template := self._by_account.get(template_of(account))):
                limit = RateLimit(
                    account,
                    template.requests_per_minute,
                    template.tokens_per_minute,
                    template.concurrent_requests,
                )
            if limit is not None:
                found.append(limit)
        if len(self._paths) >= _ACCOUNTS_MAX:
            self._paths = {}
        path = self._paths[accounts] = tuple(found)
        return path

    @property
    def tells_end_users_apart(self) -> frozenset[str]:
        """Organisations whose end users have limits of their own."""
        return frozenset(
            account.removeprefix("user:").removesuffix("/*")
            for account in self._by_account
            if account.startswith("user:")
        )


class _Bucket:
    """Fills evenly to its capacity within a minute; may be in debt."""

    __slots__ = ("_level", "_seen_s", "capacity")

    def __init__(self, capacity: int, now_s: float) -> None:
        self.capacity = capacity
        self._level = float(capacity)
        self._seen_s = now_s

    def level(self, now_s: float) -> float:
        refilled = self._level + (now_s - self._seen_s) * self.capacity / MINUTE_S
        self._level = min(refilled, float(self.capacity))
        self._seen_s = now_s
        return self._level

    def take(self, amount: float) -> None:
        self._level = min(self._level - amount, float(self.capacity))

    def wait_s(self, needed: float, now_s: float) -> float:
        """Seconds until there is so much: 0 if there already is; never for a capacity of zero."""
        missing = min(needed, self.capacity) - self.level(now_s)
        if not self.capacity:
            return MINUTE_S
        return max(0.0, missing * MINUTE_S / self.capacity)


class _Meter:
    """The state of one limited account."""

    __slots__ = ("concurrent", "limit", "requests", "tokens")

    def __init__(self, limit: RateLimit, now_s: float) -> None:
        self.limit = limit
        self.concurrent = 0
        self.requests = self._bucket(limit.requests_per_minute, now_s)
        self.tokens = self._bucket(limit.tokens_per_minute, now_s)

    @staticmethod
    def _bucket(capacity: int | None, now_s: float) -> _Bucket | None:
        return None if capacity is None else _Bucket(capacity, now_s)

    def relimit(self, limit: RateLimit, now_s: float) -> None:
        """A changed limit keeps what was used: a new bucket would forgive the current minute."""
        for name, capacity in (
            ("requests", limit.requests_per_minute),
            ("tokens", limit.tokens_per_minute),
        ):
            old: _Bucket | None = getattr(self, name)
            new = self._bucket(capacity, now_s)
            if old is not None and new is not None:
                new.take(old.capacity - old.level(now_s))
            setattr(self, name, new)
        self.limit = limit

    def waits_s(self, tokens: int, now_s: float) -> tuple[float, float, float]:
        """For each kind of limit, how long until a request of so many tokens fits."""
        limit = self.limit.concurrent_requests
        is_full = limit is not None and self.concurrent >= limit
        return (
            self.requests.wait_s(1, now_s) if self.requests else 0.0,
            # Otherwise a request larger than a minute's worth would never be let through.
            self.tokens.wait_s(tokens, now_s) if self.tokens else 0.0,
            CONCURRENCY_WAIT_S if is_full else 0.0,
        )

    def take(self, requests: int, tokens: int, concurrent: int) -> None:
        if self.requests:
            self.requests.take(requests)
        if self.tokens:
            self.tokens.take(tokens)
        self.concurrent += concurrent

    def standing(self, now_s: float) -> Standing:
        return standing_of(
            self.limit,
            self.requests.level(now_s) if self.requests else 0.0,
            self.tokens.level(now_s) if self.tokens else 0.0,
        )

    def is_idle(self, now_s: float) -> bool:
        buckets = (self.requests, self.tokens)
        is_full = all(each is None or each.level(now_s) >= each.capacity for each in buckets)
        return is_full and not self.concurrent


def reached(account: str, kind: int, wait_s: float, standing: Standing | None = None) -> Exhausted:
    """The refusal, naming the level and the kind of limit, but no amounts of others."""
    refusal = Exhausted(
        f"The limit on {_KINDS[kind]} of this {level_of(account)} is reached.",
        retry_after_s=float(math.ceil(wait_s)),
    )
    refusal.standing = standing
    return refusal


def is_of_key(limit: RateLimit) -> bool:
    """Whether a limit is a key's own, and not one that it shares with others."""
    return limit.account.startswith(_KEY_PREFIX)


def standing_of(limit: RateLimit, requests: float, tokens: float) -> Standing:
    """The state of a limit whose buckets are filled so far."""
    return Standing(
        _allowance(limit.requests_per_minute, requests), _allowance(limit.tokens_per_minute, tokens)
    )


def _allowance(limit: int | None, level: float) -> Allowance | None:
    if limit is None:
        return None
    full_in_s = (limit - level) * MINUTE_S / limit if limit else MINUTE_S
    return Allowance(limit, max(math.floor(level), 0), max(full_in_s, 0.0))


class LocalRates:
    """Limits of one worker, in memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._book = LimitBook()
        self._meters: dict[str, _Meter] = {}

    @property
    def tells_end_users_apart(self) -> frozenset[str]:
        return self._book.tells_end_users_apart

    def publish(self, limits: Iterable[RateLimit]) -> None:
        self._book.publish(limits)

    async def admit(self, accounts: tuple[str, ...], tokens: int) -> Permit:
        limits = self._book.of(accounts)
        return self.admit_now(limits, tokens) if limits else NO_LIMITS

    def admit_now(self, limits: tuple[RateLimit, ...], tokens: int) -> Permit:
        now_s = self._clock.monotonic_s()
        is_full = len(self._meters) >= _ACCOUNTS_MAX
        if is_full and any(limit.account not in self._meters for limit in limits):
            # Before any of these is looked up, since forgetting one in between would lose its
            # count.
            self._forget_idle(now_s)
        meters = [self._meter(limit, now_s) for limit in limits]
        worst: tuple[float, str, int] = (0.0, "", 0)
        for meter in meters:
            for kind, wait_s in enumerate(meter.waits_s(tokens, now_s)):
                if wait_s > worst[0]:
                    worst = (wait_s, meter.limit.account, kind)
        if worst[0]:
            raise reached(worst[1], worst[2], worst[0], self._standing(meters, now_s))
        for meter in meters:
            meter.take(1, tokens, 1)
        return Permit(limits, tokens, standing=self._standing(meters, now_s))

    @staticmethod
    def _standing(meters: list[_Meter], now_s: float) -> Standing | None:
        own = next((each for each in meters if is_of_key(each.limit)), None)
        return own.standing(now_s) if own is not None else None

    def release(self, permit: Permit, tokens: int) -> None:
        self._give_back(permit, 0, permit.tokens - tokens)

    def take_back(self, permit: Permit) -> None:
        self._give_back(permit, 1, permit.tokens)

    def renew(self, permit: Permit) -> None:
        """Nothing to do: the permit is held until it is given back."""

    async def close(self) -> None:
        """Nothing to close."""

    def _give_back(self, permit: Permit, requests: int, tokens: int) -> None:
        for limit in permit.limits:
            if meter := self._meters.get(limit.account):
                meter.take(-requests, -tokens, -1)

    def _meter(self, limit: RateLimit, now_s: float) -> _Meter:
        meter = self._meters.get(limit.account)
        if meter is None:
            meter = self._meters[limit.account] = _Meter(limit, now_s)
        elif meter.limit != limit:
            meter.relimit(limit, now_s)
        return meter

    def _forget_idle(self, now_s: float) -> None:
        self._meters = {
            account: meter for account, meter in self._meters.items() if not meter.is_idle(now_s)
        }
