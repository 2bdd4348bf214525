"""Watches the machine's clock: what keeps it, how far off it is, and when it jumped.

Nothing is changed and no program is started. The kernel knows whether something keeps its clock,
and how far off that program thinks the clock is; which program it is shows at best in the files it
leaves behind.
"""

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import Struct

from gateway.clock import SECOND_US, Clock
from gateway.configuration.settings import AuditSettings
from gateway.oversight.deeds import Deeds
from gateway.pacing import rhythm
from gateway.pacing.upkeep import Duty
from gateway.telemetry import Event, logger


NOT_TOLD: Final = "not told"
JUMP_S: Final = 1.0
"""A larger change between two looks means the clock was set; slewing is 0.5 ms a second."""
UNSYNCHRONISED: Final = 0x0040
IN_NANOSECONDS: Final = 0x2000
_ERROR_STATE: Final = 5
_SIGNS: Final = (
    (Path("/run/chrony/chronyd.pid"), "chrony"),
    (Path("/run/systemd/timesync/synchronized"), "systemd-timesyncd"),
    (Path("/run/ntpd.pid"), "ntpd"),
)
"""Files that programs which keep a clock leave behind."""


class ClockReading(Struct, frozen=True):
    """What the kernel says about its clock."""

    is_kept: bool
    offset_us: int
    error_max_us: int
    """The largest error by its own estimate."""


class _Timex(ctypes.Structure):
    """Linux's `struct timex`, as far as it is read; the rest is room for what is written there."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 32),
    )


def kernel_clock() -> ClockReading | None:
    """None if the system does not offer this."""
    if sys.platform != "linux":
        return None
    said = _Timex()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(said))
    except (OSError, AttributeError):
        return None
    if state < 0:
        return None
    offset_us = said.offset // 1_000 if said.status & IN_NANOSECONDS else said.offset
    is_kept = state != _ERROR_STATE and not said.status & UNSYNCHRONISED
    return ClockReading(is_kept, offset_us, said.maxerror)


def keeper() -> str:
    """The program that keeps the clock, if it can be seen."""
    return next((name for path, name in _SIGNS if path.exists()), NOT_TOLD)


class ClockStatements:
    """Records what the clock of this worker's machine follows."""

    def __init__(
        self,
        deeds: Deeds,
        worker: str,
        source: str,
        read: Callable[[], ClockReading | None] = kernel_clock,
    ) -> None:
        """`source` is the operator's statement; it is recorded beside what the system says."""
        self._deeds = deeds
        self._worker = worker
        self._source = source
        self._read = read

    async def state(self) -> None:
        """Write one record; raises AuditUnavailable."""
        found = self._read()
        said = {
            "source": self._source,
            "keeper": keeper(),
            "kept": NOT_TOLD if found is None else "yes" if found.is_kept else "no",
            "offset_us": NOT_TOLD if found is None else str(found.offset_us),
            "error_max_us": NOT_TOLD if found is None else str(found.error_max_us),
        }
        await self._deeds.record(f"worker:{self._worker}", "clock.stated", "", **said)


class ClockJumps:
    """Notices that somebody set the wall clock: it must advance as the monotonic one does.

    Records keep their order by their numbers, whatever their times say. The record written here
    tells readers of those times when they jumped, from what to what, and by how much.
    """

    def __init__(self, deeds: Deeds, worker: str, clock: Clock) -> None:
        self._deeds = deeds
        self._worker = worker
        self._clock = clock
        self._seen_us, self._seen_s = self._read()
        self._log = logger()

    async def look(self) -> None:
        """Write a record if the clock was set since the last look.

        Raises:
            AuditUnavailable: it could not be written; the next look finds the same jump.
        """
        now_us, now_s = self._read()
        passed_us = round((now_s - self._seen_s) * SECOND_US)
        from_us = self._seen_us + passed_us
        if abs(now_us - from_us) > JUMP_S * SECOND_US:
            said = {
                "from_us": str(from_us),
                "to_us": str(now_us),
                "jump_us": str(now_us - from_us),
                "noticed_within_us": str(passed_us),
            }
            await self._deeds.record(f"worker:{self._worker}", "clock.jumped", "", **said)
            jump_us = now_us - from_us
            self._log.warning(Event.CLOCK_JUMPED, worker=self._worker, duration_us=jump_us)
        self._seen_us, self._seen_s = now_us, now_s

    def _read(self) -> tuple[int, float]:
        return self._clock.utc_us(), self._clock.monotonic_s()


def clock_duties(deeds: Deeds, settings: AuditSettings, clock: Clock) -> tuple[Duty, ...]:
    """Jumps are always watched for; statements are made only if a setting says what is followed."""
    jumps = ClockJumps(deeds, settings.worker, clock)
    watch = Duty("clock_jumps", rhythm.CLOCK_JUMPS_S, jumps.look, Event.UPKEEP_FAILED)
    if not settings.clock_source:
        return (watch,)
    stated = ClockStatements(deeds, settings.worker, settings.clock_source)
    return watch, Duty("clock", rhythm.CLOCK_S, stated.state, Event.UPKEEP_FAILED)
