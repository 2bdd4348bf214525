"""Policies and targets on trial: what a shadow would have changed, what a canary does. Pure counts.

A worker counts what ended under a canary and beside it: under the documents of those who do not get
it, or at the targets that the others get. `harm` compares the two and names the first figure that
is worse by more than chance and the margins explain.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from math import sqrt

from msgspec import Struct, field

from gateway.rollout import Governing, Trial
from policies.decision import Decision


class GuardRules(Struct, frozen=True):
    """How much worse than the live version a canary may be before it is withdrawn."""

    requests_min: int = 20
    """Fewer say nothing yet."""
    failures_excess: float = 0.05
    checks_excess: float = 0.05
    refusals_excess: float = 0.05
    latency_ratio: float = 2.0
    cost_ratio: float = 2.0


class Arm(Struct):
    """What ended under one document on this worker."""

    requests: int = 0
    failures: int = 0
    refusals: int = 0
    answered: int = 0
    duration_us: int = 0
    cost_microusd: int = 0
    unsound: Counter[str] = field(default_factory=Counter)
    """Answers that failed a check, by its name."""


TARGETS_WATCHED = 64


class TargetTrial(Struct, frozen=True):
    """A canary of targets, and the rule that gives it a share of its askers."""

    document_digest: str
    rule: str
    target: str


def harm(canary: Arm, live: Arm, rules: GuardRules) -> str:
    """Empty, or what speaks against the canary.

    Shares are compared by the lower end of Wilson's 95 % interval of the canary's own share.
    """
    if canary.requests < rules.requests_min:
        return ""
    for name, bad, usual, excess in (
        ("failures", canary.failures, live.failures, rules.failures_excess),
        ("refusals", canary.refusals, live.refusals, rules.refusals_excess),
    ):
        allowed = (usual / live.requests if live.requests else 0.0) + excess
        if wilson_low(bad, canary.requests) > allowed:
            share = round(100 * bad / canary.requests)
            seen = f"{share} % of {canary.requests} requests"
            return f"{name}: {seen}, {100 * allowed:.0f} % allowed"
    for check, bad in sorted(canary.unsound.items()):
        allowed = live.unsound[check] / live.answered if live.answered else 0.0
        allowed += rules.checks_excess
        if wilson_low(bad, max(canary.answered, 1)) > allowed:
            share = round(100 * bad / max(canary.answered, 1))
            seen = f"{share} % of {canary.answered} answers fail"
            return f"{check}: {seen}, {100 * allowed:.0f} % allowed"
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
    """How a shadow's decision differs from the one that acts."""
    if decision.effect != other.effect:
        return "blocked" if other.effect == "deny" else "permitted"
    if decision.candidates[:1] != other.candidates[:1]:
        return "rerouted"
    return "same" if decision.obligations == other.obligations else "obliged"


class TargetTrials:
    """Canaries of targets, as this worker saw them; told once when one is worse than the others."""

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
        """A request ended that the canary could have got, or got."""
        if trial not in self._arms and len(self._arms) >= TARGETS_WATCHED:
            self._told.discard(self._arms.popitem(last=False)[0])
        arms = self._arms.setdefault(trial, (Arm(), Arm()))
        arm = arms[0] if is_canary else arms[1]
        arm.requests += 1
        arm.failures += failed
        if not failed:
            arm.answered += 1
            arm.duration_us += duration_us
            arm.cost_microusd += cost_microusd
            arm.unsound.update(unsound)

    def figures(self) -> Mapping[TargetTrial, tuple[Arm, Arm]]:
        """The canary's arm, and the others', of each."""
        return self._arms

    def worse(self) -> Iterator[tuple[TargetTrial, str]]:
        """Canaries that just turned out to be worse, and in what."""
        for trial, (canary, others) in self._arms.items():
            if trial not in self._told and (reason := harm(canary, others, self._rules)):
                self._told.add(trial)
                yield trial, reason


class Trials:
    """The arms of one worker, by the digest of the whole document."""

    def __init__(self, rules: GuardRules | None = None) -> None:
        self._rules = rules or GuardRules()
        self._arms: dict[str, Arm] = {}
        self.targets = TargetTrials(rules)

    def watch(self, governing: list[Governing]) -> None:
        """Count for these, and forget what is no longer on trial."""
        wanted = {trial.document.digest for each in governing for trial in each.trials}
        wanted |= {each.document.digest for each in governing}
        self._arms = {digest: self._arms.get(digest, Arm()) for digest in wanted}

    def count(
        self, digest: str, *, failed: bool, refused: bool, duration_us: int, cost_microusd: int
    ) -> None:
        """A request ended; nothing happens when its document is not on trial."""
        arm = self._arms.get(digest)
        if arm is None:
            return
        arm.requests += 1
        arm.failures += failed
        arm.refusals += refused
        if not failed and not refused:
            arm.answered += 1
            arm.duration_us += duration_us
            arm.cost_microusd += cost_microusd

    def harmful(self, governing: list[Governing]) -> Iterator[tuple[Trial, str]]:
        """Canaries that must go, and why."""
        for each in governing:
            live = self._arms.get(each.document.digest, Arm())
            for trial in each.trials:
                arm = self._arms.get(trial.document.digest, Arm())
                if reason := harm(arm, live, self._rules):
                    yield trial, reason
