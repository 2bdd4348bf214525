"""Searches several logs at once: an organisation's own, and the deeds that concern it."""

from collections.abc import AsyncIterator, Sequence

from gateway.store.traffic.conditions import Search
from gateway.store.traffic.facets import Counts
from gateway.store.traffic.lists import PAGE_ROWS, Page, Place, Row, TrafficReader


_AT_ONCE = 500


class Explorer:
    """Merges what the reader finds in each log, newest first."""

    def __init__(self, reader: TrafficReader) -> None:
        self._reader = reader

    async def page(
        self, searches: Sequence[Search], before: Place | None = None, limit: int = PAGE_ROWS
    ) -> Page:
        """The newest rows of all searches; raises NotReady."""
        return _merged([await self._reader.page(each, before, limit) for each in searches], limit)

    async def listed(
        self, searches: Sequence[Search], before: Place | None, fields: Sequence[str]
    ) -> tuple[Page, list[Counts]]:
        """A page of all searches, and the counts of each; raises NotReady."""
        pages = [await self._reader.page(search, before) for search in searches]
        counts = [
            await self._reader.counts(search, fields, None if before else page)
            for search, page in zip(searches, pages, strict=True)
        ]
        return _merged(pages, PAGE_ROWS), counts

    async def rows(self, searches: Sequence[Search]) -> AsyncIterator[Row]:
        """All rows, page by page; raises NotReady."""
        before: Place | None = None
        while True:
            page = await self.page(searches, before, _AT_ONCE)
            for row in page.rows:
                yield row
            before = page.goes_on_at
            if before is None:
                return

    async def counts(self, searches: Sequence[Search], fields: Sequence[str]) -> list[Counts]:
        """The counts of each log; raises NotReady."""
        return [await self._reader.counts(search, fields) for search in searches]


def _merged(pages: Sequence[Page], limit: int) -> Page:
    rows = sorted((row for page in pages for row in page.rows), key=_order)
    ends = [page.looked_back_us for page in pages if page.looked_back_us is not None]
    end = max(ends, default=None)
    if end is not None:
        # Older rows are left out: one of the logs was not searched that far back.
        rows = [row for row in rows if row.utc_us >= end]
    # A place does not name its log, so all rows at the place of the last one go with it.
    while limit < len(rows) and _order(rows[limit]) == _order(rows[limit - 1]):
        limit += 1
    is_more = bool(rows) and (len(rows) > limit or any(page.is_more for page in pages))
    return Page(tuple(rows[:limit]), is_more, None if is_more else end)


def _order(row: Row) -> tuple[int, int]:
    return -row.utc_us, -row.sequence
