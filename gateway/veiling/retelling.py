"""Writes server-sent events again with changed text in their JSON; knows keys, no dialect."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec


QUOTED_KEYS: Final = frozenset(
    {
        *("cited_text", "title", "document_title", "source", "snippet", "url", "filename", "lines"),
        *("query", "queries", "pattern", "code", "command", "commands", "diff", "path"),
        *("logs", "stdout", "stderr", "output", "error", "message"),
        *("summary", "transcript", "revised_prompt"),
    }
)
"""Keys of parts besides an answer's words: citations, inputs and results of tools that run at the
vendor, and what the answer says about itself."""
TEXT_KEYS: Final = QUOTED_KEYS | {
    *("content", "text", "arguments", "partial_json", "refusal", "thinking", "explanation"),
    *("delta", "reasoning_content", "reasoning", "input"),
}
"""Keys of the wire formats that hold a model's words, and those of quoted parts."""
TREE_KEYS: Final = frozenset({"input", "arguments", "attributes", "env"})
"""Keys that may hold a tree of anybody's own making."""
_TEXTS_WRITTEN = re.compile(
    rb'"(?:%b)"\s*:\s*(?:"[^"]|\[\s*")|"(?:%b)"\s*:\s*\{\s*"'
    % ("|".join(sorted(TEXT_KEYS)).encode(), "|".join(sorted(TREE_KEYS)).encode())
)
_DATA = b"data:"
_BLOCK = b'"content_block"'
_CALLS = frozenset({"tool_calls", "function"})
_ONCE = frozenset({"id", "type", "name"})
"""Fields that only the first piece of a call has in chat completions."""
TOKENS: Final = (
    *("logprobs", "token_ids", "output_ids", "completion_probabilities"),
    *("meta_info", "hidden_states", "raw_output"),
)
"""Endings of names of fields that tell the tokens of words."""
_PIECE, _BESIDE = "delta", frozenset({"annotations"})
"""The part of a chat completions piece besides its words, which is said only once."""


def retold(raw: bytes, change: Callable[[object], object]) -> bytes:
    """A server-sent event with its JSON changed; byte for byte the same if nothing changes."""
    lines = raw.split(b"\n")
    for at, line in enumerate(lines):
        if line.startswith(_DATA):
            try:
                tree = msgspec.json.decode(line[len(_DATA) :])
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                continue
            changed = change(tree)
            if changed != tree:
                lines[at] = _DATA + b" " + msgspec.json.encode(changed)
    return b"\n".join(lines)


def with_texts(raw: bytes, changes: Mapping[str, Sequence[str]]) -> bytes:
    """An event with other texts; equal ones may become different ones, in their order."""
    return retold(raw, lambda tree: with_texts_in(tree, changes))


def with_texts_in(tree: object, changes: Mapping[str, Sequence[str]]) -> object:
    """The JSON of an event, with other texts."""
    return _changed(tree, {old: [*texts] for old, texts in changes.items()}, "", goes_on=False)


def told_beside(raw: bytes, words: Collection[str], change: Callable[[object], object]) -> bytes:
    """An event in which all texts change except these words of the model."""
    return retold(raw, lambda tree: _kept(tree, change(tree), words, ""))


def says_more(raw: bytes, words: Collection[str]) -> bool:
    """Whether an event contains other text besides these words, in the known places.

    Nearly none does; where nothing may be missed, everything is read instead.
    """
    return sum(1 for _ in _TEXTS_WRITTEN.finditer(raw)) > len(words)


def _kept(before: object, after: object, words: Collection[str], key: str) -> object:
    """The changed tree, with the model's words as they were."""
    if isinstance(before, str):
        return before if key in TEXT_KEYS and before in words else after
    if isinstance(before, dict) and isinstance(after, dict):
        return {
            name: _kept(before[name], value, words, name) if name in before else value
            for name, value in after.items()
        }
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = zip(before, after, strict=True)
        return [_kept(one, other, words, key) for one, other in pairs]
    return after


def gone_on(raw: bytes, text: str, changes: Mapping[str, Sequence[str]]) -> bytes:
    """An event with further words, made from one with other words, which may have begun the block.

    `changes` leave out the rest of that event: it was sent with it, or is held back elsewhere.
    """
    if _BLOCK in raw:
        raw = retold(raw, lambda tree: _in_block(tree, text))
        return raw.replace(b"event: content_block_start", b"event: content_block_delta", 1)
    texts = {old: [*new] for old, new in changes.items()}
    return retold(raw, lambda tree: _changed(tree, texts, "", goes_on=True))


def _said_once(key: str) -> frozenset[str]:
    """Parts that must not be repeated when an event continues an earlier one."""
    if key in _CALLS:
        return _ONCE
    return _BESIDE if key == _PIECE else frozenset()


def _changed(node: object, changes: Mapping[str, list[str]], key: str, *, goes_on: bool) -> object:
    if isinstance(node, str):
        texts = changes.get(node) if key in TEXT_KEYS else None
        if texts is None:
            return node
        return texts.pop(0) if len(texts) > 1 else texts[0]
    if isinstance(node, dict):
        # Clients join the pieces of a call: a repeated name would become part of it.
        left_out = _said_once(key) if goes_on else frozenset()
        return {
            name: told_nothing(value)
            if goes_on and says_tokens(str(name))
            else _changed(value, changes, str(name), goes_on=goes_on)
            for name, value in node.items()
            if name not in left_out
        }
    if isinstance(node, list):
        return [_changed(item, changes, key, goes_on=goes_on) for item in node]
    return node


def says_tokens(name: str) -> bool:
    """Whether a field of this name tells the tokens of words."""
    return name.endswith(TOKENS)


def told_nothing(of_tokens: object) -> object:
    """An empty value for such a field; a number, which only limits how many to tell, stays."""
    if isinstance(of_tokens, int | float):
        return of_tokens
    return [] if isinstance(of_tokens, list) else None


def _in_block(start: object, text: str) -> object:
    """The words with which a message's block began, in the form that continues it."""
    fields = start if isinstance(start, dict) else {}
    block = fields.get("content_block")
    kind = "thinking" if isinstance(block, dict) and block.get("type") == "thinking" else "text"
    delta = {"type": f"{kind}_delta", kind: text}
    return {"type": "content_block_delta", "index": fields.get("index", 0), "delta": delta}
