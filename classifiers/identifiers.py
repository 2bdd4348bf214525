"""Names that vendors and gateways give to calls and items: random, and no secret of anybody's.

Every turn of a conversation with tools repeats them. They look like tokens with a prefix, so they
are known by the field they stand in and by their form; anything else there is read.
"""

import re
from typing import Final


FIELDS: Final = frozenset(
    {"id", "call_id", "tool_call_id", "tool_use_id", "previous_response_id", "prompt_cache_key"}
)

_NAME: Final = re.compile(
    r"(?:toolu|srvtoolu|mcptoolu|call|chatcmpl-tool|fc|fco|ctc|ctco|rs|msg|resp|item|ws|fs|ci|mcp|mcpr|ses)"
    r"[_-](?=[0-9_-]*[A-Za-z])[A-Za-z0-9]{1,64}(?:_[0-9]{1,4})?"
)
_LONG_NUMBER: Final = re.compile(r"[0-9]{11}")
_HEX: Final = re.compile(r"[a-z-]+[_-][0-9a-f]{16,64}(?:_[0-9]{1,4})?")
"""In these a long run of digits is chance, and no number that somebody has."""
_UUID: Final = re.compile(
    r"(?:[a-z]{1,8}[_-])?[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
)
"""As agents make them for their items and sessions (RFC 9562)."""


def is_name(value: object) -> bool:
    """Whether one of the fields holds such a name and nothing else."""
    if not isinstance(value, str):
        return False
    if _UUID.fullmatch(value) is not None:
        return True
    if _NAME.fullmatch(value) is None:
        return False
    return _LONG_NUMBER.search(value) is None or _HEX.fullmatch(value) is not None
