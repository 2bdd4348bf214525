"""Rate limits that workers share, in Valkey or Redis; without it each worker limits by itself.

One script per admission: all accounts of a path are checked and charged, or none. Time is the
server's. Permits of a worker that died expire. While the server does not answer within `TIMEOUT_S`,
the limits hold per worker: looser by the number of workers, never absent.

It needs one primary with script support; a cluster would have to keep all keys in one slot.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any

from msgspec import structs
from redis.exceptions import RedisError

from gateway.clock import Clock
from gateway.money.rates import (
    NO_LIMITS,
    LimitBook,
    LocalRates,
    Permit,
    RateLimit,
    is_of_key,
    reached,
    standing_of,
)
from gateway.ports import Standing
from gateway.store.shared_place import shared_place, why_away
from gateway.telemetry import Event, logger


TIMEOUT_S = 0.25
RETRY_S = 1.0
_CONNECTIONS_MAX = 16
_PREFIX = "gatewright:rates:"
_NONE = -1
_FAILED = (RedisError, OSError, TimeoutError)

# KEYS: a hash and a set per account. ARGV: permit, tokens, lease in seconds, then per account its
# requests and tokens per minute and concurrent requests, -1 for none. Lua numbers are doubles.
# Where the server's clock was set back, buckets fill from now on and permits end a lease from now:
# otherwise an empty bucket, and what a dead worker held, would stay so until the old time came.
_ADMIT = """
local t = redis.call('TIME')
local now = t[1] + t[2] / 1000000
local tokens, lease = tonumber(ARGV[2]), tonumber(ARGV[3])
local function level(key, field, cap)
  local seen = redis.call('HMGET', key, field, field .. 's')
  if not seen[1] then return cap end
  local since = tonumber(seen[2])
  if since > now then
    redis.call('HSET', key, field .. 's', tostring(now))
    since = now
  end
  return math.min(cap, seen[1] + (now - since) * cap / 60)
end
local function wait(cap, have, need)
  if cap == 0 then return 60 end
  return math.max(0, (math.min(need, cap) - have) * 60 / cap)
end
local worst, which, kind = 0, 0, 0
local function note(seconds, i, k)
  if seconds > worst then worst, which, kind = seconds, i, k end
end
local n = #KEYS / 2
local levels = {}
for i = 1, n do
  local hash, set = KEYS[2 * i - 1], KEYS[2 * i]
  local rpm, tpm, most = tonumber(ARGV[3*i+1]), tonumber(ARGV[3*i+2]), tonumber(ARGV[3*i+3])
  levels[i] = {0, 0}
  if rpm >= 0 then
    levels[i][1] = level(hash, 'r', rpm)
    note(wait(rpm, levels[i][1], 1), i, 0)
  end
  if tpm >= 0 then
    levels[i][2] = level(hash, 't', tpm)
    note(wait(tpm, levels[i][2], tokens), i, 1)
  end
  if most >= 0 then
    redis.call('ZREMRANGEBYSCORE', set, '-inf', now)
    local late = '(' .. tostring(now + lease + 60)
    for _, permit in ipairs(redis.call('ZRANGEBYSCORE', set, late, '+inf')) do
      redis.call('ZADD', set, now + lease, permit)
    end
    if redis.call('ZCARD', set) >= most then note(1, i, 2) end
  end
end
local told = {tostring(worst), which, kind}
for i = 1, n do
  table.insert(told, tostring(levels[i][1]))
  table.insert(told, tostring(levels[i][2]))
end
if worst > 0 then return told end
for i = 1, n do
  local hash, set = KEYS[2 * i - 1], KEYS[2 * i]
  local rpm, tpm, most = tonumber(ARGV[3*i+1]), tonumber(ARGV[3*i+2]), tonumber(ARGV[3*i+3])
  local full = 60
  if rpm >= 0 then
    redis.call('HSET', hash, 'r', tostring(levels[i][1] - 1), 'rs', tostring(now))
  end
  if tpm >= 0 then
    local left = levels[i][2] - tokens
    redis.call('HSET', hash, 't', tostring(left), 'ts', tostring(now))
    if tpm > 0 then full = math.max(full, (tpm - left) * 60 / tpm) end
  end
  if rpm >= 0 or tpm >= 0 then redis.call('EXPIRE', hash, math.ceil(full) + 1) end
  if most >= 0 then
    redis.call('ZADD', set, now + lease, ARGV[1])
    redis.call('EXPIRE', set, math.ceil(lease) + 1)
  end
