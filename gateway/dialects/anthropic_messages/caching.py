"""Prompt caching for callers who did not ask for it: one breakpoint at the end of the request.

The vendor moves the breakpoint to the last block that can be cached, so the prefix stays the same
from turn to turn, and each turn reads what the previous one wrote. The breakpoint is set on the
copy that is sent, so other targets never see it. Requests that have markers of their own are left
alone.
"""

from gateway.types import ChatRequest, Target


MARKER = b'{"type":"ephemeral"}'
FIELD = "cache_control"

BYTES_MIN = 8 * 1024
"""Shorter prompts are below the vendor's minimum for caching (1,024 tokens and more)."""

TURNS_MIN = 3
"""A first question may never be continued, and writing costs a quarter more than plain reading."""


def is_worth_caching(request: ChatRequest, target: Target) -> bool:
    """Whether a later turn will probably read what this one writes."""
    if "prompt_cache" not in target.capabilities or len(request.raw) < BYTES_MIN:
        return False
    if b'"cache_control"' in request.raw or b'"prompt_cache_breakpoint"' in request.raw:
        return False
    turns = request.tree.get("messages") or request.tree.get("input")
    return isinstance(turns, list) and len(turns) >= TURNS_MIN
