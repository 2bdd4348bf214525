"""Converts a conversation to a Messages request."""

from base64 import b64decode
from collections.abc import Iterable, Mapping

import msgspec

from gateway.conversation import (
    RAW_ARGUMENTS,
    Conversation,
    DocumentPart,
    ImagePart,
    Part,
    RefusalPart,
    ResponseFormat,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolResultPart,
    Turn,
)
from gateway.dialects.anthropic_messages.schemas import enforceable
from gateway.dialects.anthropic_messages.thinking import add_reasoning
from gateway.dialects.anthropic_messages.tools import FORCING
from gateway.dialects.fitting.allowed_tools import offered
from gateway.dialects.fitting.answer_tool import asked_by_tool
from gateway.dialects.fitting.naming import call_id, tool_name
from gateway.dialects.fitting.parameters import MESSAGES_SAMPLING, asks, takes
from gateway.dialects.loss import Losses, check_schema_wanted, opaque_user, unsupported
from gateway.ports import UpstreamBody
from gateway.types import Target


JSON_INSTRUCTION = "Answer with one JSON object and nothing else."

_CHOICES = {"auto": "auto", "any": "any", "none": "none", "named": "tool"}
BREAKPOINTS_MAX = 4
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXTS = ("text/", "application/json")
"""Types of files that are text: the vendor takes none of them in base64."""
_NO_PLACE = ("seed", "presence_penalty", "frequency_penalty")
_GO_ON = "Continue."
"""Stands for a user who said nothing after the assistant's last turn."""

Json = dict[str, object]


def write_request(talk: Conversation, target: Target, output_tokens_cap: int) -> UpstreamBody:
    """See `conversation` for what crosses.

    Raises:
        FeatureUnsupported: it holds something a messages request cannot say.
    """
    losses = Losses(talk.unplaced)
    for each in talk.kin:
        if each.told_as:
            losses.add(each.told_as)
    talk = offered(talk)
    if talk.odds is not None:
        raise unsupported(talk.odds.place, "Token probabilities do not exist there", 24)
    if _is_asked_by_tool(talk, target):
        losses.add("response_format.strict")
        talk = asked_by_tool(talk)
    hoisted: list[Part] = list(talk.system)
    messages = _messages(talk, hoisted, target, losses)
    fields: Json = {"model": target.model, "max_tokens": output_tokens_cap}
    if talk.response_format is not None and talk.response_format.kind == "json_object":
        losses.add("response_format")
        hoisted.append(TextPart(JSON_INSTRUCTION))
    if system := _blocks(hoisted, losses):
        fields["system"] = system
    fields["messages"] = messages
    if talk.stream:
        fields["stream"] = True
    _add_sampling(fields, talk, target, losses)
    is_less = _add_tools(fields, talk, target, losses)
    _add_format(fields, talk.response_format, target, losses)
    add_reasoning(fields, talk, target, losses)
    _check_breakpoints(fields)
    if talk.user:
        fields["metadata"] = {"user_id": opaque_user(talk.user)}
    if talk.service_tier:
        fields["service_tier"] = talk.service_tier
    return UpstreamBody(msgspec.json.encode(fields), losses.names(), is_less=is_less)


def _is_asked_by_tool(talk: Conversation, target: Target) -> bool:
    """Whether the answer's schema has to be a tool's: only older models need that."""
    asked = talk.response_format
    if asked is None or asked.kind != "json_schema" or "json_schema" in target.capabilities:
        return False
    return "tools" in target.capabilities


def _add_sampling(fields: Json, talk: Conversation, target: Target, losses: Losses) -> None:
    sampling = talk.sampling
    for name in _NO_PLACE:
        if getattr(sampling, name) is not None:
            losses.add(name)
    for name in MESSAGES_SAMPLING:
        value: float | None = getattr(sampling, name)
        if value is None:
            continue
        if takes(target, name, is_warm="temperature" in fields):
            fields[name] = min(value, 1.0) if name == "temperature" else value
            if fields[name] != value:
                losses.add(name)
        elif asks(name, value):
            losses.add(name)
    stops = [text for text in sampling.stop if text.strip()]
    if stops:
        fields["stop_sequences"] = stops
    if len(stops) != len(sampling.stop):
        losses.add("stop")


