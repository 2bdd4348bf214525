"""Carries out scheduled changes when their time has come: once, by any process, late if need be.

Every process may look. A process that claims the row acts in the same transaction, so that nothing
is done twice and nothing is half done; the record of it is durable before the transaction is.
"""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Final

from gateway.clock import SECOND_US, Clock
from gateway.errors import GatewrightError
from gateway.oversight.deeds import Deeds
from gateway.rollout.versions import Action, PolicyVersion, step
from gateway.store.engine import Database
from gateway.store.policies.documents import PolicyStore
from gateway.store.policies.schedules import (
    LATE_US,
    Schedule,
    ScheduleTable,
    acting_of,
    claim,
    conflict_of,
    in_words,
    note,
)
from gateway.store.revisions import bump
from gateway.telemetry import Event, logger


ACTOR: Final = "schedule"
_ACTIONS: Final[Mapping[str, Action]] = {"publish": "publish", "canary": "canary"}


class Scheduler:
    """Call `tend` every second."""

    def __init__(
        self, database: Database, policies: PolicyStore, deeds: Deeds, clock: Clock
    ) -> None:
        self._database = database
        self._policies = policies
        self._deeds = deeds
        self._clock = clock
        self._table = ScheduleTable(database, clock)
        self._log = logger()

    async def tend(self) -> None:
        """Carry out what is due."""
        for schedule in await self._table.due():
            await self._keep(schedule)

    async def _keep(self, schedule: Schedule) -> None:
        now_us = self._clock.utc_us()
        async with AsyncExitStack() as recorded, self._database.writing() as connection:
            await bump(connection)
            version = await self._policies.version_within(
                connection, schedule.level, schedule.number
            )
            acting = await acting_of(connection, schedule.level)
            said = conflict_of(schedule, acting) or _unfit(version, schedule)
            if not await claim(connection, schedule, now_us, said):
                return  # Another process was faster, or a person called it off.
            if not said:
                await self._policies.act_within(
                    connection,
                    version,
                    _ACTIONS[schedule.action],
                    ACTOR,
                    percent=schedule.percent,
                    reason=_reason(schedule, now_us),
                )
            about = _about(schedule, version, now_us)
            organisation = schedule.level.partition(":")[2].partition("/")[0]
            action = f"policy.{schedule.action}"
            if said:
                told = (ACTOR, "schedule_refused", said)
                await note(connection, schedule.level, schedule.number, now_us, told)
                await self._deeds.record(
                    ACTOR, action, organisation, after=about | {"said": said}, error="conflict"
                )
            else:
                # Left only after the transaction, so that a failed commit is recorded as well.
                await recorded.enter_async_context(
                    self._deeds.doing(ACTOR, action, organisation, after=about)
                )
        event = Event.SCHEDULE_REFUSED if said else Event.SCHEDULE_DONE
        reason = said or _lateness(schedule, now_us) or "in time"
        self._log.warning(event, version=schedule.number, reason=reason)


def _unfit(version: PolicyVersion, schedule: Schedule) -> str:
    try:
        step(version, _ACTIONS[schedule.action], ACTOR)
    except GatewrightError as error:
        return error.message
    return ""


def _reason(schedule: Schedule, now_us: int) -> str:
    """For the history: who ordered it for when, why, and how late it is."""
    parts = [f"scheduled by {schedule.actor}: {in_words(schedule)}", schedule.reason]
    return "; ".join(part for part in (*parts, _lateness(schedule, now_us)) if part)


def _lateness(schedule: Schedule, now_us: int) -> str:
    late_us = now_us - schedule.at_us
    if late_us < LATE_US:
        return ""
    return f"late by {timedelta(seconds=late_us // SECOND_US)}"


def _about(schedule: Schedule, version: PolicyVersion, now_us: int) -> dict[str, object]:
    """For the record: who scheduled it, who approved it, and how late it was."""
    said: dict[str, object] = {
        "level": schedule.level,
        "number": schedule.number,
        "digest": version.digest,
        "scheduled_by": schedule.actor,
        "approved_by": version.approver,
        "at_us": schedule.at_us,
        "late_s": max(now_us - schedule.at_us, 0) // SECOND_US,
        "reason": schedule.reason,
    }
    return said | ({"percent": schedule.percent} if schedule.percent else {})
