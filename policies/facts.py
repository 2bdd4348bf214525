"""Everything a policy may look at, gathered before the decision and recorded for replay."""

from collections.abc import Mapping
from typing import Final

import msgspec


# From harmless to most sensitive. "S4" also stands for what was not or could not be inspected.
DATA_CLASSES: Final = ("S0", "S1", "S2", "S3", "S4")
# From the smallest sufficient model to the strongest.
TIERS: Final = ("cheap", "mid", "frontier")

# From the one served first to the one turned away first.
SERVICE_TIERS: Final = ("priority", "standard", "batch")

SEALING_DIALECTS: Final = ("anthropic_messages", "openai_responses")
"""Dialects in which reasoning is signed or encrypted."""
DIALECTS: Final = (
    "openai_chat",
    *SEALING_DIALECTS,
    "openai_embeddings",
    "openai_completions",
)
BARE_TEXT: Final = "openai_completions"
"""The dialect whose prompts are continued as they are: not every upstream does that."""
CONTINUES_TEXT: Final = "completions"
"""The capability of models whose upstream does."""

AUTO: Final = "auto"
ROUTE_PREFIX: Final = "auto:"


ASSURANCES: Final = ("no_retention", "no_training")
"""Nothing is kept after the answer, and nothing is used for training."""


class TargetFacts(msgspec.Struct, frozen=True):
    """One target as the catalogue and the key's scope show it; names are unique in `Facts`."""

    name: str
    provider: str
    jurisdiction: str
    in_house: bool
    tier: str
    input_price_microusd_per_mtok: int
    output_price_microusd_per_mtok: int
    context_window_tokens: int
    output_tokens_max: int
    capabilities: frozenset[str]
    available: bool
    unavailable_reason: str
    permitted_to_key: bool
    first_token_ms: int = 0
    """Recently measured and coarsely rounded; 0 if it was not measured."""
    cache_read_price_microusd_per_mtok: int | None = None
    """The price of tokens that its prompt cache knows; None if that price is not known."""
    assurances: frozenset[str] = frozenset()
    """What its provider has promised; see `ASSURANCES`."""
    seals: str = ""
    """The dialect in which its vendor seals reasoning that only it can read; empty for none."""
    vectors: str = ""
    """The model whose vectors it makes; no others compare with them. Empty if it answers."""


class Facts(msgspec.Struct, frozen=True):
    """One request as policy sees it: metadata and measurements, never message content."""

    organisation: str
    workspace: str
    project: str
    key_id: str
    labels: tuple[str, ...]
    dialect: str
    model_requested: str
    stream: bool
    has_tools: bool
    has_images: bool
    has_documents: bool
    input_tokens_estimate: int
    max_output_tokens: int | None
    data_class: str
    inspection_complete: bool
    findings: Mapping[str, int]
    complexity: float
    complexity_tier: str
    budget_left_microusd: int | None
    hour_utc: int
    weekday: int
    targets: tuple[TargetFacts, ...]
    service_tier: str = "standard"
    headers: Mapping[str, str] = {}
    """Request headers that the settings let policies see, by name with `_` for `-`."""
    warm_target: str = ""
    """The target that recently read this conversation's beginning, if a preference stays warm."""
    warm_tokens: int = 0
    """The number of tokens of that beginning."""
    injection: float = 0.0
    """How much the worst tool result or document reads like orders to a model: 0 to 1."""
    injection_suspected: bool = False
    """Whether that score is higher than that of nearly every harmless text."""
    sealed: str = ""
    """The dialect in which the conversation's reasoning is sealed; empty if there is none."""
    longest_tokens_estimate: int = 0
    """The longest one's, of several texts read one by one; 0 if the input is a single text."""

    @property
    def window_tokens(self) -> int:
        """Tokens that a model's context window has to hold at once."""
        return self.longest_tokens_estimate or self.input_tokens_estimate


def data_class_rank(facts: Facts) -> int:
    """Place of the request's data class; incomplete inspection counts as the most sensitive."""
    if not facts.inspection_complete:
        return _MOST_SENSITIVE
    return _DATA_CLASS_RANKS.get(facts.data_class, _MOST_SENSITIVE)


def tier_rank(tier: str) -> int:
    """Place of a tier on the ladder; an unknown tier counts as the strongest."""
    return _TIER_RANKS.get(tier, _STRONGEST)


_MOST_SENSITIVE, _STRONGEST = len(DATA_CLASSES) - 1, len(TIERS) - 1
_DATA_CLASS_RANKS: Final = {name: rank for rank, name in enumerate(DATA_CLASSES)}
_TIER_RANKS: Final = {name: rank for rank, name in enumerate(TIERS)}
