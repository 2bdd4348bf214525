"""Sets of rules that held together, by the names of their rules: written beside the first record.

A row of the projection has its set's number; the names are stored once for each organisation.
"""

from collections.abc import Callable, Collection, Iterable

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.routing.decided_rules import DECIDED_RULES, NO_RULE, RuleSet
from gateway.store.evidence.rows import clean
from gateway.store.schema.audit import audit_rule_sets
from gateway.store.speech import DatabaseKind, insert_into


_KEPT_MAX = 100_000
Owned = tuple[str, RuleSet]
"""An organisation's rule set."""
_IsKept = Callable[[Owned], bool]


async def names_in(
    connection: AsyncConnection, organisation: str, numbers: Collection[int]
) -> dict[int, tuple[str, ...]]:
    """The sorted names in some sets: none for `NO_RULE`; sets that are not kept are left out."""
    found: dict[int, tuple[str, ...]] = {NO_RULE: ()}
    wanted = [each for each in numbers if each > NO_RULE]
    if wanted:
        columns = audit_rule_sets.c
        query = select(columns.number, columns.rule).where(
            columns.organisation == organisation, columns.number.in_(wanted)
        )
        for number, rule in (await connection.execute(query.order_by(columns.rule))).all():
            found[number] = (*found.get(number, ()), rule)
    return found


class BatchRules(dict[tuple[str, str], int | None]):
    """Set number, by organisation and decision digest; None if it is not known here.

    Each is looked up once, by the code that makes the rows: a set noted in the meantime might
    otherwise be numbered and not written. A known key costs a row only the lookup.
    """

    def __init__(self, is_kept: _IsKept) -> None:
        super().__init__()
        self.new: list[Owned] = []
        """Sets that are not known to be written."""
        self._is_kept = is_kept

    def __missing__(self, key: tuple[str, str]) -> int | None:
        whose, digest = key
        known = DECIDED_RULES.of(digest) if digest else None
        number = known.number if known is not None else None if digest else NO_RULE
        if known is not None and not self._is_kept((whose, known)):
            self.new.append((whose, known))
        self[key] = number
        return number


class RuleSets:
    """The sets in one database; remembers which exist, so that each is written once."""

    def __init__(self, kind: DatabaseKind) -> None:
        self._kind = kind
        self._kept: set[tuple[str, int]] = set()

    def of_batch(self) -> BatchRules:
        """Empty at first; filled while rows are made."""
        return BatchRules(self._is_kept)

    def new_of(self, sets: Iterable[Owned]) -> list[Owned]:
        """Those that are not known to be written, in one order for all writers."""
        return sorted(each for each in set(sets) if not self._is_kept(each))

    async def write(self, connection: AsyncConnection, new: Iterable[Owned]) -> None:
        """Write them in the transaction of the rows; call `keep` when it is over."""
        rows = [
            {"organisation": whose, "rule": clean(name), "number": found.number}
            for whose, found in new
            for name in found.names
        ]
        if rows:
            statement = insert_into(self._kind, audit_rule_sets).on_conflict_do_nothing()
            await connection.execute(statement, rows)

    def keep(self, new: Iterable[Owned]) -> None:
        """Note that they are written durably."""
        if len(self._kept) > _KEPT_MAX:
            self._kept.clear()
        self._kept.update((whose, found.number) for whose, found in new)

    def _is_kept(self, each: Owned) -> bool:
        whose, found = each
        return found.number == NO_RULE or (whose, found.number) in self._kept
