"""Withdraws canaries that do harm: every worker looks at its own traffic, the first one acts."""

from gateway.errors import RequestInvalid
from gateway.snapshot import SnapshotKeeper
from gateway.store.policies import PolicyStore
from gateway.telemetry import Event, logger
from gateway.trials import Trials


ACTOR = "guard"


class CanaryGuard:
    """Call `tend` every second: a harmful canary is gone from all workers a second later."""

    def __init__(self, trials: Trials, policies: PolicyStore, snapshots: SnapshotKeeper) -> None:
        self._trials = trials
        self._policies = policies
        self._snapshots = snapshots
        self._log = logger()

    async def tend(self) -> None:
        """Count for what is on trial now, and withdraw what speaks against itself."""
        for tried, reason in self._trials.targets.worse():
            # A policy gave it its share, so people take it away.
            said = f"{tried.rule}: {reason}"
            self._log.warning(Event.CANARY_WORSE, target=tried.target, reason=said)
        watched = self._snapshots.policies.watched()
        self._trials.watch(watched)
        for trial, reason in list(self._trials.harmful(watched)):
            try:
                await self._policies.act(
                    trial.level, trial.number, "withdraw", ACTOR, reason=reason
                )
            except RequestInvalid:
                continue  # Another worker, or a person, was faster.
            self._log.warning(Event.CANARY_WITHDRAWN, version=trial.number, reason=reason)
