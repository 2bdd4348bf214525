"""Checks in a running process that the database still has the checkpoints exported from it.

A failover to a server that lacks the last seconds ends no process. Records that are still in the
segments get the same numbers again, so nothing is contradicted; only what lies outside shows that
money was spent and keys were revoked that the database no longer knows of.
"""

from collections.abc import Awaitable, Callable, Collection
from operator import itemgetter


Moment = tuple[str, int]
"""A checkpoint's log, and when it was signed: no log has two at one moment."""
Lacking = Callable[[Collection[Moment]], Awaitable[Collection[Moment]]]


class KeptStill:
    """For one process and the files that it exports to."""

    def __init__(self, lacking: Lacking) -> None:
        """`lacking` asks the database which of some moments it does not have."""
        self._lacking = lacking
        self._settled: frozenset[Moment] = frozenset()

    async def lost(self, exported: Collection[Moment], newest: Collection[Moment]) -> list[Moment]:
        """Those that the database has lost, oldest first.

        `exported` are the last lines of each file, and `newest` what the database has of each log,
        read in this order. A line is asked for until a later one of its log was found, too: the
        database loses both or neither. So a checkpoint that is signed during a failover hides
        nothing.
        """
        asked = set(exported).difference(self._settled, newest)
        if asked and (lost := await self._lacking(asked)):
            return sorted(lost, key=itemgetter(1, 0))
        last: dict[str, int] = {}
        for name, signed_us in exported:
            last[name] = max(signed_us, last.get(name, 0))
        self._settled = frozenset(exported).difference(last.items())
        return []
