"""Of which day a content key is, also where the clock that dated it stood far back or ahead.

A key file only grows, so its order is right where its dates are not: a key is no younger than what
stands behind it, and no older than what stands before it.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from gateway.audit.content_keys.keys import WrappedKey, read_keys
from gateway.audit.segments import list_workers


FIRST_DAY: Final = 19_723
"""2024-01-01: no content was sealed before. A machine without a battery starts in 1970 or so."""


class Dated(Struct, frozen=True):
    """A key, and the day from which its content's time is counted."""

    line: WrappedKey
    day: int
    """Days since 1970-01-01, UTC."""
    is_sure: bool = True
    """False where it may be younger: no later key says how young."""


def dated_keys(directory: Path, organisation: str, today: int) -> list[Dated]:
    """All content keys of an organisation, of all workers, each with its day; raises OSError."""
    if not directory.is_dir():
        return []
    return [
        each
        for worker in list_workers(directory)
        for each in dated(read_keys(directory / worker), today)
        if each.line.organisation == organisation
    ]


def dated(lines: Iterable[WrappedKey], today: int) -> Iterator[Dated]:
    """The keys of one file in their order.

    One whose date is out of order is taken for as old as the next one in order: its content lives
    rather somewhat longer than not long enough, for that cannot be mended. A day of a difference
    is none: a clock may be corrected about midnight.
    """
    latest, waiting = FIRST_DAY, list[WrappedKey]()
    for line in lines:
        if not max(FIRST_DAY, latest - 1) <= line.day <= today:
            waiting.append(line)
            continue
        latest = max(latest, line.day)
        yield from (Dated(each, latest) for each in waiting)
        waiting.clear()
        yield Dated(line, line.day)
    for line in waiting:
        yield Dated(line, max(line.day, latest), is_sure=False)
