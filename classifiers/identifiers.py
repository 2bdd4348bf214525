"""Recognises random names that vendors and gateways give to calls and items; they are no secrets.

Every turn of a conversation with tools repeats them. They look like tokens with a prefix, so they
are recognised by their field and their form; anything else in such a field is read as usual.
"""

import binascii
import re
import zlib
from base64 import b64decode
from typing import Final

from classifiers.pii.numerals import validators


FIELDS: Final = frozenset(
    {
        *("id", "call_id", "tool_call_id", "tool_use_id", "previous_response_id"),
        *("conversation", "prompt_cache_key"),
    }
)

_NAME: Final = re.compile(
    r"(?:toolu|srvtoolu|mcptoolu|call|chatcmpl-tool|fc|fco|ctc|ctco|rs|msg|resp|conv|item|ws|fs|ci|mcp|mcpr|ses)"
    r"[_-](?=[0-9_-]*[A-Za-z])(?P<random>[A-Za-z0-9]{1,64})(?:_[0-9]{1,4})?"
)
_LONG_NUMBER: Final = re.compile(r"[0-9]{11}")
_HEX: Final = re.compile(r"[a-z-]+[_-][0-9a-f]{16,64}(?:_[0-9]{1,4})?")
"""In these a long run of digits is chance, and not a number that belongs to somebody."""
_NUMBER: Final = re.compile(r"[A-Za-z]{0,3}([0-9]{12,19})[A-Za-z]{0,3}")
"""Chance makes no name that consists of digits with a letter beside them."""
_KEY: Final = re.compile(r"A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}|AIza[A-Za-z0-9]{35}")
"""Keys whose letters could also be a name's."""
_WITH_LETTERS: Final = (validators.iban, validators.pan, validators.gstin)
"""Checks for identifiers of letters and digits; random letters hardly ever pass them."""
_CODED_LEAST: Final = 12
_UUID: Final = re.compile(
    r"(?:[a-z]{1,8}[_-])?[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
)
"""As agents make them for their items and sessions (RFC 9562)."""
_HALVES: Final = ((0, 18), (19, 36))
"""The groups of a UUID that can be a card. Its last group alone could be an Aadhaar, and is one by
chance in one random UUID of 3,500: too many to keep every agent's conversation with one at home."""
_AT_AN_END: Final = re.compile(r"[_-]([0-9]{13,19})[a-f]|[a-f]([0-9]{13,19})(?:$|_)")
_SAYS_LEAST: Final = 11
"""So many digits hardly ever occur by chance in what random letters decode to from base64."""
_UNPACKED_BYTES_MAX: Final = 256
_COMPRESSED: Final = (b"\x1f\x8b", b"x\x01", b"x\x9c", b"x\xda")


def is_name(value: object) -> bool:
    """Whether one of the fields holds such a name and nothing else."""
    if not isinstance(value, str):
        return False
    if _UUID.fullmatch(value) is not None:
        return not _has_card(value)
    name = _NAME.fullmatch(value)
    if name is None or _hides(name["random"]):
        return False
    if _LONG_NUMBER.search(value) is None:
        return True
    return _HEX.fullmatch(value) is not None and not any(
        validators.card(run[1] or run[2]) for run in _AT_AN_END.finditer(value)
    )


def _has_card(uuid: str) -> bool:
    """Whether the groups at one end of a UUID are a card number."""
    return any(validators.card(uuid[-36:][start:end].replace("-", "")) for start, end in _HALVES)


def _hides(random: str) -> bool:
    """Whether the random part is an identifier, a key or a text in base64.

    A number may have up to three letters on either side.
    """
    if any(proves(random) for proves in _WITH_LETTERS):
        return True
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
    if data.isascii() and data.decode().isprintable():
        return True
    # Lines, tabs and letters of other scripts are no printable ASCII; the digits beside them are.
    text = _unpacked(data).decode("utf-8", "replace")
    return sum(map(str.isdigit, text)) >= _SAYS_LEAST


def _unpacked(data: bytes) -> bytes:
    if not data.startswith(_COMPRESSED):
        return data
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(data, _UNPACKED_BYTES_MAX)
    except zlib.error:
        return data
