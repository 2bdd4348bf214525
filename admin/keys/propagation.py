"""Counts where a revoked key is dead, from what the workers say of themselves. Pure.

A worker counts once it has said that it serves by the revision of the revocation or a later one. A
worker that was lost before it said so is not counted: it may still run, and then it refuses
everything a minute after it last heard from the database.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from gateway.oversight.workers import WorkerReport, age_s, applied_us, standing
from gateway.snapshot import STALE_AFTER_S


class Propagation(Struct, frozen=True):
    """How far a revocation got, on how many workers and in what time."""

    workers: int
    dead: int
    took_s: float | None
    """Until the last of those it is dead on took it; None where none of them says when."""
    waiting: tuple[str, ...] = ()
    """Workers that are heard of and have not said that they took it."""
    lost: tuple[str, ...] = ()
    """Workers that fell silent before they said so."""
    lost_s: float = 0.0
    """How long the last of them has been silent."""
    is_known: bool = True
    """Whether the revision of the revocation is known; it is not of those made long ago."""

    @property
    def is_settled(self) -> bool:
        """Whether looking again would tell nothing new."""
        return not self.waiting and bool(self.workers)

    @property
    def is_refused_by_lost(self) -> bool:
        """Whether a lost worker that runs without its database would have stopped by now."""
        return self.lost_s > STALE_AFTER_S


def propagation(
    reports: Sequence[WorkerReport], revision: int | None, revoked_us: int, now_us: int
) -> Propagation:
    """How far the revocation at a revision got.

    Args:
        reports: of every worker that is remembered.
        revision: at which the key was revoked; None where it was not kept.
        revoked_us: when that was.
        now_us: when this is asked.
    """
    if revision is None:
        return Propagation(len(reports), 0, None, is_known=False)
    taken = {each.worker: applied_us(each, revision) for each in reports}
    missing = [each for each in reports if taken[each.worker] is None]
    lost = [each for each in missing if standing(each, now_us) == "lost"]
    return Propagation(
        workers=len(reports),
        dead=len(reports) - len(missing),
        took_s=_took_s(reports, taken, revoked_us),
        waiting=tuple(each.worker for each in missing if each not in lost),
        lost=tuple(each.worker for each in lost),
        lost_s=min((age_s(each, now_us) for each in lost), default=0.0),
    )


def _took_s(
    reports: Sequence[WorkerReport], taken: Mapping[str, int | None], revoked_us: int
) -> float | None:
    """The longest any worker took; one that was started later never knew the key."""
    since_us = [taken[each.worker] for each in reports if each.started_us <= revoked_us]
    known_us = [each for each in since_us if each]
    if not known_us or 0 in since_us:
        return None
    return max(max(known_us) - revoked_us, 0) / 1e6
