"""Converts a chat's tools for other dialects, and their calls back for the caller.

Custom tools get names that no function of the request has. The older `functions` become tools of
which one is called at a time. Names follow from the request alone, so that they can be mapped back
when the answer is read.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from gateway.conversation import TextForm, Tool, ToolCallPart, ToolChoice
from gateway.dialects.bodies.strict_json import invalid
from gateway.dialects.fitting.allowed_tools import ALLOWED, only
from gateway.dialects.fitting.naming import renamed_tools, tool_name
from gateway.dialects.fitting.text_tools import text_as_arguments, text_schema
from gateway.dialects.loss import Losses, cache_life, unsupported
from gateway.dialects.openai_chat.wire import (
    ChatBody,
    CustomTool,
    FunctionTool,
    ListedTool,
    NamedChoice,
    NamedFunction,
    RequestToolCall,
)


_FUNCTION, _CUSTOM = "function", "custom"
_PLACED = {
    _FUNCTION: frozenset(FunctionTool.__struct_fields__),
    _CUSTOM: frozenset(CustomTool.__struct_fields__),
}
_MODES: Mapping[str, ToolChoice] = {
    "auto": ToolChoice("auto"),
    "none": ToolChoice("none"),
    "required": ToolChoice("any"),
}
_KEPT = 48
_REASON = "Only function and custom tools exist there"

Names = Mapping[str, str]


class Told(Struct, frozen=True):
    """How the calls of a request are named to its caller."""

    names: Names
    """Names of functions there → the caller's names, if they differ."""
    texts: Names
    """The same for all custom tools."""
    is_older: bool = False
    """Whether the caller knows only `function_call`, of which an answer has one."""


def told_calls(tree: Mapping[str, Any]) -> Told:
    texts = {there: name for name, there in text_names(tree).items()}
    older = tree.get("functions")
    if not older:
        return Told(renamed_tools(tree), texts)
    return Told(renamed_tools({"tools": older}), texts, is_older=True)


def text_names(tree: Mapping[str, Any]) -> Names:
    """Custom tools that a request brings or has called → their names there."""
    found = dict.fromkeys(_names_of(_CUSTOM, tree.get("tools")))
    for message in tree.get("messages") or ():
        found |= dict.fromkeys(_names_of(_CUSTOM, message.get("tool_calls")))
    if not found:
        return {}
    taken = set(map(tool_name, _names_of(_FUNCTION, tree.get("tools"))))
    return {name: _name_there(name, taken) for name in found}


def _names_of(kind: str, listed: object) -> Iterator[str]:
    for each in listed if isinstance(listed, list) else ():
        held = each.get(kind) if isinstance(each, dict) else None
        name = held.get("name") if isinstance(held, dict) else None
        if isinstance(name, str):
            yield name


def _name_there(name: str, taken: set[str]) -> str:
    wish = tool_name(name)
    if wish not in taken:
        return wish
    return f"{wish[:_KEPT]}_{hashlib.sha256(f'{_CUSTOM}/{name}'.encode()).hexdigest()[:15]}"


def note_fields(tree: Mapping[str, Any], losses: Losses) -> None:
    """Report fields of tools that nobody reads."""
    for tool in tree.get("tools") or ():
        for kind, placed in _PLACED.items():
            if isinstance(tool.get(kind), dict):
                losses.add_unknown(tool[kind], placed, "tools.")
    for each in tree.get("functions") or ():
        losses.add_unknown(each, _PLACED[_FUNCTION], "functions.")


def tools_of(wire: ChatBody, texts: Names) -> tuple[Tool, ...]:
    """All tools of a request, including the older functions.

    Raises:
        FeatureUnsupported: one is neither a function nor takes a text.
    """
    tools = []
    for index, tool in enumerate(wire.tools or ()):
        if tool.type == _FUNCTION and tool.function is not None:
            tools.append(_function(tool.function))
        elif tool.type == _CUSTOM and tool.custom is not None:
            tools.append(_text_tool(tool.custom, texts[tool.custom.name]))
        else:
            raise unsupported(f"tools[{index}].type", _REASON, 19)
    return (*tools, *map(_function, wire.functions or ()))


def _function(asked: FunctionTool) -> Tool:
    return Tool(
        asked.name,
        asked.description or "",
        asked.parameters or {},
        asked.strict,
        cache_life(asked.cache_control),
    )


def _text_tool(asked: CustomTool, name: str) -> Tool:
    form = asked.format
    text = TextForm()
    if form is not None and form.type == "grammar" and form.grammar is not None:
        text = TextForm(form.grammar.syntax, form.grammar.definition)
    return Tool(name, asked.description or "", text_schema(text), text=text)


def chosen(
    wire: ChatBody, tools: tuple[Tool, ...], texts: Names
) -> tuple[tuple[Tool, ...], ToolChoice | None]:
    """The tools, and which of them may or must be called.

    Raises:
        RequestInvalid: a tool that may be called is not in the request.
        FeatureUnsupported: the tool that must be called is neither a function nor takes a text.
    """
    choice = wire.tool_choice if wire.tool_choice is not None else _older(wire)
    if choice is None or isinstance(choice, str):
        return tools, None if choice is None else _MODES[choice]
    allowed = choice.allowed_tools
    if choice.type != ALLOWED or allowed is None:
        return tools, _named(choice, "tool_choice", texts)
    place = f"tool_choice.{ALLOWED}"
    listed = [
        _named(each, f"{place}.tools[{index}]", texts) for index, each in enumerate(allowed.tools)
    ]
    return only(tools, listed, allowed.mode, place)


def _older(wire: ChatBody) -> str | NamedChoice | None:
    """The older `function_call` as a choice; it means nothing without such functions."""
    asked = wire.function_call
    if asked is None or not wire.functions:
        return None
    if isinstance(asked, NamedFunction):
        return NamedChoice(type=_FUNCTION, function=asked)
    if asked not in {"auto", "none"}:
        raise invalid("function_call", "This value is not one of those allowed")
    return asked


def _named(choice: ListedTool, place: str, texts: Names) -> ToolChoice:
    if choice.type == _FUNCTION and choice.function is not None:
        return ToolChoice("named", choice.function.name)
    if choice.type == _CUSTOM and choice.custom is not None:
        name = choice.custom.name
        return ToolChoice("named", texts.get(name, name), is_text=True)
    raise unsupported(f"{place}.type", _REASON, 19)


def calls_of(calls: Iterable[RequestToolCall], place: str, texts: Names) -> Iterator[ToolCallPart]:
    """Calls of a message in the history.

    Raises:
        FeatureUnsupported: one is of neither kind.
    """
    for index, call in enumerate(calls):
        if call.function is not None:
            yield ToolCallPart(call.id, call.function.name, call.function.arguments)
        elif call.custom is not None:
            arguments = text_as_arguments(call.custom.input)
            yield ToolCallPart(call.id, texts[call.custom.name], arguments, is_text=True)
        else:
            raise unsupported(f"{place}.tool_calls[{index}].type", _REASON, 19)