def _add_tools(fields: Json, talk: Conversation, target: Target, losses: Losses) -> bool:
    """Add the tools; whether a call is required that this model makes only as it sees fit.

    A history with tool calls needs definitions even if the request offers no tool.
    """
    tools = [_tool(tool, losses) for tool in talk.tools]
    choice = talk.tool_choice
    if not tools:
        tools = [_tool(Tool(name, "", {}), losses) for name in _called_names(talk.turns)]
        choice = ToolChoice("none")
    if not tools:
        return False
    fields["tools"] = tools
    is_freed = choice is not None and _CHOICES[choice.mode] in FORCING
    is_freed = is_freed and not takes(target, "forced_tools")
    if is_freed:
        losses.add("tool_choice")
    if is_freed or (choice is None and talk.parallel_tool_calls is False):
        choice = ToolChoice("auto")
    if choice is not None:
        written: Json = {"type": _CHOICES[choice.mode]}
        if choice.mode == "named":
            written["name"] = tool_name(choice.name)
        if choice.mode != "none" and talk.parallel_tool_calls is not None:
            written["disable_parallel_tool_use"] = not talk.parallel_tool_calls
        fields["tool_choice"] = written
    return is_freed


def _called_names(turns: Iterable[Turn]) -> list[str]:
    parts = (part for turn in turns for part in turn.parts)
    return list(dict.fromkeys(part.name for part in parts if isinstance(part, ToolCallPart)))


def _tool(tool: Tool, losses: Losses) -> Json:
    written: Json = {"name": tool_name(tool.name)}
    if tool.description:
        written["description"] = tool.description
    schema = dict(tool.schema)
    if not schema:
        schema = {"type": "object", "properties": {}}
    elif schema.setdefault("type", "object") != "object":
        raise unsupported("tools", "The parameters of a tool must be an object there", 10)
    if tool.strict:
        schema = enforceable(schema, losses, "tools.schema")
    written["input_schema"] = schema
    if tool.strict is not None:
        written["strict"] = tool.strict
    if tool.text is not None and tool.text.syntax:
        losses.add("tools.format")
    if tool.cached:
        written["cache_control"] = cache_control(tool.cached)
    return written


def _add_format(fields: Json, asked: ResponseFormat | None, target: Target, losses: Losses) -> None:
    if asked is None or asked.kind != "json_schema":
        return
    check_schema_wanted(target, is_wanted=True)
    schema = enforceable(asked.schema, losses, "response_format.schema")
    if asked.description:
        # Only a schema can be described there.
        told = schema.get("description", asked.description)
        same = told == asked.description
        schema["description"] = told if same else f"{asked.description}\n{told}"
    fields["output_config"] = {"format": {"type": "json_schema", "schema": schema}}


def _check_breakpoints(fields: Json) -> None:
    """If there are more breakpoints than the vendor takes, the choice is the caller's, not ours."""
    pending: list[object] = [fields.get(name) for name in ("tools", "system", "messages")]
    count = 0
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        elif isinstance(node, dict):
            count += "cache_control" in node
            pending.append(node.get("content"))
    if count > BREAKPOINTS_MAX:
        raise unsupported("cache_control", f"At most {BREAKPOINTS_MAX} are possible there", 52)


def _messages(
    talk: Conversation, hoisted: list[Part], target: Target, losses: Losses
) -> list[Json]:
    """Turns that say something; tool results and the user's text after them share a turn."""
    messages: list[Json] = []
    blocks_before: list[object] | None = None
    for turn in talk.turns:
        if turn.role == "system" and "mid_system" not in target.capabilities:
            hoisted += turn.parts
            losses.add("messages.system_position")
            continue
        blocks = _blocks(turn.parts, losses)
        if not blocks:
            continue
        if turn.role == "user" and blocks_before is not None:
            blocks_before += blocks
            continue
        messages.append({"role": turn.role, "content": blocks})
        is_results = any(isinstance(part, ToolResultPart) for part in turn.parts)
        blocks_before = blocks if is_results else None
    _end(messages, talk, target, losses)
    return messages


