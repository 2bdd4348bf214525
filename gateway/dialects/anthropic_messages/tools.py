"""Converts the tools of a Messages request for other dialects, which know only functions."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.conversation import Hosted, Tool, ToolChoice
from gateway.dialects.anthropic_messages import client_tools
from gateway.dialects.anthropic_messages.wire import MessagesBody, ToolWire
from gateway.dialects.bodies import body
from gateway.dialects.fitting.parameters import takes
from gateway.dialects.loss import Losses, cache_life, unsupported
from gateway.types import ChatRequest, Target


FORCING = frozenset({"any", "tool"})
"""Choices that require a tool call."""

_EAGER = "eager_input_streaming"
_EAGER_BETA = "fine-grained-tool-streaming-2025-05-14"
_PLACED = frozenset(
    {
        *("name", "type", "description", "input_schema", "strict", "cache_control"),
        *("input_examples", _EAGER),
    }
)
_NO_SERVER = "A server tool has no equivalent there"
_HOSTED = ("web_search_", "web_fetch_", "code_execution_", "tool_search_tool_")
"""Prefixes of the types of tools that their vendor runs; each is followed by a date."""
_PLAIN = frozenset({None, "custom"})
_ASKS_NOTHING: Mapping[str, object] = {
    "allowed_callers": ["direct"],
    "defer_loading": False,
}
"""Settings that are the default: the model itself calls a tool and knows it from the start."""
_MODES: Mapping[str, ToolChoice] = {
    "auto": ToolChoice("auto"),
    "any": ToolChoice("any"),
    "none": ToolChoice("none"),
}


def read_tools(tree: Mapping[str, Any], wire: MessagesBody, losses: Losses) -> tuple[Tool, ...]:
    """The tools that can be converted; those that the vendor runs are noted among the losses.

    Raises:
        FeatureUnsupported: one is neither, or of a version that nobody here knows.
    """
    read = []
    for index, tool in enumerate(wire.tools or ()):
        place = f"tools[{index}].type"
        said: Mapping[str, Any] = tree["tools"][index]
        if tool.type is not None and tool.type.startswith(_HOSTED):
            name = next(each for each in _HOSTED if tool.type.startswith(each)).rstrip("_")
            losses.hosted.append(Hosted(place, f"tools.{name}", _NO_SERVER, 19))
        elif not tool.name or not _crosses(tool):
            raise unsupported(place, _NO_SERVER, 19)
        else:
            read.append(_tool(tool, tool.name, said, losses))
    return tuple(read)


def _crosses(tool: ToolWire) -> bool:
    return tool.type in _PLAIN or client_tools.is_known(tool.type)


def _tool(tool: ToolWire, name: str, said: Mapping[str, Any], losses: Losses) -> Tool:
    asking = {key: value for key, value in said.items() if value != _ASKS_NOTHING.get(key)}
    cached = cache_life(tool.cache_control)
    if tool.type in _PLAIN:
        losses.add_unknown(asking, _PLACED, "tools.")
        description, schema = tool.description or "", tool.input_schema or {}
    else:
        losses.add_unknown(asking, client_tools.PLACED | {"input_examples", _EAGER}, "tools.")
        description, schema = client_tools.about(said), client_tools.schema(said)
    if examples := said.get("input_examples"):
        told = msgspec.json.encode(examples).decode()
        description = f"{description}\nExamples of what it may be called with: {told}".lstrip()
    return Tool(name, description, schema, tool.strict, cached)


def eager_tools(request: ChatRequest) -> frozenset[str]:
    """Names of tools whose arguments a caller wants as the model writes them, JSON or not."""
    tools = request.tree.get("tools")
    named = [tool for tool in tools if tool.get("name")] if isinstance(tools, list) else []
    is_eager = _EAGER_BETA in request.betas
    return frozenset(tool["name"] for tool in named if tool.get(_EAGER, is_eager) is True)


def forces(choice: object) -> bool:
    """Whether a request's `tool_choice` requires a tool call."""
    return isinstance(choice, dict) and choice.get("type") in FORCING


def leave_to_the_model(
    fields: dict[str, msgspec.Raw | bytes], tree: Mapping[str, Any], target: Target
) -> tuple[str, ...]:
    """Let a model choose if it refuses to be told which tool to call; returns what is lost by that.

    Nothing else changes, neither tools nor instructions: what was thought is bound to them.
    """
    if not forces(tree.get("tool_choice")) or takes(target, "forced_tools"):
        return ()
    left: dict[str, bytes | None] = {"type": b'"auto"', "name": None}
    fields["tool_choice"] = body.patch(bytes(fields["tool_choice"]), left)
    return ("tool_choice",)


def read_choice(wire: MessagesBody) -> ToolChoice | None:
    """The tool call that is required, if any.

    Raises:
        FeatureUnsupported: it is of a tool that the vendor runs.
    """
    choice = wire.tool_choice
    if choice is None:
        return None
    for tool in (wire.tools or ()) if choice.name else ():
        if tool.name == choice.name and not _crosses(tool):
            raise unsupported("tool_choice.name", _NO_SERVER, 19)
    return _MODES.get(choice.type) or ToolChoice("named", choice.name or "")
