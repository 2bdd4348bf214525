"""Measures how full a worker's device is, from time to time: its total memory and what is free.

On a GPU the driver says it, whichever process uses the memory. On a CPU the total is what this
process may use (the limit of its container, else the machine's memory), and free is what it does
not use yet of that.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import torch


EVERY_S: Final = 1.0
"""The time between looks: asking a driver takes time from steps."""
_GROUPS: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self")


class Occupancy(NamedTuple):
    """The memory of one device, in bytes."""

    total_bytes: int
    free_bytes: int


class Gauge:
    """Looks at one device at most once a second; in between it repeats the last result."""

    def __init__(self, device: torch.device, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._device = device
        self._clock_s = clock_s
        self._seen = _look(device)
        self._seen_s = clock_s()

    def read(self) -> Occupancy:
        now_s = self._clock_s()
        if now_s - self._seen_s >= EVERY_S:
            self._seen, self._seen_s = _look(self._device), now_s
        return self._seen


def _look(device: torch.device) -> Occupancy:
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return Occupancy(total, free)
    limit = min(_limits(_OWN, _GROUPS))
    return Occupancy(limit, max(limit - _held_bytes(), 0))


def _held_bytes() -> int:
    """Resident memory of this process; 0 if the system does not say."""
    try:
        pages = int((_OWN / "statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _limits(own: Path, groups: Path) -> Iterator[int]:
    """All memory limits of this process: the machine's, and those of its control groups."""
    yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        lines = (own / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, place = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        top = groups / controllers
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        inside = Path(place.lstrip("/"))
        for folder in (inside, *inside.parents):
            # Inside a container its own group is the top one, whatever its name outside.
            if found := _number(top / folder / name):
                yield found


def _number(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
