"""Some of the tools may be called, the others only stand there: elsewhere they are not offered."""

from collections.abc import Collection, Mapping, Sequence

from gateway.conversation import Tool, ToolChoice
from gateway.dialects.loss import unsupported
from gateway.dialects.strict_json import invalid


ALLOWED = "allowed_tools"
_MODES: Mapping[str | None, ToolChoice] = {
    "auto": ToolChoice("auto"),
    "required": ToolChoice("any"),
}


def only(
    tools: Sequence[Tool], names: Collection[str], mode: str | None, place: str
) -> tuple[tuple[Tool, ...], ToolChoice]:
    """The tools that may be called, and whether one has to be.

    OpenAI's models are shown the others as well, so that a cached prefix stays good; to call one of
    them they are not free either way.

    Raises:
        RequestInvalid: the mode is none, or a name is no tool's of the request.
        FeatureUnsupported: nothing is left that has to be called.
    """
    choice = _MODES.get(mode)
    if choice is None:
        raise invalid(f"{place}.mode", "This value is not one of those allowed")
    left = tuple(tool for tool in tools if tool.name in names)
    if len({tool.name for tool in left}) < len(set(names)):
        raise invalid(f"{place}.tools", "One of them is not among the tools of this request")
    if not left and choice.mode == "any":
        raise unsupported(f"{place}.tools", "No tool is left that could be called", 19)
    return left, choice
