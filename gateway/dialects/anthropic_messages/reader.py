"""Messages request → conversation."""

from collections.abc import Mapping

import msgspec

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
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolResultPart,
    Turn,
)
from gateway.dialects.anthropic_messages.wire import (
    Block,
    InnerBlock,
    MessagesBody,
    Source,
    ToolWire,
    TurnWire,
)
from gateway.dialects.loss import AUTO_TIER, Losses, cache_life, unsupported
from gateway.dialects.strict_json import checked
from gateway.types import ChatRequest


_PLACED = frozenset(
    {
        *("model", "messages", "max_tokens", "stream", "system", "temperature", "top_p", "top_k"),
        *("stop_sequences", "tools", "tool_choice", "thinking", "output_config", "metadata"),
        *("service_tier", "cache_control"),
    }
)
_REFUSED: Mapping[str, tuple[str, int]] = {
    "inference_geo": ("A place of inference cannot be promised there", 55),
    "container": ("Containers do not exist there", 56),
    "mcp_servers": ("MCP servers cannot be called from there", 19),
}
"""Why they are refused, and the rule that says so."""

_PLACED_OF_TURN = frozenset(TurnWire.__struct_fields__)
_PLACED_OF_BLOCK = frozenset(Block.__struct_fields__)
_PLACED_OF_TOOL = frozenset({"name", "type", "description", "input_schema", "strict"})
_NO_SERVER = "A server tool has no equivalent there"
_HOSTED = ("web_search_", "web_fetch_", "code_execution_", "tool_search_tool_")
"""How types of tools begin that their vendor runs; each has a date behind it."""
_HOSTED_BLOCKS = frozenset(
    {
        *("server_tool_use", "web_search_tool_result", "web_fetch_tool_result"),
        *("code_execution_tool_result", "bash_code_execution_tool_result"),
        *("text_editor_code_execution_tool_result", "tool_search_tool_result"),
    }
)
_MODES: Mapping[str, ToolChoice] = {
    "auto": ToolChoice("auto"),
    "any": ToolChoice("any"),
    "none": ToolChoice("none"),
}


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
    if request.betas:
        losses.add("anthropic-beta")
    losses.add_unknown(request.tree, _PLACED)
    losses.add_unknown_inside(request.tree["messages"], _PLACED_OF_TURN, _PLACED_OF_BLOCK)
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
        tools=_tools(request.tree, wire.tools or [], losses),
        tool_choice=_tool_choice(wire),
        parallel_tool_calls=parallel,
        sampling=Sampling(
            temperature=wire.temperature,
            top_p=wire.top_p,
            top_k=wire.top_k,
            stop=tuple(wire.stop_sequences or ()),
        ),
        response_format=_response_format(wire),
        reasoning=_reasoning(wire),
        user=(wire.metadata.user_id or "") if wire.metadata is not None else "",
        service_tier=AUTO_TIER if wire.service_tier == AUTO_TIER else "",
        unplaced=losses.names(),
        is_begun=bool(turns) and turns[-1].role == "assistant",
        hosted=tuple(losses.hosted),
    )


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


def _tools(tree: Mapping[str, object], tools: list[ToolWire], losses: Losses) -> tuple[Tool, ...]:
    read = []
    for index, tool in enumerate(tools):
        if tool.type is not None and tool.type.startswith(_HOSTED):
            name = next(each for each in _HOSTED if tool.type.startswith(each)).rstrip("_")
            losses.hosted.append(Hosted(f"tools[{index}].type", f"tools.{name}", _NO_SERVER, 19))
            continue
        if tool.type not in {None, "custom"} or not tool.name:
            raise unsupported(f"tools[{index}].type", _NO_SERVER, 19)
        schema = tool.input_schema or {}
        cached = cache_life(tool.cache_control)
        read.append(Tool(tool.name, tool.description or "", schema, tool.strict, cached))
    listed = tree.get("tools")
    for raw in listed if isinstance(listed, list) else ():
        _note_tool_fields(raw, losses)
    return tuple(read)


def _note_tool_fields(raw: Mapping[str, object], losses: Losses) -> None:
    """Report what a tool says beyond what crosses, e.g. `defer_loading`."""
    if raw.get("type") not in {None, "custom"}:
        return
    losses.add_unknown(raw, _PLACED_OF_TOOL | {"cache_control"}, "tools.")


def _tool_choice(wire: MessagesBody) -> ToolChoice | None:
    choice = wire.tool_choice
    if choice is None:
        return None
    for tool in (wire.tools or ()) if choice.name else ():
        if tool.name == choice.name and tool.type not in {None, "custom"}:
            raise unsupported("tool_choice.name", _NO_SERVER, 19)
    return _MODES.get(choice.type) or ToolChoice("named", choice.name or "")


def _response_format(wire: MessagesBody) -> ResponseFormat | None:
    asked = wire.output_config.format if wire.output_config is not None else None
    if asked is None:
        return None
    if asked.type != "json_schema":
        raise unsupported("output_config.format.type", "This format has no equivalent there", 33)
    return ResponseFormat("json_schema", schema=asked.schema or {}, strict=True)


def _reasoning(wire: MessagesBody) -> Reasoning | None:
    effort = (wire.output_config.effort or "") if wire.output_config is not None else ""
    thinking = wire.thinking
    if thinking is not None and thinking.type == "disabled":
        return Reasoning(disabled=True)
    if thinking is None and not effort:
        return None
    budget = (thinking.budget_tokens or 0) if thinking is not None else 0
    return Reasoning(effort, budget)


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
    return _attachment(block, place, losses)


def _tool_result(block: Block, place: str, losses: Losses) -> ToolResultPart:
    parts: tuple[TextPart | ImagePart | DocumentPart, ...] = ()
    if isinstance(block.content, str):
        parts = (TextPart(block.content),)
    elif isinstance(block.content, list):
        parts = tuple(
            TextPart(inner.text, cache_life(inner.cache_control))
            if inner.type == "text" and inner.text is not None
            else _attachment(inner, f"{place}.content[{index}]", losses)
            for index, inner in enumerate(block.content)
        )
    return ToolResultPart(block.tool_use_id or "", parts, bool(block.is_error))


def _attachment(block: Block | InnerBlock, place: str, losses: Losses) -> ImagePart | DocumentPart:
    source = block.source
    if isinstance(source, Source):
        if block.type == "image":
            return _image(source, place)
        if block.type == "document":
            if isinstance(block, Block) and block.context is not None:
                losses.add("messages.document.context")
            if isinstance(block, Block) and block.citations:
                losses.add("messages.citations")
            return _document(source, block.title or "", place)
    raise unsupported(f"{place}.type", "This kind of content has no equivalent there", 8)


def _image(source: Source, place: str) -> ImagePart:
    if source.type == "base64" and source.data is not None:
        return ImagePart("", source.media_type or "", source.data)
    if source.type == "url" and source.url is not None:
        return ImagePart(source.url)
    raise unsupported(f"{place}.source.type", "Only images by URL or inline can be passed on", 6)


def _document(source: Source, title: str, place: str) -> DocumentPart:
    if source.type == "base64" and source.data is not None:
        return DocumentPart(source.media_type or "", source.data, title=title)
    if source.type == "text" and source.data is not None:
        return DocumentPart(text=source.data, title=title)
    raise unsupported(f"{place}.source.type", "Only documents sent inline can be passed on", 8)
