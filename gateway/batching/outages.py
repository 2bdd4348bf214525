"""Detects upstreams that fail line after line: no line loses an attempt to such an outage."""

from typing import Final

from msgspec import Struct

from gateway.clock import Clock


IN_A_ROW: Final = 5
"""So many lines that fail at their first try, without an answer between them, are an outage."""
PATIENCE_S: Final = 3600.0
"""After this time, lines end even if nobody can answer them: their batch may have no others."""

WELL_S: Final = 5.0
"""How long other lines of a batch count as being answered elsewhere."""
_KEPT_S: Final = 2 * 86_400.0
"""Longer than a batch takes."""


class _Row(Struct):
    since_s: float
    lines: int = 0


class Outages:
    """Outages seen by one process, by batch and target; a new process sees them again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows: dict[tuple[str, str], _Row] = {}
        self._well_s: dict[str, float] = {}
        """When a line of a batch was last answered, for batches with such an outage."""

    def is_out(self, batch_id: str, target: str, *, is_first_try: bool) -> bool:
        """Whether a line that failed there waits for the upstream, as often as it has to.

        A line that fails again says nothing about the others: lines that nobody can answer are
        retried one after the other when the rest of their batch is done.
        """
        now_s = self._clock.monotonic_s()
        row = self._rows.get((batch_id, target)) or self._begun(batch_id, target, now_s)
        row.lines += is_first_try
        return row.lines >= IN_A_ROW and now_s - row.since_s < PATIENCE_S

    def went_well(self, batch_id: str, target: str) -> None:
        """The upstream has answered, even if only that the line is wrong."""
        self._rows.pop((batch_id, target), None)
        if any(batch_id == mine for mine, _ in self._rows):
            self._well_s[batch_id] = self._clock.monotonic_s()

    def is_all_out(self, batch_id: str) -> bool:
        """Whether nothing else of a batch is answered, so that it should pause."""
        well_s = self._well_s.get(batch_id)
        return well_s is None or self._clock.monotonic_s() - well_s >= WELL_S

    def _begun(self, batch_id: str, target: str, now_s: float) -> _Row:
        kept = {at: row for at, row in self._rows.items() if now_s - row.since_s < _KEPT_S}
        self._rows = kept | {(batch_id, target): (row := _Row(now_s))}
        batches = {batch for batch, _ in self._rows}
        self._well_s = {name: at_s for name, at_s in self._well_s.items() if name in batches}
        return row