end
return told
"""
# ARGV: permit, requests and tokens to give back, then tokens per minute of each account. A bucket
# that ran out of memory meanwhile was full; what was given back too much is cut at the next look.
# An answer longer than was thought takes tokens, and that debt is remembered until it is paid.
_GIVE_BACK = """
local t = redis.call('TIME')
local now = t[1] + t[2] / 1000000
local tokens = tonumber(ARGV[3])
for i = 1, #KEYS / 2 do
  local hash, set, tpm = KEYS[2 * i - 1], KEYS[2 * i], tonumber(ARGV[3 + i])
  if redis.call('HEXISTS', hash, 'r') == 1 and tonumber(ARGV[2]) ~= 0 then
    redis.call('HINCRBYFLOAT', hash, 'r', ARGV[2])
  end
  if tokens < 0 and tpm > 0 then
    if redis.call('HEXISTS', hash, 't') == 0 then
      redis.call('HSET', hash, 't', tostring(tpm), 'ts', tostring(now))
    end
    local left = tonumber(redis.call('HINCRBYFLOAT', hash, 't', ARGV[3]))
    local full = math.ceil((tpm - left) * 60 / tpm) + 1
    if full > redis.call('TTL', hash) then redis.call('EXPIRE', hash, full) end
  elseif tokens > 0 and redis.call('HEXISTS', hash, 't') == 1 then
    redis.call('HINCRBYFLOAT', hash, 't', ARGV[3])
  end
  redis.call('ZREM', set, ARGV[1])
end
return 0
"""


# ARGV: permit, lease in seconds. One that was given back stays given back.
_RENEW = """
local t = redis.call('TIME')
local until_s = t[1] + t[2] / 1000000 + tonumber(ARGV[2])
for i = 1, #KEYS / 2 do
  if redis.call('ZADD', KEYS[2 * i], 'XX', 'CH', until_s, ARGV[1]) == 1 then
    redis.call('EXPIRE', KEYS[2 * i], math.ceil(tonumber(ARGV[2])) + 1)
  end
