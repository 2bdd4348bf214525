"""Finds out which rules held for requests whose rows do not say it, a bounded number per run.

Such rows were written before this was stored, or by a process that did not make the decision. They
are processed one after the other, the newest first: the decision is made again from what was
recorded.
"""

from typing import Final

from msgspec import Struct
from sqlalchemy import bindparam, func, select, update

from gateway.audit.projecting.projection import SequencedRecord
from gateway.routing.decided_rules import DECIDED_RULES, NO_RULE, NOTHING, RuleSet, rule_set_of
from gateway.routing.planning import decision_digest
from gateway.store.engine import Database
from gateway.store.evidence.rule_sets import RuleSets
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.store.policies.documents import PolicyStore
from gateway.store.schema.audit import audit_records
from gateway.store.schema.audit_columns import IS_UNRULED, UNKNOWABLE
from gateway.store.traffic.archive import DecisionArchive
from gateway.types import AuditRecord
from policies.explain import Explanation
from policies.problems import PolicyError


AT_ONCE: Final = 200
"""Some 50 ms of work, most of it in threads."""
REST_TURNS: Final = 30
"""For how many turns nothing is searched after everything was known."""
_C = audit_records.c


class _Found(Struct, frozen=True):
    sequence: int
    number: int


class RuleHunt:
    """Looks up rules in one database; any number of processes may do so at once."""

    def __init__(self, database: Database, sink: DatabaseAuditSink, policies: PolicyStore) -> None:
        self._database = database
        self._sink = sink
        self._archive = DecisionArchive(sink, policies)
        self._sets = RuleSets(database.kind)
        self._last = ""
        """The last organisation; they take turns."""
        self._rest = 0

    async def tend(self) -> None:
        """Do one step: the newest rows of one organisation; nothing if all is known.

        Raises:
            NotReady: the database does not answer.
            OSError: a segment cannot be read at the moment; what it holds is tried again.
        """
        if self._rest:
            self._rest -= 1
            return
        organisation = await self._next()
        if organisation is None:
            self._rest = REST_TURNS
            return
        self._last = organisation
        await self.look(organisation)

    async def look(self, organisation: str, count_max: int = AT_ONCE) -> int:
        """Look up the newest rows of an organisation; returns how many. Raises like `tend`."""
        query = (
            select(_C.sequence)
            .where(_C.organisation == organisation, IS_UNRULED)
            .order_by(_C.utc_us.desc(), _C.sequence.desc())
            .limit(count_max)
        )
        async with self._database.reading() as connection:
            wanted = list((await connection.execute(query)).scalars())
        # Strict: what cannot be read for a while must not pass for what can never be known.
        read = await self._sink.numbered(organisation, wanted, strict=True)
        rows = {row.sequence: row for row in read}
        found: list[_Found] = []
        sets: set[RuleSet] = set()
        for sequence in wanted:
            known = await self._rules_of(rows[sequence]) if sequence in rows else None
            found.append(_Found(sequence, UNKNOWABLE if known is None else known.number))
            if known is not None and known.number != NO_RULE:
                sets.add(known)
        await self._write(organisation, found, sets)
        return len(wanted)

    async def _next(self) -> str | None:
        """The next organisation in turn that has such rows: two index lookups."""
        name = func.min(_C.organisation)
        async with self._database.reading() as connection:
            for condition in (_C.organisation > self._last, _C.organisation >= ""):
                query = select(name).where(IS_UNRULED, condition)
                if (found := (await connection.execute(query)).scalar()) is not None:
                    return str(found)
        return None

    async def _rules_of(self, row: SequencedRecord) -> RuleSet | None:
        """None if nobody can know any more: bytes, document or board are not kept here."""
        if not row.projected.raw_json:
            return None
        outcome = row.projected.record
        if not outcome.decision:
            return NOTHING
        known = DECIDED_RULES.of(outcome.decision)
        if known is not None:
            return known
        for record in [outcome, *await self._intents(outcome)]:
            explanation = await self._explained(record)
            # A different result means that it was decided by something other than what is kept.
            if explanation and decision_digest(explanation.decision) == outcome.decision:
                return rule_set_of(explanation.decision)
        return None

    async def _explained(self, record: AuditRecord) -> Explanation | None:
        """None also if a document is kept that this version no longer reads."""
        try:
            return await self._archive.explained(record)
        except PolicyError:
            return None

    async def _intents(self, outcome: AuditRecord) -> list[AuditRecord]:
        if outcome.facts is not None:
            return []
        query = AuditQuery(
            organisation=outcome.organisation, stage="intent", request_id=outcome.request_id
        )
        rows = [row async for row in self._sink.records(query)]
        return [row.projected.record for row in rows if row.projected.raw_json]

    async def _write(self, organisation: str, found: list[_Found], sets: set[RuleSet]) -> None:
        if not found:
            return
        new = self._sets.new_of((organisation, each) for each in sets)
        change = (
            update(audit_records)
            .where(
                _C.organisation == organisation,
                _C.sequence == bindparam("of_sequence"),
                _C.rules.is_(None),
            )
            .values(rules=bindparam("number"))
        )
        values = [
            {"of_sequence": each.sequence, "number": each.number}
            for each in sorted(found, key=lambda one: one.sequence)
        ]
        async with self._database.writing() as connection:
            await self._sets.write(connection, new)
            await connection.execute(change, values)
        self._sets.keep(new)
