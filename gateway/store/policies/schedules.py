"""Versions scheduled to take effect at a time: who ordered it, when, and what was live then.

A schedule remembers which versions were in effect when it was made. Anything published meanwhile
wins: at its time the schedule is then refused, and stays visible until somebody decides again.
"""

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import RowMapping, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import SECOND_US, Clock
from gateway.errors import RequestInvalid
from gateway.rollout.seen import UNSEEN, Seen, require_canary, require_live, require_waiting
from gateway.rollout.versions import PolicyEvent
from gateway.store.engine import Database
from gateway.store.pages import Order, Part, part_behind
from gateway.store.revisions import bump
from gateway.store.schema.policies import policy_events, policy_schedules, policy_versions


ScheduleState = Literal["waiting", "done", "refused", "cancelled"]
SCHEDULED: Final = ("publish", "canary")
"""Actions that may be scheduled."""
PERCENT: Final = "a canary gets more than 0 and at most 100 percent"
"""Why a share is refused."""
AHEAD_US_MAX: Final = 366 * 86_400_000_000
LATE_US: Final = 60_000_000
"""From this delay on, the lateness is mentioned."""
_S = policy_schedules.c
_IN_ORDER: Final = Order((_S.at_us, _S.created_us, _S.number, _S.id))
_V = policy_versions.c
_READY: Final = ("approved", "shadow", "canary")


class Schedule(Struct, frozen=True):
    """A schedule for one version."""

    id: str
    level: str
    number: int
    action: str
    at_us: int
    actor: str
    created_us: int
    percent: float = 0.0
    reason: str = ""
    live: int = 0
    """The live version when this was ordered; 0 for none."""
    canary: int = 0
    state: ScheduleState = "waiting"
    ended_us: int = 0
    ended_by: str = ""
    said: str = ""
    """Why it was refused or called off."""

    @property
    def late_us(self) -> int:
        """How long after its time it was carried out."""
        is_late = self.state in ("done", "refused") and self.ended_us - self.at_us >= LATE_US
        return self.ended_us - self.at_us if is_late else 0


class ScheduleTable:
    """Schedules of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def add(
        self,
        level: str,
        number: int,
        action: str,
        at_us: int,
        actor: str,
        *,
        percent: float = 0.0,
        reason: str = "",
        seen: Seen = UNSEEN,
    ) -> Schedule:
        """Schedule an action on a version; an earlier schedule of it is called off.

        Raises:
            ChangedMeanwhile: something else acts or waits than was seen.
            RequestInvalid: the time is past or too far ahead, the version is not approved, or the
                action is not one of `SCHEDULED`.
        """
        now_us = self._clock.utc_us()
        if action not in SCHEDULED:
            reason = f"one of {', '.join(SCHEDULED)} may be left to a time"
            raise RequestInvalid(reason, parameter="action")
        if action == "canary" and not 0 < percent <= 100:  # noqa: PLR2004
            raise RequestInvalid(PERCENT, parameter="percent")
        if not now_us < at_us <= now_us + AHEAD_US_MAX:
            raise RequestInvalid("a time to come, within a year", parameter="at")
        async with self._database.writing() as connection:
            await bump(connection)
            acting = await acting_of(connection, level)
            require_live(acting.get("live", 0), seen.live)
            require_canary(acting.get("canary", 0), seen.canary)
            if seen.waiting is not None:
                waits = await _rows(connection, _waiting(level, number))
                require_waiting(waits[0].id if waits else "", seen.waiting)
            here = (_V.level == level) & (_V.number == number)
            state = (await connection.execute(select(_V.state).where(here))).scalar_one_or_none()
            if state not in _READY:
                found = f"is {state}" if state else "is not there"
                raise RequestInvalid(f"version {number} {found}: only what is approved can wait")
            await call_off(connection, level, number, now_us, actor, "ordered anew")
            schedule = Schedule(
                secrets.token_hex(6),
                level,
                number,
                action,
                at_us,
                actor[:200],
                now_us,
                percent if action == "canary" else 0.0,
                reason,
                acting.get("live", 0),
                acting.get("canary", 0),
            )
            await connection.execute(insert(policy_schedules).values(asdict(schedule)))
            said = f"{in_words(schedule)}; {reason}" if reason else in_words(schedule)
            await note(connection, level, number, now_us, (actor, "schedule", said))
            return schedule

    async def cancel(
        self, level: str, number: int, actor: str, reason: str, seen: str | None = None
    ) -> Schedule:
        """Call off a version's schedule; `seen` is the id of the one that was shown.

        Raises:
            ChangedMeanwhile: another schedule waits than was seen.
            RequestInvalid: none waits for it; perhaps it was just carried out.
        """
        async with self._database.writing() as connection:
            await bump(connection)
            waiting = await _rows(connection, _waiting(level, number))
            if not waiting:
                raise RequestInvalid(f"nothing is scheduled for version {number} any more")
            require_waiting(waiting[0].id, seen)
            now_us = self._clock.utc_us()
            await call_off(connection, level, number, now_us, actor, reason)
            await note(connection, level, number, now_us, (actor, "unschedule", reason))
            return (await _rows(connection, _S.id == waiting[0].id))[0]

    async def due(self) -> list[Schedule]:
        """Waiting schedules whose time has come, oldest first."""
        is_due = (_S.state == "waiting") & (_S.at_us <= self._clock.utc_us())
        async with self._database.reading() as connection:
            return await _rows(connection, is_due)

    async def of(self, level: str | None = None) -> list[Schedule]:
        """All schedules of a level, or of every level, by time."""
        async with self._database.reading() as connection:
            return await _rows(connection, _S.level == level if level is not None else _S.id != "")

    async def page(self, level: str, first: int, limit: int, after: str = "") -> Part[Schedule]:
        """A page of a level's, in the same order; `after` is the key of the last one before it."""
        query, place = select(policy_schedules).where(_S.level == level), (first, after)
        async with self._database.reading() as connection:
            return await part_behind(connection, query, _IN_ORDER, place, limit, _schedule_of)

    async def open(self, since_us: int) -> list[Schedule]:
        """Waiting schedules, and each version's last one if it was refused since then.

        A refusal is over once the version was scheduled again, or something was done with it.
        """
        newest: dict[tuple[str, int], Schedule] = {}
        async with self._database.reading() as connection:
            rows = await _rows(connection, (_S.state == "waiting") | (_S.ended_us >= since_us))
            levels = {each.level for each in rows}
            query = select(_V.level, _V.number).where(_V.state.in_(_READY), _V.level.in_(levels))
            ready = {(level, number) for level, number in await connection.execute(query)}
        for each in sorted(rows, key=lambda each: each.created_us):
            newest[each.level, each.number] = each
        found = [
            each
            for key, each in newest.items()
            if each.state == "waiting"
            or (each.state == "refused" and each.ended_us >= since_us and key in ready)
        ]
        return sorted(found, key=lambda each: each.at_us)

    async def conflict(self, schedule: Schedule) -> str:
        """What would prevent a schedule if its time were now; empty for nothing."""
        async with self._database.reading() as connection:
            return conflict_of(schedule, await acting_of(connection, schedule.level))


