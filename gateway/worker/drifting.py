"""Watches profiles of prompts and answers for drift; alerts, and withdraws promises.

Any worker does this for any organisation, once an hour. What the calibration promises of the cheap
tier was shown on traffic like the labelled, so while a route's prompts drift, the promise is
withdrawn.
"""

from collections.abc import Collection, Sequence
from typing import Final

from gateway.clock import HOUR_US, Clock
from gateway.configuration.sections import DriftSettings
from gateway.drift.judging import Rules
from gateway.inspection.inspector import Inspector
from gateway.metrics import Metrics
from gateway.money.alerting import Alerting, drift_message
from gateway.oversight.deeds import Deeds, LateDeeds
from gateway.pacing.upkeep import Duty
from gateway.providers.outlets.webhook import WebHook
from gateway.store.engine import Database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.traffic.comparing import Comparison, compared
from gateway.store.traffic.drifts import Drift, DriftTable
from gateway.store.traffic.profiles import Hour, ProfileHours
from gateway.telemetry import Event, logger


ACTOR: Final = "drift"
PERIOD_S: Final = 60.0
HOURS_AT_ONCE: Final = 12
"""How many hours of all organisations are profiled at once: weeks of history take their time."""


class DriftWatch:
    """Call `tend` every minute."""

    def __init__(
        self,
        settings: DriftSettings,
        hours: ProfileHours,
        table: DriftTable,
        deeds: LateDeeds,
        *,
        inspector: Inspector,
        metrics: Metrics,
        alerting: Alerting | None = None,
    ) -> None:
        self._settings = settings
        self._rules = Rules(settings.index_least, settings.requests_least)
        self._hours, self._table = hours, table
        self._deeds = deeds
        self._inspector = inspector
        self._metrics = metrics
        self._alerting = alerting
        self._log = logger()

    async def tend(self) -> None:
        """Profile finished hours, judge what is new, and act on what any worker found.

        Raises:
            AuditUnavailable: a finding is not recorded yet; the next call tries again.
            NotReady: the database does not answer.
        """
        try:
            await self._look_at_all()
        finally:
            # Recorded when it is done: a log that cannot be written must not keep an alarm back.
            await self._deeds.record()

    async def _look_at_all(self) -> None:
        await self._obey()
        left = HOURS_AT_ONCE
        for organisation in await self._hours.due(HOURS_AT_ONCE):
            left -= await self._catch_up(organisation, left)
            if left <= 0:
                break
        if left < HOURS_AT_ONCE:
            await self._obey()
        if self._alerting is not None:
            await self._alerting.perform()

    async def _obey(self) -> None:
        """Withdraw promises for routes whose prompts drift; restore those that no longer do."""
        acting = await self._table.acting()
        if self._settings.withdraws_guarantee:
            self._inspector.withdraw(withdrawn(acting, self._inspector))
        for kind in ("prompts", "answers"):
            open_now = sum(each.state == "open" and each.kind == kind for each in acting)
            self._metrics.drifts_open(kind, open_now)

    async def _catch_up(self, organisation: str, count_max: int) -> int:
        """Profile hours that are missing; returns how many."""
        done = 0
        while done < count_max and (hour := await self._hours.claim(organisation)) is not None:
            done += 1
            if not await self._hours.gather(hour):
                break
            if hour.is_newest:
                await self._judge(hour)
                await self._hours.tidy(organisation)
                break
        return done

    async def _judge(self, hour: Hour) -> None:
        organisation, until_us = hour.organisation, hour.start_us + HOUR_US
        known = await self._table.of(organisation)
        for each in await compared(self._hours, known, organisation, until_us, self._rules):
            await self._look(organisation, each)

    async def _look(self, organisation: str, seen: Comparison) -> None:
        before = seen.drift
        promised = ""
        if seen.kind == "prompts":
            promised = self._inspector.promised(organisation, seen.scope)
        after = await self._table.look(
            before,
            (organisation, seen.kind, seen.scope),
            seen.verdict,
            seen.since_us,
            promised,
        )
        if before is None or after is None or before.state == after.state:
            return
        if after.state == "open":
            self._log.warning(Event.PROFILE_DRIFTS, organisation=organisation, reason=told(after))
        else:
            self._log.info(Event.PROFILE_STEADY, organisation=organisation, reason=told(after))
        verb = "drift.found" if after.state == "open" else "drift.ended"
        self._deeds.note(ACTOR, verb, organisation, described(after))


def withdrawn(acting: Sequence[Drift], inspector: Inspector) -> Collection[tuple[str, str]]:
    """Organisation and route of every withdrawn promise.

    Accepted traffic becomes the reference for the next drift, but nothing was shown for it: a
    promise holds again only once it is a new one, made from today's labels.
    """
    return {
        (each.organisation, each.scope)
        for each in acting
        if each.kind == "prompts"
        and (
            each.state == "open"
            or each.guarantee == inspector.promised(each.organisation, each.scope)
        )
    }


def told(drift: Drift) -> str:
    """A drift in one log line."""
    return f"{drift.kind} of {drift.scope}: {drift.said}"


def described(drift: Drift) -> dict[str, object]:
    """A drift as its record holds it: names and shares, no content."""
    return {
        "drift": drift.id,
        "kind": drift.kind,
        "scope": drift.scope,
        "state": drift.state,
        "since_us": drift.began_us,
        "said": drift.said,
        "guarantee": drift.guarantee,
    }


def drift_watch(
    settings: DriftSettings,
    database: Database,
    sink: DatabaseAuditSink,
    deeds: Deeds,
    clock: Clock,
    *,
    inspector: Inspector,
    metrics: Metrics,
    hook: WebHook | None,
) -> tuple[Duty, ...]:
    """The duty of a worker; none if the settings say so."""
    if not settings.enabled:
        return ()
    table = DriftTable(database, clock)
    alerting = None if hook is None else Alerting(table, hook, drift_message)
    hours = ProfileHours(database, sink, clock)
    watch = DriftWatch(
        settings,
        hours,
        table,
        LateDeeds(deeds, clock),
        inspector=inspector,
        metrics=metrics,
        alerting=alerting,
    )
    return (Duty("drift", PERIOD_S, watch.tend, Event.DRIFT_WATCH_FAILED),)
