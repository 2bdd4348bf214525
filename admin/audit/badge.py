"""The badge about the log in every page's bar: when it was last signed, or what is wrong."""

from collections.abc import Sequence
from typing import Final

from admin.audit.checking import LogChecker
from admin.shell import Badge
from gateway.clock import Clock
from gateway.oversight.access import Permission, Person, allows
from gateway.store.engine import Database
from gateway.store.evidence.tree import DatabaseAuditTrees


_LATE_PERIODS: Final = 3
"""After so many periods without a checkpoint the badge says so."""
_US: Final = 1_000_000


class LogBadge:
    """For who may read the log; see `admin.shell.Badges`."""

    def __init__(
        self, database: Database, checker: LogChecker, clock: Clock, period_s: float
    ) -> None:
        self._trees = DatabaseAuditTrees(database)
        self._checker = checker
        self._clock = clock
        self._late_us = round(period_s * _LATE_PERIODS * _US)

    async def __call__(self, person: Person, organisation: str) -> Sequence[Badge]:
        if not organisation or not allows(person, Permission.AUDIT_READ, organisation):
            return []
        path = f"/o/{organisation}/integrity"
        last = await self._checker.last(organisation)
        if last is not None and last.reason:
            return [Badge("log not whole", "bad", path, last.reason)]
        newest = await self._trees.newest(organisation)
        if newest is None:
            return [Badge("log not signed yet", "idle", path)]
        age_us = max(0, self._clock.utc_us() - newest.signed_us)
        if age_us > self._late_us:
            said = f"log last signed {_ago(age_us)} ago"
            return [Badge(said, "warn", path, "No checkpoint since: is a gateway running?")]
        title = "The newest checkpoint, signed then, extends every earlier one."
        return [Badge(f"log signed {_ago(age_us)} ago", "good", path, title)]


def _ago(age_us: int) -> str:
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if age_us >= 2 * seconds * _US:
            return f"{age_us // (seconds * _US)} {unit}"
    return f"{age_us // _US} s"
