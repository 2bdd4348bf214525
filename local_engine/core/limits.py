"""The scheduler's limits, and the errors it raises when there is no room."""

from dataclasses import dataclass


class QueueFull(RuntimeError):
    """The waiting queue is full; the caller should come back in a moment."""

    def __init__(self, num_waiting: int) -> None:
        super().__init__(f"{num_waiting} sequences are waiting already")


class NeverFits(ValueError):
    """The pool, or the tenant's share of it, can never hold this sequence."""

    def __init__(self, num_blocks: int, num_available: int) -> None:
        super().__init__(
            f"the request needs {num_blocks} KV blocks, {num_available} can be available to it"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a scheduler may hand out; the defaults suit a small model on a CPU."""

    num_blocks: int
    block_size: int = 16
    max_running: int = 64
    max_waiting: int = 256
    token_budget: int = 512
    prefill_chunk: int = 128
    """Prompt tokens per step while others decode: bounds the longest gap between their tokens."""
    is_paced: bool = False
    """Whether that bound, and the budget without decoders, follow from measured step times."""
    long_prompt: int = 512
    max_long_prefills: int = 2
    watermark: float = 0.01
    tenant_share: float = 1.0
    """The part of all blocks that one tenant may hold."""
    ageing_steps: int = 256
    """A waiting sequence is treated as one tier better after so many steps."""
    max_preemptions: int = 3
    """How often a sequence makes room for a better tier; after that only for lack of blocks."""
    num_host_blocks: int = 0
    is_caching: bool = True
