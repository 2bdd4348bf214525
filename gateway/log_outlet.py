"""Writes log lines to a file, a pipe or a terminal, also when its reader stops reading."""

import os
import select
import stat
from typing import BinaryIO


class LogOutlet:
    """Where lines go. Whoever reads them may stop doing so: nobody waits for that.

    A stopped terminal, a collector that hangs or a container's log whose disk is full would stop
    every request, and the end of the process too.
    """

    PIECE_BYTES = 4096
    """A pipe that takes anything takes so much at once."""
    HELD_BYTES_MAX = 1024 * 1024
    PATIENCE_MS = 100
    """A reader that is only slow is waited for, once; a process that ends leaves nothing behind."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._held = bytearray()
        self._is_stuck = False
        self._lost = 0
        self._read_from = _descriptor_of_a_reader(file)
        self._poll = select.poll()
        if self._read_from is not None:
            self._poll.register(self._read_from, select.POLLOUT)

    def write(self, raw: bytes) -> int:
        """Whole lines, and what was held before; how many were lost when that is over."""
        if not raw and not self._held:
            return 0
        if self._read_from is None:
            self._file.write(raw)
            self._file.flush()
            return 0
        if len(self._held) + len(raw) > self.HELD_BYTES_MAX:
            self._lost += raw.count(b"\n")
            raw = b""
        self._held += raw
        try:
            while self._held and self._takes():
                del self._held[: os.write(self._read_from, self._held[: self.PIECE_BYTES])]
        except BlockingIOError:
            self._is_stuck = True
        except OSError:
            self._held.clear()  # The reader left for good.
        lost = 0 if self._held else self._lost
        self._lost -= lost
        return lost

    def _takes(self) -> bool:
        self._is_stuck = not self._poll.poll(0 if self._is_stuck else self.PATIENCE_MS)
        return not self._is_stuck


def _descriptor_of_a_reader(file: BinaryIO) -> int | None:
    """None for a file on a disk, and for what is no file of the system."""
    try:
        descriptor = file.fileno()
        return None if stat.S_ISREG(os.fstat(descriptor).st_mode) else descriptor
    except (OSError, ValueError):
        return None
