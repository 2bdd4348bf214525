"""Refuses to write to a log whose segments end before what the database has numbered of them."""

import asyncio
from pathlib import Path

from gateway.audit.lying_here import folder_lies_here
from gateway.audit.projecting.projection import RETIRED, START
from gateway.audit.segments import failure_at, list_segments, segment_path, written_bytes
from gateway.errors import StartupRefused
from gateway.store.engine import Database
from gateway.store.evidence.sink import DatabaseAuditSink


async def require_what_was_numbered(database: Database, directory: Path, worker: str) -> None:
    """Call this before writing as `worker`: in a worker, the admin listener or a command.

    What was numbered had been synced. Going on would use places in the log a second time: what is
    written there is never numbered, and the earlier records cannot be brought back any more.

    Raises:
        StartupRefused: segments were put back or removed, or the name was retired.
        NotReady: the database does not answer.
    """
    segment, offset = here = (await DatabaseAuditSink(database).positions()).get(worker, START)
    if here == RETIRED:
        raise StartupRefused(
            f"audit worker {worker}: this name was retired (`gatewright audit gone end`), and"
            " nothing that it writes would be heard; give the worker a new name"
        )
    if offset == 0:
        # The position is before a segment that was not begun at that time: the previous one is
        # done.
        segment, offset = segment - 1, 1
    try:
        size = await asyncio.to_thread(_size_of, directory / worker, segment)
    except OSError as error:
        said = failure_at(directory / worker, error)
        raise StartupRefused(f"audit worker {worker}: {said}") from error
    if segment and size is not None and size < offset:
        raise StartupRefused(
            f"audit worker {worker}: the database knows segment {segment} up to byte {offset},"
            f" of which {size} are here: an old backup was restored, or records were removed."
            " Restore the newest segments, or give the worker a new name"
        )


def _size_of(folder: Path, segment: int) -> int | None:
    """Bytes of a segment; 0 if the log ends before it, None if only this one is missing."""
    try:
        return written_bytes(segment_path(folder, segment))
    except FileNotFoundError:
        later = folder_lies_here(folder) and any(known > segment for known in list_segments(folder))
        return None if later else 0
