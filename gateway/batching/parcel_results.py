"""Reads a vendor's results of a parcel: each line once, and only while that is useful."""

from contextlib import aclosing
from typing import Final

from msgspec import Struct

from gateway.batches import Batch
from gateway.batching.in_vain import InVain
from gateway.batching.parked_lines import ParkedLines
from gateway.batching.remnants import Said
from gateway.batching.unanswered import LOST, UNREAD, UNWANTED
from gateway.clock import Clock
from gateway.errors import GatewrightError, UpstreamFailed
from gateway.parcels import ParcelService, ResultsTooLong, VendorBatch, VendorResult, number_of
from gateway.secrets.content_keys import ContentKey
from gateway.store.batching.parcel_rows import ParcelRow


READS_MAX: Final = 3
"""How often results are read again that were cut or incomplete."""
RESULTS_S: Final = 3600.0
"""The most that all readings of one parcel take together."""
FEW_RESULTS_S: Final = 300.0
RESULT_S: Final = 0.33
"""The extra time for each line: slow results keep others waiting."""
ENDED_AT_ONCE: Final = 20
ENDED_BYTES_AT_ONCE: Final = 16 * 1024 * 1024
"""Long answers are ended fewer at a time, because all that end together are in memory."""


class At(Struct, frozen=True):
    """A parcel with everything that its next step needs."""

    row: ParcelRow
    batch: Batch
    key: ContentKey
    service: ParcelService

    @property
    def is_wanted(self) -> bool:
        """Whether its batch still waits for answers."""
        return self.batch.state == "in_progress"


class ParcelResults:
    """Ends lines by their vendor's results."""

    def __init__(self, lines: ParkedLines, in_vain: InVain, clock: Clock) -> None:
        self._lines = lines
        self._in_vain = in_vain
        self._clock = clock

    async def read(
        self, at: At, batch: VendorBatch, left: dict[int, bool]
    ) -> GatewrightError | None:
        """Why the lines then `left` are not waited for; None if another reading is worthwhile.

        Raises:
            AuditUnavailable, NotReady, TermOver: as `ParkedLines.end` does.
        """
        parcel_id, is_unread, is_too_long = at.row.parcel_id, False, False
        if not left:
            return None
        begun_s = self._clock.monotonic_s()
        try:
            await self._read(at, batch, left)
        except UpstreamFailed as error:
            is_unread, is_too_long = True, isinstance(error, ResultsTooLong)
        self._in_vain.has_read(parcel_id, self._clock.monotonic_s() - begun_s)
        # A reading that is too long or too slow would be so again.
        is_enough = is_too_long or self._left_s(at.row) <= 0
        if is_enough or self._in_vain.is_enough(parcel_id, "reading", READS_MAX):
            return UNREAD if is_unread else LOST
        return None

    async def _read(self, at: At, batch: VendorBatch, left: dict[int, bool]) -> None:
        """End lines by their results until none is left; raises UpstreamFailed, after the rest."""
        row, files, held_bytes = at.row, batch.named_files, 0
        group: dict[int, Said] = {}
        found = at.service.results(batch, row.lines, self._left_s(row))
        try:
            async with aclosing(found):
                async for result in found:
                    number = number_of(result.custom_id, row.parcel_id)
                    if left.pop(number, None) is None:
                        continue
                    group[number] = _said(at, result)
                    held_bytes += len(result.body)
                    if not left:
                        break  # Nothing that may follow is of any use.
                    if len(group) >= ENDED_AT_ONCE or held_bytes >= ENDED_BYTES_AT_ONCE:
                        ready, group, held_bytes = group, {}, 0
                        await self._lines.end(at.batch, at.key, row, ready, files)
        except UpstreamFailed:
            await self._lines.end(at.batch, at.key, row, group, files)
            raise
        await self._lines.end(at.batch, at.key, row, group, files)

    def _left_s(self, row: ParcelRow) -> float:
        """How long its results may still be read, given the time already spent in this process."""
        most_s = min(FEW_RESULTS_S + RESULT_S * row.lines, RESULTS_S)
        return most_s - self._in_vain.has_read(row.parcel_id)


def _said(at: At, result: VendorResult) -> Said:
    if result.kind != "unsent":
        return result
    return LOST if at.is_wanted else UNWANTED
