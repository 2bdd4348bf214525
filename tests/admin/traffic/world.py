"""Recorded requests for the pages of traffic: decided by real policies, written by a real log."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from gateway.audit.writer import SegmentedAuditLog
from gateway.recording.recall import record_facts
from gateway.routing.planning import decision_digest
from gateway.secrets.credentials import master_key
from gateway.store.evidence.integration import Integration
from gateway.store.policies.documents import PolicyStore
from gateway.types import Attempt, AuditRecord, OutcomeStatus, Usage
from policies.decide import decide
from policies.decision import Decision
from policies.examples import EXAMPLE_TARGETS, facts_from_example
from policies.facts import Facts
from policies.program import PolicyDocument
from policies.text.loading import load_document
from tests.admin.listener import Listener
from tests.gateway.audit.samples import LIMITS


NOW_US = 1_795_000_000_000_000
BOARD = "board-of-the-examples"
POLICY = """
name = "acme"
version = 1
[[constraints]]
name = "cards-stay-home"
when = 'data_class >= "S3"'
allow_only = { in_house = true }
[[constraints]]
name = "no-frontier-at-night"
when = 'hour_utc >= 22'
forbid = { tiers = ["frontier"] }
[[preferences]]
name = "simple"
when = 'complexity_tier == "cheap"'
order = ["cheap", "mid", "frontier"]
[[preferences]]
name = "the-rest"
order = ["frontier", "mid", "cheap"]
"""


def request_id(number: int, utc_us: int = NOW_US) -> str:
    """As the door makes them."""
    return f"req_{utc_us // 1000:012x}{number:016x}"


class World:
    """Writes requests into a listener's log and brings them into its database."""

    def __init__(self, listener: Listener, organisation: str = "acme") -> None:
        self.listener = listener
        self.organisation = organisation
        self.key_id = ""
        self.document: PolicyDocument = load_document(POLICY)
        self._log: SegmentedAuditLog

    async def open(self) -> None:
        """Make the organisation with a key, and keep the policy and the board."""
        self.key_id = await self.listener.issue_key("the assistant", self.organisation)
        async with self.listener.database() as database:
            policies = PolicyStore(database, self.listener.clock)
            await policies.keep(self.document)
            await policies.boards.keep(BOARD, EXAMPLE_TARGETS)

    async def write(self, *requests: "Asked") -> list[str]:
        """Record requests, intents and outcomes; their ids."""
        settings = self.listener.settings
        directory = settings.path(settings.audit.directory)
        keys = master_key(settings)
        clock = self.listener.clock
        log = SegmentedAuditLog(directory, "w1", keys=keys, clock=clock, limits=LIMITS)
        await log.start()
        ids = []
        try:
            for asked in requests:
                facts = asked.facts(self.organisation, self.key_id)
                decision = decide(self.document, facts)
                intent = ""
                if decision.effect == "allow":
                    written = await log.append(asked.intent(facts, decision), asked.content)
                    intent = written.leaf_hash
                if asked.status:
                    await log.append(asked.outcome(facts, decision, intent))
                ids.append(asked.id)
        finally:
            await log.close()
        async with self.listener.database() as database:
            parts = Integration(settings, database, clock, keys)
            await parts.projector.catch_up()
        return ids

    async def sign(self) -> None:
        """Sign a checkpoint of every log that grew."""
        settings, clock = self.listener.settings, self.listener.clock
        async with self.listener.database() as database:
            await Integration(settings, database, clock, master_key(settings)).sign()


class Asked:
    """One request to be recorded; `fields` are facts that differ from a harmless one's."""

    def __init__(
        self,
        number: int,
        *,
        ago_s: float = 0.0,
        status: OutcomeStatus | str = "ok",
        content: bytes = b"",
        attempts: tuple[Attempt, ...] = (),
        outcome: Mapping[str, Any] | None = None,
        detail: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> None:
        self.utc_us = NOW_US - round(ago_s * 1e6)
        self.id = request_id(number, self.utc_us)
        self.status = status
        self.content = content
        self._attempts = attempts
        self._outcome = outcome or {}
        self._detail = detail or {}
        self._fields = fields

    def facts(self, organisation: str, key_id: str) -> Facts:
        who = {"organisation": organisation, "workspace": "research", "project": "assistant"}
        return facts_from_example(who | {"key_id": key_id} | self._fields)

    def _base(self, stage: Any, facts: Facts, decision: Decision) -> AuditRecord:
        first = next((t for t in EXAMPLE_TARGETS if t.name in decision.candidates[:1]), None)
        return AuditRecord(
            stage=stage,
            request_id=self.id,
            organisation=facts.organisation,
            utc_us=self.utc_us,
            workspace=facts.workspace,
            project=facts.project,
            key_id=facts.key_id,
            endpoint="/v1/chat/completions",
            dialect=facts.dialect,
            model_requested=facts.model_requested,
            target=first.name if first else "",
            provider=first.provider if first else "",
            jurisdiction=first.jurisdiction if first else "",
            decision=decision_digest(decision),
            policy_digest=decision.document_digest,
            data_class=facts.data_class,
            findings=facts.findings,
            inspection_complete=facts.inspection_complete,
            detail=self._detail,
        )

    def intent(self, facts: Facts, decision: Decision) -> AuditRecord:
        return replace(
            self._base("intent", facts, decision),
            utc_us=self.utc_us + 4_200,
            decision_reason=decision.reason,
            complexity_ppm=round(facts.complexity * 1e6),
            complexity_parts_ppm={"length": -120_000, "reasoning": 310_000, "words": -2_000},
            classifier="complexity-3",
            candidates=decision.candidates,
            clearance=decision.obligations.jurisdictions,
            reserved_microusd=48_000,
            facts=record_facts(facts, BOARD, None, decided_us=self.utc_us),
        )

    def outcome(self, facts: Facts, decision: Decision, intent: str) -> AuditRecord:
        base = self._base("outcome", facts, decision)
        if not intent:
            return replace(
                base,
                decision_reason=decision.reason,
                status="refused",
                http_status=403,
                error="policy_refused",
                duration_us=3_900,
                facts=record_facts(facts, BOARD, None, decided_us=self.utc_us),
            )
        took = Attempt(base.target, 200, "", 1_240_000, 310_000)
        attempts = self._attempts or (took,)
        ended_us = 9_000 + sum(each.duration_us for each in attempts)
        ended = replace(
            base,
            utc_us=self.utc_us + ended_us,
            duration_us=ended_us,
            intent=intent,
            status=self.status,
            http_status=200,
            attempts=attempts,
            usage=Usage(input_tokens=812, output_tokens=240, cache_read_tokens=512),
            cost_microusd=5_430,
            price_as_of="2026-11-01",
        )
        return replace(ended, **self._outcome)