def in_words(schedule: Schedule) -> str:
    """What will happen and when, in UTC."""
    at = datetime.fromtimestamp(schedule.at_us / SECOND_US, UTC).isoformat(timespec="seconds")
    share = f" for {schedule.percent:g}% of the keys" if schedule.percent else ""
    return f"{schedule.action}{share} at {at.replace('+00:00', 'Z')}"


def conflict_of(schedule: Schedule, acting: Mapping[str, int]) -> str:
    """Why a schedule can no longer be carried out; empty if it can."""
    live, canary = acting.get("live", 0), acting.get("canary", 0)
    if live != schedule.live:
        was = f"version {schedule.live} was" if schedule.live else "none was"
        now = f"version {live} is live now" if live else "no version is live now"
        return f"{now}; {was} when this was ordered"
    if canary not in (0, schedule.number, schedule.canary):
        return f"version {canary} has become a canary since this was ordered, and would be ended"
    return ""


async def acting_of(connection: AsyncConnection, level: str) -> dict[str, int]:
    """The versions of a level that now act, by state."""
    query = select(_V.state, _V.number).where(
        _V.level == level, _V.state.in_(("live", "canary", "shadow"))
    )
    return {row.state: row.number for row in await connection.execute(query)}


async def call_off(
    connection: AsyncConnection, level: str, number: int, utc_us: int, actor: str, said: str
) -> None:
    """Call off a version's schedule, as part of a transaction."""
    values = {"state": "cancelled", "ended_us": utc_us, "ended_by": actor[:200], "said": said}
    await connection.execute(update(policy_schedules).where(_waiting(level, number)).values(values))


async def note(
    connection: AsyncConnection, level: str, number: int, utc_us: int, said: tuple[str, str, str]
) -> None:
    """Add to a level's history the actor, action and reason of a deed on a version."""
    columns = policy_events.c
    last = select(func.max(columns.place)).where(columns.level == level)
    place = ((await connection.execute(last)).scalar_one_or_none() or 0) + 1
    actor, action, reason = said
    event = PolicyEvent(level, number, utc_us, actor[:200], action, reason)
    await connection.execute(insert(policy_events), asdict(event) | {"place": place})


async def claim(connection: AsyncConnection, schedule: Schedule, utc_us: int, said: str) -> bool:
    """End a schedule as done, or as refused for the reason `said`; False if another process did."""
    state = "refused" if said else "done"
    values = {"state": state, "ended_us": utc_us, "ended_by": "schedule", "said": said}
    here = (_S.id == schedule.id) & (_S.state == "waiting")
    ended = await connection.execute(update(policy_schedules).where(here).values(values))
    return ended.rowcount == 1


def _waiting(level: str, number: int) -> Any:
    return (_S.level == level) & (_S.number == number) & (_S.state == "waiting")


async def _rows(connection: AsyncConnection, condition: Any) -> list[Schedule]:
    query = select(policy_schedules).where(condition).order_by(*_IN_ORDER.by())
    return [_schedule_of(row) for row in (await connection.execute(query)).mappings()]


def _schedule_of(row: RowMapping) -> Schedule:
    return Schedule(**{name: row[name] for name in Schedule.__struct_fields__})
