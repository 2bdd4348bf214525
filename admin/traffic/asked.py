"""A list's query as its address gives it: a filter and a place, kept even if it is wrong."""

from typing import Final
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace

from admin.asking import Asking
from admin.queries import Query
from classifiers.pii.labels import LABELS
from gateway.errors import RequestInvalid
from gateway.oversight.searching import (
    FILTER_CHARS_MAX,
    Filter,
    FilterInvalid,
    left_out_in_vain,
    parse,
    render,
    unfindable_in,
)
from gateway.store.traffic.conditions import Search, Source
from gateway.store.traffic.lists import Place


_INT64_MAX: Final = 2**63 - 1
FILTER: Final = Query(
    "q",
    "A filter, such as `model:claude* status:failed`; one that cannot be read is refused.",
    length_max=FILTER_CHARS_MAX,
)
SINCE: Final = Query("since", "From then on, in place of the filter's own: `2026-11-30` or `7d`.")
UNTIL: Final = Query("until", "Until then, in place of the filter's own.")
BEFORE: Final = Query(
    "before", "Go on from here: what the answer before said.", pattern=r"^[0-9]+(\.[0-9]+)?$"
)
LIVE: Final = Query("live", "Of pages only: whether the list follows what comes.", choices=("1",))


class Wrong(Struct, frozen=True):
    """Why a filter cannot be read, and the text around the place."""

    message: str
    before: str
    here: str = ""
    after: str = ""
    field: str = "q"
    """The parameter that is wrong."""


class Asked(Struct, frozen=True):
    """A list's address, read."""

    path: str
    text: str
    filter: Filter = Filter()
    before: Place | None = None
    is_live: bool = False
    wrong: Wrong | None = None
    beside: tuple[tuple[str, str], ...] = ()
    """Ends of its time that stand in the address alone, while the filter cannot be read."""
    view: str = ""
    """Another way to look at what is found, by its name; empty for the list."""

    @property
    def plain(self) -> str:
        """The filter in its normal form; as it was typed while it cannot be read."""
        return self.text if self.wrong else render(self.filter)

    @property
    def unfindable(self) -> list[str]:
        """The labels that it asks for and no finding can have."""
        return unfindable_in(self.filter)

    @property
    def left_out_in_vain(self) -> list[str]:
        """The labels that it leaves out and no finding can have."""
        return left_out_in_vain(self.filter)

    @property
    def labels(self) -> list[str]:
        """What something can be found as."""
        return sorted(LABELS)

    def href(self, found: Filter | None = None, before: Place | None = None, more: str = "") -> str:
        """The address of this list with another filter, or from another place on."""
        text = self.plain if found is None else render(found)
        query = {"q": text} if text else {}
        if self.view:
            query["view"] = self.view
        if before is not None:
            query["before"] = f"{before.utc_us}.{before.sequence}"
        if more:
            query[more] = "1"
        return f"{self.path}?{urlencode(query)}" if query else self.path

    def listing_of(self, found: Filter) -> str:
        """The address of the list with another filter."""
        return replace(self, view="").href(found)

    def viewed(self, view: str) -> str:
        """The address of the same filter, looked at in another way."""
        return replace(self, view=view).href()

    def toggled(self, field: str, value: str) -> str:
        """The address with a value asked for, or not any more."""
        return self.href(self.filter.toggled(field, value))

    def below(self, part: str, **query: str) -> str:
        """The address of something about this list, such as its export."""
        return f"{self.path}/{part}?{urlencode({'q': self.plain} | query)}"

    def require_answerable(self) -> None:
        """For what has no place for a word beside the rows: an empty file would say "none".

        Raises:
            RequestInvalid: the filter cannot be read, or asks for a label that no finding has.
        """
        if self.wrong is not None:
            raise RequestInvalid(self.wrong.message, parameter=self.wrong.field)
        if self.unfindable:
            known = ", ".join(self.labels)
            reason = f"“{self.unfindable[0]}” is not a kind of finding; the kinds are {known}."
            raise RequestInvalid(reason, parameter=FILTER.name)

    def search(self, source: Source, now_us: int, zone: str) -> Search:
        return Search(source, self.filter, now_us, zone)


def asked_of(request: Asking) -> Asked:
    """What the query says; a filter that cannot be read leaves its place and reason."""
    asked = Asked(request.scope["path"], FILTER.of(request).strip())
    try:
        found = parse(asked.text)
    except FilterInvalid as error:
        text, end = asked.text, error.at + error.length
        wrong = Wrong(error.message, text[: error.at], text[error.at : end], text[end:])
        return Asked(asked.path, text, wrong=wrong, beside=_ends_of(request))
    for each in (SINCE, UNTIL):
        try:
            if each.is_in(request):
                found = _bounded(found, each.name, each.of(request))
        except FilterInvalid as error:
            wrong = Wrong(error.message, asked.text, field=each.name)
            other = tuple(end for end in _ends_of(request) if end[0] != each.name)
            return Asked(asked.path, asked.text, wrong=wrong, beside=other)
    return Asked(
        asked.path,
        # What the field holds is all that the list is asked for: it is what is sent again.
        render(found) if _ends_of(request) else asked.text,
        found,
        _place(BEFORE.of(request)),
        is_live=LIVE.of(request) == "1",
    )


def _ends_of(request: Asking) -> tuple[tuple[str, str], ...]:
    return tuple((each.name, each.of(request)) for each in (SINCE, UNTIL) if each.is_in(request))


def _bounded(found: Filter, name: str, value: str) -> Filter:
    """The same filter from or until a time, such as one that was drawn on the chart."""
    return Filter((*found.without(name).terms, *parse(f'{name}:"{value}"').terms))


def _place(text: str) -> Place | None:
    if not text:
        return None
    utc_us, _, sequence = text.partition(".")
    if not all(part.isascii() and part.isdecimal() for part in (utc_us, sequence)):
        raise RequestInvalid(
            "This is no place in the list: begin at its newest.", parameter="before"
        )
    place = Place(int(utc_us[:20]), int(sequence[:20]))
    if max(place.utc_us, place.sequence) > _INT64_MAX:
        raise RequestInvalid(
            "This is no place in the list: begin at its newest.", parameter="before"
        )
    return place
