"""Message ids in another dialect's style, derived and never drawn: the same answer, the same id."""

import hashlib
import re


_SAFE = re.compile(r"[^A-Za-z0-9_-]")
_ID_LENGTH_MAX = 64


def message_id(prefix: str, upstream_id: str, seed: bytes) -> str:
    """`prefix` plus the upstream's id without its own prefix, or a digest of `seed` without one."""
    bare = upstream_id
    for known in ("chatcmpl-", "msg_"):
        bare = bare.removeprefix(known)
    bare = _SAFE.sub("", bare)[:_ID_LENGTH_MAX]
    return prefix + (bare or hashlib.sha256(seed).hexdigest()[:24])


def tool_id(message: str, index: int) -> str:
    """An id for a tool call whose upstream gave none; unique within a conversation."""
    digest = hashlib.sha256(f"{message}/{index}".encode()).hexdigest()[:24]
    return f"call_{digest}"
