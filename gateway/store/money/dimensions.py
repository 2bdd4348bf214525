"""The dimensions by which costs are grouped and filtered, and where outcome records hold them."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from msgspec import Struct
from sqlalchemy import ColumnElement, case

from gateway.errors import RequestInvalid
from gateway.oversight.homes import Homes
from gateway.store.schema.audit import audit_records
from gateway.store.schema.audit_columns import labels_of, route_in


DIMENSIONS: Final = (
    *("organisation", "workspace", "project", "app", "key", "label", "end_user"),
    *("model", "target", "provider", "jurisdiction", "route", "policy", "data_class", "finding"),
    *("status", "error", "tier", "cache", "batch", "hour", "day", "month"),
)
"""What a report may be grouped by; hours, days and months are in the organisation's zone.

`policy` is the digest of the document that decided, `app` a project preceded by its workspace.
`label` is all labels of the key, as it has them now, and `finding` all kinds that the request
contained, so that each request is in one group and the groups add up to the total.
"""
QUARTER_US: Final = 900_000_000
"""Every zone's offset is a multiple of a quarter of an hour, so quarters add up to its days."""
_C = audit_records.c
_COLUMNS: Final[dict[str, ColumnElement[Any]]] = {
    "key": _C.key_id,
    "label": _C.key_id,
    "end_user": _C.subject,
    "model": _C.model_requested,
    "policy": _C.policy_digest,
    "finding": _C.findings,
    "app": case((_C.workspace == "", _C.project), else_=_C.workspace + "/" + _C.project),
}
_TIMES: Final = ("hour", "day", "month")
_OF_SEVERAL: Final = ("label", "finding")
_SEVERAL_JOINED_BY: Final = " "
Only = Mapping[str, Collection[str]]
"""For each named dimension, one of these values has to match."""
NO_FILTER: Final[Only] = {}


class Reading(Struct, frozen=True):
    """How dimensions are read: columns to group by, and names of values."""

    names: tuple[str, ...]
    zone: ZoneInfo
    labels: Mapping[str, Sequence[str]]
    """Labels of keys, by id."""
    homes: Homes

    @property
    def columns(self) -> list[ColumnElement[Any]]:
        """One column for each dimension, labelled `of_NAME`."""
        return [column_of(name, self.homes).label(f"of_{name}") for name in self.names]

    def values(self, row: Sequence[Any]) -> dict[str, str]:
        """The values of a row that begins with these columns, by dimension."""
        named = zip(self.names, row, strict=False)
        return {name: self._value(name, value) for name, value in named}

    def _value(self, name: str, value: Any) -> str:
        if name in _TIMES:
            moment = datetime.fromtimestamp(int(value) * 900, UTC).astimezone(self.zone)
            return time_of(name, moment)
        if name == "label":
            return _SEVERAL_JOINED_BY.join(sorted(self.labels.get(value, ())))
        if name == "finding":
            return _SEVERAL_JOINED_BY.join(label for label, _ in labels_of(value))
        return str(value)


def check(by: Sequence[str], only: Only = NO_FILTER) -> None:
    """Raises RequestInvalid for an unknown dimension, or one that is named twice."""
    if len(set(by)) < len(by) or not set(by) <= set(DIMENSIONS):
        raise RequestInvalid(f"group by: {', '.join(DIMENSIONS)}", parameter="by")
    if not set(only) <= set(DIMENSIONS):
        raise RequestInvalid(f"filter by: {', '.join(DIMENSIONS)}", parameter="only")


def read_only(said: Collection[str]) -> dict[str, set[str]]:
    """Parse filters `DIMENSION=VALUE`; raises RequestInvalid."""
    only: dict[str, set[str]] = {}
    for each in said:
        name, equals, value = each.partition("=")
        if not equals:
            raise RequestInvalid("a filter is written as DIMENSION=VALUE", parameter="only")
        only.setdefault(name, set()).add(value)
    check((), only)
    return only


def time_of(name: str, moment: datetime) -> str:
    """An hour, a day or a month, as reports write it; an hour includes its offset from UTC.

    When clocks go back, the same hour comes twice.
    """
    if name == "hour":
        return moment.replace(minute=0, second=0, microsecond=0).isoformat(timespec="minutes")
    return moment.strftime("%Y-%m-%d" if name == "day" else "%Y-%m")


def column_of(name: str, homes: Homes) -> ColumnElement[Any]:
    """The column by which the database groups a dimension."""
    if name in _TIMES:
        return _C.utc_us // QUARTER_US
    if name == "route":
        return route_in(homes)
    return _COLUMNS[name] if name in _COLUMNS else _C[name]


def holds(values: Mapping[str, str], only: Only) -> bool:
    """Whether a group's values match a filter.

    A group may have several labels and findings; one match is enough.
    """
    for name, wanted in only.items():
        value = values[name]
        of = {value, *value.split(_SEVERAL_JOINED_BY)} if name in _OF_SEVERAL else {value}
        if of.isdisjoint(wanted):
            return False
    return True
