"""Converts a Responses request to a conversation."""

import re
from collections.abc import Mapping

from msgspec import Struct

from gateway.conversation import (
    ERROR_MARK,
    Conversation,
    DocumentPart,
    ImagePart,
    Part,
    Reasoning,
    RefusalPart,
    ResponseFormat,
    Sampling,
    TextPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolResultPart,
    Turn,
    told,
)
from gateway.dialects.bodies.inline_data import image_at, in_detail, inline_data
from gateway.dialects.bodies.strict_json import checked
from gateway.dialects.fitting.allowed_tools import ALLOWED, only
from gateway.dialects.fitting.own_names import OwnNames
from gateway.dialects.fitting.text_tools import text_as_arguments
from gateway.dialects.loss import AUTO_TIER, Losses, breakpoint_life, unsupported
from gateway.dialects.openai_responses import built_in, wire
from gateway.dialects.openai_responses.foreign import readable
from gateway.dialects.openai_responses.history import BuiltInItems
from gateway.dialects.openai_responses.marks import thinking_of
from gateway.dialects.openai_responses.request import check_said
from gateway.dialects.openai_responses.tools import (
    ADDITIONAL,
    HOSTED_ITEMS,
    Called,
    Toolbox,
    crosses,
    listed,
)
from gateway.dialects.openai_words import KIN, kin_of
from gateway.dialects.resources.openai_conversations import INCLUDABLE, NEVER_LEFT_OUT
from gateway.dialects.token_odds import odds_of_response
from gateway.types import ChatRequest


_PLACED = (KIN - {"verbosity"}) | frozenset(
    {
        *("model", "input", "instructions", "stream", "max_output_tokens", "temperature", "top_p"),
        *("tools", "tool_choice", "parallel_tool_calls", "text", "reasoning", "user"),
        *("safety_identifier", "service_tier", "store", "previous_response_id", "metadata"),
        *("conversation",),
        *("include", "background", "top_logprobs", "stream_options", "truncation"),
        *("max_tool_calls", "client_metadata"),
    }
)
"""Some of them mean nothing to another vendor: `max_tool_calls` limits calls of tools that only
this vendor runs, and in `client_metadata` a program describes itself to this vendor."""
_INNER: Mapping[str, type[Struct]] = {
    "reasoning": wire.ReasoningWire,
    "text": wire.TextConfig,
    "tool_choice": wire.NamedChoice,
}
_PLACED_OF_ITEM = frozenset(wire.Item.__struct_fields__)
_PLACED_OF_PART = frozenset(wire.Part.__struct_fields__)
_PLACED_OF_TOOL = frozenset(wire.ToolWire.__struct_fields__)
_MODES: Mapping[str, ToolChoice] = {
    "auto": ToolChoice("auto"),
    "none": ToolChoice("none"),
    "required": ToolChoice("any"),
}
_KNOWN_TO_BE_INCLUDED = INCLUDABLE | NEVER_LEFT_OUT
_EVERY_THOUGHT = frozenset({None, "auto", "all_turns"})
"""Values that ask for earlier thinking to be read again: what crosses is, the rest is reported."""
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})
_SPOKEN = frozenset({None, "message", "agent_message"})
"""Codex's agents send each other tasks and findings in items of their own kind."""
_CIPHERTEXT = re.compile(r"gAAAA[\w-]{80,}={0,2}", re.ASCII)
"""How the vendor encrypts such messages; targets of other vendors put plain text there."""
_SYSTEM_ROLES = frozenset({"system", "developer"})
OWN_NAMES: OwnNames = {
    "cache_control": ("prompt_cache_breakpoint",),
    "messages": ("input",),
    "messages.thinking": ("input.reasoning",),
    "messages.tool_calls": ("input",),
    "reasoning_effort": ("reasoning.effort",),
    "response_format": ("text.format",),
    "tools.schema": ("tools.parameters",),
}
"""Fields that the hub calls by other names."""


