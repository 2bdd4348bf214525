"""Decides when the log's writing thread may interrupt the event loop: not while many wait.

On a core that both share, a thread that wakes takes the core at once, finds that the loop holds the
interpreter, and gives the core back: three such exchanges for each time that the interpreter
changes hands, six times a group. While many wait anyway, the thread lets the loop finish instead
(Linux: SCHED_BATCH) and finds more records when its turn comes. A caller who is nearly alone should
wait for nobody, so then the thread interrupts as any thread does.
"""

import os
from contextlib import suppress


CROWD_RECORDS = 8
"""A group with more records than this is a crowd."""
SMALL_GROUPS_ENOUGH = 16
"""After so many groups in a row that were no crowd, there is none any more."""


class Precedence:
    """Belongs to the thread whose priority it sets, and is made in it."""

    def __init__(self) -> None:
        self._small_in_a_row = SMALL_GROUPS_ENOUGH

    def note(self, records: int) -> None:
        """To be called after each group, with its number of records."""
        had_crowd = self._small_in_a_row < SMALL_GROUPS_ENOUGH
        self._small_in_a_row = 0 if records > CROWD_RECORDS else self._small_in_a_row + 1
        has_crowd = self._small_in_a_row < SMALL_GROUPS_ENOUGH
        if has_crowd != had_crowd:
            _let_others_finish(always=has_crowd)


def _let_others_finish(*, always: bool) -> None:
    policy = getattr(os, "SCHED_BATCH" if always else "SCHED_OTHER", None)
    if policy is not None:
        # If a sandbox forbids it, everything continues as before.
        with suppress(OSError):
            os.sched_setscheduler(0, policy, os.sched_param(0))
