"""Converts a conversation to a chat request."""

from collections.abc import Iterable, Mapping

import msgspec

from gateway.conversation import (
    CALL_MARK,
    ERROR_MARK,
    PART_SEAM,
    Conversation,
    DocumentPart,
    ImagePart,
    Part,
    RefusalPart,
    ResponseFormat,
    TextForm,
    TextPart,
    ThinkingPart,
    Tool,
    ToolCallPart,
    ToolChoice,
    ToolResultPart,
    Turn,
)
from gateway.dialects.fitting.allowed_tools import ALLOWED, offered
from gateway.dialects.fitting.breakpoints import marked, settled
from gateway.dialects.fitting.naming import call_id, tool_name
from gateway.dialects.fitting.text_tools import text_of
from gateway.dialects.loss import Losses, check_schema_wanted, unsupported
from gateway.dialects.openai_chat.request import limit_field
from gateway.dialects.openai_chat.seals import seals_in
from gateway.dialects.openai_words import (
    CHOICES,
    OPENAI_SAMPLING,
    add_sampling,
    effort_for,
    is_vendors,
    kept_kin,
    named_schema,
    reasons_in,
    strictness,
    told_user,
)
from gateway.dialects.token_odds import told_to_chat
from gateway.ports import UpstreamBody
from gateway.types import Target


STOPS_MAX = 4
_THOUGHTS = ("reasoning_content", "reasoning")
"""Fields of an assistant's message for its thinking. Newer vLLM reads only the second name, our
engine either, and other engines the first."""
Json = dict[str, object]


def write_request(talk: Conversation, target: Target, output_tokens_cap: int) -> UpstreamBody:
    """See `conversation` for what crosses.

    Raises:
        FeatureUnsupported: it holds something that a chat completion cannot express.
    """
    losses = Losses(talk.unplaced)
    talk = settled(talk, target, losses)
    if not is_vendors(target):
        talk = offered(talk)
    if talk.is_begun and "prefill" not in target.capabilities:
        raise unsupported(
            "messages", "The last turn must not be the assistant's for this model", 27
        )
    fields: Json = {
        "model": target.model,
        "messages": _messages(talk, target, losses),
    }
    fields[limit_field(target)] = output_tokens_cap
    if talk.stream:
        fields["stream"] = True
        fields["stream_options"] = {"include_usage": True}
    _add_sampling(fields, talk, target, losses)
    if talk.tools:
        fields["tools"] = [_tool(tool, target, losses) for tool in talk.tools]
        if talk.tool_choice is not None:
            at_vendor = is_vendors(target)
            fields["tool_choice"] = _tool_choice(talk.tool_choice, at_vendor=at_vendor)
        if talk.parallel_tool_calls is not None:
            fields["parallel_tool_calls"] = talk.parallel_tool_calls
    if talk.response_format is not None:
        fields["response_format"] = _response_format(talk.response_format, target, losses)
    _add_reasoning(fields, talk, target, losses)
    fields |= told_to_chat(talk.odds, target, reasons=reasons_in(talk, target))
    fields |= told_user(talk, at_vendor=is_vendors(target))
    if talk.service_tier:
        fields["service_tier"] = talk.service_tier
    fields |= kept_kin(talk, target, losses, at_vendor=is_vendors(target))
    return UpstreamBody(msgspec.json.encode(fields), losses.names())


def _add_sampling(fields: Json, talk: Conversation, target: Target, losses: Losses) -> None:
    sampling = talk.sampling
    add_sampling(fields, talk, target, losses, OPENAI_SAMPLING)
    if sampling.top_k is not None:
        # The vendor has no word for it: only for servers that are known to accept it.
        if target.parameters.get("top_k") == "yes":
            fields["top_k"] = sampling.top_k
        else:
            losses.add("top_k")
    if sampling.stop:
        if len(sampling.stop) > STOPS_MAX:
            raise unsupported("stop", f"At most {STOPS_MAX} are possible there", 23)
        fields["stop"] = list(sampling.stop)


