"""Estimates the tokens of a request in any dialect: its texts, tools and attachments."""

from collections.abc import Iterator, Mapping

import msgspec

from gateway.estimate import (
    DOCUMENT_TOKENS,
    IMAGE_TOKENS,
    TOOLS_TOKENS,
    TURN_TOKENS,
    estimate_text_tokens,
)


_COUNTED = ("system", "instructions", "messages", "input", "tools")
_ATTACHED = {
    "image": IMAGE_TOKENS,
    "image_url": IMAGE_TOKENS,
    "input_image": IMAGE_TOKENS,
    "document": DOCUMENT_TOKENS,
    "file": DOCUMENT_TOKENS,
    "input_file": DOCUMENT_TOKENS,
}
_UNSEEN = frozenset(
    {"cache_control", "signature", "id", "tool_use_id", "tool_call_id", "call_id", "type", "role"}
)
_AS_JSON = frozenset({"input_schema", "parameters", "input"})


def count_input_tokens(tree: Mapping[str, object], vendor: str) -> int:
    """Estimated tokens of a request's instructions, turns and tools for a vendor's models."""
    texts: list[str] = []
    tokens = TOOLS_TOKENS.get(vendor, 0) if tree.get("tools") else 0
    if tree.get("input") and isinstance(tree["input"], str):
        # A response's question as a bare text is one turn of the user's.
        tokens += TURN_TOKENS
    for name in _COUNTED:
        for kind in _pieces(tree.get(name), texts):
            tokens += TURN_TOKENS + _ATTACHED.get(kind, 0)
    return tokens + estimate_text_tokens("\n".join(texts).encode(), vendor)


def _pieces(node: object, texts: list[str]) -> Iterator[str]:
    """Append every text below; yield the kind of each object that is a turn, block or tool."""
    if isinstance(node, str):
        texts.append(node)
    elif isinstance(node, list):
        for each in node:
            yield from _pieces(each, texts)
    elif isinstance(node, dict):
        kind = node.get("type")
        yield kind if isinstance(kind, str) else ""
        if kind in _ATTACHED:
            return
        for key, value in node.items():
            if key in _AS_JSON:
                texts.append(msgspec.json.encode(value).decode())
            elif key not in _UNSEEN:
                yield from _pieces(value, texts)
