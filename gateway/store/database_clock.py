"""The database's clock as a worker knows it: leases end by it, on whichever machine they are.

Workers' own clocks may be minutes apart, and the end of a lease that one worker writes is compared
by others with their own time. So all of them use the same clock.
"""

from typing import Final

from gateway.clock import SET_US, Clock
from gateway.store.engine import Database


FRESH_S: Final = 1.0
SLOW_S: Final = 1.0
"""An answer that took longer is too imprecise: it is accurate to half of that time."""
APART_US: Final = 1_000_000
"""How far two workers' ideas of the database's clock may be apart."""
_QUERIES: Final = {
    "postgresql": "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
    # SQLite's clock is that of the machine, on which all of its workers run.
    "sqlite": "SELECT CAST(round((julianday('now') - 2440587.5) * 86400000000) AS INTEGER)",
}


async def database_now_us(database: Database) -> int:
    """The database's present time; raises NotReady."""
    ((now_us,),) = await database.peek(_QUERIES[database.kind])
    return int(now_us)


class DatabaseClock:
    """Implements `Clock`; until the database was asked, it is the worker's own clock."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._utc_us = self._own_us = clock.utc_us()
        self._heard_s = clock.monotonic_s()
        self._has_heard = False

    def utc_us(self) -> int:
        """The last answer plus the time since, by whichever of our clocks shows more.

        The clock of a machine that slept stood still; a lease holder must not overlook that time.
        Whoever wants to take over another's lease asks again first.
        """
        return self._utc_us + max(self._passed_us())

    def monotonic_s(self) -> float:
        return self._clock.monotonic_s()

    async def follow(self) -> None:
        """Ask the database, unless that was a moment ago and our clock was not set since.

        Raises:
            NotReady: it does not answer.
        """
        passed_us, own_us = self._passed_us()
        is_set = abs(own_us - passed_us) > SET_US // 10
        if self._has_heard and passed_us < FRESH_S * 1e6 and not is_set:
            return
        asked_s = self._clock.monotonic_s()
        now_us = await database_now_us(self._database)
        heard_s = self._clock.monotonic_s()
        if self._has_heard and heard_s - asked_s > SLOW_S:
            return
        self._utc_us = now_us + round((heard_s - asked_s) * 500_000)
        self._own_us, self._heard_s = self._clock.utc_us(), heard_s
        self._has_heard = True

    def _passed_us(self) -> tuple[int, int]:
        """The time since the answer, by the monotonic clock and by the other one."""
        passed_us = round((self._clock.monotonic_s() - self._heard_s) * 1_000_000)
        return passed_us, self._clock.utc_us() - self._own_us
