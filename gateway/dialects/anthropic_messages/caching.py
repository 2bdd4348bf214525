"""Prompt caching for callers who did not ask for it: one breakpoint, at the end of the request.

The vendor moves it to the last block that can be cached, so nothing of the prefix changes from turn
to turn, and what one turn wrote the next one reads. It is set on the copy that is sent: another
target never sees it. Callers who set markers of their own know better.
"""

from gateway.types import ChatRequest, Target


MARKER = b'{"type":"ephemeral"}'
FIELD = "cache_control"

BYTES_MIN = 8 * 1024
"""Shorter prompts are below what the vendor caches at all (1,024 tokens and more)."""

TURNS_MIN = 3
"""A first question may never be continued, and writing costs a quarter more than reading plain."""


def is_worth_caching(request: ChatRequest, target: Target) -> bool:
    """Whether a later turn will probably read what this one writes."""
    if "prompt_cache" not in target.capabilities or len(request.raw) < BYTES_MIN:
        return False
    if b'"cache_control"' in request.raw or b'"prompt_cache_breakpoint"' in request.raw:
        return False
    turns = request.tree.get("messages") or request.tree.get("input")
    return isinstance(turns, list) and len(turns) >= TURNS_MIN
