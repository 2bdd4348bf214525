"""`GET /v1/models`: the models that a key may use, in one shape that both vendors' SDKs read."""

from collections.abc import Mapping

import msgspec

from gateway.batches import PageOf
from gateway.dialects.bodies.strict_json import MODEL_LENGTH_MAX
from gateway.errors import ModelUnknown, RequestInvalid
from gateway.money.catalogue import PARAMETERS
from gateway.snapshot import Snapshot
from gateway.types import Principal
from policies.facts import AUTO, ROUTE_PREFIX, TargetFacts


EPOCH = "1970-01-01T00:00:00Z"


def list_models(snapshot: Snapshot, principal: Principal, page: PageOf | None = None) -> bytes:
    """A key's models as JSON: all of them, or a page as in Anthropic's API.

    They are what may be named as a model: `auto`, the routes of the policy in force, and targets.

    Raises:
        RequestInvalid: the page begins or ends at a model that this key does not see.
    """
    entries = _entries(snapshot, principal)
    some, has_more = (entries, False) if page is None else _page(entries, page)
    listing = {
        "object": "list",
        "data": some,
        "has_more": has_more,
        "first_id": some[0]["id"] if some else None,
        "last_id": some[-1]["id"] if some else None,
    }
    return msgspec.json.encode(listing)


def find_model(snapshot: Snapshot, principal: Principal, name: str) -> bytes:
    """One model as JSON.

    Raises:
        ModelUnknown: this key sees no such model.
    """
    for entry in _entries(snapshot, principal):
        if entry["id"] == name:
            return msgspec.json.encode(entry)
    named = f" `{name}`" if len(name) <= MODEL_LENGTH_MAX else ""
    raise ModelUnknown(f"There is no model{named} for this key.", parameter="model")


def _page(entries: list[dict[str, object]], page: PageOf) -> tuple[list[dict[str, object]], bool]:
    """So many after one, or directly before one, and whether there are more in that direction."""
    place, parameter = page.after or page.before, "after_id" if page.after else "before_id"
    ids = [entry["id"] for entry in entries]
    if place and place not in ids:
        raise RequestInvalid("There is no such model for this key.", parameter=parameter)
    if page.before:
        left = entries[: ids.index(place)]
        return left[-page.limit :], len(left) > page.limit
    left = entries[ids.index(place) + 1 :] if place else entries
    return left[: page.limit], len(left) > page.limit


def _entries(snapshot: Snapshot, principal: Principal) -> list[dict[str, object]]:
    board = snapshot.board
    visible = [facts for facts in board.facts_for(principal.models) if facts.permitted_to_key]
    routes = snapshot.policies.governing(principal).document_for(principal).routes
    return [
        _chosen(AUTO, "Chosen by policy"),
        *(_chosen(ROUTE_PREFIX + each, f"Chosen by policy: {each}") for each in routes),
        *(_entry(facts, board.targets[facts.name].parameters) for facts in visible),
    ]


def _chosen(name: str, title: str) -> dict[str, object]:
    """A name under which policy chooses the target."""
    return {
        "id": name,
        "object": "model",
        "type": "model",
        "created": 0,
        "created_at": EPOCH,
        "lifecycle": "active",
        "owned_by": "gatewright",
        "display_name": title,
    }


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
