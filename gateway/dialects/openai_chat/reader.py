"""Converts a chat request to a conversation."""

from collections.abc import Mapping

from msgspec import Struct

from gateway.conversation import (
    ERROR_MARK,
    Conversation,
    DocumentPart,
    Hosted,
    Part,
    Reasoning,
    RefusalPart,
    ResponseFormat,
    Sampling,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    Turn,
    told,
)
from gateway.dialects.bodies.inline_data import image_at, in_detail, inline_data
from gateway.dialects.bodies.strict_json import checked
from gateway.dialects.fitting.naming import tool_id
from gateway.dialects.fitting.own_names import OwnNames
from gateway.dialects.loss import AUTO_TIER, Losses, breakpoint_life, cache_life, unsupported
from gateway.dialects.openai_chat.tools import (
    Names,
    calls_of,
    chosen,
    note_fields,
    text_names,
    tools_of,
)
from gateway.dialects.openai_chat.wire import (
    ChatBody,
    ChatMessage,
    ContentPart,
    FunctionCall,
    NamedChoice,
    NamedFunction,
    ResponseFormatWire,
)
from gateway.dialects.openai_words import KIN, kin_of
from gateway.dialects.token_odds import odds_of_chat
from gateway.types import ChatRequest


_PLACED = KIN | frozenset(
    {
        *("model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens"),
        *("temperature", "top_p", "n", "stop", "seed", "presence_penalty", "frequency_penalty"),
        *(
            "logprobs",
            "top_logprobs",
            "tools",
            "tool_choice",
            "parallel_tool_calls",
            "response_format",
        ),
        *("reasoning_effort", "user", "safety_identifier", "service_tier", "modalities"),
        *("web_search_options", "store", "functions", "function_call"),
    }
)
_INNER: Mapping[str, type[Struct]] = {
    "messages": ChatMessage,
    "response_format": ResponseFormatWire,
    "tool_choice": NamedChoice,
    "function_call": NamedFunction,
}
_REFUSED: Mapping[str, tuple[str, int]] = {
    "audio": ("Spoken answers have no equivalent there", 24),
    "moderation": ("Moderation has no equivalent there", 24),
}
"""The reason for each refusal, and the number of the rule for it."""

_SYSTEM_ROLES = frozenset({"system", "developer"})
OWN_NAMES: OwnNames = {
    "cache_control": ("prompt_cache_breakpoint", "cache_control"),
    "max_output_tokens": ("max_completion_tokens", "max_tokens"),
    "messages.thinking": (
        *("messages.thinking_blocks", "messages.reasoning_content", "messages.thinking"),
    ),
    "response_format.description": ("response_format.json_schema.description",),
    "response_format.schema": ("response_format.json_schema.schema",),
    "response_format.strict": ("response_format.json_schema.strict",),
    "tool_choice": ("function_call", "tool_choice"),
    "tools": ("functions", "tools"),
    "tools.format": ("tools.custom.format",),
    "tools.schema": ("tools.function.parameters",),
    "tools.strict": ("tools.function.strict",),
}
"""Fields that the hub calls by other names."""


def read_conversation(request: ChatRequest) -> Conversation:
    """See `conversation` for what crosses.

    Raises:
        FeatureUnsupported: dropping what it asks would change its meaning.
    """
    wire = checked(request.tree, ChatBody)
    losses = Losses()
    _refuse_unsupported(request.tree, wire)
    losses.add_unknown(request.tree, _PLACED)
    for name, shape in _INNER.items():
        losses.add_unread(request.tree.get(name), shape, f"{name}.")
    note_fields(request.tree, losses)
    texts = text_names(request.tree)
    system, turns = _turns(wire.messages, texts, losses)
    tools, tool_choice = chosen(wire, tools_of(wire, texts), texts)
    if wire.store:
        # Nothing is kept anywhere unless the caller asks for it.
        losses.add("store")
    if wire.safety_identifier and wire.user not in {None, wire.safety_identifier}:
        losses.add("user")
    return Conversation(
        system=system,
        turns=turns,
        stream=request.stream,
        tools=tools,
        tool_choice=tool_choice,
        parallel_tool_calls=False if wire.functions else wire.parallel_tool_calls,
        sampling=_sampling(wire),
        response_format=_response_format(wire),
        reasoning=_reasoning(wire.reasoning_effort),
        user=wire.safety_identifier or wire.user or "",
        is_user_safety=bool(wire.safety_identifier),
        service_tier=AUTO_TIER if wire.service_tier == AUTO_TIER else "",
        unplaced=losses.names(),
        kin=kin_of(request.tree, wire.verbosity, "verbosity"),
        odds=odds_of_chat(request.tree),
        hosted=_hosted(request.tree),
    )


