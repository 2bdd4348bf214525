"""Shared parts of the small routes, which stand beside the doors of model calls."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from litestar import Request
from msgspec import Struct

from gateway.api.decisions import Archive
from gateway.clock import Clock
from gateway.errors import Unauthenticated
from gateway.identity import Peppers, authenticate
from gateway.metrics import Metrics
from gateway.ports import Dialect
from gateway.snapshot import SnapshotKeeper
from gateway.types import Principal


if TYPE_CHECKING:
    from gateway.workloads.callers import Callers


class Front(Struct, frozen=True):
    """What the small routes need."""

    snapshots: SnapshotKeeper
    peppers: Peppers
    clock: Clock
    metrics: Metrics
    dialect: Dialect
    """The dialect of errors outside any dialect."""
    by_header: Mapping[str, Dialect]
    """The dialect of these errors for requests with this header."""
    readiness: tuple[Callable[[], str], ...]
    """Each gives an empty text, or the reason why this worker must not get requests."""
    archive: Archive
    draining: Callable[[], Mapping[str, int]]
    """Drained members of pools, each with the number of calls still under way there."""

    callers: "Callers | None" = None
    """Identifies callers by tokens; None if no issuer is trusted."""

    async def principal(self, request: Request[Any, Any, Any]) -> Principal:
        """The request's principal; raises Unauthenticated."""
        keys, now_us = self.snapshots.current().keys, self.clock.utc_us()
        headers = request.scope["headers"]
        try:
            return authenticate(keys, self.peppers, headers, now_us)
        except Unauthenticated:
            if self.callers is None:
                raise
        return await self.callers.principal(headers, now_us)
