"""Runs retention in the audit folder of this process, once a day where the settings say so.

Where they do not, the process only checks, and reports what is past its time. Between daily runs it
asks the database once an hour which folder is late.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.audit.disk import Disk
from gateway.audit.proving.exported import CheckpointFiles
from gateway.clock import DAY_US, HOUR_US, Clock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.errors import ConfigurationInvalid, GatewrightError, ToldToOperators
from gateway.pacing import rhythm
from gateway.pacing.upkeep import Duty
from gateway.ports import AuditLog
from gateway.store.database_clock import DatabaseClock
from gateway.store.engine import Database
from gateway.store.evidence.awaited import AwaitedTable
from gateway.store.evidence.older_database import OlderDatabase
from gateway.store.retention.keeping import limited
from gateway.store.retention.reports import RetentionReports
from gateway.store.retention.retaining import Retention, RetentionBusy
from gateway.store.retention.words import (
    RetentionDoubted,
    RetentionWords,
    require_no_longer,
)
from gateway.telemetry import Event


ACTOR: Final = "gateway"
AHEAD_US: Final = HOUR_US
"""A process whose clock is this far ahead of the database's destroys nothing by itself."""


class FolderRetention(Collector):
    """Retention by one process; `tend` is called every hour, and acts once a day."""

    def __init__(
        self, settings: Settings, database: Database, log: AuditLog, clock: Clock, *, worker: str
    ) -> None:
        """`worker` is the name under which `log` is written."""
        self._settings, self._database, self._clock = settings, database, clock
        self._retention = Retention(settings, database, log, clock, worker=worker)
        self._reports, self._awaited = RetentionReports(database), AwaitedTable(database)
        files = CheckpointFiles(settings.path(settings.audit.checkpoint_directory), Disk())
        self._older = OlderDatabase(database, files, clock)
        directory = settings.path(settings.audit.directory)
        self._words = RetentionWords(directory, worker, settings.retention, clock)
        self._tended_day = 0
        self._looked_at: dict[str, bool] = {}
        self._over_day = 0

    @property
    def duty(self) -> Duty:
        """The process's periodic duty, besides requests."""
        return Duty("retention", rhythm.RETENTION_S, self.tend, Event.UPKEEP_FAILED)

    async def tend(self) -> None:
        """Once a day, by UTC: destroy what is due if that is to be done daily, otherwise only look.

        Raises:
            RetentionDoubted: the settings or the clock are in doubt, so nothing is destroyed.
            AuditUnavailable, NotReady, OSError: not all was done; the next call goes on.
        """
        with suppress(OSError, RetentionDoubted):  # Who is to destroy something says it again.
            await asyncio.to_thread(self._words.say)
        if not any(self._settings.retention.classes.values()):
            return  # Nothing has a limit: a folder without any says nothing.
        try:
            today = self._clock.utc_us() // DAY_US
            if today != self._tended_day or await self._is_more_here():
                self._looked_at = await self._tend_today()
                self._tended_day = today
        except RetentionBusy:
            pass  # Whoever is at it says how it stands; in an hour it is asked for again.
        finally:
            self._over_day = await self._reports.over_day(self._settings.retention)

    async def _is_more_here(self) -> bool:
        """Whether there is more than at today's look: organisations with a log, or keys here.

        At the very first start there is neither; a worker that went down then would never count as
        late.
        """
        if not any(self._looked_at.values()):
            return True
        now = await limited(self._settings, self._database)
        return not now.keys() <= self._looked_at.keys()

    async def _tend_today(self) -> dict[str, bool]:
        """The organisations that were looked at, and whether each has keys here."""
        if self._settings.retention.run != "daily":
            return {each.organisation: each.has_keys for each in await self._retention.tell()}
        try:
            await self._require_certain()
            found = [each async for each in self._retention.carry_out(ACTOR)]
        except (OSError, GatewrightError, RetentionDoubted):
            # Nothing is destroyed, which has to be visible elsewhere too.
            with suppress(OSError, GatewrightError, ToldToOperators):
                await self._retention.tell()
            raise
        return {each.organisation: each.has_keys for each in found}

    async def _require_certain(self) -> None:
        """Check that this process's settings hold, and that its clock is near the database's.

        Also that the database is as new as the log, and that no other process keeps anything
        longer.

        Raises:
            RetentionDoubted: not so, or nobody can tell.
            OSError: the other processes' settings cannot be read, or this one's cannot be stored.
        """
        file = Path(self._settings.source)
        try:
            now = await asyncio.to_thread(load_settings, file)
        except ConfigurationInvalid as error:
            said = "its settings cannot be read any more, so nothing is destroyed"
            raise RetentionDoubted(f"retention: {said}: {error}") from error
        if now.retention != self._settings.retention:
            said = "it was set otherwise since this process started, so nothing is destroyed"
            raise RetentionDoubted(f"retention: {said}: start it anew")
        others = await asyncio.to_thread(self._words.say)
        require_no_longer(await limited(self._settings, self._database), others)
        if await self._older.found() or await self._awaited.workers():
            said = "the database was put back, perhaps without holds, so nothing is destroyed"
            raise RetentionDoubted(f"retention: {said}")
        clock = DatabaseClock(self._database, self._clock)
        await clock.follow()
        if self._clock.utc_us() - clock.utc_us() > AHEAD_US:
            said = "this machine's clock is ahead of the database's, so nothing is destroyed"
            raise RetentionDoubted(f"retention: {said}")

    def overdue_s(self) -> float:
        """How long the oldest overdue key of any folder is past its time; 0 without one."""
        if not self._over_day:
            return 0.0
        return max(self._clock.utc_us() - self._over_day * DAY_US, 0) / 1_000_000

    def collect(self) -> Iterable[Metric]:
        text = "Since content is past its time that no hold is on, in the audit folder most late."
        gauge = GaugeMetricFamily("gatewright_retention_overdue_seconds", text)
        gauge.add_metric((), self.overdue_s())
        yield gauge
