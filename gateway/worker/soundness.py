"""Whether a worker may take requests, judged by its audit log and ledger, and who is told."""

from gateway.audit.second import TwoDeviceLog
from gateway.metrics import Metrics
from gateway.store.evidence.integration import Integration
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.revisions import RevisionWatcher
from gateway.telemetry import Event, logger


class Soundness:
    """Checks what a worker cannot serve without; keeps only its last verdict."""

    def __init__(
        self,
        evidence: TwoDeviceLog,
        integration: Integration,
        ledger: LeasedLedger,
        watcher: RevisionWatcher,
        metrics: Metrics,
        worker: str,
    ) -> None:
        self._evidence = evidence
        self._integration = integration
        self._ledger = ledger
        self._watcher = watcher
        self._metrics = metrics
        self._worker = worker
        self._is_reporting = True
        self._failures = 0
        self._log = logger()

    def audit_reason(self) -> str:
        """Why nothing may be done now; empty while the audit log can be written."""
        if said := self._integration.put_back:
            return f"{said[0].upper()}{said[1:]}."
        if self._integration.problem:
            return (
                "The audit log contradicts a signed checkpoint, or its tree is damaged: stop every"
                " worker and start anew."
            )
        if self._integration.is_retired:
            return "This worker's name was retired: nothing that it records is heard any more."
        return "" if self._evidence.healthy else "The audit log cannot be written."

    def problems(self) -> tuple[str, ...]:
        """Problems of this worker that operators should know of."""
        reports = "" if self._ledger.is_reporting else "What was spent cannot be reported."
        reasons = (self.audit_reason(), self._watcher.problem(), reports)
        return tuple(filter(None, (*reasons, *self._integration.not_reckoned)))

    async def report(self) -> None:
        """Once a second: tend the audit log, and report the state of both to metrics and log."""
        await self._evidence.tend()
        self._metrics.audit_healthy.set(1 if self._evidence.healthy else 0)
        self._metrics.audit_carried.set(1 if self._evidence.is_carried else 0)
        before, self._failures = self._failures, self._evidence.failures_total
        self._metrics.audit_write_failures.inc(self._failures - before)
        if self._is_reporting and not self._ledger.is_reporting:
            self._log.warning(Event.LEDGER_FLUSH_FAILED, worker=self._worker)
        self._is_reporting = self._ledger.is_reporting
