"""The health of all parts, read from what they left in the database; nobody is called from here.

The latest answers of upstreams are in the attempts of the recorded outcomes; each worker's breakers
are shown in the rooms of models and system.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from gateway.oversight.workers import WorkerReport
from gateway.types import Attempt, AuditRecord


State = Literal["good", "warn", "bad", "idle"]
LATELY_US: Final = 15 * 60 * 1_000_000
FAILING_SHARE: Final = 0.5
STRAINED_SHARE: Final = 0.05
PERCENTILE: Final = 0.95
NOT_THEIRS: Final = range(400, 500)
"""Statuses that are the request's fault, but for those of OURS_OR_THEIRS."""
OURS_OR_THEIRS: Final = (401, 403, 407, 429)
"""Our credential was refused, here or at a proxy, or there were too many requests: no request can
mend that, and until somebody does, the upstream serves nobody."""
GIVEN_UP: Final = {
    "hedged_away": "was given up: another target answered first",
    "cascaded_away": "was given up: too long to be judged, so a more expensive target was called",
    "taken_over": "was given up: another worker had taken over this line of the batch",
    "client_gone": "was given up: the caller disconnected",
    "worker_stopped": "was given up: the gateway's worker was stopped",
}
"""Attempts that we ended ourselves, in words: nothing was wrong with their targets."""


class Part(Struct, frozen=True):
    """One part of the installation, as it was lately."""

    name: str
    kind: str
    """gateway, database, engine or provider."""
    word: str
    state: State
    attempts: int = 0
    failed: int = 0
    p95_us: int = 0
    """Until its first byte; of the database, what the last question took."""
    last_us: int = 0
    """When it last did something; 0 for never."""
    note: str = ""

    @property
    def failed_share(self) -> float:
        return self.failed / self.attempts if self.attempts else 0.0


def percentile(values: Sequence[int]) -> int:
    """The smallest value that so many of all do not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[max(-(-int(PERCENTILE * 1000) * len(ordered) // 1000) - 1, 0)] if ordered else 0


def provider_parts(
    records: Sequence[AuditRecord],
    providers: Mapping[str, tuple[str, str]],
    targets: Mapping[str, str],
    down: Mapping[str, str],
) -> list[Part]:
    """Every configured provider, from the attempts of recent outcomes.

    Args:
        records: outcomes, newest first.
        providers: name → kind of part, and why it cannot be called (empty where it can).
        targets: name → provider.
        down: name → why (perhaps empty), of engines that workers find down now, whatever was
            answered before.
    """
    tried: dict[str, list[tuple[Attempt, int]]] = {name: [] for name in providers}
    for record in records:
        for attempt in record.attempts:
            provider = targets.get(attempt.target, "")
            if provider in tried:
                tried[provider].append((attempt, record.utc_us))
    return [
        _part(name, kind, reason, tried[name], down.get(name))
        for name, (kind, reason) in sorted(providers.items())
    ]


def down_of(reports: Sequence[WorkerReport]) -> dict[str, str]:
    """Engines and pools of which no member answers, by provider, with why.

    A member is as the worker that reported last sees it; `reports` are of workers heard of.
    """
    members: dict[str, dict[str, tuple[str, str]]] = {}
    for report in sorted(reports, key=lambda each: each.seen_us):
        for seen in report.members:
            members.setdefault(seen.provider, {})[seen.member] = (seen.state, seen.reason)
    return {
        provider: next(reason for _, reason in states.values())
        for provider, states in members.items()
        if all(state == "down" for state, _ in states.values())
    }


def _part(
    name: str, kind: str, reason: str, tried: Sequence[tuple[Attempt, int]], down: str | None
) -> Part:
    failed = sum(is_failure(attempt) for attempt, _ in tried)
    quick = [attempt.first_byte_us for attempt, _ in tried if attempt.first_byte_us]
    share = failed / len(tried) if tried else 0.0
    word, state = _verdict(len(tried), share)
    if down is not None:
        word, state = "down", "bad"
    if reason:
        word, state = "unavailable", "bad"
    return Part(
        name,
        kind,
        word,
        state,
        attempts=len(tried),
        failed=failed,
        p95_us=percentile(quick),
        last_us=max((utc_us for _, utc_us in tried), default=0),
        note=reason or down or "",
    )


def is_failure(attempt: Attempt) -> bool:
    """Whether an attempt's end is to be held against its upstream."""
    if not attempt.error or attempt.error in GIVEN_UP:
        return False
    return attempt.status not in NOT_THEIRS or attempt.status in OURS_OR_THEIRS


def _verdict(count: int, share: float) -> tuple[str, State]:
    if not count:
        return "quiet", "idle"
    if share >= FAILING_SHARE:
        return "failing", "bad"
    return ("strained", "warn") if share >= STRAINED_SHARE else ("answers", "good")
