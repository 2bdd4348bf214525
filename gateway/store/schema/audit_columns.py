"""Interprets columns of recorded requests: the route taken, the labels found."""

from typing import Any, Final

from sqlalchemy import ColumnElement, and_, case, literal_column, or_

from gateway.oversight.homes import IN_HOUSE, MANAGED, REFUSED, Homes
from gateway.store.schema.audit import audit_records


_C = audit_records.c
IS_UNRULED: Final[ColumnElement[bool]] = literal_column("(rules IS NULL AND stage = 'outcome')")
"""The rules were not looked up yet. Written out: an index is used only if the condition is
repeated."""
UNKNOWABLE: Final = -1
"""In place of a rule set's number: what decided is not kept here any more."""


def is_home(homes: Homes, columns: Any) -> ColumnElement[bool]:
    """`Homes.has` for rows with columns `jurisdiction` and `provider`."""
    found: ColumnElement[bool] = columns.jurisdiction.in_(sorted(homes.labels))
    if homes.shared:
        is_shared = columns.jurisdiction.in_(sorted(homes.shared))
        found = or_(found, and_(is_shared, columns.provider.in_(sorted(homes.providers))))
    return found


def route_in(homes: Homes) -> ColumnElement[str]:
    """`Homes.route_of` for recorded requests."""
    return case(
        (_C.status == REFUSED, REFUSED),
        (is_home(homes, _C), IN_HOUSE),
        (_C.jurisdiction != "", MANAGED),
        else_="",
    )


def labels_of(said: str) -> list[tuple[str, int]]:
    """The labels and counts in a record's `findings`."""
    found = []
    for each in said.split():
        label, _, count = each.rpartition(":")
        if label and count.isdecimal():
            found.append((label, int(count)))
    return found
