"""Tells whether a log may still be writing a record it refused, so that its state is unknown."""

import asyncio

from gateway.audit.writer import SegmentedAuditLog


class LastRefusal:
    """When a log last refused a record of its owner's, which it may have written all the same.

    This stays uncertain until the log has finished everything that it was given before.
    """

    def __init__(self, log: SegmentedAuditLog) -> None:
        self._log = log
        self._refused_s = 0.0

    def note(self) -> None:
        """Note a refusal now."""
        self._refused_s = asyncio.get_running_loop().time()

    def forget(self) -> None:
        """Now it is known what the log wrote."""
        self._refused_s = 0.0

    @property
    def is_noted(self) -> bool:
        return self._refused_s > 0.0

    @property
    def may_be_written(self) -> bool:
        """Whether the log is still busy with what it was given before its refusal."""
        if not self._refused_s:
            return False
        begun_s = asyncio.get_running_loop().time() - self._log.stats().oldest_pending_s
        return begun_s <= self._refused_s
