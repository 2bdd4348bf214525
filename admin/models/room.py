"""Adds up an engine's memory: weights, the pool of keys and values, and who fits into it. Pure.

It is the arithmetic that the engine logs at its start, repeated with the figures it reports.
"""

from msgspec import Struct

from gateway.oversight.workers import EngineMemory


class Room(Struct, frozen=True):
    """An engine's memory as a sum, in bytes; of several devices, on each."""

    weight_bytes: int
    kv_bytes: int
    kv_tokens: int
    kv_token_bytes: int
    longest_context_tokens: int
    full_sessions: int
    """So many sequences of the longest length fit at once."""
    planned_bytes: int


def room_of(memory: EngineMemory) -> Room | None:
    """The sum; None where a part of it is not told."""
    parts = (memory.weight_bytes, memory.kv_bytes, memory.kv_tokens, memory.kv_token_bytes)
    longest = memory.longest_context_tokens
    if None in parts or not longest:
        return None
    weight_bytes, kv_bytes, kv_tokens, kv_token_bytes = (part or 0 for part in parts)
    return Room(
        weight_bytes=weight_bytes,
        kv_bytes=kv_bytes,
        kv_tokens=kv_tokens,
        kv_token_bytes=kv_token_bytes,
        longest_context_tokens=longest,
        full_sessions=kv_tokens // longest,
        planned_bytes=weight_bytes + kv_bytes,
    )
