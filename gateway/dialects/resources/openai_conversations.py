"""Conversations in OpenAI's format: writes their JSON, and reads callers' requests. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from gateway.clock import SECOND_US
from gateway.continuing.items import LIST, in_parts
from gateway.continuing.kept_conversations import Entry, KeptConversation
from gateway.dialects.bodies.body import split
from gateway.dialects.bodies.strict_json import checked, decode_object, invalid
from gateway.dialects.resources.metadata import check_metadata
from gateway.dialects.resources.openai_batches import list_object
from policies.facts import AUTO


ITEMS_MAX: Final = 20
"""The most items that can be added at once."""

INCLUDABLE: Final = frozenset(
    {
        *("code_interpreter_call.outputs", "computer_call_output.output.image_url"),
        *("file_search_call.results", "message.input_image.image_url"),
        *("message.output_text.logprobs", "reasoning.encrypted_content"),
        "web_search_call.action.sources",
    }
)
"""Fields of items that are included only on request: the item's kind, and the path to the field."""

NEVER_LEFT_OUT: Final = frozenset({"web_search_call.results"})
"""Also accepted as a request, but always included."""


_STATED: Final = frozenset(
    {
        *("message", "function_call", "function_call_output", "computer_call"),
        *("computer_call_output", "shell_call", "shell_call_output", "tool_search_call"),
        *("tool_search_output", "apply_patch_call", "apply_patch_call_output"),
    }
)
"""Items that callers may send without a status, although the vendor's client expects one."""


KINDS: Final = frozenset(
    {
        *("message", "reasoning", "compaction", "compaction_trigger", "item_reference"),
        *("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"),
        *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
        *("computer_call", "computer_call_output", "tool_search_call", "tool_search_output"),
        *("local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output"),
        *("apply_patch_call", "apply_patch_call_output", "program", "program_output"),
        *("mcp_list_tools", "mcp_call", "mcp_approval_request", "mcp_approval_response"),
        *("additional_tools", "agent_message", "configuration_update"),
    }
)
"""Items that callers may put into a conversation. Models' answers are kept whatever they are."""


class _Order(Struct, frozen=True):
    items: Annotated[list[dict[str, object]], Meta(max_length=ITEMS_MAX)] | None = None
    metadata: Mapping[str, str] | None = None


class _Addition(Struct, frozen=True):
    items: Annotated[list[dict[str, object]], Meta(min_length=1, max_length=ITEMS_MAX)]


class _Description(Struct, frozen=True):
    metadata: Mapping[str, str] | None


class Told(Struct, frozen=True):
    """What a caller wants to store in a conversation."""

    items: Sequence[msgspec.Raw] = ()
    metadata: Mapping[str, str] = {}


def read_order(raw: bytes) -> Told:
    """A request to create a conversation; raises RequestInvalid. An empty body is valid."""
    order = checked(_object(raw or b"{}", _Order), _Order)
    check_metadata(order.metadata or {})
    _check_kinds(order.items or ())
    return Told(_raw_items(raw) if order.items else (), order.metadata or {})


def read_addition(raw: bytes) -> Told:
    """Items to add; raises RequestInvalid."""
    # Some clients put `include` into the body.
    _check_kinds(checked(_object(raw, _Addition, "include"), _Addition).items)
    return Told(_raw_items(raw))


def _check_kinds(items: Sequence[Mapping[str, object]]) -> None:
    """An item of unknown kind would stay, and every later turn would be refused because of it."""
    for index, item in enumerate(items):
        kind = item.get("type")
        if isinstance(kind, str) and kind not in KINDS:
            raise invalid(f"items[{index}].type", "This kind of item is not known")


def read_description(raw: bytes) -> Told:
    """New metadata, null for none; raises RequestInvalid."""
    described = checked(_object(raw, _Description), _Description)
    check_metadata(described.metadata or {})
    return Told(metadata=described.metadata or {})


def _object(raw: bytes, wire: type[Struct], *more: str) -> dict[str, object]:
    tree = decode_object(raw)
    known = {*wire.__struct_fields__, *more}
    if not tree.keys() <= known:
        names = ", ".join(wire.__struct_fields__)
        raise invalid("$", f"The body has {names} and nothing else")
    return tree


def _raw_items(raw: bytes) -> list[msgspec.Raw]:
    return LIST.decode(split(raw)["items"])


def as_asked(items: Sequence[msgspec.Raw]) -> bytes:
    """A request with these items as input, for whichever model policy would choose."""
    return msgspec.json.encode({"model": AUTO, "input": items, "store": False})


def conversation_object(kept: KeptConversation) -> dict[str, Any]:
    return {
        "id": kept.conversation_id,
        "object": "conversation",
        "created_at": kept.created_us // SECOND_US,
        "metadata": dict(kept.metadata),
    }


def deleted_object(conversation_id: str) -> dict[str, Any]:
    return {"id": conversation_id, "object": "conversation.deleted", "deleted": True}


def item_list(
    entries: Sequence[Entry], include: Collection[str], *, has_more: bool
) -> dict[str, Any]:
    return list_object([item_object(entry, include) for entry in entries], has_more=has_more)


def item_object(entry: Entry, include: Collection[str]) -> dict[str, Any]:
    """An item with its id, without fields that are included only on request."""
    item = in_parts(_typed(msgspec.json.decode(entry.item, type=dict[str, Any])))
    if item["type"] in _STATED and item.get("status") is None:
        item = {**item, "status": "completed"}
    item = {**item, "id": entry.item_id}
    for name in INCLUDABLE.difference(include):
        kind, *path = name.split(".")
        if item["type"] == kind:
            item = _of_parts(item, *path) if kind == "message" else _without(item, path)
    return item


def _typed(item: dict[str, Any]) -> dict[str, Any]:
    """The item with its kind stated: items without one, or with null, are messages."""
    return item if item.get("type") is not None else {**item, "type": "message"}


def _of_parts(item: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    """A message without one field of its parts of a kind."""
    parts = item.get("content")
    if not isinstance(parts, list):
        return item
    content = [
        _without(part, [name]) if isinstance(part, dict) and part.get("type") == kind else part
        for part in parts
    ]
    return {**item, "content": content}


def _without(node: Any, path: Sequence[str]) -> Any:
    name, *rest = path
    if not isinstance(node, dict) or name not in node:
        return node
    if rest:
        return {**node, name: _without(node[name], rest)}
    return {each: value for each, value in node.items() if each != name}


def check_include(names: Collection[str]) -> None:
    """Raises RequestInvalid for a field to include that no item has."""
    if not INCLUDABLE.union(NEVER_LEFT_OUT).issuperset(names):
        raise invalid("include", "This value is not one of those allowed")
