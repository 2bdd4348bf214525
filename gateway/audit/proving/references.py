"""Matches outcomes with intents over all workers: finds open, repeated and orphaned ones.

Only intents without an outcome and outcomes without an intent are held, and these are few in a log
of any length. Whether an intent that is no longer held was there is read again from the segments.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from msgspec import Struct

from gateway.audit.reckoning import OF_WORKER
from gateway.types import AuditRecord


_PARCEL: Final = "native_batch"
Reread = Callable[[Collection[str]], Iterable[tuple[str, str]]]
"""Those of these leaves that are intents, each with its request, read from the segments."""


class BadRecord(Struct, frozen=True):
    """The first place of a worker's log that is damaged."""

    worker: str
    segment: int
    offset_bytes: int
    reason: str

    def __str__(self) -> str:
        place = f"worker {self.worker}, segment {self.segment}, offset {self.offset_bytes}"
        return f"{place}: {self.reason}"


class OpenOf(Struct, frozen=True):
    """Intents of one worker without an outcome."""

    worker: str
    intents: int
    since_us: int
    """When the oldest of them was written."""


class _Begun(Struct, frozen=True):
    request_id: str
    worker: str
    utc_us: int


class _Waiting(Struct, frozen=True):
    """An outcome whose intent is not open: it was ended before, is elsewhere, or does not exist."""

    bad: BadRecord
    intent: str
    request_id: str
    began_at: str
    """The worker that it says began the request; empty if none."""
    is_of_parcel: bool

    def may_be_elsewhere(self, here: Collection[str]) -> bool:
        """Whether it says that another worker began: any worker may read a vendor's parcel."""
        return self.began_at not in here if self.began_at else self.is_of_parcel


class References:
    """The references found in one pass over the files."""

    def __init__(self) -> None:
        self.open: dict[str, _Begun] = {}
        """Intents without an outcome, by leaf."""
        self._waiting: list[_Waiting] = []

    def begin(self, leaf: str, worker: str, intent: AuditRecord) -> None:
        self.open[leaf] = _Begun(intent.request_id, worker, intent.utc_us)

    def end(self, worker: str, segment: int, offset_bytes: int, outcome: AuditRecord) -> None:
        """Take an outcome that names an intent."""
        if self._close(outcome.intent, outcome.request_id):
            return
        reason = "the outcome names an intent that is not of its request"
        self._waiting.append(
            _Waiting(
                BadRecord(worker, segment, offset_bytes, reason),
                outcome.intent,
                outcome.request_id,
                outcome.detail.get(OF_WORKER, ""),
                outcome.detail.get("path") == _PARCEL,
            )
        )

    def resolve(
        self, workers: Collection[str], bad: list[BadRecord], notes: list[str], reread: Reread
    ) -> None:
        """After all was read: bad references, a worker's first only, and those worth a note."""
        left = [each for each in self._waiting if not self._close(each.intent, each.request_id)]
        known = dict(reread({each.intent for each in left})) if left else {}
        again = elsewhere = 0
        for each in left:
            if known.get(each.intent) == each.request_id:
                again += 1
            elif each.intent not in known and each.may_be_elsewhere(workers):
                elsewhere += 1
            elif each.bad.worker not in {first.worker for first in bad}:
                bad.append(each.bad)
        if elsewhere:
            notes.append(
                f"{elsewhere} outcomes are of intents in logs of other workers, which are not here"
            )
        if again:
            notes.append(
                f"{again} outcomes are of requests that have one besides: of each the first"
                " that was numbered counts"
            )

    def open_of(self) -> tuple[OpenOf, ...]:
        """Intents without an outcome, by worker."""
        found: dict[str, OpenOf] = {}
        for begun in self.open.values():
            known = found.get(begun.worker) or OpenOf(begun.worker, 0, begun.utc_us)
            oldest_us = min(known.since_us, begun.utc_us)
            found[begun.worker] = OpenOf(begun.worker, known.intents + 1, oldest_us)
        return tuple(found[worker] for worker in sorted(found))

    def _close(self, leaf: str, request_id: str) -> bool:
        """Whether an open intent belonged to this request; it is no longer open."""
        known = self.open.get(leaf)
        if known is None or known.request_id != request_id:
            return False
        del self.open[leaf]
        return True
