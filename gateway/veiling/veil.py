"""Carries out `pseudonymise` and `redact`: requests without values, answers with them restored.

Every target gets the veiled request; the audit log keeps the caller's own. Answers and streams are
unveiled on their way back, including the arguments of tool calls.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

import msgspec

from classifiers.extraction import extract
from gateway.admission.half_pairs import paired
from gateway.errors import ClosedByPolicy
from gateway.ports import Dialect
from gateway.types import ChatRequest
from gateway.veiling.blocks import key_of, rewritten, threads_of
from gateway.veiling.forms import Forms, in_json
from gateway.veiling.redaction import (
    Pseudonyms,
    Restorer,
    conversation_key,
    number_of,
    pseudonyms,
    replaced,
    still_said,
    written,
)
from gateway.veiling.rewriting import MAX_DEPTH, StreamRewriter


_JSON_MEMBERS: Final = frozenset({"arguments", "partial_json"})
"""Members whose text is JSON whatever it begins with, even if a model broke it off."""
_ASKED: Final = ("messages", "input", "prompt")
_ORDERS: Final = ("system", "developer")
"""Roles of the instructions with which an application begins each conversation."""
_GIVEN: Final = frozenset({"input", "arguments"})
"""Members that hold a call's arguments as a tree."""
_NOT_VEILED = "Something in the request cannot be given a pseudonym, so it does not leave."


class Veil(msgspec.Struct, frozen=True):
    """The veiled request, and how to read its answer."""

    request: ChatRequest
    names: Pseudonyms

    def unveiled(self, raw: bytes) -> bytes:
        """A complete answer's body with the values restored; anything but JSON stays as it is."""
        if not self.names.values:
            return raw
        try:
            tree = msgspec.json.decode(paired(raw))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return raw
        return msgspec.json.encode(_restored(tree, self.names.forms()))

    def lifted(self) -> StreamRewriter:
        """Restorers for the text of a stream, and for each tool call."""
        forms = self.names.forms()
        return StreamRewriter(
            lambda kind: Restorer(forms, in_json) if kind == "tool_arguments" else Restorer(forms),
            (lambda tree: _restored(tree, forms)) if forms.values else None,
        )


def veiled(
    request: ChatRequest,
    headers: list[tuple[bytes, bytes]],
    dialect: Dialect,
    found: Iterable[tuple[str, str]],
    tenant_key: bytes,
    *,
    one_way: bool,
) -> Veil:
    """The request with a surrogate for every (label, value); `one_way` blackens instead.

    Raises:
        ClosedByPolicy: a value is still in it afterwards; nothing may leave.
    """
    extraction = extract(request.tree)
    texts = [segment.text for segment in extraction.segments]
    names = pseudonyms(
        conversation_key(tenant_key, _first_words(request.tree)), found, texts, one_way=one_way
    )
    tree = replaced(dict(request.tree), names)
    if still_said(tree, names):
        raise ClosedByPolicy(_NOT_VEILED)
    changed = dialect.decode_request(msgspec.json.encode(tree), request.request_id, headers)
    return Veil(
        msgspec.structs.replace(changed, thread=request.thread, end_user=request.end_user), names
    )


def _first_words(tree: Mapping[str, object]) -> str:
    """The first message identifies the conversation: every turn repeats it, whatever precedes it.

    Many clients send the model first, and most applications the same instructions: neither
    identifies a conversation.
    """
    for name in _ASKED:
        asked = tree.get(name)
        turns = asked if isinstance(asked, list) else [asked]
        for turn in sorted(turns, key=_is_order):
            units = extract({name: [_uncached(turn)]}).units() if turn else ()
            if words := next((unit.text for unit, _ in units if unit.text), ""):
                return words
    return ""


def _is_order(turn: object) -> bool:
    return isinstance(turn, dict) and turn.get("role") in _ORDERS


def _uncached(node: object) -> object:
    """The same without prompt-cache breakpoints, which move on with every turn."""
    if isinstance(node, dict):
        return {key: _uncached(value) for key, value in node.items() if key != "cache_control"}
    return [_uncached(item) for item in node] if isinstance(node, list) else node


def _restored(tree: object, forms: Forms) -> object:
    """A JSON tree with values restored in all its strings and names, and in a call's numbers."""
    blocks = rewritten(threads_of(tree), lambda _: Restorer(forms))

    def told(text: str, *, is_json: bool = False) -> str:
        restorer = Restorer(forms, in_json if is_json else None)
        return restorer.feed(text) + restorer.flush()

    # With token probabilities an answer has a hundred thousand names, few of them different.
    name_told = cache(told)

    def restored(node: object, depth: int, *, is_json: bool = False, given: bool = False) -> object:
        """`given` marks a tool's arguments: as a tree they are restored like a text."""
        if isinstance(node, str):
            return told(node, is_json=is_json)
        if depth > MAX_DEPTH:
            return node
        if isinstance(node, dict):
            own = key_of(node) if id(node) in blocks else None
            return {
                name_told(key): blocks[id(node)]
                if key == own
                else restored(
                    value, depth + 1, is_json=key in _JSON_MEMBERS, given=given or key in _GIVEN
                )
                for key, value in node.items()
            }
        if isinstance(node, list):
            return [restored(item, depth + 1, given=given) for item in node]
        if given and isinstance(node, int | float) and not isinstance(node, bool):
            said = written(node)
            return node if (meant := name_told(said)) == said else number_of(meant)
        return node

    return restored(tree, 0)
