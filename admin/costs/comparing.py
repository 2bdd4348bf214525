"""The earlier days that a group is compared with, and the filter of its traffic. Pure."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from gateway.oversight.searching import VALUE_CHARS_MAX, Filter, Term, render


_FIELDS: Final = {
    "workspace": "workspace",
    "project": "project",
    "key_id": "key",
    "target": "target",
    "jurisdiction": "jurisdiction",
    "provider": "provider",
}
"""What traffic is filtered by; it knows no other dimension."""


def days_before(since: date, until: date) -> tuple[date, date]:
    """As many days as there are from the first to the last one, just before the first."""
    return since - (until - since) - timedelta(days=1), since - timedelta(days=1)


def traffic_of(
    dimensions: Sequence[str], group: Sequence[str], days: tuple[date, date], zone: ZoneInfo
) -> str:
    """The filter of a group's requests on these days of a zone; empty where none finds them."""
    since, until = days
    if [*dimensions] == ["day"]:
        since = until = date.fromisoformat(group[0])
        dimensions = group = ()
    named = [(_FIELDS.get(name, ""), value) for name, value in zip(dimensions, group, strict=True)]
    if not all(field and 0 < len(value) <= VALUE_CHARS_MAX for field, value in named):
        return ""
    if any("*" in value or not value.isprintable() for _, value in named):
        return ""
    terms = [Term(field, (value,)) for field, value in named]
    terms += [
        Term("since", (_moment(since, zone),)),
        Term("until", (_moment(until + timedelta(days=1), zone),)),
    ]
    return render(Filter(tuple(terms)))


def _moment(day: date, zone: ZoneInfo) -> str:
    start = datetime(day.year, day.month, day.day, tzinfo=zone)
    return start.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ")