def _end(messages: list[Json], talk: Conversation, target: Target, losses: Losses) -> None:
    """A last turn of the assistant is a prefill: only for models that take it, not ending blank.

    To other vendors it is a turn like any other, and the user has nothing to add.
    """
    if not messages:
        raise unsupported("messages", "A conversation without text is not possible there", 4)
    if messages[-1]["role"] != "assistant":
        return
    if "prefill" not in target.capabilities:
        if talk.is_begun:
            raise unsupported(
                "messages", "The last turn must not be the assistant's for this model", 27
            )
        messages.append({"role": "user", "content": [{"type": "text", "text": _GO_ON}]})
        losses.add("messages.last_turn")
        return
    blocks = messages[-1]["content"]
    last = blocks[-1] if isinstance(blocks, list) else None
    if isinstance(last, dict) and last["type"] == "text":
        last["text"] = last["text"].rstrip()


def _blocks(parts: Iterable[Part], losses: Losses) -> list[object]:
    """Blocks without the blank ones, which upstreams refuse, and without unsigned thinking."""
    blocks: list[object] = []
    for part in parts:
        if isinstance(part, TextPart | RefusalPart) and not part.text.strip():
            losses.add("messages.blank_text")
        elif isinstance(part, ThinkingPart) and not part.is_of_messages:
            losses.add("messages.thinking")
        else:
            blocks.append(_block(part, losses))
    return blocks


def cache_control(life: str) -> Json:
    """A breakpoint that lives `5m` (the default, left out) or `1h`."""
    return {"type": "ephemeral", "ttl": "1h"} if life == "1h" else {"type": "ephemeral"}


def _block(part: Part, losses: Losses) -> Mapping[str, object]:
    if isinstance(part, TextPart):
        block: Json = {"type": "text", "text": part.text}
        if part.cached:
            block["cache_control"] = cache_control(part.cached)
        return block
    if isinstance(part, RefusalPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ToolCallPart):
        arguments = _arguments(part.arguments_json, losses)
        name = tool_name(part.name)
        return {"type": "tool_use", "id": call_id(part.tool_id), "name": name, "input": arguments}
    if isinstance(part, ToolResultPart):
        return _tool_result(part, losses)
    if isinstance(part, ThinkingPart):
        if part.redacted:
            return {"type": "redacted_thinking", "data": part.redacted}
        return {"type": "thinking", "thinking": part.text, "signature": part.signature}
    if isinstance(part, ImagePart) and part.detail:
        losses.add(part.detail_place)
    return _attachment(part)


def _arguments(text: str, losses: Losses) -> object:
    """The model's own text if it is an object, byte for byte."""
    if not text.strip():
        return {}
    try:
        _OBJECT.decode(text)
    except (msgspec.DecodeError, RecursionError):
        losses.add("messages.tool_calls.arguments")
        return {RAW_ARGUMENTS: text}
    return msgspec.Raw(text)


def _tool_result(part: ToolResultPart, losses: Losses) -> Json:
    block: Json = {"type": "tool_result", "tool_use_id": call_id(part.tool_id)}
    content = _blocks(part.parts, losses)
    if content:
        block["content"] = content
    if part.is_error:
        block["is_error"] = True
    return block


def _attachment(part: ImagePart | DocumentPart) -> Json:
    source: Json
    if isinstance(part, ImagePart):
        if part.data:
            source = {"type": "base64", "media_type": part.media_type, "data": part.data}
        else:
            source = {"type": "url", "url": part.url}
        return {"type": "image", "source": source}
    if part.url:
        source = {"type": "url", "url": part.url}
    elif part.media_type.startswith(_TEXTS):
        source = {"type": "text", "media_type": "text/plain", "data": _text_of(part)}
    else:
        source = {"type": "base64", "media_type": part.media_type, "data": part.data}
    block: Json = {"type": "document", "source": source}
    if part.title:
        block["title"] = part.title
    return block


def _text_of(part: DocumentPart) -> str:
    try:
        return b64decode(part.data, validate=True).decode()
    except ValueError:
        raise unsupported("messages", "A file of text has to be UTF-8 in base64 there", 8) from None
