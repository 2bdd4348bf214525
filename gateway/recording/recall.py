"""Facts into records, and records back into facts: what a replay and an explanation need.

A record says who, what was asked and what was found; `RecordedFacts` adds the rest of what policy
looked at. The targets are the same for many requests: a record names their board by its digest.
"""

from collections.abc import Callable

from msgspec.structs import replace

from gateway.clock import HOUR_US
from gateway.recorded_facts import RecordedFacts
from gateway.routing.board import comparable
from gateway.routing.planning import HOURS_PER_DAY, weekday_of
from gateway.types import PURPOSES, AuditRecord, Purpose, purpose_of
from policies.facts import Facts, TargetFacts


Board = tuple[TargetFacts, ...]


def record_facts(
    facts: Facts, board: str, models: frozenset[str] | None, decided_us: int = 0
) -> RecordedFacts:
    """What the other fields of a record do not say.

    `decided_us` only where the record's own time is another.
    """
    return RecordedFacts(
        board=board,
        input_tokens_estimate=facts.input_tokens_estimate,
        complexity=facts.complexity,
        complexity_tier=facts.complexity_tier,
        max_output_tokens=facts.max_output_tokens,
        budget_left_microusd=facts.budget_left_microusd,
        labels=facts.labels,
        models=None if models is None else tuple(sorted(models)),
        stream=facts.stream,
        has_tools=facts.has_tools,
        has_images=facts.has_images,
        has_documents=facts.has_documents,
        service_tier=facts.service_tier,
        headers=facts.headers,
        warm_target=facts.warm_target,
        warm_tokens=facts.warm_tokens,
        decided_us=decided_us,
        injection=facts.injection,
        injection_suspected=facts.injection_suspected,
        sealed=facts.sealed,
        longest_tokens_estimate=facts.longest_tokens_estimate,
    )


def hour_of(utc_us: int) -> int:
    """The hour of the day."""
    return utc_us // HOUR_US % HOURS_PER_DAY


class Recaller:
    """Gives facts back; boards are looked up once and shared, as they were when deciding."""

    def __init__(self, board_of: Callable[[str], Board | None]) -> None:
        self._board_of = board_of
        self._boards: dict[tuple[str, tuple[str, ...] | None, Purpose, str], Board | None] = {}

    def facts(self, record: AuditRecord) -> Facts | None:
        """What policy looked at; None when the record holds too little or its board is unknown."""
        kept = record.facts
        if kept is None:
            return None
        purpose = PURPOSES.get(record.dialect, "answer")
        named = record.model_requested if purpose == "embedding" else ""
        targets = self._targets(kept.board, kept.models, purpose, named)
        if targets is None:
            return None
        hours = (kept.decided_us or record.utc_us) // HOUR_US
        return Facts(
            organisation=record.organisation,
            workspace=record.workspace,
            project=record.project,
            key_id=record.key_id,
            labels=kept.labels,
            dialect=record.dialect,
            model_requested=record.model_requested,
            stream=kept.stream,
            has_tools=kept.has_tools,
            has_images=kept.has_images,
            has_documents=kept.has_documents,
            input_tokens_estimate=kept.input_tokens_estimate,
            max_output_tokens=kept.max_output_tokens,
            data_class=record.data_class,
            inspection_complete=record.inspection_complete,
            findings=record.findings,
            complexity=kept.complexity,
            complexity_tier=kept.complexity_tier,
            budget_left_microusd=kept.budget_left_microusd,
            hour_utc=hours % HOURS_PER_DAY,
            weekday=weekday_of(hours),
            targets=targets,
            service_tier=kept.service_tier,
            headers=kept.headers,
            warm_target=kept.warm_target,
            warm_tokens=kept.warm_tokens,
            injection=kept.injection,
            injection_suspected=kept.injection_suspected,
            sealed=kept.sealed,
            longest_tokens_estimate=kept.longest_tokens_estimate,
        )

    def _targets(
        self, digest: str, models: tuple[str, ...] | None, purpose: Purpose, named: str
    ) -> Board | None:
        key = (digest, models, purpose, named)
        if key not in self._boards:
            board = self._board_of(digest)
            if board is not None:
                board = tuple(
                    target for target in board if purpose_of(target.capabilities) == purpose
                )
            if board is not None and models is not None:
                board = tuple(
                    replace(target, permitted_to_key=target.name in models) for target in board
                )
            self._boards[key] = board if board is None else comparable(board, named)
        return self._boards[key]
