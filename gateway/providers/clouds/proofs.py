"""Credentials for calls to a cloud: a fixed key, or one that expires and is renewed in time.

One fetch at a time renews it, before it expires, and a caller who leaves does not cancel the fetch.
Callers wait only if nothing valid is held. If nothing can be had, the provider says so and is
passed over.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Generic, Protocol, TypeVar

from msgspec import Struct

from gateway.clock import Clock, SystemClock
from gateway.errors import UpstreamUnreachable
from gateway.providers.config import Revealable
from gateway.providers.egress.client import Route


Held = TypeVar("Held")
AHEAD_S: Final = 300.0
"""So long before its end another one is asked for."""
MARGIN_S: Final = 10.0
"""A call that leaves now is looked at by the cloud a little later."""
RETRY_S: Final = 10.0
"""After an answer that helped nothing, good or bad, nobody asks again for so long."""
LOOK_S: Final = 60.0
"""What has no end may be replaced where it lies, so it is looked at again and again."""
FETCH_S: Final = 20.0


MISREAD: Final = (ValueError, LookupError, TypeError, AttributeError)
"""What clouds' libraries raise of an answer that is well-formed and says something else."""


class NoProofError(Exception):
    """Nothing could be had to prove a call with; `reason` names no secret and no account."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Lease(Struct, Generic[Held], frozen=True):
    """What was fetched, and when it ends; None where nobody said."""

    held: Held
    ends_us: int | None = None

    def __repr__(self) -> str:
        return f"Lease(ends_us={self.ends_us})"  # What is held is a secret.


class Proof(Protocol):
    """What a provider's calls are proved with."""

    @property
    def reason(self) -> str:
        """Why no call can be proved now; empty where one can, or where nobody has tried."""
        ...

    async def renew(self) -> None:
        """Fetch anew what ends soon. Raises nothing: `reason` says how it went."""
        ...

    async def ready(self) -> None:
        """Wait until a call can be proved; raises UpstreamUnreachable where none can."""
        ...

    async def close(self) -> None:
        """Nobody asks any more."""
        ...

    def doubt(self) -> None:
        """The cloud did not accept it, so another one is asked for ahead of its end."""
        ...

    async def headers(self, method: str, route: Route, body: bytes) -> Mapping[str, str]:
        """What proves one request; only after `ready`."""
        ...

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must not be repeated to anybody."""
        ...


class KeyProof:
    """A key that is sent as a bearer token, and replaced by whoever keeps it."""

    reason = ""

    def __init__(self, key: Revealable | None) -> None:
        self._key = key

    async def renew(self) -> None:
        """The keeper of secrets does."""

    async def ready(self) -> None:
        """It always is."""

    async def close(self) -> None:
        """It holds nothing open."""

    def doubt(self) -> None:
        """Nothing else can be asked for."""

    async def headers(self, method: str, route: Route, body: bytes) -> Mapping[str, str]:
        del method, route, body
        return {"authorization": f"Bearer {self._key.reveal()}"} if self._key else {}

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self._key.reveal(),) if self._key else ()


class Leased(Generic[Held]):
    """Keeps one lease good. `fetch` raises NoProofError, and runs on this object's loop."""

    def __init__(
        self, fetch: Callable[[], Awaitable[Lease[Held]]], clock: Clock | None = None
    ) -> None:
        self._fetch = fetch
        self._clock = clock or SystemClock()
        self._lease: Lease[Held] | None = None
        self._flight: asyncio.Task[None] | None = None
        self._asked_s: float | None = None
        self._is_doubted = False
        self._fault = ""

    @property
    def held(self) -> Held | None:
        """What is good now."""
        lease = self._lease
        return lease.held if lease is not None and self._left_s(lease) > MARGIN_S else None

    @property
    def reason(self) -> str:
        if self.held is not None:
            return ""
        return self._fault or ("its credential has run out" if self._lease is not None else "")

    def doubt(self) -> None:
        self._is_doubted = True

    async def close(self) -> None:
        """End a fetch that is under way."""
        if self._flight is not None:
            self._flight.cancel()
            await asyncio.wait([self._flight])

    async def renew(self) -> None:
        if self._is_due():
            await self._fetched()

    async def ready(self) -> None:
        if self.held is None and (self._flight is not None or self._rested_s() >= RETRY_S):
            await self._fetched()
        if self.held is None:
            error = UpstreamUnreachable(f"the upstream cannot be called: {self.reason}")
            error.has_left = False
            raise error

    def _left_s(self, lease: Lease[Held]) -> float:
        if lease.ends_us is None:
            return float("inf")
        return (lease.ends_us - self._clock.utc_us()) / 1e6

    def _rested_s(self) -> float:
        return float("inf") if self._asked_s is None else self._clock.monotonic_s() - self._asked_s

    def _is_due(self) -> bool:
        rested_s, lease = self._rested_s(), self._lease
        if rested_s < RETRY_S:
            return False
        if lease is None or self._is_doubted or self._left_s(lease) < AHEAD_S:
            return True
        return lease.ends_us is None and rested_s >= LOOK_S

    async def _fetched(self) -> None:
        if self._flight is None:
            self._flight = asyncio.create_task(self._fly())
        await asyncio.shield(self._flight)

    async def _fly(self) -> None:
        try:
            async with asyncio.timeout(FETCH_S):
                self._lease = await self._fetch()
            self._is_doubted, self._fault = False, ""
        except NoProofError as error:
            self._fault = error.reason
        except TimeoutError:
            self._fault = "nobody gave it a credential in time"
        finally:
            self._asked_s, self._flight = self._clock.monotonic_s(), None
