"""Reads recorded decisions back from the projection, for replays and for people who ask why."""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping

from msgspec import Struct

from gateway.audit.entries import decode_entry
from gateway.identity import accounts_of
from gateway.recording.recall import Board, Recaller
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.store.policies.documents import PolicyStore
from gateway.types import AuditRecord, Principal
from policies.explain import Explanation, explain
from policies.facts import Facts
from policies.replay import Recorded


PENDING_MAX = 100_000
"""Intents without an outcome so far; the oldest ones beyond this count as unanswered."""


READ_AT_ONCE = 200
"""Records whose boards are read together."""


class Timed(Struct, frozen=True):
    """A recorded request and when it ended."""

    utc_us: int
    recorded: Recorded


class DecisionArchive:
    """Reads intents, outcomes and policy refusals; facts come back as policy saw them."""

    def __init__(self, sink: DatabaseAuditSink, policies: PolicyStore) -> None:
        self._sink = sink
        self._policies = policies

    async def recorded(self, since_us: int) -> AsyncIterator[Recorded]:
        """Every decided request since then whose facts were recorded, in order of their ends."""
        pending: dict[str, tuple[AuditRecord, Facts]] = {}
        async for record, facts in self._read(AuditQuery(since_us=since_us)):
            if record.facts is not None:
                if facts is None:
                    continue
                if record.stage == "outcome":
                    yield _recorded(record, facts, None)
                    continue
                pending[record.request_id] = (record, facts)
                if len(pending) > PENDING_MAX:
                    oldest = pending.pop(next(iter(pending)))
                    yield _recorded(*oldest, None)
            elif record.stage == "outcome" and record.request_id in pending:
                yield _recorded(*pending.pop(record.request_id), record)
        for intent, facts in pending.values():
            yield _recorded(intent, facts, None)

    async def _read(self, query: AuditQuery) -> AsyncIterator[tuple[AuditRecord, Facts | None]]:
        """Records with the facts policy used; boards are read as records name them, many at once.

        A week's records name only a few of all boards that were ever kept.
        """
        boards: dict[str, Board] = {}
        recaller = Recaller(boards.get)
        read: list[AuditRecord] = []
        async for row in self._sink.records(query):
            if row.projected.raw_json:  # Else damaged; `gatewright audit verify` says so.
                read.append(decode_entry(row.projected.raw_json).record)
            if len(read) >= READ_AT_ONCE:
                boards |= await self._boards_of(read, boards)
                for record in read:
                    yield record, recaller.facts(record)
                read.clear()
        boards |= await self._boards_of(read, boards)
        for record in read:
            yield record, recaller.facts(record)

    async def newest(
        self, organisation: str | None, most: int, *, since_us: int | None = None
    ) -> list[Timed]:
        """The last decided requests of an organisation, or of all, newest first.

        Limited, whereas `recorded` reads all of a period: at most `most` answers and as many
        intents are read, so a request that was still open at the edge is left out.
        """
        query = AuditQuery(organisation=organisation, stage="outcome", since_us=since_us)
        outcomes = await self._sink.newest(query, most)
        query = AuditQuery(organisation=organisation, stage="intent", since_us=since_us)
        # Decoding is most of the work here, and is repeated each time a row's record is read.
        begun = [row.projected.record for row in await self._sink.newest(query, most)]
        intents = {record.request_id: record for record in begun}
        ended = [row.projected.record for row in outcomes]
        recaller = await self._recaller(*begun, *ended)
        found: list[Timed] = []
        for outcome in ended:
            decided = outcome if outcome.facts is not None else intents.get(outcome.request_id)
            facts = None if decided is None else recaller.facts(decided)
            if decided is not None and facts is not None:
                how = None if decided is outcome else outcome
                found.append(Timed(outcome.utc_us, _recorded(decided, facts, how)))
        return found

    async def facts_of(
        self, organisation: str, request_id: str
    ) -> tuple[AuditRecord, Facts] | None:
        """The record of a request of this organisation, and the facts policy used for it."""
        query = AuditQuery(organisation=organisation, request_id=request_id)
        async for row in self._sink.records(query):
            if not row.projected.raw_json:
                continue
            record = decode_entry(row.projected.raw_json).record
            facts = (await self._recaller(record)).facts(record)
            if facts is not None:
                return record, facts
        return None

    async def explanation(
        self, request_id: str, asker: Principal
    ) -> tuple[AuditRecord, Explanation] | None:
        """Why a request went where it went; None unless it was decided for the asker's project."""
        query = AuditQuery(
            organisation=asker.organisation,
            workspace=asker.workspace,
            project=asker.project,
            request_id=request_id,
        )
        async for row in self._sink.records(query):
            if not row.projected.raw_json:
                continue
            record = decode_entry(row.projected.raw_json).record
            explanation = await self.explained(record)
            if explanation is not None:
                return record, explanation
        return None

    async def explained(self, record: AuditRecord) -> Explanation | None:
        """The decision of an intent or a refusal, repeated from the facts in its record.

        None if the record holds none, or its document or board of targets is not known.
        """
        if record.facts is None:
            return None
        facts = (await self._recaller(record)).facts(record)
        document = await self._policies.document(record.policy_digest)
        return explain(document, facts) if facts is not None and document is not None else None

    async def _recaller(self, *records: AuditRecord) -> Recaller:
        """A recaller with the boards under which these were decided, of all that were ever kept."""
        return Recaller((await self._boards_of(records)).get)

    async def _boards_of(
        self, records: Iterable[AuditRecord], known: Collection[str] = ()
    ) -> Mapping[str, Board]:
        named = {record.facts.board for record in records if record.facts is not None}
        named.difference_update(known)
        return await self._policies.boards.named(named) if named else {}


def _recorded(decided: AuditRecord, facts: Facts, outcome: AuditRecord | None) -> Recorded:
    usage = outcome.usage if outcome is not None else None
    return Recorded(
        request_id=decided.request_id,
        facts=facts,
        document_digest=decided.policy_digest,
        decision_digest=decided.decision,
        is_refused=decided.stage == "outcome",
        first=decided.candidates[0] if decided.candidates else "",
        target=(outcome.target if outcome is not None else "") or decided.target,
        cost_microusd=outcome.cost_microusd if outcome is not None else 0,
        accounts=accounts_of(facts.organisation, facts.workspace, facts.project, facts.key_id),
        input_tokens=usage.input_tokens if usage is not None else 0,
        output_tokens=usage.output_tokens if usage is not None else 0,
    )
