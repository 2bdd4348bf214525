"""Names that vendors and gateways give to calls and items: random, and no secret of anybody's.

Every turn of a conversation with tools repeats them. They look like tokens with a prefix, so they
are known by the field they stand in and by their form; anything else there is read.
"""

import binascii
import re
from base64 import b64decode
from typing import Final

from classifiers.pii import validators


FIELDS: Final = frozenset(
    {"id", "call_id", "tool_call_id", "tool_use_id", "previous_response_id", "prompt_cache_key"}
)

_NAME: Final = re.compile(
    r"(?:toolu|srvtoolu|mcptoolu|call|chatcmpl-tool|fc|fco|ctc|ctco|rs|msg|resp|item|ws|fs|ci|mcp|mcpr|ses)"
    r"[_-](?=[0-9_-]*[A-Za-z])(?P<random>[A-Za-z0-9]{1,64})(?:_[0-9]{1,4})?"
)
_LONG_NUMBER: Final = re.compile(r"[0-9]{11}")
_HEX: Final = re.compile(r"[a-z-]+[_-][0-9a-f]{16,64}(?:_[0-9]{1,4})?")
"""In these a long run of digits is chance, and no number that somebody has."""
_NUMBER: Final = re.compile(r"[A-Za-z]{0,3}([0-9]{12,19})[A-Za-z]{0,3}")
"""Chance makes no name of digits alone with a letter beside them."""
_KEY: Final = re.compile(r"A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}|AIza[A-Za-z0-9]{35}")
"""Keys whose letters a name may have, too."""
_CODED_LEAST: Final = 12
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
    name = _NAME.fullmatch(value)
    if name is None or _hides(name["random"]):
        return False
    return _LONG_NUMBER.search(value) is None or _HEX.fullmatch(value) is not None


def _hides(random: str) -> bool:
    """Whether the random part is a number or a key with a letter beside it, or a text in base64."""
    number = _NUMBER.fullmatch(random)
    if number is not None and (validators.card(number[1]) or validators.aadhaar(number[1])):
        return True
    if len(random) < _CODED_LEAST:
        return False
    if _KEY.fullmatch(random) is not None:
        return True
    try:
        data = b64decode(random + "=" * (-len(random) % 4), validate=True)
    except binascii.Error:
        return False
    return data.isascii() and data.decode().isprintable()