def _add_reasoning(fields: Json, talk: Conversation, target: Target, losses: Losses) -> None:
    reasoning = talk.reasoning
    can_reason = "reasoning_effort" in target.capabilities
    if talk.tells_thoughts and can_reason and is_vendors(target):
        # Compatible servers show thinking unasked, the vendor's own never does.
        losses.add("reasoning.summary")
    if reasoning is None:
        return
    if not can_reason:
        if not reasoning.disabled:
            losses.add("reasoning_effort")
    elif effort := effort_for(target, reasoning, losses):
        fields["reasoning_effort"] = effort


def _tool(tool: Tool, target: Target, losses: Losses) -> Json:
    function: Json = {"name": tool_name(tool.name)}
    if tool.description:
        function["description"] = tool.description
    if tool.text is not None and is_vendors(target):
        return {"type": "custom", "custom": function | _text_format(tool.text)}
    # A schema without a type is refused; a tool without parameters gets this one.
    function["parameters"] = tool.schema or {"type": "object", "properties": {}}
    strict = strictness(tool, losses, "tools.strict", at_vendor=is_vendors(target))
    if strict is not None:
        function["strict"] = strict
    if tool.text is not None and tool.text.syntax:
        losses.add("tools.format")
    return {"type": "function", "function": function}


def _text_format(form: TextForm) -> Json:
    if not form.syntax:
        return {"format": {"type": "text"}}
    grammar = {"syntax": form.syntax, "definition": form.definition}
    return {"format": {"type": "grammar", "grammar": grammar}}


def _tool_choice(choice: ToolChoice, *, at_vendor: bool) -> object:
    if choice.mode == "named":
        kind = "custom" if choice.is_text and at_vendor else "function"
        return {"type": kind, kind: {"name": tool_name(choice.name)}}
    if choice.allowed:
        listed = [_tool_choice(each, at_vendor=at_vendor) for each in choice.allowed]
        return {"type": ALLOWED, ALLOWED: {"mode": CHOICES[choice.mode], "tools": listed}}
    return CHOICES[choice.mode]


def _response_format(asked: ResponseFormat, target: Target, losses: Losses) -> Json:
    check_schema_wanted(target, is_wanted=asked.kind == "json_schema")
    if asked.kind == "json_object":
        return {"type": "json_object"}
    place = "response_format.strict"
    strict = strictness(asked, losses, place, at_vendor=is_vendors(target))
    return {"type": "json_schema", "json_schema": named_schema(asked, strict)}


def _messages(talk: Conversation, target: Target, losses: Losses) -> list[Json]:
    messages: list[Json] = []
    seals = {} if is_vendors(target) else seals_in(talk.turns)
    if talk.system:
        messages.append({"role": "system", "content": _content(talk.system)})
    for turn in talk.turns:
        if turn.role == "assistant":
            _append_assistant(messages, turn, target, losses, seals)
        elif turn.role == "system":
            messages.append({"role": "system", "content": _content(turn.parts)})
        else:
            _append_user(messages, turn)
    return messages


def _append_assistant(
    messages: list[Json],
    turn: Turn,
    target: Target,
    losses: Losses,
    seals: Mapping[str, object],
) -> None:
    """One message, with the thinking if the target takes it."""
    at_vendor = is_vendors(target)
    said: Iterable[Part] = (part for part in turn.parts if isinstance(part, TextPart | RefusalPart))
    if not at_vendor:
        # Compatible servers do not know parts of that kind, and refuse messages with one.
        said = (TextPart(part.text) if isinstance(part, RefusalPart) else part for part in said)
    said = tuple(said)
    called = (part for part in turn.parts if isinstance(part, ToolCallPart))
    calls = [_tool_call(part, seals, at_vendor=at_vendor) for part in called]
    thought = _thought(turn, target, losses)
    message: Json = {"role": "assistant"}
    if said:
        message["content"] = _content(said)
    elif not calls:
        return
    else:
        message["content"] = None
    if calls:
        message["tool_calls"] = calls
    if thought:
        message |= dict.fromkeys(_THOUGHTS[: 2 if target.in_house else 1], thought)
    messages.append(message)


