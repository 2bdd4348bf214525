"""The facts that policy looked at, as a record keeps them, so that a decision can be recomputed.

`recording.recall` reads a decision back from them.
"""

from collections.abc import Mapping

from msgspec import Struct


class RecordedFacts(Struct, frozen=True, omit_defaults=True):
    """What policy looked at, as far as the other fields of a record do not say it."""

    board: str
    """Digest of the targets as policy knew them; the database keeps each board once."""
    input_tokens_estimate: int
    complexity: float
    complexity_tier: str
    max_output_tokens: int | None = None
    budget_left_microusd: int | None = None
    labels: tuple[str, ...] = ()
    models: tuple[str, ...] | None = None
    """The key's scope; None for every target."""
    stream: bool = False
    has_tools: bool = False
    has_images: bool = False
    has_documents: bool = False
    service_tier: str = "standard"
    headers: Mapping[str, str] = {}
    warm_target: str = ""
    warm_tokens: int = 0
    decided_us: int = 0
    """When the decision was made, where the record's own time is another."""
    injection: float = 0.0
    injection_suspected: bool = False
    sealed: str = ""
    longest_tokens_estimate: int = 0
