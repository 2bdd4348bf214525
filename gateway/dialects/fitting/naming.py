"""Ids and names in another dialect's style, derived: the same answer gets the same id."""

import hashlib
import re
from collections.abc import Mapping


_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAME_KEPT = 48
_SAFE = re.compile(r"[^A-Za-z0-9_-]")
_ID_LENGTH_MAX = 64
_MS_PER_S = 1000


def message_id(prefix: str, upstream_id: str, seed: bytes) -> str:
    """`prefix` plus the upstream's id without its own prefix, or a digest of `seed` without one."""
    bare = upstream_id
    for known in ("chatcmpl-", "msg_", "resp_"):
        bare = bare.removeprefix(known)
    bare = _SAFE.sub("", bare)[:_ID_LENGTH_MAX]
    return prefix + (bare or hashlib.sha256(seed).hexdigest()[:24])


def made_at(request_id: str) -> int:
    """Seconds since 1970: the time is in our own request ids, and this layer has no clock."""
    try:
        return int(request_id[4:16], 16) // _MS_PER_S
    except ValueError:
        return 0


def tool_id(message: str, index: int) -> str:
    """An id for a tool call whose upstream gave none; unique within a conversation."""
    digest = hashlib.sha256(f"{message}/{index}".encode()).hexdigest()[:24]
    return f"call_{digest}"


def own_id(given: str, message: str, index: int, told: set[str]) -> str:
    """A call's id, or one of ours if it has none, or that of an earlier call.

    Some servers give every call of an answer the same id: results could not be told apart. `told`
    are the ids of the earlier calls.
    """
    own = tool_id(message, index) if not given or given in told else given
    told.add(own)
    return own


def call_id(given: str) -> str:
    """A call's id as Anthropic takes it; the same id always becomes the same one.

    Some servers count calls ("functions.weather:0"), which Anthropic refuses in a history. Ours has
    a form that inspection knows: a name followed by random letters reads like a token.
    """
    if not _SAFE.search(given):
        return given
    digest = hashlib.sha256(given.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    return f"toolu_{digest}"


def tool_name(name: str) -> str:
    """A tool's name as every vendor accepts it; the same name always becomes the same one."""
    if _TOOL_NAME.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{_SAFE.sub('_', name)[:_NAME_KEPT]}_{digest}"


def renamed_tools(tree: Mapping[str, object]) -> Mapping[str, str]:
    """Names that `tool_name` made of a request's tools → the caller's names."""
    tools = tree.get("tools")
    if not tools or not isinstance(tools, list):
        return _NONE
    names = (_name_of(tool) for tool in tools)
    return {tool_name(name): name for name in names if not _TOOL_NAME.fullmatch(name)}


def _name_of(tool: object) -> str:
    for _ in range(2):
        name = tool.get("name") if isinstance(tool, dict) else None
        if isinstance(name, str):
            return name
        tool = tool.get("function") if isinstance(tool, dict) else None
    return "-"


_NONE: Mapping[str, str] = {}
