"""Converts a Messages request to a conversation."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from gateway.conversation import (
    Conversation,
    DocumentPart,
    Hosted,
    ImagePart,
    Part,
    Reasoning,
    ResponseFormat,
    Sampling,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    Turn,
    told,
)
from gateway.dialects.anthropic_messages import protocol
from gateway.dialects.anthropic_messages.attachments import (
    SEARCH_RESULT,
    attached,
    search_result,
)
from gateway.dialects.anthropic_messages.tools import forces, read_choice, read_tools
from gateway.dialects.anthropic_messages.wire import (
    Block,
    InnerBlock,
    MessagesBody,
    Metadata,
    OutputConfig,
    OutputFormat,
    SystemBlock,
    Thinking,
    ToolChoiceWire,
    TurnWire,
)
from gateway.dialects.bodies.strict_json import checked
from gateway.dialects.fitting.own_names import OwnNames
from gateway.dialects.loss import AUTO_TIER, Losses, cache_life, unsupported
from gateway.types import ChatRequest


_PLACED = frozenset(
    {
        *("model", "messages", "max_tokens", "stream", "system", "temperature", "top_p", "top_k"),
        *("stop_sequences", "tools", "tool_choice", "thinking", "output_config", "metadata"),
        *("service_tier", "cache_control", "output_format"),
    }
)
_REFUSED: Mapping[str, tuple[str, int]] = {
    "inference_geo": ("A place of inference cannot be promised there", 55),
    "container": ("Containers do not exist there", 56),
    "mcp_servers": ("MCP servers cannot be called from there", 19),
}
"""Why they are refused, and the number of the rule."""

_EFFORTS: Mapping[str, str] = {"max": "xhigh"}
"""Not every model of other vendors knows this vendor's highest effort."""
_THINKING = frozenset({"enabled", "adaptive"})
"""Up to a budget, and as much as the model sees fit: the default of other vendors' models.

They have no word for when to think.
"""
_PLACED_OF_TURN = frozenset(TurnWire.__struct_fields__)
_INNER: Mapping[str, type[Struct]] = {
    "system": SystemBlock,
    "tool_choice": ToolChoiceWire,
    "thinking": Thinking,
    "output_config": OutputConfig,
    "output_format": OutputFormat,
    "metadata": Metadata,
}
_HOSTED_BLOCKS = frozenset(
    {
        *("server_tool_use", "web_search_tool_result", "web_fetch_tool_result"),
        *("code_execution_tool_result", "bash_code_execution_tool_result"),
        *("text_editor_code_execution_tool_result", "tool_search_tool_result"),
    }
)
OWN_NAMES: OwnNames = {
    "max_output_tokens": ("max_tokens",),
    "messages.thinking": ("messages.thinking", "messages.redacted_thinking"),
    "reasoning.summary": ("thinking.display",),
    "reasoning_effort": ("output_config.effort", "thinking"),
    "response_format": ("output_format", "output_config.format"),
    "response_format.strict": ("output_format", "output_config.format"),
    "stop": ("stop_sequences",),
    "tools.schema": ("tools.input_schema",),
}
"""Names that differ in the hub; a schema is always enforced here, so there is no field for that."""


def read_conversation(request: ChatRequest) -> Conversation:
    """See `conversation` for what crosses.

    Raises:
        FeatureUnsupported: dropping what it asks would change its meaning.
    """
    wire = checked(request.tree, MessagesBody)
    for name, (reason, rule) in _REFUSED.items():
        if request.tree.get(name):
            raise unsupported(name, reason, rule)
    if wire.max_tokens == 0:
        raise unsupported("max_tokens", "An answer of no tokens cannot be asked for there", 21)
    losses = Losses(request.dropped)
    if not protocol.ASKED_BY_FIELDS.issuperset(request.betas):
        losses.add("anthropic-beta")
    losses.add_unknown(request.tree, _PLACED)
    _note_inner_fields(request.tree, losses)
    if wire.service_tier not in {None, AUTO_TIER}:
        losses.add("service_tier")
    turns = tuple(
        Turn(turn.role, _parts(turn.content, f"messages[{index}]", losses))
        for index, turn in enumerate(wire.messages)
    )
    if wire.cache_control is not None:
        turns = (*turns[:-1], _marked(turns[-1], cache_life(wire.cache_control), losses))
    choice = wire.tool_choice
    parallel = None
    if choice is not None and choice.disable_parallel_tool_use is not None:
        parallel = not choice.disable_parallel_tool_use
    return Conversation(
        system=_system(wire),
        turns=turns,
        stream=request.stream,
        tools=read_tools(request.tree, wire, losses),
        tool_choice=read_choice(wire),
        parallel_tool_calls=parallel,
        sampling=Sampling(
            temperature=wire.temperature,
            top_p=wire.top_p,
            top_k=wire.top_k,
            stop=tuple(wire.stop_sequences or ()),
        ),
        response_format=_response_format(wire, losses),
        reasoning=_reasoning(wire, losses),
        user=(wire.metadata.user_id or "") if wire.metadata is not None else "",
        service_tier=AUTO_TIER if wire.service_tier == AUTO_TIER else "",
        unplaced=losses.names(),
        tells_thoughts=wire.thinking is not None and wire.thinking.display == "summarized",
        # Where a tool has to be called, no answer is there that a text could have begun.
        is_begun=bool(turns)
        and turns[-1].role == "assistant"
        and not forces(request.tree.get("tool_choice")),
        hosted=tuple(losses.hosted),
    )


