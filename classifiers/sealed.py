"""Reasoning that a vendor has sealed: a field of an assistant's turn that nobody else can read.

Signatures and encrypted reasoning come back with every turn. They are noise to any reader, so there
is nothing in them to find and nothing that was left unread. Only what really looks like noise is
taken for sealed: text in any encoding, compressed or not, is read or counted as unread as ever.
"""

import base64
import binascii
import re
from math import exp
from typing import Final

import msgspec


_FIELDS: Final = {
    "thinking": "signature",
    "redacted_thinking": "data",
    "reasoning": "encrypted_content",
}
SEALING: Final = frozenset(_FIELDS)
"""Types of content parts that have a sealed field."""
_WRAP: Final = re.compile(r"gw_[a-z_]{1,24}:")
_WRAPPED_FIELDS: Final = 3
_ROLES: Final = frozenset({"", "assistant"})
_LEAST_BYTES: Final = 96
_BYTE_VALUES: Final = 256
_OF_NOISE: Final = 0.8
"""Of the different bytes that noise of this length has; texts have half of that at most."""
_SAMPLE_BYTES: Final = 1_024
_HEADS: Final = (b"\x1f\x8b", b"x\x01", b"x\x9c", b"x\xda", b"PK", b"\x28\xb5\x2f\xfd", b"BZh")
"""How gzip, zlib, zip, zstd and bzip2 begin."""


def is_sealed(part: dict[object, object], key: object, value: object, role: str) -> bool:
    """Whether a value of a content part is a vendor's seal and nothing else."""
    kind = part.get("type")
    if not isinstance(kind, str) or _FIELDS.get(kind) != key or role not in _ROLES:
        return False
    return isinstance(value, str) and _is_noise(value)


def wrapped(part: dict[object, object], key: object, value: object) -> object:
    """The parts in a wrap that the gateway made around a seal; the value itself where it is none.

    Clients of another dialect carry it in the field that their own vendor seals. What is in it is
    read like any part: the thought as text, its signature as a seal.
    """
    kind = part.get("type")
    if not isinstance(kind, str) or _FIELDS.get(kind) != key or not isinstance(value, str):
        return value
    mark = _WRAP.match(value)
    if mark is None:
        return value
    try:
        inside = msgspec.json.decode(base64.b64decode(value[mark.end() :], b"-_", validate=True))
    except (binascii.Error, msgspec.MsgspecError, ValueError, RecursionError):
        return value
    if isinstance(inside, list) and len(inside) == _WRAPPED_FIELDS:
        thought, signature, redacted = inside
        return [
            {"type": "thinking", "thinking": thought, "signature": signature},
            {"type": "redacted_thinking", "data": redacted},
        ]
    return inside if isinstance(inside, dict) else value


def _is_noise(text: str) -> bool:
    plain = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        data = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    if len(data) < _LEAST_BYTES or data.startswith(_HEADS):
        return False
    # Everywhere: a sealed beginning does not vouch for the rest.
    return all(
        _has_all_bytes(data[max(0, min(at, len(data) - _SAMPLE_BYTES)) :][:_SAMPLE_BYTES])
        for at in range(0, len(data), _SAMPLE_BYTES)
    )


def _has_all_bytes(sample: bytes) -> bool:
    expected = _BYTE_VALUES * (1 - exp(-len(sample) / _BYTE_VALUES))
    return len(set(sample)) >= _OF_NOISE * expected
