"""Policies and targets on trial: what a shadow would change, what a canary does. Pure counts.

A worker counts requests that ended under a canary and beside it: under the documents of those who
do not get the canary, or at the targets that the others get. `harm` compares the two and names the
first figure that is worse by more than chance and the limits of `gateway.configuration.guarding`
explain.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from math import log2, sqrt
from typing import TypeVar

from msgspec import Struct, field

from gateway.configuration.guarding import GuardRules, OnHarm
from gateway.rollout.versions import Governing, Trial
from policies.decision import Decision


Key = TypeVar("Key")
SLOW_SHARE = 0.05
"""A limit on p95 lets one answer in twenty take longer."""
_STEPS = 8
"""Times are counted in steps of a factor of 2 ** (1 / 8): a p95 is known to within 9%."""
_US_PER_MS = 1_000


class Arm(Struct):
    """What ended under one document, on this worker or on all together."""

    requests: int = 0
    failures: int = 0
    refusals: int = 0
    answered: int = 0
    duration_us: int = 0
    cost_microusd: int = 0
    unsound: dict[str, int] = field(default_factory=dict)
    """Answers that failed a check, by the check's name."""
    times: dict[int, int] = field(default_factory=dict)
    """Answers by how long they took, in steps."""

    def answer(self, duration_us: int, cost_microusd: int, unsound: Iterable[str] = ()) -> None:
        """Count an answered request of this arm."""
        self.answered += 1
        self.duration_us += duration_us
        self.cost_microusd += cost_microusd
        step = _step_of(duration_us)
        self.times[step] = self.times.get(step, 0) + 1
        for check in unsound:
            self.unsound[check] = self.unsound.get(check, 0) + 1

    def add(self, other: "Arm") -> None:
        """Add what another worker counted."""
        for name in ("requests", "failures", "refusals", "answered", "duration_us"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.cost_microusd += other.cost_microusd
        _merge(self.unsound, other.unsound)
        _merge(self.times, other.times)

    @property
    def p95_ms(self) -> int:
        """Roughly the 95th percentile of answer times; 0 without answers."""
        left = self.answered * SLOW_SHARE
        for step, count in sorted(self.times.items(), reverse=True):
            left -= count
            if left < 0:
                return round(2 ** ((step + 0.5) / _STEPS) / _US_PER_MS)
        return 0

    def slower_than(self, limit_ms: int) -> int:
        """Answers that certainly took longer."""
        first = _step_of(limit_ms * _US_PER_MS) + 1
        return sum(count for step, count in self.times.items() if step >= first)


def _merge(mine: dict[Key, int], theirs: Mapping[Key, int]) -> None:
    for key, count in theirs.items():
        mine[key] = mine.get(key, 0) + count


def _step_of(duration_us: int) -> int:
    return int(log2(max(duration_us, 1)) * _STEPS)


TARGETS_WATCHED = 64


class TargetTrial(Struct, frozen=True):
    """A canary among targets, and the rule that gives it a share of the callers."""

    document_digest: str
    rule: str
    target: str


def harm(canary: Arm, live: Arm, rules: GuardRules) -> str:
    """What speaks against the canary; empty if nothing does.

    Shares are compared by the lower end of Wilson's 95 % interval of the canary's own share.
    """
    if canary.requests < rules.requests_min:
        return ""
    for judge in (_worse_shares, _worse_answers, _worse_means):
        if reason := judge(canary, live, rules):
            return reason
    return ""


def _worse_shares(canary: Arm, live: Arm, rules: GuardRules) -> str:
    for name, bad, usual, excess in (
        ("failures", canary.failures, live.failures, rules.failures_excess),
        ("refusals", canary.refusals, live.refusals, rules.refusals_excess),
    ):
        allowed = (usual / live.requests if live.requests else 0.0) + excess
        if name == "failures" and rules.failures_max is not None:
            allowed = min(allowed, rules.failures_max)
        if wilson_low(bad, canary.requests) > allowed:
            share = round(100 * bad / canary.requests)
            seen = f"{share}% of {canary.requests} requests"
            return f"{name}: {seen}, {100 * allowed:.3g}% allowed"
    return ""


def _worse_answers(canary: Arm, live: Arm, rules: GuardRules) -> str:
    for check, bad in sorted(canary.unsound.items()):
        allowed = live.unsound.get(check, 0) / live.answered if live.answered else 0.0
        allowed += rules.checks_excess
        if wilson_low(bad, max(canary.answered, 1)) > allowed:
            share = round(100 * bad / max(canary.answered, 1))
            seen = f"{share}% of {canary.answered} answers fail"
            return f"{check}: {seen}, {100 * allowed:.3g}% allowed"
    if rules.p95_ms_max is not None and canary.answered >= rules.requests_min:
        slow = canary.slower_than(rules.p95_ms_max)
        if wilson_low(slow, canary.answered) > SLOW_SHARE:
            seen = f"{slow} of {canary.answered} answers took longer than {rules.p95_ms_max} ms"
            return f"p95: {seen}, one in twenty allowed"
    return ""


def _worse_means(canary: Arm, live: Arm, rules: GuardRules) -> str:
    most = rules.cost_microusd_max
    if most is not None and canary.answered >= rules.requests_min:
        mean = canary.cost_microusd / canary.answered
        if mean > most:
            return f"cost: {mean / 1e6:.6f} USD an answer, {most / 1e6:.6f} allowed"
    enough = min(canary.answered, live.answered) >= rules.requests_min
    for name, total, usual, ratio in (
        ("latency", canary.duration_us, live.duration_us, rules.latency_ratio),
        ("cost", canary.cost_microusd, live.cost_microusd, rules.cost_ratio),
    ):
        if enough and total * live.answered > ratio * usual * canary.answered > 0:
            times = total * live.answered / (usual * canary.answered)
            return f"{name}: {times:.1f} times that of the live version, {ratio:g} allowed"
    return ""


def wilson_low(hits: int, trials: int) -> float:
    """Lower end of Wilson's 95 % interval for a share (Wilson, 1927)."""
    z = 1.96
    share = hits / trials
    centre = share + z * z / (2 * trials)
    spread = z * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return (centre - spread) / (1 + z * z / trials)


def shadow_change(decision: Decision, other: Decision) -> str:
    """How a shadow's decision differs from the one in force."""
    if decision.effect != other.effect:
        return "blocked" if other.effect == "deny" else "permitted"
    if decision.candidates[:1] != other.candidates[:1]:
        return "rerouted"
    return "same" if decision.obligations == other.obligations else "obliged"


class TargetTrials:
    """Canaries of targets as this worker saw them; reported once when worse than the others."""

    def __init__(self, rules: GuardRules | None = None) -> None:
        self._rules = rules or GuardRules()
        self._arms: OrderedDict[TargetTrial, tuple[Arm, Arm]] = OrderedDict()
        self._told: set[TargetTrial] = set()

    def count(
        self,
        trial: TargetTrial,
        *,
        is_canary: bool,
        failed: bool,
        unsound: tuple[str, ...],
        duration_us: int,
        cost_microusd: int,
    ) -> None:
        """Count a request that the canary got or could have got."""
        if trial not in self._arms and len(self._arms) >= TARGETS_WATCHED:
            self._told.discard(self._arms.popitem(last=False)[0])
        arms = self._arms.setdefault(trial, (Arm(), Arm()))
        arm = arms[0] if is_canary else arms[1]
        arm.requests += 1
        arm.failures += failed
        if not failed:
            arm.answer(duration_us, cost_microusd, unsound)

    def figures(self) -> Mapping[TargetTrial, tuple[Arm, Arm]]:
        """For each, the canary's arm and that of the others."""
        return self._arms

    def worse(self) -> Iterator[tuple[TargetTrial, str]]:
        """Canaries that have just turned out to be worse, and in what."""
        for trial, (canary, others) in self._arms.items():
            if trial not in self._told and (reason := harm(canary, others, self._rules)):
                self._told.add(trial)
                yield trial, reason


class Trials:
    """The arms of one worker, by the digest of the complete document."""

    def __init__(self, rules: GuardRules | None = None) -> None:
        """`rules` apply to versions that have none of their own."""
        self._rules = rules or GuardRules()
        self._arms: dict[str, Arm] = {}
        self._for: dict[str, frozenset[tuple[str, int, int]]] = {}
        """Digest of a document → the canaries that it is tried for, or tried against."""
        self.targets = TargetTrials(rules)

    def watch(self, governing: list[Governing], canaries: Collection[tuple[str, int, int]]) -> None:
        """Count for these, and forget what is no longer on trial.

        `canaries` are all that act, by level, number and beginning: their counts are kept, even if
        nobody has asked since policies changed somewhere else. One that begins again begins at
        zero: what it did before was a reason to stop it.
        """
        found: dict[str, frozenset[tuple[str, int, int]]] = {}
        for each in governing:
            tried = frozenset((trial.level, trial.number, trial.began) for trial in each.trials)
            for document in (each.document, *(trial.document for trial in each.trials)):
                found[document.digest] = found.get(document.digest, frozenset()) | tried
        for digest, tried in self._for.items():
            if digest not in found and not tried.isdisjoint(canaries):
                found[digest] = tried
        self._arms = {
            digest: Arm()
            if tried.isdisjoint(self._for.get(digest, tried))
            else self._arms.get(digest, Arm())
            for digest, tried in found.items()
        }
        self._for = found

    def watches(self, digest: str) -> bool:
        """Whether requests under this document are counted."""
        return digest in self._arms

    def count(
        self,
        digest: str,
        *,
        failed: bool,
        refused: bool,
        duration_us: int,
        cost_microusd: int,
        unsound: Iterable[str] = (),
    ) -> None:
        """Count a request; does nothing if its document is not on trial."""
        arm = self._arms.get(digest)
        if arm is None:
            return
        arm.requests += 1
        arm.failures += failed
        arm.refusals += refused
        if not failed and not refused:
            arm.answer(duration_us, cost_microusd, unsound)

    def harmful(self, governing: list[Governing]) -> Iterator[tuple[Trial, str]]:
        """Canaries that must be withdrawn, and why."""
        for each in governing:
            live = self._arms.get(each.document.digest, Arm())
            for trial in each.trials:
                arm = self._arms.get(trial.document.digest, Arm())
                if reason := self.harm(trial, arm, live):
                    yield trial, reason

    def harm(self, trial: Trial, canary: Arm, live: Arm) -> str:
        """What speaks against a canary by its own rules; empty if nothing does."""
        return harm(canary, live, trial.guard or self._rules)

    def on_harm(self, trial: Trial) -> OnHarm:
        """What is to happen to the canary then."""
        return (trial.guard or self._rules).on_harm

    def figures(self, governing: list[Governing]) -> list[tuple[Trial, Arm, Arm]]:
        """This worker's counts for each version on trial and beside it, over all projects together.

        Documents that several projects share are counted once.
        """
        digests: dict[tuple[str, int], tuple[Trial, set[str], set[str]]] = {}
        for each in governing:
            for trial in each.trials:
                key = (trial.level, trial.number)
                _, tried, beside = digests.setdefault(key, (trial, set(), set()))
                tried.add(trial.document.digest)
                beside.add(each.document.digest)
        return [
            (trial, self._together(tried), self._together(beside))
            for trial, tried, beside in digests.values()
        ]

    def _together(self, digests: Iterable[str]) -> Arm:
        whole = Arm()
        for digest in digests:
            whole.add(self._arms.get(digest, Arm()))
        return whole
