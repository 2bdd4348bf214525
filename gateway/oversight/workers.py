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
"""A worker that was not heard of for so many of its own periods counts as lost."""
FORGOTTEN_AFTER_S: Final = 86_400.0
REVISIONS_KEPT: Final = 16

Standing = Literal["serving", "refusing", "lost"]
MemberState = Literal["up", "warming", "slow", "draining", "down", "unknown"]


class EngineMemory(Struct, frozen=True):
    """Where an engine's memory is; of several devices, on each. None where it does not say."""

    weight_bytes: int | None = None
    kv_bytes: int | None = None
    """The pool of keys and values, of which `kv_used_bytes` are in blocks that are held."""
    kv_used_bytes: int | None = None
    kv_block_tokens: int | None = None
    kv_token_bytes: int | None = None
    kv_tokens: int | None = None
    """So many tokens fit into the pool."""
    host_bytes: int | None = None
    """Space on the host for blocks that were put out of the pool."""
    host_used_bytes: int | None = None
    longest_context_tokens: int | None = None
    device_bytes: int | None = None
    device_free_bytes: int | None = None


class MemberReport(Struct, frozen=True):
    """One in-house engine as one worker sees it; None where the engine does not say."""

    provider: str = ""
    """The configured provider: a pool, or the engine itself."""
    member: str = ""
    engine: str = ""
    """What kind of engine it is."""
    state: MemberState = "unknown"
    reason: str = ""
    models: tuple[str, ...] = ()
    differs: bool = False
    """Whether it answers greedy questions otherwise than its peers of the same weights."""
    calls: int = 0
    """Of this worker, under way there."""
    weight: float = 1.0
    """Share of its work that it still gets: below 1 for one that became slow."""
    waiting: int | None = None
    """Requests in its queue, whoever sent them."""
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
    """What a token of its answers takes, as this worker measured it."""
    figures_age_s: float | None = None
    """How old its own figures are; None when it never gave any."""
    memory: EngineMemory = EngineMemory()


class Applied(Struct, frozen=True):
    """Since when a worker serves by a revision of keys, limits and policies."""

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
    """The newest schema of the database that its program knows."""
    started_us: int = 0
    settings_digest: str = ""
    """Of its settings without secrets, and without what each worker has of its own."""
    snapshot_digest: str = ""
    revision: int = -1
    """Of keys, limits and policies; -1 before the first."""
    applied: tuple[Applied, ...] = ()
    """The last revisions that it served by, oldest first."""
    policies_digest: str = ""
    prices_digest: str = ""
    """Of what its targets cost; empty from a version that did not say."""
    stale_s: float = 0.0
    """How long ago the database last confirmed what it serves by."""
    problems: tuple[str, ...] = ()
    """Why it refuses service or may lose something; sentences of ours."""
    requests_in_flight: int = 0
    breakers: Mapping[str, str] = {}
    """Target → closed, open or half_open."""
    unavailable: Mapping[str, str] = {}
    """Target → why it cannot be called at all."""
    members: tuple[MemberReport, ...] = ()
    metrics: Mapping[str, float] = {}
    """Its Prometheus families, each added up over its labels; seconds older than the rest."""
    master_key_id: str = ""
    """Of the master key that it seals by; empty from a version that did not say."""


def age_s(report: WorkerReport, now_us: int) -> float:
    """How long ago it was heard of; clocks of two machines may differ, an age is never negative."""
    return max(now_us - report.seen_us, 0) / 1e6


def standing(report: WorkerReport, now_us: int) -> Standing:
    """Whether it serves, as far as one can tell."""
    if age_s(report, now_us) > LOST_AFTER_PERIODS * report.period_s:
        return "lost"
    return "refusing" if report.problems else "serving"


def applied_us(report: WorkerReport, revision: int) -> int | None:
    """Since when a worker serves by a revision or a later one; None while it does not.

    0 when that was before all it still remembers.
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
    """As it lies in the database."""
    return msgspec.json.encode(report)


def decoded(raw: bytes, worker: str, seen_us: int) -> WorkerReport:
    """A report as it was written; of one that cannot be read, only who wrote it and when."""
    try:
        return _DECODER.decode(raw)
    except msgspec.MsgspecError:
        problem = "Its report is in a form that this version cannot read."
        return WorkerReport(worker, seen_us, problems=(problem,))


_DECODER: Final = msgspec.json.Decoder(WorkerReport)
