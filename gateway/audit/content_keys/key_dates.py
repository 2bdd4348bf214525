"""Dates of content keys, corrected where the clock that dated a key was far behind or ahead.

A key file only grows, so its order is right even where its dates are not: a key is no younger than
the keys after it, and no older than those before it.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from gateway.audit.content_keys.keys import WrappedKey, raw_lines, whole_line
from gateway.audit.lying_here import folder_lies_here
from gateway.audit.segments import list_workers


FIRST_DAY: Final = 19_723
"""2024-01-01: no content is older. A machine without a battery starts in 1970 or so."""


class Dated(Struct, frozen=True):
    """A key, and the day from which its content's age is counted."""

    line: WrappedKey
    day: int
    """Days since 1970-01-01, UTC."""
    is_sure: bool = True
    """False if it may be younger: no later key limits its date."""


class Aged(Struct, frozen=True):
    """The content keys of one organisation, separated by whether their time is over."""

    old: tuple[Dated, ...] = ()
    young_day: int = 0
    """The day of the oldest key whose time is not over; 0 if there is none."""


def aged_keys(directory: Path, days: Mapping[str, int], today: int) -> dict[str, Aged]:
    """For every organisation in `days` with keys here, of all workers; raises OSError.

    `days` is how long each keeps its content. Every file is read only once for all of them.
    """
    old, young = dict[str, list[Dated]](), dict[str, int]()
    workers = list_workers(directory) if folder_lies_here(directory) else []
    for each in (key for worker in workers for key in dated(_lines(directory / worker), today)):
        name = each.line.organisation
        if name not in days:
            continue
        if each.day + days[name] < today:
            old.setdefault(name, []).append(each)
        else:
            young[name] = min(each.day, young.get(name, each.day))
    return {name: Aged(tuple(old.get(name, ())), young.get(name, 0)) for name in {**old, **young}}


def _lines(folder: Path) -> Iterator[WrappedKey]:
    """One at a time: a file may have some hundred thousand."""
    return (key for line in raw_lines(folder) if (key := whole_line(line)) is not None)


def dated(lines: Iterable[WrappedKey], today: int) -> Iterator[Dated]:
    """The keys of one file in order.

    A key whose date is out of order is taken to be as old as the next one in order: its content is
    kept rather a little too long than too short, which could not be repaired. A difference of one
    day is ignored: a clock may be corrected around midnight.
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


def alone(line: WrappedKey) -> Dated:
    """A key that is in no file: no later key shows how young it is."""
    return Dated(line, max(line.day, FIRST_DAY), is_sure=line.day >= FIRST_DAY)