def read_conversation(request: ChatRequest) -> Conversation:
    """See `conversation` for what crosses.

    Raises:
        FeatureUnsupported: dropping what it asks would change its meaning.
    """
    check_said(request)
    tree, _ = readable(request.tree)
    body = checked(tree, wire.ResponsesBody)
    losses = Losses(request.dropped)
    losses.add_unknown(tree, _PLACED)
    _note_inner_fields(tree, losses)
    box = Toolbox(tree, losses)
    box.put(body.tools or [], "tools")
    _check_included(body.include)
    if body.truncation not in {None, "disabled"}:
        losses.add("truncation")
    if body.safety_identifier and body.user not in {None, body.safety_identifier}:
        losses.add("user")
    verbosity = body.text.verbosity if body.text is not None else None
    tells_thoughts = _tells_thoughts(body.reasoning, losses)
    if body.reasoning is not None and body.reasoning.context not in _EVERY_THOUGHT:
        losses.add("reasoning.context")
    system, turns = _turns(body, BuiltInItems(request.tree, box), losses, box)
    tools, tool_choice = _chosen(body.tool_choice, box)
    return Conversation(
        system=system,
        turns=turns,
        stream=request.stream,
        tools=tools,
        tool_choice=tool_choice,
        parallel_tool_calls=body.parallel_tool_calls,
        sampling=Sampling(temperature=body.temperature, top_p=body.top_p),
        response_format=_response_format(body.text),
        reasoning=_reasoning(body.reasoning),
        user=body.safety_identifier or body.user or "",
        is_user_safety=bool(body.safety_identifier),
        service_tier=AUTO_TIER if body.service_tier == AUTO_TIER else "",
        unplaced=losses.names(),
        kin=kin_of(tree, verbosity, "text.verbosity"),
        tells_thoughts=tells_thoughts,
        odds=odds_of_response(body.include, body.top_logprobs),
        hosted=tuple(losses.hosted),
    )


def _check_included(include: list[str] | None) -> None:
    """Other vendors of this dialect may allow more values here; other dialects do not."""
    for index, name in enumerate(include or ()):
        if name not in _KNOWN_TO_BE_INCLUDED:
            raise unsupported(f"include[{index}]", "This value is not known there", 68)


def _note_inner_fields(tree: Mapping[str, object], losses: Losses) -> None:
    """Fields of items and tools that cross; what is left out completely is reported by its name."""
    for name, shape in _INNER.items():
        losses.add_unread(tree.get(name), shape, f"{name}.")
    items = tree.get("input")
    for item in items if isinstance(items, list) else ():
        if item.get("type") in HOSTED_ITEMS or _is_built_in(item):
            continue
        losses.add_unknown(item, _PLACED_OF_ITEM, "input.")
        for inner in ("content", "output"):
            parts = item.get(inner)
            for part in parts if isinstance(parts, list) else ():
                losses.add_unknown(part, _PLACED_OF_PART, f"input.{inner}.")
    for _, tool in listed(tree):
        if crosses(tool):
            losses.add_unknown(tool, _PLACED_OF_TOOL, "tools.")


def _is_built_in(item: Mapping[str, object]) -> bool:
    return bool(built_in.called_in(item) or built_in.answered_in(item))


def _reasoning(asked: wire.ReasoningWire | None) -> Reasoning | None:
    if asked is None or asked.effort is None:
        return None
    is_disabled = asked.effort == "none"
    return Reasoning(disabled=True) if is_disabled else Reasoning(asked.effort)


def _tells_thoughts(asked: wire.ReasoningWire | None, losses: Losses) -> bool:
    """Whether a summary of the thinking is wanted; other dialects have no word for its length."""
    wanted = (asked.summary or asked.generate_summary) if asked is not None else None
    if wanted not in {None, "auto"}:
        losses.add("reasoning.summary")
    return wanted is not None


def _response_format(text: wire.TextConfig | None) -> ResponseFormat | None:
    asked = text.format if text is not None else None
    if asked is None or asked.type == "text":
        return None
    if asked.type == "json_object":
        return ResponseFormat("json_object")
    if asked.type != "json_schema":
        raise unsupported("text.format.type", "This format has no equivalent there", 33)
    return ResponseFormat(
        "json_schema",
        asked.name or "",
        asked.schema or {},
        asked.strict,
        asked.description or "",
    )


def _chosen(
    choice: str | wire.NamedChoice | None, box: Toolbox
) -> tuple[tuple[Tool, ...], ToolChoice | None]:
    """The tools, and which of them may or must be called."""
    tools, place = tuple(box.tools), "tool_choice"
    if choice is None or isinstance(choice, str):
        return tools, None if choice is None else _MODES[choice]
    if choice.type != ALLOWED:
        return tools, box.choice(choice, place)
    listed = [
        box.choice(each, f"{place}.tools[{index}]") for index, each in enumerate(choice.tools)
    ]
    return only(tools, listed, choice.mode, place)


