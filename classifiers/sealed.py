"""Recognises reasoning sealed by a vendor: a field of an assistant's turn nobody else can read.

Signatures and encrypted reasoning come back with every turn. They are noise to any reader, so there
is nothing in them to find and nothing was left unread. Only what really looks like noise is taken
for sealed: text in any encoding, compressed or not, is still read, or counted as unread.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from math import exp
from typing import Final

import msgspec


_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "thinking": ("signature",),
    "redacted_thinking": ("data",),
    "reasoning": ("encrypted_content",),
    "encrypted_content": ("encrypted_content",),
    "compaction": ("encrypted_content", "signature"),
    "web_search_result": ("encrypted_content",),
    "advisor_redacted_result": ("encrypted_content",),
    "encrypted_code_execution_result": ("encrypted_stdout",),
    "reasoning.text": ("signature",),
    "reasoning.encrypted": ("data",),
}
SIGNED: Final = "thought_signature"
"""Google's seal, in an object without a type beside a call."""
_CALL: Final = "function_call"
SEALING: Final = frozenset({*_FIELDS, _CALL})
"""Types of content parts that may have a sealed field, or a seal inside a field."""
_WRAP: Final = re.compile(r"gw_[a-z_]{1,24}:")
_WRAPPED_FIELDS: Final = 3
_ROLES: Final = frozenset({"", "assistant"})
_LEAST_BYTES: Final = 96
_BYTE_VALUES: Final = 256
_OF_NOISE: Final = 0.8
"""Minimum share of the distinct bytes in noise of this length; texts have at most half of it."""
_SAMPLE_BYTES: Final = 1_024
_FERNET: Final = "gAAAA"
_FERNET_HEAD_BYTES: Final = 9
_FERNET_FRAME_BYTES: Final = 57
_BLOCK_BYTES: Final = 16
"""Fernet's tokens: a version and a time, then an initial vector, complete blocks and a
signature."""
_HEADS: Final = (b"\x1f\x8b", b"x\x01", b"x\x9c", b"x\xda", b"PK", b"\x28\xb5\x2f\xfd", b"BZh")
"""First bytes of gzip, zlib, zip, zstd and bzip2."""


def has_seal(part: dict[object, object]) -> bool:
    """Whether to look for a seal in a content part of those types."""
    arguments = part.get("arguments") if part.get("type") == _CALL else _FERNET
    return isinstance(arguments, str) and _FERNET in arguments


def is_sealed(part: dict[object, object], key: object, value: object, role: str) -> bool:
    """Whether a value of a content part is a vendor's seal and nothing else."""
    kind = part.get("type")
    fields = _FIELDS.get(kind, ()) if isinstance(kind, str) else (SIGNED,)
    if key not in fields or role not in _ROLES:
        return False
    return isinstance(value, str) and is_noise(value)


def is_noise(text: str) -> bool:
    """Whether a text is what a vendor seals and nothing else."""
    return _is_noise(text) or _is_token(text)


def wrapped(part: dict[object, object], key: object, value: object, role: str) -> object:
    """The parts in the gateway's wrap around a seal; if there is no wrap, the value itself.

    Clients of another dialect carry it in the field that their own vendor seals. Its content is
    read like any part: the thought as text, its signature as a seal. Arguments of a call that are
    seals by themselves are removed.
    """
    kind = part.get("type")
    if not isinstance(kind, str) or not isinstance(value, str):
        return value
    if kind == _CALL and key == "arguments" and role in _ROLES:
        return _unsealed_arguments(value)
    if key not in _FIELDS.get(kind, ()):
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


def _unsealed_arguments(arguments: str) -> str:
    """Arguments of a call without those that the vendor has sealed: messages between its agents."""
    try:
        given = msgspec.json.decode(arguments)
    except (msgspec.MsgspecError, RecursionError):
        return arguments
    for value in given.values() if isinstance(given, dict) else ():
        if isinstance(value, str) and _is_token(value):
            # Out of the text: what it says twice under one name is all read.
            arguments = arguments.replace(value, "")
    return arguments


def _is_token(text: str) -> bool:
    """Whether a text is a Fernet token and nothing else; unlike noise, even if it is short."""
    if not text.startswith(_FERNET):
        return False
    try:
        data = base64.b64decode(text, b"-_", validate=True)
    except (binascii.Error, ValueError):
        return False
    blocks, rest = divmod(len(data) - _FERNET_FRAME_BYTES, _BLOCK_BYTES)
    return blocks > 0 and rest == 0 and _is_random(data[_FERNET_HEAD_BYTES:])


def _is_noise(text: str) -> bool:
    plain = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        data = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    return len(data) >= _LEAST_BYTES and not data.startswith(_HEADS) and _is_random(data)


def _is_random(data: bytes) -> bool:
    # Everywhere: a sealed beginning does not vouch for the rest.
    return all(
        _has_all_bytes(data[max(0, min(at, len(data) - _SAMPLE_BYTES)) :][:_SAMPLE_BYTES])
        for at in range(0, len(data), _SAMPLE_BYTES)
    )


def _has_all_bytes(sample: bytes) -> bool:
    expected = _BYTE_VALUES * (1 - exp(-len(sample) / _BYTE_VALUES))
    return len(set(sample)) >= _OF_NOISE * expected
