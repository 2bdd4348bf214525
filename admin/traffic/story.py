"""The full story of one request: what was decided and why, what was done, its cost, its proof.

It is told from the request's records alone: the intent, written before a byte left, and the
outcome, written before the caller saw the end. The decision is made again from the recorded facts.
"""

from typing import Literal

from msgspec import Struct

from admin.costs.prices import priced_targets
from admin.evidence import Evidence, EvidenceReader
from admin.overview.health import GIVEN_UP
from admin.services import Services
from admin.traffic.bill import Bill, bill_of
from gateway.routing.planning import decision_digest
from gateway.store.evidence.sink import AuditQuery
from gateway.store.policies.documents import PolicyStore
from gateway.store.traffic.archive import DecisionArchive
from gateway.types import Attempt, AuditRecord
from policies.explain import Explanation


BarKind = Literal["deciding", "waiting", "answering", "failed", "ending"]


class Bar(Struct, frozen=True):
    """A span of a request's time, counted from its arrival."""

    name: str
    kind: BarKind
    start_us: int
    duration_us: int


class Story(Struct, frozen=True):
    """All that is known of one request; `intent` is missing if nothing was let through."""

    request_id: str
    organisation: str
    intent: AuditRecord | None
    outcome: AuditRecord | None
    key_name: str
    explanation: Explanation | None
    is_same_decision: bool
    """Whether deciding again gives the recorded decision."""
    bars: tuple[Bar, ...]
    total_us: int
    bill: Bill | None
    evidence: tuple[Evidence, ...]
    route: str
    """`in-house`, `managed` or `refused`; empty if nothing was reached."""

    @property
    def record(self) -> AuditRecord:
        """The newest record there is."""
        found = self.outcome or self.intent
        assert found is not None
        return found

    @property
    def decided(self) -> AuditRecord:
        """The record with the decision: the intent, or the refusal."""
        found = self.intent or self.outcome
        assert found is not None
        return found

    @property
    def has_content(self) -> bool:
        return any(each.has_content for each in self.evidence)

    @property
    def was_destroyed(self) -> bool:
        return any(each.is_destroyed for each in self.evidence) and not self.has_content


class StoryReader:
    """Reads the stories of one database."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._evidence = EvidenceReader(services)
        policies = PolicyStore(services.database, services.clock)
        self._archive = DecisionArchive(services.records, policies)

    async def story(self, organisation: str, request_id: str) -> Story | None:
        """The story; None if this organisation has no such request; raises NotReady."""
        query = AuditQuery(organisation=organisation, request_id=request_id)
        rows = [row async for row in self._services.records.records(query)]
        by_stage = {
            row.projected.record.stage: row.projected.record
            for row in reversed(rows)  # The first of a stage counts.
            if row.projected.raw_json
        }
        intent, outcome = by_stage.get("intent"), by_stage.get("outcome")
        decided = intent or outcome
        if decided is None:
            return None
        explanation = await self._archive.explained(decided)
        last = outcome or decided
        bars = bars_of(intent, outcome)
        return Story(
            request_id,
            organisation,
            intent,
            outcome,
            await self._key_name(organisation, decided.key_id),
            explanation,
            explanation is not None and decision_digest(explanation.decision) == decided.decision,
            bars,
            max((bar.start_us + bar.duration_us for bar in bars), default=0),
            await self._bill(outcome) if outcome else None,
            tuple([await self._evidence.of(organisation, row) for row in rows]),
            self._services.homes.route_of(last.status, last.jurisdiction, last.provider),
        )

    async def _key_name(self, organisation: str, key_id: str) -> str:
        return (await self._services.key_names.names(organisation, [key_id])).get(key_id, "")

    async def _bill(self, outcome: AuditRecord) -> Bill | None:
        """The bill in parts at the prices in force; none rather than one at other prices."""
        targets = await priced_targets(self._services)
        price = next((each.price for each in targets if each.name == outcome.target), None)
        return bill_of(outcome, price)


def bars_of(intent: AuditRecord | None, outcome: AuditRecord | None) -> tuple[Bar, ...]:
    """The events in their order; attempts that raced are drawn one after the other."""
    if outcome is None:
        return ()
    arrived_us = outcome.utc_us - outcome.duration_us
    if intent is None:
        return (Bar("Decided", "deciding", 0, outcome.duration_us),)
    at_us = max(0, intent.utc_us - arrived_us)
    bars = [Bar("Identify, inspect, decide, record", "deciding", 0, at_us)]
    for number, attempt in enumerate(outcome.attempts, 1):
        bars += _attempt_bars(number, attempt, at_us)
        at_us += attempt.duration_us
    left_us = outcome.duration_us - at_us
    if left_us > 0:
        bars.append(Bar("Settle and record", "ending", at_us, left_us))
    return tuple(bars)


def _attempt_bars(number: int, attempt: Attempt, start_us: int) -> list[Bar]:
    name = f"Attempt {number}: {attempt.target}"
    if attempt.error in GIVEN_UP:
        said = f"{name} {GIVEN_UP[attempt.error]}"
        return [Bar(said, "waiting", start_us, attempt.duration_us)]
    if attempt.error:
        return [Bar(f"{name} failed: {attempt.error}", "failed", start_us, attempt.duration_us)]
    first_us = min(attempt.first_byte_us, attempt.duration_us)
    bars = [Bar(f"{name}, until the first byte", "waiting", start_us, first_us)]
    rest_us = attempt.duration_us - first_us
    return [*bars, Bar(f"{name}, the answer", "answering", start_us + first_us, rest_us)]