def _hosted(tree: Mapping[str, object]) -> tuple[Hosted, ...]:
    name = "web_search_options"
    reason = "A server tool has no equivalent there"
    # An empty object asks for nothing in particular.
    return () if tree.get(name) is None else (Hosted(name, name, reason, 19),)


def _refuse_unsupported(tree: Mapping[str, object], wire: ChatBody) -> None:
    for name, (reason, rule) in _REFUSED.items():
        if tree.get(name):
            raise unsupported(name, reason, rule)
    if wire.tools and wire.functions:
        raise unsupported("functions", "Use tools, or the older functions, and not both", 5)
    if wire.n is not None and wire.n > 1:
        raise unsupported("n", "Only one answer per request is possible there", 24)
    if wire.modalities is not None and wire.modalities != ["text"]:
        raise unsupported("modalities", "Only text can be answered there", 24)


def _sampling(wire: ChatBody) -> Sampling:
    stop = (wire.stop,) if isinstance(wire.stop, str) else tuple(wire.stop or ())
    return Sampling(
        temperature=wire.temperature,
        top_p=wire.top_p,
        stop=stop,
        seed=wire.seed,
        presence_penalty=wire.presence_penalty or None,
        frequency_penalty=wire.frequency_penalty or None,
    )


def _reasoning(effort: str | None) -> Reasoning | None:
    if effort is None:
        return None
    return Reasoning(disabled=True) if effort == "none" else Reasoning(effort=effort)


def _response_format(wire: ChatBody) -> ResponseFormat | None:
    asked = wire.response_format
    if asked is None or asked.type == "text":
        return None
    if asked.type == "json_object":
        return ResponseFormat("json_object")
    if asked.type != "json_schema" or asked.json_schema is None:
        raise unsupported("response_format.type", "This format has no equivalent there", 33)
    schema = asked.json_schema
    return ResponseFormat(
        "json_schema", schema.name, schema.schema or {}, schema.strict, schema.description or ""
    )


def _turns(
    messages: list[ChatMessage], texts: Names, losses: Losses
) -> tuple[tuple[TextPart, ...], tuple[Turn, ...]]:
    """System texts at the beginning, then the turns; each tool result is a user's turn."""
    system: list[TextPart] = []
    turns: list[Turn] = []
    legacy: ToolCallPart | None = None
    called = _called(messages)
    for index, message in enumerate(messages):
        place = f"messages[{index}]"
        if message.name is not None and not _names_its_call(message, called):
            losses.add("messages.name")
        if message.role in _SYSTEM_ROLES:
            said = _texts(message, place, losses)
            if turns:
                turns.append(Turn("system", said))
            else:
                system += said
        elif message.role == "tool":
            turns.append(_result(message, place, losses))
        elif message.role == "assistant":
            parts = _assistant_parts(message, place, texts, losses)
            if message.function_call is not None:
                legacy = _legacy_call(message.function_call, index)
                parts = (*parts, legacy)
            turns.append(Turn("assistant", parts))
        elif message.role == "user":
            turns.append(Turn("user", _content(message.content, place, losses)))
        else:
            turns.append(_legacy_result(message, legacy, place, losses))
            legacy = None
    return tuple(system), tuple(turns)


def _called(messages: list[ChatMessage]) -> set[tuple[str | None, str]]:
    """The id of each call in the history, with the name of the tool it calls."""
    calls = (call for message in messages for call in message.tool_calls or ())
    return {(call.id, what.name) for call in calls if (what := call.function or call.custom)}


def _names_its_call(message: ChatMessage, called: set[tuple[str | None, str]]) -> bool:
    """Whether a message's name only repeats the tool's name, which the call already says."""
    if message.role == "tool":
        return (message.tool_call_id, message.name) in called
    return message.role == "function"


