"""What columns of recorded requests say beyond their text: the route, and what was found."""

from typing import Final

from sqlalchemy import ColumnElement, case, literal_column

from gateway.store.schema.audit import audit_records


IN_HOUSE: Final = "in-house"
"""The jurisdiction of what runs here."""
_C = audit_records.c
ROUTE: Final = case(
    (_C.status == "refused", "refused"),
    (_C.jurisdiction == IN_HOUSE, IN_HOUSE),
    (_C.target != "", "managed"),
    else_="",
)
IS_UNRULED: Final[ColumnElement[bool]] = literal_column("(rules IS NULL AND stage = 'outcome')")
"""Nobody has looked which rules held. Written out: its index is taken only for what is seen so."""
UNKNOWABLE: Final = -1
"""In place of the number of a set of rules: what decided is not kept here any more."""


def labels_of(said: str) -> list[tuple[str, int]]:
    """The labels and counts in a record's `findings`."""
    found = []
    for each in said.split():
        label, _, count = each.rpartition(":")
        if label and count.isdecimal():
            found.append((label, int(count)))
    return found