end
return 0
"""


class SharedRates:
    """See `gateway.money.rates.Rates`; made with the server's URL, closed by its owner."""

    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        password: str = "",
        permit_lease_s: float = 600.0,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._redis = shared_place(
            url, password, connections_max=_CONNECTIONS_MAX, timeout_s=timeout_s
        )
        self._timeout_s = timeout_s
        self._admit: Any = self._redis.register_script(_ADMIT)
        self._give_back: Any = self._redis.register_script(_GIVE_BACK)
        self._longer: Any = self._redis.register_script(_RENEW)
        self._clock = clock
        self._lease_s = permit_lease_s
        self._book = LimitBook()
        self._alone = LocalRates(clock)
        self._away_until_s = 0.0
        self.is_shared = True
        """False while each worker limits for itself."""
        self._releasing: set[asyncio.Task[None]] = set()
        self._log: Any = logger()

    @property
    def tells_end_users_apart(self) -> frozenset[str]:
        return self._book.tells_end_users_apart

    def publish(self, limits: Iterable[RateLimit]) -> None:
        self._book.publish(limits)

    async def admit(self, accounts: tuple[str, ...], tokens: int) -> Permit:
        limits = self._book.of(accounts)
        if not limits:
            return NO_LIMITS
        if self._clock.monotonic_s() < self._away_until_s:
            return self._alone.admit_now(limits, tokens)
        permit = Permit(limits, tokens, secrets.token_hex(8))
        arguments = [permit.permit_id, tokens, self._lease_s, *_numbers(limits)]
        asked = asyncio.create_task(self._run(self._admit(_keys(limits), arguments)))
        try:
            wait_s, which, kind, *levels = await asyncio.shield(asked)
        except _FAILED as error:
            self._lose(error)
            # Whether or not it was counted, nobody holds it: it must not stay open until its lease
            # ends.
            self._beside(self._returned(permit, 0, 0))
            return self._alone.admit_now(limits, tokens)
        except asyncio.CancelledError:
            self._beside(self._undone(asked, permit))
            raise
        self._find()
        if float(wait_s) > 0:
            account = limits[int(which) - 1].account
            raise reached(account, int(kind), float(wait_s), _standing(limits, levels, 0, 0))
        return structs.replace(permit, standing=_standing(limits, levels, 1, tokens))

    def release(self, permit: Permit, tokens: int) -> None:
        if not permit.permit_id:
            self._alone.release(permit, tokens)
        else:
            self._later(permit, 0, permit.tokens - tokens)

    def take_back(self, permit: Permit) -> None:
        if not permit.permit_id:
            self._alone.take_back(permit)
        else:
            self._later(permit, 1, permit.tokens)

    def renew(self, permit: Permit) -> None:
        if permit.permit_id and permit.limits:
            self._beside(self._renewed(permit))

    async def _renewed(self, permit: Permit) -> None:
        with suppress(*_FAILED):
            arguments = [permit.permit_id, self._lease_s]
            await self._run(self._longer(_keys(permit.limits), arguments))

    async def close(self) -> None:
        """Give back what is still under way, then close."""
        if self._releasing:
            await asyncio.wait(self._releasing, timeout=self._timeout_s)
        with suppress(*_FAILED):
            await self._redis.aclose()

    def _later(self, permit: Permit, requests: int, tokens: int) -> None:
        """Give back without waiting: what is lost by that expires by itself."""
        if not permit.limits:
            return
        self._beside(self._returned(permit, requests, tokens))

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="rates-release")
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)

    async def _undone(self, asked: asyncio.Task[Any], permit: Permit) -> None:
        """The caller left while we asked: give back what was counted; a refusal took nothing.

        If a refusal were given back as well, callers without room could make some by hanging up.
        """
        with suppress(*_FAILED):
            wait_s, *_ = await asked
            if float(wait_s) <= 0:
                await self._returned(permit, 1, permit.tokens)

    async def _returned(self, permit: Permit, requests: int, tokens: int) -> None:
        with suppress(*_FAILED):
            per_minute = [_given(limit.tokens_per_minute) for limit in permit.limits]
            arguments = [permit.permit_id, requests, tokens, *per_minute]
            await self._run(self._give_back(_keys(permit.limits), arguments))

    async def _run(self, script: Awaitable[Any]) -> Any:
        async with asyncio.timeout(self._timeout_s):
            return await script

    def _lose(self, error: BaseException) -> None:
        self._away_until_s = self._clock.monotonic_s() + RETRY_S
        if self.is_shared:
            self.is_shared = False
            reason = why_away(error, self._timeout_s)
            self._log.warning(Event.RATES_DEGRADED, component="rates", reason=reason)

    def _find(self) -> None:
        # An answer to a question from before the loss must not turn sharing on again yet.
        if not self.is_shared and self._clock.monotonic_s() >= self._away_until_s:
            self.is_shared = True
            self._log.info(Event.RATES_RECOVERED, component="rates")


def _keys(limits: Sequence[RateLimit]) -> list[str]:
    return [
        f"{_PREFIX}{kind}{{{limit.account}}}" for limit in limits for kind in ("bucket:", "open:")
    ]


def _standing(
    limits: Sequence[RateLimit], levels: Sequence[Any], requests: int, tokens: int
) -> Standing | None:
    """The state of the key's own limit; this much was taken from the levels that the script saw."""
    for index, limit in enumerate(limits):
        if is_of_key(limit):
            had, could = map(float, levels[2 * index : 2 * index + 2])
            return standing_of(limit, had - requests, could - tokens)
    return None


def _numbers(limits: Sequence[RateLimit]) -> list[int]:
    return [
        _given(number)
        for limit in limits
        for number in (
            limit.requests_per_minute,
            limit.tokens_per_minute,
            limit.concurrent_requests,
        )
    ]


def _given(number: int | None) -> int:
    return _NONE if number is None else number
