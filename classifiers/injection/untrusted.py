"""Finds the untrusted parts of a request: results of tools, and documents by third parties.

Only these are scored: a user is free to tell a model to ignore what was said before.
"""

from collections.abc import Iterator
from typing import Final


TEXTS_MAX: Final = 64
"""The number of newest texts that are scored."""
_MAX_DEPTH = 32
_LISTS = ("messages", "input")
_ROLES = frozenset({"tool", "function"})
_PARTS = frozenset(
    """
    tool_result document search_result web_search_tool_result web_fetch_tool_result mcp_tool_result
    function_call_output custom_tool_call_output mcp_call file_search_call computer_call_output
    local_shell_call_output code_execution_tool_result input_file
    """.split()  # noqa: SIM905 - a list literal would fill a screen.
)
# Fields that name a block and hold no text.
_NAMES = frozenset({"type", "role", "id", "tool_use_id", "tool_call_id", "call_id", "media_type"})


def untrusted_texts(document: object) -> list[str]:
    """The newest untrusted texts of a decoded request, in order; total, and linear in its size."""
    if not isinstance(document, dict):
        return []
    texts: list[str] = []
    for name in _LISTS:
        entries = document.get(name)
        if isinstance(entries, list):
            for entry in entries:
                texts += _in_entry(entry, 0)
    return texts[-TEXTS_MAX:]


def _in_entry(node: object, depth: int) -> Iterator[str]:
    if depth > _MAX_DEPTH:
        return
    if isinstance(node, dict):
        if _is_one_of(node.get("role"), _ROLES) or _is_one_of(node.get("type"), _PARTS):
            yield from _strings(node, depth)
            return
        for value in node.values():
            yield from _in_entry(value, depth + 1)
    elif isinstance(node, list):
        for value in node:
            yield from _in_entry(value, depth + 1)


def _is_one_of(value: object, names: frozenset[str]) -> bool:
    return isinstance(value, str) and value in names


def _strings(node: object, depth: int) -> Iterator[str]:
    if isinstance(node, str):
        if node.strip():
            yield node
    elif depth > _MAX_DEPTH:
        return
    elif isinstance(node, dict):
        for name, value in node.items():
            if name not in _NAMES:
                yield from _strings(value, depth + 1)
    elif isinstance(node, list):
        for value in node:
            yield from _strings(value, depth + 1)