def _turns(
    body: wire.ResponsesBody, own: BuiltInItems, losses: Losses, box: Toolbox
) -> tuple[tuple[TextPart, ...], tuple[Turn, ...]]:
    """Items become turns; consecutive texts, thoughts and calls of the assistant are one turn."""
    system = [TextPart(body.instructions)] if body.instructions else []
    turns: list[Turn] = []
    said: list[Part] = []
    items = [wire.Item(role="user", content=body.input)] if isinstance(body.input, str) else []
    for index, item in enumerate(items or body.input):
        assert isinstance(item, wire.Item)
        place = f"input[{index}]"
        if item.type == ADDITIONAL:
            box.bring(item.tools, f"{place}.tools")
            continue
        parts: list[Part] | None = own.calls(index, losses)
        if parts is None:
            parts = _of_assistant(item, place, losses, box)
        if parts is not None:
            said += parts
            continue
        if said:
            turns.append(Turn("assistant", tuple(said)))
            said = []
        turn = own.result(index, losses) or _turn(item, place, losses)
        if turn.role == "system" and not turns:
            system += (part for part in turn.parts if isinstance(part, TextPart))
        elif turn.parts:
            turns.append(turn)
    if said:
        turns.append(Turn("assistant", tuple(said)))
    return tuple(system), tuple(turns)


def _of_assistant(item: wire.Item, place: str, losses: Losses, box: Toolbox) -> list[Part] | None:
    """The parts of an item that the assistant made; None for any other item."""
    if item.type == "function_call":
        name = box.there(Called(item.name or "", item.namespace or ""))
        return [ToolCallPart(item.call_id or "", name, item.arguments or "")]
    if item.type == "custom_tool_call" and item.name and item.input is not None:
        name = box.there(Called(item.name, item.namespace or "", "custom"))
        arguments = text_as_arguments(item.input)
        return [ToolCallPart(item.call_id or "", name, arguments, is_text=True)]
    if item.type == "reasoning":
        return [thinking_of(item)]
    if item.type in {None, "message"} and item.role == "assistant":
        if item.phase is not None:
            losses.add("input.phase")
        return [*_content(item.content, f"{place}.content", losses)]
    if item.type in HOSTED_ITEMS:
        box.leave(item.type, place)
        return []
    return None


def _turn(item: wire.Item, place: str, losses: Losses) -> Turn:
    if item.type in _RESULTS and item.output is not None:
        return Turn("user", (_result(item, place, losses),))
    if item.type not in _SPOKEN:
        raise unsupported(f"{place}.type", "This kind of item has no equivalent there", 8)
    parts = _content(item.content, f"{place}.content", losses)
    if item.role not in _SYSTEM_ROLES:
        return Turn("user", parts)
    if not all(isinstance(part, TextPart) for part in parts):
        raise unsupported(f"{place}.content", "Only text is possible here", 8)
    return Turn("system", parts)


def _result(item: wire.Item, place: str, losses: Losses) -> ToolResultPart:
    parts = _content(item.output, f"{place}.output", losses)
    kept = [part for part in parts if isinstance(part, TextPart | ImagePart | DocumentPart)]
    first = kept[0] if kept else None
    is_error = isinstance(first, TextPart) and first.text.startswith(ERROR_MARK)
    if is_error and isinstance(first, TextPart):
        kept[0] = TextPart(first.text.removeprefix(ERROR_MARK), first.cached)
    return ToolResultPart(item.call_id or "", told(kept), is_error)


def _content(content: str | list[wire.Part] | None, place: str, losses: Losses) -> tuple[Part, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (TextPart(content),)
    return tuple(_part(part, f"{place}[{index}]", losses) for index, part in enumerate(content))


def _part(part: wire.Part, place: str, losses: Losses) -> Part:
    if part.type in {"input_text", "output_text", "text"} and part.text is not None:
        if part.annotations:
            losses.add("input.content.annotations")
        return TextPart(part.text, breakpoint_life(part.prompt_cache_breakpoint, losses))
    if part.type == "encrypted_content" and part.encrypted_content is not None:
        if _CIPHERTEXT.fullmatch(part.encrypted_content):
            raise unsupported(f"{place}.encrypted_content", "Only its own vendor can read this", 8)
        return TextPart(part.encrypted_content)
    if part.type == "refusal" and part.refusal is not None:
        return RefusalPart(part.refusal)
    return _attachment(part, place, losses)


def _attachment(part: wire.Part, place: str, losses: Losses) -> ImagePart | DocumentPart:
    if part.prompt_cache_breakpoint is not None:
        losses.add("prompt_cache_breakpoint")
    if part.type == "input_image" and part.image_url is not None:
        image = image_at(part.image_url, f"{place}.image_url")
        return in_detail(image, part.detail, "input.content.detail", losses)
    if part.type == "input_file" and part.file_data:
        media_type, data = inline_data(part.file_data)
        if data:
            return DocumentPart(media_type, data, title=part.filename or "")
    if part.type == "input_file" and part.file_url is not None:
        return DocumentPart(title=part.filename or "", url=part.file_url)
    raise unsupported(f"{place}.type", "This kind of content has no equivalent there", 8)
