"""Everything a policy may look at, gathered before the decision and recorded for replay."""

from collections.abc import Mapping
from typing import Final

import msgspec


# From harmless to most sensitive. "S4" also stands for what was not or could not be inspected.
DATA_CLASSES: Final = ("S0", "S1", "S2", "S3", "S4")
# From the smallest sufficient model to the strongest.
TIERS: Final = ("cheap", "mid", "frontier")

# From the first to be served to the first to be turned away.
SERVICE_TIERS: Final = ("priority", "standard", "batch")

SEALING_DIALECTS: Final = ("anthropic_messages", "openai_responses")
"""In which reasoning is signed or encrypted."""
DIALECTS: Final = (
    "openai_chat",
    *SEALING_DIALECTS,
    "openai_embeddings",
    "openai_completions",
)
BARE_TEXT: Final = "openai_completions"
"""The dialect whose prompts are continued as they are: not every model's upstream does that."""
CONTINUES_TEXT: Final = "completions"
"""The capability of those whose upstream does."""

AUTO: Final = "auto"
ROUTE_PREFIX: Final = "auto:"


ASSURANCES: Final = ("no_retention", "no_training")
"""That nothing is kept after the answer, and that nothing is learnt from."""


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
    """Measured lately and rounded coarsely; 0 when it was not."""
    cache_read_price_microusd_per_mtok: int | None = None
    """Of tokens that its prompt cache knows; None where that is not known."""
    assurances: frozenset[str] = frozenset()
    """What its provider has promised; see `ASSURANCES`."""
    seals: str = ""
    """In which dialect its vendor seals reasoning that it alone can read; empty for none."""
    vectors: str = ""
    """Which model's vectors it makes: others cannot be compared with them. Empty if it answers."""


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
    """Who read the beginning of this conversation lately, where a preference stays warm."""
    warm_tokens: int = 0
    """How many tokens of it."""
    injection: float = 0.0
    """How much the worst result of a tool, or document, reads like orders to a model: 0 to 1."""
    injection_suspected: bool = False
    """Whether that is more than hardly any harmless text has."""
    sealed: str = ""
    """In which dialect the conversation's reasoning is sealed; empty where there is none."""
    longest_tokens_estimate: int = 0
    """Of several texts that are read one by one the longest's; 0 where all of the input is one."""

    @property
    def window_tokens(self) -> int:
        """What a model's window has to hold at once."""
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
