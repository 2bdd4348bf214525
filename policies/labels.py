"""Labels of keys: what a valid label is, and the label that approves a rule. Pure."""

import re
from typing import Final


APPROVED_PREFIX: Final = "approved:"
LABEL_CHARS_MAX: Final = 100


def is_label(text: str) -> bool:
    """Whether a key can carry it: one word, because forms separate labels by spaces."""
    is_word = text.isprintable() and not re.search(r"[\s,]", text)
    return is_word and 0 < len(text) <= LABEL_CHARS_MAX


def approval_of(rule: str) -> str:
    """The label that a key needs to pass a rule with `require_approval`."""
    return f"{APPROVED_PREFIX}{rule}"
