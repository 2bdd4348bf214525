"""The report that each worker makes of itself every few seconds, for operators to read. Pure.

Nothing here decides about a request: only the control plane reads a report, which may be seconds
old, or missing. Every field has a default, so that a control plane can read the reports of workers
of the previous and the next version.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from msgspec import Struct


PERIOD_S: Final = 3.0
LOST_AFTER_PERIODS: Final = 5
"""A worker counts as lost after so many of its own periods without a report."""
FORGOTTEN_AFTER_S: Final = 86_400.0
REVISIONS_KEPT: Final = 16

Standing = Literal["serving", "refusing", "lost"]
MemberState = Literal["up", "warming", "slow", "draining", "down", "unknown"]


class EngineMemory(Struct, frozen=True):
    """An engine's memory use, per device if there are several. None if it does not report it."""

    weight_bytes: int | None = None
    kv_bytes: int | None = None
    """The pool of keys and values; `kv_used_bytes` of it are in blocks that are held."""
    kv_used_bytes: int | None = None
    kv_block_tokens: int | None = None
    kv_token_bytes: int | None = None
    kv_tokens: int | None = None
    """How many tokens fit into the pool."""
    host_bytes: int | None = None
    """Space on the host for blocks that were moved out of the pool."""
    host_used_bytes: int | None = None
    longest_context_tokens: int | None = None
    device_bytes: int | None = None
    device_free_bytes: int | None = None


class MemberReport(Struct, frozen=True):
    """One in-house engine as one worker sees it; None for figures that it does not report."""

    provider: str = ""
    """The configured provider: a pool, or the engine itself."""
    member: str = ""
    engine: str = ""
    """The kind of engine."""
    state: MemberState = "unknown"
    reason: str = ""
    models: tuple[str, ...] = ()
    differs: bool = False
    """Whether its greedy answers differ from those of its peers with the same weights."""
    calls: int = 0
    """This worker's calls under way there."""
    weight: float = 1.0
    """The share of its work that it still gets: below 1 for one that became slow."""
    waiting: int | None = None
    """Requests in its queue, from all senders."""
    running: int | None = None
    """Requests in its batch."""
    blocks_used: int | None = None
    blocks_total: int | None = None
    cache_use_share: float | None = None
    prefix_hit_share: float | None = None
    """Of the prompt tokens looked up lately."""
    read_tokens_per_s: float | None = None
    generated_tokens_per_s: float | None = None
    preemptions: int | None = None
    """Since it started."""
    token_ms: float | None = None
    """The time per token of its answers, as measured by this worker."""
    figures_age_s: float | None = None
    """The age of its own figures; None if it never gave any."""
    memory: EngineMemory = EngineMemory()


class Applied(Struct, frozen=True):
    """Since when a worker has served by a revision of keys, limits and policies."""

    revision: int
    since_us: int


class WorkerReport(Struct, frozen=True):
    """One worker of the data plane at one moment."""

    worker: str
    seen_us: int
    period_s: float = PERIOD_S
    pid: int = 0
    host: str = ""
    version: str = ""
    schema: str = ""
    """The newest database schema that its program knows."""
    started_us: int = 0
    settings_digest: str = ""
    """A digest of its settings without secrets, and without each worker's own values."""
    snapshot_digest: str = ""
    revision: int = -1
    """Of keys, limits and policies; -1 before the first."""
    applied: tuple[Applied, ...] = ()
    """The last revisions that it served by, oldest first."""
    policies_digest: str = ""
    prices_digest: str = ""
    """A digest of its targets' prices; empty from older versions."""
    stale_s: float = 0.0
    """How long ago the database last confirmed the revision it serves by."""
    problems: tuple[str, ...] = ()
    """Why it refuses service or may lose something, in our own sentences."""
    requests_in_flight: int = 0
    breakers: Mapping[str, str] = {}
    """Target → closed, open or half_open."""
    unavailable: Mapping[str, str] = {}
    """Target → why it cannot be called at all."""
    members: tuple[MemberReport, ...] = ()
    metrics: Mapping[str, float] = {}
    """Its Prometheus families, each summed over its labels; seconds older than the rest."""
    master_key_id: str = ""
    """The id of the master key that it seals with; empty from older versions."""


def age_s(report: WorkerReport, now_us: int) -> float:
    """The report's age; clocks of two machines may differ, but an age is never negative."""
    return max(now_us - report.seen_us, 0) / 1e6


def standing(report: WorkerReport, now_us: int) -> Standing:
    """Whether it serves, as far as can be known."""
    if age_s(report, now_us) > LOST_AFTER_PERIODS * report.period_s:
        return "lost"
    return "refusing" if report.problems else "serving"


def applied_us(report: WorkerReport, revision: int) -> int | None:
    """Since when a worker has served by a revision or a later one; None if it does not yet.

    0 if that was before everything it still remembers.
    """
    if report.revision < revision:
        return None
    found = next((each for each in report.applied if each.revision >= revision), None)
    if found is None:
        return 0
    is_oldest = found is report.applied[0] and found.revision > revision
    began_with_it = is_oldest and len(report.applied) < REVISIONS_KEPT
    return 0 if is_oldest and not began_with_it else found.since_us


def encoded(report: WorkerReport) -> bytes:
    """The form stored in the database."""
    return msgspec.json.encode(report)


def decoded(raw: bytes, worker: str, seen_us: int) -> WorkerReport:
    """A stored report; if it cannot be read, only who wrote it and when."""
    try:
        return _DECODER.decode(raw)
    except msgspec.MsgspecError:
        problem = "Its report is in a form that this version cannot read."
        return WorkerReport(worker, seen_us, problems=(problem,))


_DECODER: Final = msgspec.json.Decoder(WorkerReport)
