"""Converts a conversation to a Responses request."""

from collections.abc import Iterable

import msgspec

from gateway.conversation import (
    ERROR_MARK,
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
from gateway.dialects.fitting.naming import tool_name
from gateway.dialects.fitting.parameters import RESPONSES_SAMPLING
from gateway.dialects.fitting.text_tools import text_of
from gateway.dialects.loss import Losses, check_schema_wanted, unsupported
from gateway.dialects.openai_responses.marks import unwrapped_item
from gateway.dialects.openai_responses.request import ENCRYPTED, check_limit
from gateway.dialects.openai_words import (
    CHOICES,
    add_sampling,
    effort_for,
    is_vendors,
    kept_kin,
    named_schema,
    reasons_in,
    strictness,
    told_user,
)
from gateway.dialects.token_odds import INCLUDED, told_to_response
from gateway.ports import UpstreamBody
from gateway.types import Target


_NO_PLACE = ("seed", "presence_penalty", "frequency_penalty", "top_k")

Json = dict[str, object]


def write_request(talk: Conversation, target: Target, output_tokens_cap: int) -> UpstreamBody:
    """See `conversation` for what crosses.

    Raises:
        FeatureUnsupported: it holds something that a response cannot be asked for.
    """
    losses = Losses(talk.unplaced)
    talk = settled(talk, target, losses)
    if not is_vendors(target):
        talk = offered(talk)
    if talk.is_begun:
        raise unsupported(
            "messages", "The last turn must not be the assistant's for this model", 27
        )
    if talk.sampling.stop:
        raise unsupported("stop", "Stop sequences do not exist there", 23)
    fields: Json = {"model": target.model}
    system = Turn("system", talk.system)
    is_marked = any(part.cached for part in talk.system)
    if talk.system and not is_marked:
        fields["instructions"] = "\n".join(part.text for part in talk.system)
    # Instructions cannot hold a breakpoint, so a marked system text goes in front of the turns.
    fields["input"] = _items((system, *talk.turns) if is_marked else talk.turns, losses)
    fields["max_output_tokens"] = check_limit(output_tokens_cap)
    fields["store"] = False
    if talk.stream:
        fields["stream"] = True
    _add_sampling(fields, talk, target, losses)
    _add_tools(fields, talk, losses)
    text: Json = {}
    if talk.response_format is not None:
        text["format"] = _format(talk.response_format, target, losses)
    _add_reasoning(fields, talk, target, losses)
    _add_odds(fields, talk, target)
    fields |= told_user(talk)
    if talk.service_tier:
        fields["service_tier"] = talk.service_tier
    kin = kept_kin(talk, target, losses)
    if (verbosity := kin.pop("verbosity", None)) is not None:
        text["verbosity"] = verbosity
    if text:
        fields["text"] = text
    fields |= kin
    return UpstreamBody(msgspec.json.encode(fields), losses.names())


def _add_sampling(fields: Json, talk: Conversation, target: Target, losses: Losses) -> None:
    sampling = talk.sampling
    for name in _NO_PLACE:
        if getattr(sampling, name) is not None:
            losses.add(name)
    add_sampling(fields, talk, target, losses, RESPONSES_SAMPLING)


def _add_tools(fields: Json, talk: Conversation, losses: Losses) -> None:
    if not talk.tools:
        return
    fields["tools"] = [_tool(tool, losses) for tool in talk.tools]
    if talk.tool_choice is not None:
        fields["tool_choice"] = _tool_choice(talk.tool_choice)
    if talk.parallel_tool_calls is not None:
        fields["parallel_tool_calls"] = talk.parallel_tool_calls


def _add_reasoning(fields: Json, talk: Conversation, target: Target, losses: Losses) -> None:
    asked = talk.reasoning
    if "reasoning_effort" not in target.capabilities:
        if asked is not None and not asked.disabled:
            losses.add("reasoning_effort")
        return
    fields["include"] = [ENCRYPTED]
    reasoning: Json = {}
    if asked is not None and (effort := effort_for(target, asked, losses)):
        reasoning["effort"] = effort
    if talk.tells_thoughts:
        reasoning["summary"] = "auto"
    if reasoning:
        fields["reasoning"] = reasoning


def _add_odds(fields: Json, talk: Conversation, target: Target) -> None:
    beside = told_to_response(talk.odds, target, reasons=reasons_in(talk, target))
    if beside is None:
        return
    fields["include"] = [*([ENCRYPTED] if "include" in fields else ()), INCLUDED]
    if beside:
        fields["top_logprobs"] = beside


def _tool(tool: Tool, losses: Losses) -> Json:
    """`strict` is always written: this dialect's default is the opposite."""
    written: Json = {"type": "function", "name": tool_name(tool.name)}
    if tool.description:
        written["description"] = tool.description
    if tool.text is not None:
        return written | {"type": "custom", "format": _text_format(tool.text)}
    written["parameters"] = tool.schema or {"type": "object", "properties": {}}
    written["strict"] = bool(strictness(tool, losses, "tools.strict"))
    return written


def _text_format(form: TextForm) -> Json:
    if not form.syntax:
        return {"type": "text"}
    return {"type": "grammar", "syntax": form.syntax, "definition": form.definition}


def _tool_choice(choice: ToolChoice) -> object:
    if choice.mode == "named":
        kind = "custom" if choice.is_text else "function"
        return {"type": kind, "name": tool_name(choice.name)}
    if choice.allowed:
        listed = [_tool_choice(each) for each in choice.allowed]
        return {"type": ALLOWED, "mode": CHOICES[choice.mode], "tools": listed}
    return CHOICES[choice.mode]


def _format(asked: ResponseFormat, target: Target, losses: Losses) -> Json:
    check_schema_wanted(target, is_wanted=asked.kind == "json_schema")
    if asked.kind == "json_object":
        return {"type": "json_object"}
    strict = strictness(asked, losses, "response_format.strict")
    return {"type": "json_schema", **named_schema(asked, strict)}


def _items(turns: Iterable[Turn], losses: Losses) -> list[Json]:
    items: list[Json] = []
    texts: set[str] = set()
    for turn in turns:
        if turn.role == "assistant":
            _append_assistant(items, turn.parts, losses)
            texts = {
                part.tool_id
                for part in turn.parts
                if isinstance(part, ToolCallPart) and part.is_text
            }
        else:
            _append_user(items, turn, texts, losses)
    return items


def _append_assistant(items: list[Json], parts: Iterable[Part], losses: Losses) -> None:
    """One item per thought, text and call, in order; consecutive texts share a message."""
    said: list[Json] = []
    for part in parts:
        if isinstance(part, TextPart | RefusalPart):
            if not part.text.strip():
                losses.add("messages.blank_text")
                continue
            if not said:
                items.append({"type": "message", "role": "assistant", "content": said})
            if isinstance(part, TextPart) and part.cached:
                losses.add("cache_control")
            said.append(_said(part))
            continue
        said = []
        if isinstance(part, ToolCallPart):
            items.append(_call(part))
        elif isinstance(part, ThinkingPart):
            item = unwrapped_item(part.redacted)
            if item is None:
                losses.add("messages.thinking")
            else:
                items.append(item)
        else:
            raise unsupported("messages", "This kind of content has no place in its turn", 8)


def _said(part: TextPart | RefusalPart) -> Json:
    if isinstance(part, RefusalPart):
        return {"type": "refusal", "refusal": part.text}
    return {"type": "output_text", "text": part.text, "annotations": []}


def _call(part: ToolCallPart) -> Json:
    called: Json = {"call_id": part.tool_id, "name": tool_name(part.name)}
    if part.is_text:
        return {"type": "custom_tool_call", **called, "input": text_of(part.arguments_json)}
    return {
        "type": "function_call",
        **called,
        "arguments": part.arguments_json.strip() or "{}",
    }


def _append_user(items: list[Json], turn: Turn, texts: set[str], losses: Losses) -> None:
    """Results first, as required after calls; the rest is one message.

    `texts` are the ids of the last calls that were made with a text.
    """
    for part in turn.parts:
        if isinstance(part, ToolResultPart):
            of = "custom_tool_call" if part.tool_id in texts else "function_call"
            items.append({"type": f"{of}_output", **_result(part)})
    rest = [part for part in turn.parts if not isinstance(part, ToolResultPart)]
    content = [_input(part) for part in rest if not _is_blank(part)]
    if len(content) < len(rest):
        losses.add("messages.blank_text")
    if content:
        role = "developer" if turn.role == "system" else "user"
        items.append({"type": "message", "role": role, "content": content})


def _is_blank(part: Part) -> bool:
    return isinstance(part, TextPart) and not part.text.strip()


def _result(part: ToolResultPart) -> Json:
    """A single text is a string; several stay separate."""
    parts = part.parts
    first = parts[0] if parts else TextPart("")
    if part.is_error:
        # The mark is on its first text, which has to be added if an image comes first.
        if isinstance(first, TextPart):
            first = TextPart(ERROR_MARK + first.text, first.cached)
            parts = (first, *parts[1:])
        else:
            first = TextPart(ERROR_MARK)
            parts = (first, *parts)
    output: object = [_input(each) for each in parts]
    if not parts[1:] and isinstance(first, TextPart) and not first.cached:
        output = first.text
    return {"call_id": part.tool_id, "output": output}


def _input(part: Part) -> Json:
    if isinstance(part, TextPart):
        return marked({"type": "input_text", "text": part.text}, part)
    if isinstance(part, ImagePart):
        url = f"data:{part.media_type};base64,{part.data}" if part.data else part.url
        return {"type": "input_image", "image_url": url, "detail": part.detail or "auto"}
    if isinstance(part, DocumentPart):
        if part.url:
            named = {"filename": part.title} if part.title else {}
            return {"type": "input_file", "file_url": part.url, **named}
        if not part.data:
            text = f"{part.title}\n{part.text}" if part.title else part.text
            return {"type": "input_text", "text": text}
        data = f"data:{part.media_type};base64,{part.data}"
        return {"type": "input_file", "filename": part.title or "document", "file_data": data}
    raise unsupported("messages", "This kind of content has no place in its turn", 8)