def _note_inner_fields(tree: Mapping[str, Any], losses: Losses) -> None:
    """Fields of what crosses; blocks left out completely are reported by their own names."""
    for name, shape in _INNER.items():
        losses.add_unread(tree.get(name), shape, f"{name}.")
    for turn in tree["messages"]:
        losses.add_unknown(turn, _PLACED_OF_TURN, "messages.")
        content = turn["content"]
        if isinstance(content, list):
            own = [block for block in content if block["type"] not in _HOSTED_BLOCKS]
            losses.add_unread(own, Block, "messages.content.")


def _marked(turn: Turn, life: str, losses: Losses) -> Turn:
    """The last turn with a breakpoint at its end: what one at the top of a request means."""
    last = turn.parts[-1] if turn.parts else None
    if isinstance(last, ToolResultPart) and last.parts:
        inner = last.parts[-1]
        if isinstance(inner, TextPart):
            parts = (*last.parts[:-1], TextPart(inner.text, inner.cached or life))
            last = ToolResultPart(last.tool_id, parts, last.is_error)
            return Turn(turn.role, (*turn.parts[:-1], last))
    if not isinstance(last, TextPart):
        losses.add("cache_control")
        return turn
    return Turn(turn.role, (*turn.parts[:-1], TextPart(last.text, last.cached or life)))


def _system(wire: MessagesBody) -> tuple[TextPart, ...]:
    if not wire.system:
        return ()
    if isinstance(wire.system, str):
        return (TextPart(wire.system),)
    return tuple(TextPart(block.text, cache_life(block.cache_control)) for block in wire.system)


def _response_format(wire: MessagesBody, losses: Losses) -> ResponseFormat | None:
    asked = wire.format
    if asked is None:
        return None
    if wire.output_format is not None and wire.output_format != asked:
        losses.add("output_format")  # Two formats: elsewhere there can be one.
    if asked.type != "json_schema":
        place = "output_format" if asked is wire.output_format else "output_config.format"
        raise unsupported(f"{place}.type", "This format has no equivalent there", 33)
    return ResponseFormat("json_schema", schema=asked.schema or {}, strict=True)


def _reasoning(wire: MessagesBody, losses: Losses) -> Reasoning | None:
    """The reasoning settings; elsewhere only one of two settings can be expressed."""
    effort = (wire.output_config.effort or "") if wire.output_config is not None else ""
    thinking = wire.thinking
    if thinking is not None and thinking.type == "disabled":
        if effort:
            losses.add("output_config.effort")
        return Reasoning(disabled=True)
    if thinking is None and not effort:
        return None
    if thinking is not None and thinking.type not in _THINKING:
        losses.add("thinking")
    budget = (thinking.budget_tokens or 0) if thinking is not None else 0
    if effort and budget:
        losses.add("thinking.budget_tokens")
    return Reasoning(_EFFORTS.get(effort, effort), budget)


def _parts(content: str | list[Block], place: str, losses: Losses) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (TextPart(content),)
    parts = []
    for index, block in enumerate(content):
        where = f"{place}.content[{index}]"
        if block.type in _HOSTED_BLOCKS:
            reason = "This kind of content has no equivalent there"
            losses.hosted.append(Hosted(f"{where}.type", f"messages.{block.type}", reason, 8))
        else:
            parts.append(_part(block, where, losses))
    return tuple(parts)


def _part(block: Block, place: str, losses: Losses) -> Part:
    if block.type == "text":
        if block.citations:
            losses.add("messages.citations")
        return TextPart(block.text or "", cache_life(block.cache_control))
    if block.type == SEARCH_RESULT:
        return search_result(block, place, losses)
    if block.cache_control is not None:
        losses.add("cache_control")
    if block.type == "tool_use":
        arguments = msgspec.json.encode(block.input or {}).decode()
        return ToolCallPart(block.id or "", block.name or "", arguments)
    if block.type == "tool_result":
        return _tool_result(block, place, losses)
    if block.type == "thinking":
        return ThinkingPart(block.thinking or "", block.signature or "")
    if block.type == "redacted_thinking":
        return ThinkingPart("", redacted=block.data or "")
    return attached(block, place, losses)


def _tool_result(block: Block, place: str, losses: Losses) -> ToolResultPart:
    parts: tuple[TextPart | ImagePart | DocumentPart, ...] = ()
    if isinstance(block.content, str):
        parts = (TextPart(block.content),)
    elif isinstance(block.content, list):
        parts = tuple(
            _inner_part(inner, f"{place}.content[{index}]", losses)
            for index, inner in enumerate(block.content)
        )
    return ToolResultPart(block.tool_use_id or "", told(parts), bool(block.is_error))


def _inner_part(
    block: InnerBlock, place: str, losses: Losses
) -> TextPart | ImagePart | DocumentPart:
    if block.type == SEARCH_RESULT:
        return search_result(block, place, losses)
    if block.type == "text" and block.text is not None:
        if block.citations:
            losses.add("messages.citations")
        return TextPart(block.text, cache_life(block.cache_control))
    if block.cache_control is not None:
        losses.add("cache_control")
    return attached(block, place, losses)
