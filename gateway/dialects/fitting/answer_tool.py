"""Structured answers from models without schemas: asked for as the arguments of a tool.

This is for older models of Anthropic. The tool's name is reserved. The caller sees text, and a
finished turn unless one of the caller's own tools was called as well.
"""

from msgspec import structs

from gateway.conversation import Conversation, Tool, ToolChoice


ANSWER_TOOL = "gw_structured_output"
_DESCRIPTION = "Give the final answer by calling this tool, once, and say nothing else."


def asked_by_tool(talk: Conversation) -> Conversation:
    """The conversation with the answer's schema as a tool that has to be called.

    If the caller has tools too, any one of all has to be called, unless the caller named one.
    """
    asked = talk.response_format
    assert asked is not None
    choice = talk.tool_choice
    if choice is None or choice.mode in {"auto", "any", "none"}:
        has_others = bool(talk.tools) and (choice is None or choice.mode != "none")
        choice = ToolChoice("any") if has_others else ToolChoice("named", ANSWER_TOOL)
    description = asked.description or _DESCRIPTION
    tool = Tool(ANSWER_TOOL, description, asked.schema)
    return structs.replace(
        talk, tools=(*talk.tools, tool), tool_choice=choice, response_format=None
    )
