"""Requests that no model answered, by how they ended. Pure."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from gateway.store.traffic.figures import Sums


GROUPS_WITH_NONE: Final = frozenset({"model", "route", "provider"})
"""Of the groups of a page those that a request without an answer has none of."""


class Unanswered(Struct, frozen=True):
    """Counts of requests in the group without a name; what failed broke off, too."""

    refused: int = 0
    failed: int = 0
    others: int = 0
    """Such as lines of a batch that was ended."""


def unanswered_of(rows: Sequence[Sums]) -> Unanswered:
    """What stands in the groups without a name, of sums by one dimension."""
    none = [row for row in rows if not any(row.group)]
    refused = sum(row.refused for row in none)
    failed = sum(row.failed for row in none)
    return Unanswered(refused, failed, sum(row.requests for row in none) - refused - failed)
