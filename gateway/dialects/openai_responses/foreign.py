"""Items of unknown types: passed on, after a look at what they contain.

The results of a computer, a shell or a search have shapes of their own. Requests and answers may
hold them, and are not invalid for it; only callers and targets of other dialects cannot express
them.
"""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from gateway.dialects.openai_responses.wire import Item


_READ = frozenset({"message", "function_call", "function_call_output", "reasoning"})
_CUSTOM = "custom_tool_call"
_ADDRESSES = frozenset({"image_url", "file_url", "server_url"})


class Attached(Struct):
    """What an item contains or refers to besides its text."""

    images: int = 0
    inline_bytes: int = 0
    addresses: list[tuple[str, str]] = []


def readable(tree: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[int]]:
    """A request in which items of unknown shape are reduced to their kind; and their places."""
    given = tree.get("input")
    if not isinstance(given, list):
        return tree, []
    places = [index for index, item in enumerate(given) if _is_foreign(item)]
    if not places:
        return tree, []
    items = list(given)
    for index in places:
        items[index] = {"type": given[index]["type"]}
    return {**tree, "input": items}, places


def _is_foreign(item: object) -> bool:
    kind = item.get("type") if isinstance(item, dict) else None
    if not isinstance(kind, str) or kind in _READ:
        return False
    try:
        msgspec.convert(item, Item)
    except msgspec.ValidationError:
        return True
    return False


def attached(item: object, place: str) -> Attached:
    """The parts of an unknown item that must be counted, or checked before it is sent."""
    found = Attached()
    pending: list[tuple[str, object]] = [(place, item)]
    while pending:
        where, node = pending.pop()
        if isinstance(node, list):
            pending += ((f"{where}[{index}]", each) for index, each in enumerate(node))
        elif isinstance(node, dict):
            for key, value in node.items():
                if key in _ADDRESSES and isinstance(value, str):
                    _note(found, f"{where}.{key}", key, value)
                else:
                    pending.append((f"{where}.{key}", value))
    return found


def _note(found: Attached, place: str, key: str, value: str) -> None:
    found.images += key == "image_url"
    if value[:5].lower() == "data:":
        found.inline_bytes += len(value)
    else:
        found.addresses.append((place, value))


def item_of(raw: bytes | msgspec.Raw) -> Item:
    """An item of an answer; if its kind is unknown, only its kind.

    Raises:
        msgspec.DecodeError: it is not an item.
    """
    kind = _KIND.decode(raw).type
    if kind == _CUSTOM:
        return _custom(raw)
    return _ITEM.decode(raw) if kind in _READ else Item(type=kind)


def is_text_call(item: Item) -> bool:
    """Whether it is a call of a custom tool that can be expressed in other dialects."""
    return item.type == _CUSTOM and bool(item.call_id and item.name)


def _custom(raw: bytes | msgspec.Raw) -> Item:
    """A call of a custom tool; a call of another shape is left to its caller to read."""
    try:
        return _ITEM.decode(raw)
    except msgspec.ValidationError:
        return Item(type=_CUSTOM)


def searches_in(raw: bytes | msgspec.Raw) -> int:
    """How many paid searches an item of an answer stands for; opening a page is not one."""
    try:
        item = _SEARCH.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0
    action = item.action
    if item.type != "web_search_call" or (action is not None and action.type != "search"):
        return 0
    return max(1, len(action.queries)) if action is not None else 1


def written_in(raw: bytes | msgspec.Raw) -> str:
    """The text that a model wrote into an item of unknown kind; a stream sends it in pieces.

    Empty for the known kinds.
    """
    try:
        item = _CALL.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    if item.type in _READ:
        return ""
    written = (item.input, item.arguments, item.code, item.operation.diff)
    return "".join(filter(None, (*written, *item.action.commands)))


def is_unread(event: bytes, read: Collection[str]) -> bool:
    """Whether an event is of a kind that nothing here reads."""
    try:
        return _KIND.decode(event).type not in read
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


class _Kind(Struct):
    type: str


class _Action(Struct):
    type: str = "search"
    queries: list[msgspec.Raw] = []


class _Done(Struct, frozen=True):
    diff: str | None = None
    commands: list[str] = []


class _CallItem(Struct):
    type: str
    input: str | None = None
    arguments: str | None = None
    code: str | None = None
    operation: _Done = _Done()
    action: _Done = _Done()


class _SearchItem(Struct):
    type: str
    action: _Action | None = None


_KIND = msgspec.json.Decoder(_Kind)
_CALL = msgspec.json.Decoder(_CallItem)
_SEARCH = msgspec.json.Decoder(_SearchItem)
_ITEM = msgspec.json.Decoder(Item)
