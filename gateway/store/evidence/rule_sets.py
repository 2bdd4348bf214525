"""Sets of rules that held together, by the names of their rules: written beside the first record.

A row of the projection has its set's number; the names stand here once for each organisation.
"""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter

from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.audit.projecting.projection import ProjectedRecord
from gateway.routing.decided_rules import DECIDED_RULES, NO_RULE, NOTHING, RuleSet
from gateway.store.evidence.rows import clean
from gateway.store.schema.audit import audit_rule_sets
from gateway.store.speech import DatabaseKind, insert_into
from gateway.types import AuditRecord


_KEPT_MAX = 100_000
_KNOWN = attrgetter("known_record")
_MADE_FOR: Callable[[AuditRecord | None], tuple[str, str]] = attrgetter("organisation", "decision")
Owned = tuple[str, RuleSet]
"""An organisation's."""


class RuleSets:
    """Of one database; remembers which sets are there, so that each is written once."""

    def __init__(self, kind: DatabaseKind) -> None:
        self._kind = kind
        self._kept: set[tuple[str, int]] = set()

    def known_of(
        self, batch: Iterable[ProjectedRecord]
    ) -> tuple[Mapping[str, RuleSet], list[Owned]]:
        """By digest what this process knows of the decisions of known records; the new sets.

        Asked for once: what is noted meanwhile might otherwise be numbered and not be written.
        """
        found = {"": NOTHING}
        new: list[Owned] = []
        for whose, decision in set(map(_MADE_FOR, map(_KNOWN, batch))):
            known = found.get(decision) or DECIDED_RULES.of(decision)
            if known is not None:
                found[decision] = known
                new.append((clean(whose), known))
        return found, self.new_of(new)

    def new_of(self, sets: Iterable[Owned]) -> list[Owned]:
        """Those of them that nobody is known to have written, in one order for all writers."""
        return sorted(
            each
            for each in set(sets)
            if each[1].number != NO_RULE and (each[0], each[1].number) not in self._kept
        )

    async def write(self, connection: AsyncConnection, new: Iterable[Owned]) -> None:
        """In the transaction of the rows; call `keep` when it is over."""
        rows = [
            {"organisation": whose, "rule": clean(name), "number": found.number}
            for whose, found in new
            for name in found.names
        ]
        if rows:
            statement = insert_into(self._kind, audit_rule_sets).on_conflict_do_nothing()
            await connection.execute(statement, rows)

    def keep(self, new: Iterable[Owned]) -> None:
        """They are written for good."""
        if len(self._kept) > _KEPT_MAX:
            self._kept.clear()
        self._kept.update((whose, found.number) for whose, found in new)
