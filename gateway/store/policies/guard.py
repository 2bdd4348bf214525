"""Ends canaries that do harm: every worker looks at the traffic of all, the first one acts.

A worker's own figures are enough for it to act; those of all workers together are checked as well,
so that a canary with little traffic on each of them is found out, too.
"""

import secrets

from gateway.configuration.guarding import DEEDS
from gateway.errors import RequestInvalid
from gateway.oversight.deeds import LateDeeds
from gateway.rollout.trials import Arm, Trials
from gateway.rollout.versions import Action, Trial
from gateway.snapshot import SnapshotKeeper
from gateway.store.policies.documents import PolicyStore
from gateway.telemetry import Event, logger


ACTOR = "guard"


class CanaryGuard:
    """Call `tend` every second: a harmful canary is gone from all workers a second later."""

    def __init__(
        self,
        trials: Trials,
        policies: PolicyStore,
        snapshots: SnapshotKeeper,
        deeds: LateDeeds,
    ) -> None:
        self._trials = trials
        self._policies = policies
        self._snapshots = snapshots
        self._figures = policies.figures
        self._deeds = deeds
        self._run = secrets.token_hex(8)
        self._said: dict[tuple[str, int, int], tuple[int, int]] = {}
        self._log = logger()

    async def tend(self) -> None:
        """Count for the present trials, and end those whose figures speak against them.

        Raises:
            AuditUnavailable: an end is not recorded yet; the next call tries again.
        """
        try:
            await self._look()
        finally:
            # Recorded afterwards: a log that cannot be written must not prolong the harm.
            await self._deeds.record()

    async def _look(self) -> None:
        for tried, reason in self._trials.targets.worse():
            # A policy gave it its share, so people have to take it away.
            said = f"{tried.rule}: {reason}"
            self._log.warning(Event.CANARY_WORSE, target=tried.target, reason=said)
        policies = self._snapshots.policies
        watched = policies.watched()
        self._trials.watch(watched, policies.canaries)
        ended = set()
        for trial, reason in list(self._trials.harmful(watched)):
            if (trial.level, trial.number) not in ended:
                ended.add((trial.level, trial.number))
                await self._end(trial, reason)
        for trial, canary, beside in self._trials.figures(watched):
            await self._report(trial, canary, beside)
            if (trial.level, trial.number) in ended:
                continue
            all_of = await self._figures.measured(trial.level, trial.number, began=trial.began)
            if reason := self._trials.harm(trial, all_of.canary, all_of.beside):
                await self._end(trial, reason)

    async def _report(self, trial: Trial, canary: Arm, beside: Arm) -> None:
        key = (trial.level, trial.number, trial.began)
        counted = (canary.requests, beside.requests)
        if self._said.get(key, (0, 0)) != counted:
            level, number, began = key
            await self._figures.report(level, number, self._run, canary, beside, began=began)
            self._said[key] = counted

    async def _end(self, trial: Trial, reason: str) -> None:
        rule = self._trials.on_harm(trial)
        action: Action = "stop" if rule == "halt" else "withdraw"
        try:
            # Only this trial: one that somebody stopped meanwhile, turned into a shadow, or began
            # again is left alone.
            await self._policies.end_trial(trial, action, ACTOR, reason)
        except RequestInvalid:
            return  # Another worker, or a person, was faster.
        event = Event.CANARY_HALTED if rule == "halt" else Event.CANARY_WITHDRAWN
        self._log.warning(event, version=trial.number, reason=reason)
        organisation = trial.level.partition(":")[2].partition("/")[0]
        after: dict[str, object] = {"level": trial.level, "number": trial.number, "reason": reason}
        after["became"] = DEEDS[rule]
        self._deeds.note(ACTOR, f"policy.{action}", organisation, after)
