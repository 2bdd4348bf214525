"""Requests that allow calls to only some of their tools: elsewhere the others are not offered."""

from collections.abc import Mapping, Sequence

from msgspec import structs

from gateway.conversation import Conversation, Tool, ToolChoice
from gateway.dialects.bodies.strict_json import invalid
from gateway.dialects.loss import unsupported


ALLOWED = "allowed_tools"
_MODES: Mapping[str | None, ToolChoice] = {
    "auto": ToolChoice("auto"),
    "required": ToolChoice("any"),
}


def only(
    tools: Sequence[Tool], listed: Sequence[ToolChoice], mode: str | None, place: str
) -> tuple[tuple[Tool, ...], ToolChoice]:
    """All tools, those `listed` that may be called, and whether a call is required.

    With an empty list no tool is left: its own vendor has no word for that either.

    Raises:
        RequestInvalid: the mode is unknown, or a name belongs to no tool of the request.
        FeatureUnsupported: a call is required, and no tool is left.
    """
    choice = _MODES.get(mode)
    if choice is None:
        raise invalid(f"{place}.mode", "This value is not one of those allowed")
    if not {each.name for each in listed} <= {tool.name for tool in tools}:
        raise invalid(f"{place}.tools", "One of them is not among the tools of this request")
    if not listed and choice.mode == "any":
        raise unsupported(f"{place}.tools", "No tool is left that could be called", 19)
    if not listed:
        return (), choice
    return tuple(tools), structs.replace(choice, allowed=tuple(listed))


def offered(talk: Conversation) -> Conversation:
    """The conversation for other dialects: with only the tools that may be called.

    OpenAI's models are shown the others as well, so that a cached prefix stays good; either way
    they cannot call them.
    """
    choice = talk.tool_choice
    if choice is None or not choice.allowed:
        return talk
    names = {each.name for each in choice.allowed}
    left = tuple(tool for tool in talk.tools if tool.name in names)
    return structs.replace(talk, tools=left, tool_choice=ToolChoice(choice.mode))
