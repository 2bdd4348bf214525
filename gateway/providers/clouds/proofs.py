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
"""How long before its end a credential is replaced."""
MARGIN_S: Final = 10.0
"""The cloud checks a call a little after it has left."""
RETRY_S: Final = 10.0
"""How long to wait for the next request after an answer of no use, good or bad."""
LOOK_S: Final = 60.0
"""A credential without an end may be replaced at its source, so it is read again regularly."""
FETCH_S: Final = 20.0


MISREAD: Final = (ValueError, LookupError, TypeError, AttributeError)
"""Exceptions of the clouds' libraries for answers that are well-formed but unexpected."""


class NoProofError(Exception):
    """No proof for a call could be had; `reason` names no secret and no account."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Lease(Struct, Generic[Held], frozen=True):
    """A fetched credential, and when it ends; None if that is unknown."""

    held: Held
    ends_us: int | None = None

    def __repr__(self) -> str:
        return f"Lease(ends_us={self.ends_us})"  # What is held is a secret.


class Proof(Protocol):
    """The credential that proves a provider's calls."""

    @property
    def reason(self) -> str:
        """Why no call can be proved now; empty if one can, or if nothing was tried yet."""
        ...

    async def renew(self) -> None:
        """Fetch credentials anew that end soon. Raises nothing: `reason` says how it went."""
        ...

    async def ready(self) -> None:
        """Wait until a call can be proved; raises UpstreamUnreachable if none can."""
        ...

    async def close(self) -> None:
        """Stop: there are no more calls."""
        ...

    def doubt(self) -> None:
        """Note that the cloud did not accept it, so that another is fetched before its end."""
        ...

    async def headers(self, method: str, route: Route, body: bytes) -> Mapping[str, str]:
        """The headers that prove one request; only after `ready`."""
        ...

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must not be repeated to anybody."""
        ...


class KeyProof:
    """A key that is sent as a bearer token, and replaced by the keeper of secrets."""

    reason = ""

    def __init__(self, key: Revealable | None) -> None:
        self._key = key

    async def renew(self) -> None:
        """Nothing to do: the keeper of secrets renews it."""

    async def ready(self) -> None:
        """It always is."""

    async def close(self) -> None:
        """There is nothing to close."""

    def doubt(self) -> None:
        """There is nothing else to ask for."""

    async def headers(self, method: str, route: Route, body: bytes) -> Mapping[str, str]:
        del method, route, body
        return {"authorization": f"Bearer {self._key.reveal()}"} if self._key else {}

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self._key.reveal(),) if self._key else ()


class Leased(Generic[Held]):
    """Keeps one lease valid. `fetch` raises NoProofError, and runs on this object's loop."""

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
        """The credential that is valid now."""
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