def _thought(turn: Turn, target: Target, losses: Losses) -> str:
    """The thinking that is sent back to the model.

    Some models refuse a call without it, and all continue from it. Signed or sealed thinking is
    another vendor's.
    """
    thoughts = [
        part
        for part in turn.parts
        if isinstance(part, ThinkingPart)
        and (is_vendors(target) or not part.redacted.startswith(CALL_MARK))
    ]
    takes = target.in_house or "reasoning_content" in target.capabilities
    own = [each.text for each in thoughts if takes and each.is_open]
    if len(own) < len(thoughts):
        losses.add("messages.thinking")
    return PART_SEAM.join(own)


def _tool_call(part: ToolCallPart, seals: Mapping[str, object], *, at_vendor: bool) -> Json:
    if part.is_text and at_vendor:
        custom = {"name": tool_name(part.name), "input": text_of(part.arguments_json)}
        return {"id": part.tool_id, "type": "custom", "custom": custom}
    function = {"name": tool_name(part.name), "arguments": part.arguments_json}
    call: Json = {"id": part.tool_id, "type": "function", "function": function}
    if seals and (seal := seals.get(call_id(part.tool_id))) is not None:
        call["extra_content"] = seal
    return call


def _append_user(messages: list[Json], turn: Turn) -> None:
    """Tool results first, as required after calls; the rest is one user message."""
    rest: list[Part] = []
    for part in turn.parts:
        if isinstance(part, ToolResultPart):
            texts, others = _split_result(part)
            messages.append({"role": "tool", "tool_call_id": part.tool_id, "content": texts})
            if others:
                rest += (TextPart(f"Attached to the result of tool call {part.tool_id}:"), *others)
    rest += (part for part in turn.parts if not isinstance(part, ToolResultPart))
    if rest:
        messages.append({"role": "user", "content": _content(rest)})


def _split_result(result: ToolResultPart) -> tuple[object, list[Part]]:
    """A tool message carries text only; images and files follow in a user message."""
    texts = [part for part in result.parts if isinstance(part, TextPart)]
    others: list[Part] = [part for part in result.parts if not isinstance(part, TextPart)]
    if result.is_error:
        first = texts[0].text if texts else ""
        life = texts[0].cached if texts else ""
        texts = [TextPart(ERROR_MARK + first, life), *texts[1:]]
    return (_content(texts) if texts else ""), others


def _content(parts: Iterable[Part]) -> object:
    """A plain string for one text, which every server understands, else a list of parts."""
    listed = tuple(parts)
    only = listed[0] if len(listed) == 1 else None
    if isinstance(only, TextPart) and not only.cached:
        return only.text
    return [_part(part) for part in listed]


def _part(part: Part) -> Mapping[str, object]:
    if isinstance(part, TextPart):
        return marked({"type": "text", "text": part.text}, part)
    if isinstance(part, RefusalPart):
        return {"type": "refusal", "refusal": part.text}
    if isinstance(part, ImagePart):
        url = f"data:{part.media_type};base64,{part.data}" if part.data else part.url
        detail = {"detail": part.detail} if part.detail else {}
        return {"type": "image_url", "image_url": {"url": url, **detail}}
    if isinstance(part, DocumentPart):
        return _document(part)
    raise unsupported("messages", "This kind of content has no place in its turn", 8)


def _document(part: DocumentPart) -> Json:
    if part.url:
        raise unsupported("messages", "Only documents sent inline can be passed on", 8)
    if not part.data:
        text = f"{part.title}\n{part.text}" if part.title else part.text
        return {"type": "text", "text": text}
    file: Json = {"file_data": f"data:{part.media_type};base64,{part.data}"}
    file["filename"] = part.title or "document"
    return {"type": "file", "file": file}
