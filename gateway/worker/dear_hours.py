"""Finds hours in which a team or a key cost unusually much, and alerts once for each.

Any worker does this for every organisation, every few minutes, and also for an hour that is not
over: an alert at its end would be too late. Sums that admin processes have not made yet are made
first.
"""

import asyncio
from collections.abc import Collection
from typing import Final
from zoneinfo import ZoneInfo

from gateway.clock import HOUR_US, Clock
from gateway.drift.hours import Judged, explains, hours_before, judged
from gateway.money.alerting import Alerting, hour_message
from gateway.pacing.upkeep import Duty
from gateway.providers.outlets.webhook import WebHook
from gateway.store.engine import Database
from gateway.store.traffic.rollup import Rollup
from gateway.store.traffic.unusual_hours import KINDS, HourCosts, HourKind, UnusualHours
from gateway.telemetry import Event, logger


PERIOD_S: Final = 300.0
BATCHES: Final = 20
HOURS_LOOKED_AT: Final = 3
"""The current hour and those before: records of long answers come late."""
TURN: Final = 32
"""How many are judged in one turn of the loop, in about a millisecond."""
_Place = tuple[int, str]
"""An hour, and a team or a key."""


class HourWatch:
    """Call `tend` every few minutes."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        floor_microusd: int,
        alerting: Alerting | None = None,
    ) -> None:
        self._costs = HourCosts(database)
        self._found = UnusualHours(database, clock)
        self._rollup = Rollup(database, clock)
        self._clock = clock
        self._floor_microusd = floor_microusd
        self._alerting = alerting
        self._log = logger()

    async def tend(self) -> None:
        """Add up what is new, judge the last hours, and alert to what any worker found.

        Raises:
            NotReady: the database does not answer.
        """
        await self._rollup.catch_up(BATCHES)
        zones = await self._costs.zones()
        this_hour_us = self._clock.utc_us() // HOUR_US * HOUR_US
        since_us = this_hour_us - (HOURS_LOOKED_AT - 1) * HOUR_US
        dear: dict[str, dict[HourKind, dict[_Place, int]]] = {}
        for kind in KINDS:
            for name, hour_us, value, cost in await self._costs.dear(
                kind, zones, since_us, self._floor_microusd
            ):
                dear.setdefault(name, {}).setdefault(kind, {})[hour_us, value] = cost
        for name, costs in dear.items():
            await self._look(name, ZoneInfo(zones[name]), costs)
        await self._found.tidy()
        if self._alerting is not None:
            await self._alerting.perform()

    async def _look(
        self, organisation: str, zone: ZoneInfo, costs: dict[HourKind, dict[_Place, int]]
    ) -> None:
        keys = await self._judge("key", organisation, zone, costs.get("key", {}))
        teams = await self._judge("team", organisation, zone, costs.get("team", {}))
        for (hour_us, value), found in keys.items():
            await self._put(organisation, hour_us, "key", value, found)
        for (hour_us, value), found in teams.items():
            # Where one key says why, its team would say the same once more.
            of_hour = [key for (other_us, _), key in keys.items() if other_us == hour_us]
            if not any(explains(key, found) for key in of_hour):
                await self._put(organisation, hour_us, "team", value, found)

    async def _judge(
        self, kind: HourKind, organisation: str, zone: ZoneInfo, costs: dict[_Place, int]
    ) -> dict[_Place, Judged]:
        if not costs:
            return {}
        hours = {hour_us: hours_before(hour_us, zone) for hour_us, _ in costs}
        every = {each for before in hours.values() for each in before}
        values: Collection[str] = {value for _, value in costs}
        past = await self._costs.past(kind, organisation, every, values)
        found = {}
        for number, ((hour_us, value), cost) in enumerate(costs.items(), 1):
            if number % TURN == 0:
                # Requests are served by the same loop: many keys are not judged in one go.
                await asyncio.sleep(0)
            before = [past.get((each, value), 0) for each in hours[hour_us]]
            odd = judged(cost, before, self._floor_microusd)
            if odd is not None:
                found[hour_us, value] = odd
        return found

    async def _put(
        self, organisation: str, hour_us: int, kind: HourKind, value: str, found: Judged
    ) -> None:
        if await self._found.put(organisation, hour_us, kind, value, found):
            said = (
                f"{kind} {value}: {found.cost_microusd} beyond {found.bound_microusd} micro-dollars"
            )
            self._log.warning(Event.HOUR_UNUSUAL, organisation=organisation, reason=said)


def hour_watch(
    floor_microusd: int, database: Database, clock: Clock, hook: WebHook | None
) -> tuple[Duty, ...]:
    """The duty of a worker; none if the floor in the settings says that nobody wants to know."""
    if not floor_microusd:
        return ()
    found = UnusualHours(database, clock)
    alerting = None if hook is None else Alerting(found, hook, hour_message)
    watch = HourWatch(database, clock, floor_microusd, alerting)
    return (Duty("hours", PERIOD_S, watch.tend, Event.HOUR_WATCH_FAILED),)
