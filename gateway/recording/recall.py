"""Converts facts to records and back, for replays and explanations.

A record says who asked, what was asked and what was found; `RecordedFacts` adds the rest of what
policy looked at. The targets are the same for many requests, so a record names their board by its
digest.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from gateway.clock import HOUR_US
from gateway.recorded_facts import RecordedFacts
from gateway.routing.board import comparable
from gateway.routing.planning import HOURS_PER_DAY, weekday_of
from gateway.types import PURPOSES, AuditRecord, Purpose, purpose_of
from policies.facts import Facts, TargetFacts


Board = tuple[TargetFacts, ...]
_FIELDS: Final = RecordedFacts.__struct_fields__
_MODELS, _TIME = _FIELDS.index("models"), _FIELDS.index("decided_us")
_TO_MODELS: Final = attrgetter(*_FIELDS[1:_MODELS])
_TO_TIME: Final = attrgetter(*_FIELDS[_MODELS + 1 : _TIME])
_REST: Final = attrgetter(*_FIELDS[_TIME + 1 :])
"""Fields with the same name in facts and in a record, around those that only the record has."""


def record_facts(
    facts: Facts, board: str, models: frozenset[str] | None, decided_us: int = 0
) -> RecordedFacts:
    """The facts that the other fields of a record do not contain.

    `decided_us` is given only if it differs from the record's own time.
    """
    named = None if models is None else tuple(sorted(models))
    # In the order of its fields, since a name for each of them takes three times as long.
    fields = (board, *_TO_MODELS(facts), named, *_TO_TIME(facts), decided_us, *_REST(facts))
    return RecordedFacts(*fields)


def hour_of(utc_us: int) -> int:
    """The hour of the day."""
    return utc_us // HOUR_US % HOURS_PER_DAY


class Recaller:
    """Restores facts; boards are looked up once and shared, as they were when deciding."""

    def __init__(self, board_of: Callable[[str], Board | None]) -> None:
        self._board_of = board_of
        self._boards: dict[tuple[str, tuple[str, ...] | None, Purpose, str], Board | None] = {}

    def facts(self, record: AuditRecord) -> Facts | None:
        """What policy looked at; None if the record holds too little or its board is unknown."""
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
