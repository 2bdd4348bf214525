"""Gathers the audit explorer's data: rows of all logs, what deeds changed, what is signed."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from admin.audit.changes import Change, decoded, told_of
from admin.audit.groups import LANES, Group, Lanes, grouped, lanes_of, named_in
from admin.services import Services
from admin.traffic.asked import Asked
from admin.traffic.reader import Choice, choices_of, keys_named
from gateway.audit.projecting.export import export_line
from gateway.oversight.deeds import OPERATORS
from gateway.oversight.searching import DEED, STAGE_OF_DEEDS
from gateway.store.evidence.tree import DatabaseAuditTrees
from gateway.store.identity.views import SavedView, ViewStore
from gateway.store.traffic.conditions import Search, Source
from gateway.store.traffic.explorer import Explorer
from gateway.store.traffic.facets import Counts
from gateway.store.traffic.lists import Page, Place, Row


ROOM: Final = "audit"
FACETS: Final = {
    "kind": "Kind",
    "action": "Deed",
    "actor": "Who",
    "status": "Outcome",
    "project": "Project",
    "key": "Key",
}
GATHERED_ROWS: Final = 2_000
"""Among so many of the newest rows groups and lanes are made."""
_ROWS_AT_ONCE: Final = 200


class Gathered(Struct, frozen=True):
    """Groups, or lanes, of the newest rows that a filter finds."""

    rows: int
    is_all: bool
    """Whether that is everything that matches."""
    groups: tuple[Group, ...] = ()
    lanes: Lanes | None = None


class Explored(Struct, frozen=True):
    """A page of the explorer; without `page` the filter could not be read."""

    asked: Asked
    read_us: int
    page: Page | None = None
    rows: int = 0
    """So many were counted; `is_all` when they are all that match."""
    is_all: bool = True
    facets: tuple[tuple[str, tuple[Choice, ...]], ...] = ()
    changes: Mapping[tuple[str, int], tuple[Change, ...]] = {}
    signed: Mapping[str, int] = {}
    """How many records of each log a checkpoint covers."""
    names: Mapping[str, str] = {}
    views: tuple[SavedView, ...] = ()
    older: str = ""
    further: str = ""
    gathered: Gathered | None = None
    """Where the address asks for another way to look than the list."""


class AuditRoom:
    """Reads for one organisation, or for the installation where that is empty."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._explorer = Explorer(services.traffic)
        self._trees = DatabaseAuditTrees(services.database)
        self.views = ViewStore(services.database, services.clock)

    async def explored(self, organisation: str, asked: Asked, zone: str, person: str) -> Explored:
        """The whole page; raises NotReady."""
        views: list[SavedView] = []
        if organisation:
            views = await self.views.views(person, organisation, ROOM)
        now_us = self._services.clock.utc_us()
        if asked.wrong is not None:
            return Explored(asked, read_us=now_us, views=tuple(views))
        searches = self._searches(organisation, asked, zone)
        page, counts = await self._explorer.listed(searches, asked.before, tuple(FACETS))
        merged = merged_counts(counts)
        named = keys_named(asked, page, dict(merged["key"])) if organisation else ()
        names = await self._services.key_names.names(organisation, named)
        facets = ((FACETS[name], choices_of(asked, name, merged[name], names)) for name in FACETS)
        looked_back = Place(page.looked_back_us, 0) if page.looked_back_us else None
        return Explored(
            asked,
            now_us,
            page,
            rows=sum(each.rows for each in counts),
            is_all=all(each.is_all for each in counts),
            facets=tuple(facets),
            changes=await self._changes(page.rows),
            signed=await self._signed({row.organisation for row in page.rows}),
            names=names,
            views=tuple(views),
            older=asked.href(before=_last(page)) if page.is_more else "",
            further=asked.href(before=looked_back) if looked_back else "",
            gathered=await self.gathered(organisation, asked, zone) if asked.view else None,
        )

    async def gathered(self, organisation: str, asked: Asked, zone: str) -> Gathered:
        """The newest rows in groups or lanes, as `asked.view` says; raises NotReady."""
        searches = self._searches(organisation, asked, zone)
        page = await self._explorer.page(searches, limit=GATHERED_ROWS)
        is_all = not page.is_more and page.looked_back_us is None
        if asked.view == LANES:
            return Gathered(len(page.rows), is_all, lanes=lanes_of(page.rows))
        things = await self._things(page.rows) if asked.view else {}
        groups = grouped(asked.view, page.rows, things)
        return Gathered(len(page.rows), is_all, tuple(groups))

    async def _things(self, rows: Sequence[Row]) -> dict[tuple[str, int], str]:
        """What deeds were done to, as far as they say so."""
        details = await self._details(rows)
        return {place: named_in(decoded(told.get("after", ""))) for place, told in details.items()}

    async def page(self, organisation: str, asked: Asked, zone: str) -> Page:
        """Rows alone, for programs; raises NotReady."""
        return await self._explorer.page(self._searches(organisation, asked, zone), asked.before)

    async def lines(self, organisation: str, asked: Asked, zone: str) -> AsyncIterator[bytes]:
        """Everything that matches as JSON lines, each a whole record with number and hash."""
        waiting: list[Row] = []
        async for row in self._explorer.rows(self._searches(organisation, asked, zone)):
            waiting.append(row)
            if len(waiting) == _ROWS_AT_ONCE:
                yield await self._written(waiting)
                waiting = []
        yield await self._written(waiting)

    def _searches(self, organisation: str, asked: Asked, zone: str) -> list[Search]:
        sources = [Source(OPERATORS, "admin")]
        if organisation:
            sources = [Source(organisation), Source(OPERATORS, "admin", organisation)]
        now_us = self._services.clock.utc_us()
        return [asked.search(source, now_us, zone) for source in sources]

    async def _written(self, rows: Sequence[Row]) -> bytes:
        found = {}
        for log in {row.organisation for row in rows}:
            numbers = [row.sequence for row in rows if row.organisation == log]
            for record in await self._services.records.numbered(log, numbers):
                found[log, record.sequence] = export_line(record)
        whole = (found[row.organisation, row.sequence] for row in rows)
        return b"".join(msgspec.json.encode(line) + b"\n" for line in whole)

    async def _changes(self, rows: Sequence[Row]) -> dict[tuple[str, int], tuple[Change, ...]]:
        details = await self._details(rows)
        return {place: told_of(told) for place, told in details.items()}

    async def _details(self, rows: Sequence[Row]) -> dict[tuple[str, int], Mapping[str, str]]:
        """What the records of deeds say beside their fields, of those that can be read."""
        numbers = [row.sequence for row in rows if row.stage == "admin"]
        records = await self._services.records.numbered(OPERATORS, numbers) if numbers else []
        return {
            (OPERATORS, each.sequence): each.projected.record.detail
            for each in records
            if each.projected.raw_json
        }

    async def _signed(self, logs: set[str]) -> dict[str, int]:
        newest = {log: await self._trees.newest(log) for log in sorted(logs)}
        return {log: found.size if found else 0 for log, found in newest.items()}


def merged_counts(counts: Sequence[Counts]) -> dict[str, tuple[tuple[str, int], ...]]:
    """The counts of several logs together."""
    merged: dict[str, Counter[str]] = {name: Counter() for name in FACETS}
    for each in counts:
        for name, values in each.of.items():
            merged[name].update(dict(values))
    if STAGE_OF_DEEDS in merged["kind"]:
        merged["kind"][DEED] = merged["kind"].pop(STAGE_OF_DEEDS)
    return {
        name: tuple(sorted(found.items(), key=lambda each: (-each[1], each[0])))
        for name, found in merged.items()
    }


def _last(page: Page) -> Place:
    return Place(page.rows[-1].utc_us, page.rows[-1].sequence)
