"""Tells how far an erasure has come: which audit folders have reported, which have not.

A case waits for the folder of each worker that had recorded for the organisation by then, or was
running. Where no folder is known to hold a worker's keys (its disk is away, or its program is
older), the worker itself is outstanding: nobody can say that its keys are gone.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final, Literal

from msgspec import Struct

from gateway.store.custody.audit_folders import AuditFolder
from gateway.store.erasure.folder_reports import FolderReport


Why = Literal["unheard", "held", "begun", "failed", "unknown", "retired"]
LOST: Final = "retired"


class Outstanding(Struct, frozen=True):
    """A folder that has not done its part, or workers whose folder is not known."""

    folder: str
    """Its mark; empty if no folder is known."""
    workers: tuple[str, ...]
    why: Why
    """`unheard`: it has not looked at the case; `held`: a hold forbids it; `begun`: it is at work;
    `failed`: its disk, or what records it, prevents it.

    `unknown`: no folder with their keys was ever seen; `retired`: the workers' names are retired,
    since their disk is lost, and nobody waits for them any more.
    """
    hold: str = ""
    failure: str = ""
    """What prevents the folder, as its worker last reported; empty if nothing is known."""

    @property
    def said(self) -> str:
        """In words, for people."""
        names, one = ", ".join(self.workers), len(self.workers) == 1
        worker = f"{'worker' if one else 'workers'} {names}"
        return {
            "unheard": f"The audit folder of {worker} has not reported. What it has of the keys is"
            " destroyed when a worker or an admin listener of this version runs that has this"
            " folder.",
            "held": f"Hold {self.hold} forbids it in the audit folder of {worker}.",
            "begun": f"In the audit folder of {worker} it was begun, and has not come to its end.",
            "failed": f"In the audit folder of {worker} it cannot be carried out: {self.failure}."
            " It is tried again until it can.",
            "unknown": f"No audit folder with the keys of {worker} has reported to this database:"
            f" {'its' if one else 'their'} disk is away, or {'its' if one else 'their'} program"
            " older than this one.",
            "retired": f"The {'name' if one else 'names'} of {worker}"
            f" {'was' if one else 'were'} retired, and nobody waits for"
            f" {'its' if one else 'their'} disk. If it is found, the keys are on it.",
        }[self.why]


class Reach(Struct, frozen=True):
    """How far one case has come."""

    reports: tuple[FolderReport, ...] = ()
    """Reports of the folders that are done, in that order."""
    outstanding: tuple[Outstanding, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether nobody is waited for; disks that were given up may still exist somewhere."""
        return all(each.why == LOST for each in self.outstanding)

    @property
    def workers_outstanding(self) -> tuple[str, ...]:
        """Workers still outstanding, by name, including those of lost disks."""
        return tuple(sorted({name for each in self.outstanding for name in each.workers}))


def reach_of(
    awaited: Collection[str],
    closed_revision: int,
    folders: Sequence[AuditFolder],
    reports: Sequence[FolderReport],
    retired: Collection[str] = (),
) -> Reach:
    """How far a case has come that waits for the folders of these workers."""
    done = {each.folder: each for each in reports if each.done_us}
    begun = {each.folder: each for each in reports if not each.done_us}
    wanted = set(awaited)
    left: list[Outstanding] = []
    for folder in folders:
        theirs = tuple(sorted(wanted.intersection(folder.workers)))
        is_done = folder.folder in done and set(theirs) <= set(done[folder.folder].workers)
        if theirs and folder.concerns(closed_revision) and not is_done:
            left.append(_left(folder.folder, theirs, begun.get(folder.folder), retired))
    known = _names([each.workers for each in folders])
    known |= _names([each.workers for each in done.values()])
    nowhere = wanted - known
    for names, why in ((nowhere.difference(retired), "unknown"), (nowhere & set(retired), LOST)):
        if names:
            left.append(Outstanding("", tuple(sorted(names)), why))  # type: ignore[arg-type]
    return Reach(tuple(each for each in reports if each.done_us), tuple(left))


def _left(
    mark: str, workers: tuple[str, ...], report: FolderReport | None, retired: Collection[str]
) -> Outstanding:
    if set(workers) <= set(retired):
        return Outstanding(mark, workers, LOST)
    if report is None:
        return Outstanding(mark, workers, "unheard")
    if report.held_by:
        return Outstanding(mark, workers, "held", report.held_by)
    why: Why = "failed" if report.failure else "begun"
    return Outstanding(mark, workers, why, failure=report.failure)


def _names(groups: Iterable[Sequence[str]]) -> set[str]:
    return {name for group in groups for name in group}
