"""`GET /v1/models`: what this key may use. One shape that both vendors' SDKs read."""

from collections.abc import Mapping

import msgspec

from gateway.board import TargetBoard
from gateway.dialects.strict_json import MODEL_LENGTH_MAX
from gateway.errors import ModelUnknown
from gateway.money.catalogue import PARAMETERS
from gateway.types import Principal
from policies.facts import AUTO, TargetFacts


EPOCH = "1970-01-01T00:00:00Z"


def list_models(board: TargetBoard, principal: Principal) -> bytes:
    """The models of a key as JSON."""
    return msgspec.json.encode(_listing(board, principal))


def find_model(board: TargetBoard, principal: Principal, name: str) -> bytes:
    """One model as JSON.

    Raises:
        ModelUnknown: this key sees no such model.
    """
    for entry in _entries(board, principal):
        if entry["id"] == name:
            return msgspec.json.encode(entry)
    named = f" `{name}`" if len(name) <= MODEL_LENGTH_MAX else ""
    raise ModelUnknown(f"There is no model{named} for this key.", parameter="model")


def _listing(board: TargetBoard, principal: Principal) -> dict[str, object]:
    entries = _entries(board, principal)
    return {
        "object": "list",
        "data": entries,
        "has_more": False,
        "first_id": entries[0]["id"],
        "last_id": entries[-1]["id"],
    }


def _entries(board: TargetBoard, principal: Principal) -> list[dict[str, object]]:
    visible = [facts for facts in board.facts_for(principal.models) if facts.permitted_to_key]
    automatic: dict[str, object] = {
        "id": AUTO,
        "object": "model",
        "type": "model",
        "created": 0,
        "created_at": EPOCH,
        "lifecycle": "active",
        "owned_by": "gatewright",
        "display_name": "Chosen by policy",
    }
    return [automatic, *(_entry(facts, board.targets[facts.name].parameters) for facts in visible)]


def _entry(facts: TargetFacts, parameters: Mapping[str, str]) -> dict[str, object]:
    return {
        "id": facts.name,
        "object": "model",
        "type": "model",
        "created": 0,
        "created_at": EPOCH,
        "lifecycle": "active",
        "owned_by": facts.provider,
        "display_name": facts.name,
        "available": facts.available,
        "unavailable_reason": facts.unavailable_reason,
        "jurisdiction": facts.jurisdiction,
        "tier": facts.tier,
        "context_window": facts.context_window_tokens,
        "max_input_tokens": facts.context_window_tokens,
        "max_tokens": facts.output_tokens_max,
        "parameters": {name: parameters.get(name, "unknown") for name in PARAMETERS},
    }
