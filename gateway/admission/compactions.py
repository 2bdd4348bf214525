"""Compactions: whether a vendor may summarise a conversation first, which costs extra. Pure."""

from collections.abc import Mapping
from typing import Final

from gateway.admission.hosted_tools import may_run_tools_there
from gateway.types import ChatRequest


_KIND: Final = "compact_"
"""Anthropic's edits of that name, whatever their version."""
TRIGGER_TOKENS: Final = 150_000
"""From so much input on, where a request says nothing else."""


def compactions_at_most(request: ChatRequest) -> int:
    """How many are reserved for: one where the input may be long enough, or grow so by tools.

    Where tools run there may be more of them; what a vendor says of those is booked.
    """
    managed = request.tree.get("context_management")
    if not isinstance(managed, dict):
        return 0
    edits = managed.get("edits")
    asked = [each for each in (edits if isinstance(edits, list) else ()) if _is_one(each)]
    if not asked:
        return 0
    reach = max(request.input_tokens_most, request.input_tokens_estimate)
    is_reached = reach >= min(map(_trigger_tokens, asked))
    return int(is_reached or may_run_tools_there(request))


def _is_one(edit: object) -> bool:
    return isinstance(edit, dict) and str(edit.get("type")).startswith(_KIND)


def _trigger_tokens(edit: Mapping[str, object]) -> int:
    trigger = edit.get("trigger")
    said = trigger.get("value") if isinstance(trigger, dict) else None
    return said if isinstance(said, int) else TRIGGER_TOKENS
