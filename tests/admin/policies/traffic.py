"""Recorded traffic for the room of policies: decided by the real policy, recorded as workers do."""

from collections.abc import Mapping, Sequence

import msgspec

from gateway.assembly.configured_policy import load_policy
from gateway.recording.recall import record_facts
from gateway.routing.board import TargetBoard
from gateway.routing.planning import decision_digest
from gateway.store.policies.documents import PolicyStore
from gateway.types import AuditRecord, Usage
from gateway.worker.pricing import configured_targets
from policies.decide import decide
from policies.examples import facts_from_example
from tests.admin.listener import Listener


async def record_traffic(
    listener: Listener,
    examples: Sequence[Mapping[str, object]],
    *,
    organisation: str = "acme",
    ago_s: int = 600,
) -> list[str]:
    """One decided and answered request per example, newest last; their ids.

    The examples are fields of facts, as test cases of a policy write them.
    """
    document = load_policy(listener.settings)
    targets = {target.name: target for target in configured_targets(listener.settings)}
    board = TargetBoard(targets, {})
    async with listener.database() as database:
        store = PolicyStore(database, listener.clock)
        await store.keep(document)
        await store.boards.keep(board.digest, board.facts_for(None))
    records: list[AuditRecord] = []
    now_us = listener.clock.utc_us()
    place = {"organisation": organisation, "workspace": "research", "project": "assistant"}
    for number, example in enumerate(examples):
        at_us = now_us - ago_s * 1_000_000 + number * 1_000
        facts = facts_from_example(place | dict(example), board.facts_for(None))
        hours = at_us // 3_600_000_000
        facts = msgspec.structs.replace(
            facts, hour_utc=hours % 24, weekday=(hours // 24 + 3) % 7, key_id="0" * 12
        )
        decision = decide(document, facts)
        first = targets[decision.candidates[0]] if decision.candidates else None
        decided = AuditRecord(
            stage="intent" if first else "outcome",
            request_id=f"req_{organisation}_{number:06d}",
            organisation=organisation,
            utc_us=at_us,
            workspace=facts.workspace,
            project=facts.project,
            key_id=facts.key_id,
            dialect=facts.dialect,
            model_requested=facts.model_requested,
            target=first.name if first else "",
            provider=first.provider if first else "",
            jurisdiction=first.jurisdiction if first else "",
            decision=decision_digest(decision),
            decision_reason=decision.reason,
            policy_digest=document.digest,
            data_class=facts.data_class,
            findings=facts.findings,
            inspection_complete=facts.inspection_complete,
            candidates=decision.candidates,
            facts=record_facts(facts, board.digest, None),
        )
        records.append(decided)
        if first is None:
            records[-1] = msgspec.structs.replace(decided, status="refused", http_status=403)
            continue
        cost = first.price.input_microusd_per_mtok * facts.input_tokens_estimate // 1_000_000
        records.append(
            msgspec.structs.replace(
                decided,
                stage="outcome",
                status="ok",
                http_status=200,
                utc_us=at_us + 500,
                facts=None,
                candidates=(),
                usage=Usage(input_tokens=facts.input_tokens_estimate, output_tokens=100),
                cost_microusd=cost,
            )
        )
    await listener.record(*records)
    return [each.request_id for each in records if each.stage == "outcome"]


EXAMPLES: tuple[Mapping[str, object], ...] = (
    {"complexity_tier": "cheap", "input_tokens_estimate": 400},
    {"data_class": "S4", "findings": {"PAN": 1}, "input_tokens_estimate": 900},
    {"complexity_tier": "mid", "complexity": 0.5, "input_tokens_estimate": 2_000},
    {
        "data_class": "S2",
        "findings": {"EMAIL": 2},
        "complexity_tier": "mid",
        "complexity": 0.5,
        "input_tokens_estimate": 700,
    },
)
"""Ordinary requests, and some that hold what must stay home."""
