"""Bounds on what a policy document may contain, so that a hostile one is refused quickly."""

from typing import Final


DOCUMENT_LENGTH_MAX: Final = 512 * 1024
KEY_PARTS_MAX: Final = 16
RULES_MAX: Final = 1_000
TESTS_MAX: Final = 1_000
LIST_LENGTH_MAX: Final = 256
NAME_LENGTH_MAX: Final = 100
TEXT_LENGTH_MAX: Final = 2_000
COUNT_MAX: Final = 10**12

NESTING_MAX: Final = 32
WEIGHT_MAX: Final = 1_000_000
HEDGE_MS_MAX: Final = 600_000
CACHE_S_MAX: Final = 7 * 24 * 3600
EXPRESSION_LENGTH_MAX: Final = 4_000
EXPRESSION_DEPTH_MAX: Final = 32
# A step is one comparison, call or connective; a pattern counts PATTERN_COST of them.
CONDITIONS_COST_MAX: Final = 10_000
PATTERN_COST: Final = 20
NUMBER_LENGTH_MAX: Final = 32
PATTERN_MEMORY_MAX_BYTES: Final = 1 << 20
# Results for short texts are remembered: workspaces and models come again and again.
REMEMBERED_LENGTH_MAX: Final = 128
REMEMBERED_TEXTS_MAX: Final = 1_024
REMEMBERED_MASKS_MAX: Final = 1_024
"""Sets of matching rules that are remembered, by the facts with few values."""

# A document with ten thousand mistakes is reported with the first of them.
PROBLEMS_MAX: Final = 200