def _legacy_call(call: FunctionCall, index: int) -> ToolCallPart:
    """The older `function_call` has no id: its place in the history gives one."""
    return ToolCallPart(tool_id("function_call", index), call.name, call.arguments)


def _legacy_result(
    message: ChatMessage, call: ToolCallPart | None, place: str, losses: Losses
) -> Turn:
    """The answer to an older `function_call`, or plain text if nothing was called."""
    texts = _texts(message, place, losses)
    if call is not None:
        return Turn("user", (ToolResultPart(call.tool_id, texts),))
    losses.add("messages.role")
    return Turn("user", (TextPart(f"Result of {message.name or 'a function'}:"), *texts))


def _texts(message: ChatMessage, place: str, losses: Losses) -> tuple[TextPart, ...]:
    parts = _content(message.content, place, losses)
    texts = tuple(part for part in parts if isinstance(part, TextPart))
    if len(texts) != len(parts):
        raise unsupported(f"{place}.content", "Only text is possible here", 8)
    return texts


def _result(message: ChatMessage, place: str, losses: Losses) -> Turn:
    texts = _texts(message, place, losses)
    is_error = bool(texts) and texts[0].text.startswith(ERROR_MARK)
    if is_error:
        said = texts[0].text.removeprefix(ERROR_MARK)
        texts = (TextPart(said, texts[0].cached), *texts[1:])
    result = ToolResultPart(message.tool_call_id or "", told(texts), is_error)
    return Turn("user", (result,))


def _assistant_parts(
    message: ChatMessage, place: str, texts: Names, losses: Losses
) -> tuple[Part, ...]:
    parts: list[Part] = [
        ThinkingPart(block.thinking, block.signature, block.data)
        for block in message.thinking_blocks or ()
    ]
    if message.annotations:
        losses.add("messages.annotations")
    if message.reasoning_content and not parts:
        parts.append(ThinkingPart(message.reasoning_content))
    is_call = bool(message.tool_calls or message.function_call)
    if message.content or not is_call:
        # Some write an empty text in a stream's first chunk before a call; it means no text.
        parts += _said(message.content, place, losses)
    if message.refusal:
        parts.append(RefusalPart(message.refusal))
    parts += calls_of(message.tool_calls or (), place, texts)
    return tuple(parts)


def _said(content: str | list[ContentPart] | None, place: str, losses: Losses) -> tuple[Part, ...]:
    """What an assistant said; thoughts in it are unsealed, and no other model reads them.

    Mistral's models put their thoughts into parts of the content.
    """
    if not isinstance(content, list):
        return _content(content, place, losses)
    return tuple(
        ThinkingPart("")
        if part.type == "thinking"
        else _part(part, f"{place}.content[{index}]", losses)
        for index, part in enumerate(content)
    )


def _content(
    content: str | list[ContentPart] | None, place: str, losses: Losses
) -> tuple[Part, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (TextPart(content),)
    return tuple(
        _part(part, f"{place}.content[{index}]", losses) for index, part in enumerate(content)
    )


def _part(part: ContentPart, place: str, losses: Losses) -> Part:
    if part.type == "text" and part.text is not None:
        life = cache_life(part.cache_control) or breakpoint_life(
            part.prompt_cache_breakpoint, losses
        )
        return TextPart(part.text, life)
    if part.cache_control is not None:
        losses.add("cache_control")
    if part.prompt_cache_breakpoint is not None:
        losses.add("prompt_cache_breakpoint")
    if part.type == "refusal" and part.refusal is not None:
        return RefusalPart(part.refusal)
    if part.type == "image_url" and part.image_url is not None:
        image = image_at(part.image_url.url, f"{place}.image_url.url")
        return in_detail(image, part.image_url.detail, "messages.image_url.detail", losses)
    if part.type == "file" and part.file is not None:
        media_type, data = inline_data(part.file.file_data or "")
        if data:
            return DocumentPart(media_type, data, title=part.file.filename or "")
        raise unsupported(f"{place}.file", "Only files sent inline can be passed on", 8)
    raise unsupported(f"{place}.type", "This kind of content has no equivalent there", 8)
