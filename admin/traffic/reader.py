"""Gathers the list of requests: rows, counts beside them, names of keys, kept views."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

from msgspec import Struct

from admin.services import Services
from admin.traffic.asked import Asked
from gateway.oversight.searching import FIELDS
from gateway.store.identity.views import SavedView, ViewStore
from gateway.store.traffic.conditions import Source
from gateway.store.traffic.facets import COUNTED, Counts
from gateway.store.traffic.lists import Page, Place, Row


ROOM = "traffic"
FACETS = {
    "route": "Route",
    "status": "Outcome",
    "error": "Error",
    "model": "Requested model",
    "target": "Served by",
    "class": "Data class",
    "pii": "Findings",
    "project": "Project",
    "key": "Key",
}
assert tuple(FACETS) == COUNTED


class Choice(Struct, frozen=True):
    """One value of a facet; `href` asks for it, or not any more."""

    value: str
    word: str
    count: int
    href: str
    is_chosen: bool


class Listed(Struct, frozen=True):
    """A list as its page shows it; without `page` the filter could not be read."""

    asked: Asked
    page: Page | None
    counts: Counts | None
    facets: tuple[tuple[str, tuple[Choice, ...]], ...]
    names: Mapping[str, str]
    views: tuple[SavedView, ...]
    older: str
    further: str
    read_us: int
    unruled_us: int | None = None
    """Where a rule is asked for: up to when some requests are missing, as nobody looked yet."""


class TrafficRoom:
    """Reads for one organisation at a time."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._reader = services.traffic
        self.views = ViewStore(services.database, services.clock)

    async def listed(self, organisation: str, asked: Asked, zone: str, person: str) -> Listed:
        """The whole page; raises NotReady."""
        views = tuple(await self.views.views(person, organisation, ROOM))
        now_us = self._services.clock.utc_us()
        if asked.wrong is not None:
            return Listed(asked, None, None, (), {}, views, "", "", now_us)
        search = asked.search(Source(organisation, "outcome"), now_us, zone)
        page = await self._reader.page(search, asked.before)
        whole = None if asked.before else page
        counts = await self._reader.counts(search, page=whole)
        named = keys_named(asked, page, dict(counts.of["key"]))
        names = await self._services.key_names.names(organisation, named)
        return Listed(
            asked,
            page,
            counts,
            tuple(
                (FACETS[name], choices_of(asked, name, counts.of[name], names)) for name in COUNTED
            ),
            names,
            views,
            asked.href(before=_last(page)) if page.is_more else "",
            asked.href(before=Place(page.looked_back_us, 0)) if page.looked_back_us else "",
            now_us,
            await self.unruled_us(organisation, asked),
        )

    async def unruled_us(self, organisation: str, asked: Asked) -> int | None:
        """Up to when requests may be missing in a list of those that a rule held for."""
        if not asked.filter.value_of("rule"):
            return None
        return await self._reader.unruled_us(organisation)

    async def page(self, organisation: str, asked: Asked, zone: str) -> Page:
        """Rows alone, for programs; raises NotReady."""
        search = asked.search(Source(organisation, "outcome"), self._services.clock.utc_us(), zone)
        return await self._reader.page(search, asked.before)

    def rows(self, organisation: str, asked: Asked, zone: str) -> AsyncIterator[Row]:
        """Everything that the filter finds, page by page."""
        now_us = self._services.clock.utc_us()
        return self._reader.rows(asked.search(Source(organisation, "outcome"), now_us, zone))


def _last(page: Page) -> Place:
    return Place(page.rows[-1].utc_us, page.rows[-1].sequence)


def keys_named(asked: Asked, page: Page, counted: Iterable[str]) -> set[str]:
    """The keys that a list's page names: in its rows, its counts and its filter."""
    chosen = {value for term in asked.filter.terms if term.field == "key" for value in term.values}
    return {row.key_id for row in page.rows} | {*counted} | chosen


def choices_of(
    asked: Asked, field: str, counts: Sequence[tuple[str, int]], names: Mapping[str, str]
) -> tuple[Choice, ...]:
    """The counted values, and those that are asked for though none was counted.

    A pattern counts nothing by itself. A key may be asked for by its name: it is the same choice.
    """
    counted = dict(counts)
    words = {names.get(value, value) if field == "key" else value for value in counted}
    chosen = [
        value
        for term in asked.filter.terms
        if term.field == field and asked.filter.has(field, term.values[0])
        for value in term.values
        if "*" not in value and (value not in words or value in counted)
    ]
    low = {value.lower() if FIELDS[field].kind == "choice" else value: value for value in counted}
    values = [*low, *(value for value in chosen if value not in low)]
    choices = []
    for value in values:
        word = names.get(value, value) if field == "key" else low.get(value, value)
        typed = word if field == "key" and asked.filter.has(field, word) else value
        choices.append(
            Choice(
                value,
                word,
                counted.get(low.get(value, value), 0),
                asked.toggled(field, typed),
                is_chosen=asked.filter.has(field, typed),
            )
        )
    return tuple(choices)
