"""Reads a chat completion request: known fields typed, unsupported ones refused by name."""

import json
import re
from typing import Any, Literal

import msgspec

from local_engine.model.config import SamplingDefaults
from local_engine.sampling_params import MAX_TOKENS, SamplingParams
from local_engine.serve.api.errors import InvalidRequest
from local_engine.serve.api.sampling_fields import (
    ALWAYS_ON,
    OTHERS_SAMPLING,
    SamplingFields,
    grammar_field,
    read_params,
)
from local_engine.text.grammar import GrammarRefused, grammar_of_schema
from local_engine.text.tokenizer import ChatTokenizer


MAX_MESSAGES = 2048
MAX_TOOLS = 128
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
# Ignoring these would give a false answer; all other unknown fields are harmless.
_UNSUPPORTED = (
    "functions",
    "function_call",
    "audio",
    "prediction",
    "web_search_options",
    "best_of",
    "echo",
    # It would cut the system message off.
    "truncate_prompt_tokens",
    "chat_template",
    "documents",
    "continue_final_message",
    "add_special_tokens",
    "mm_processor_kwargs",
    *OTHERS_SAMPLING,
)
_PARAM_IN_ERROR = re.compile(r" - at `\$\.?([^`]*)`$")
_MISSING_IN_ERROR = re.compile(r"Object missing required field `([^`]*)`")
# The JSON spelling of a character in two halves, or of one half alone.
_MAYBE_HALF = re.compile(r"\\u[dD][89a-fA-F]")
Json = dict[str, Any]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class _Part(msgspec.Struct):
    type: str
    text: str | None = None


class _Called(msgspec.Struct):
    name: str
    arguments: str = "{}"


class _ToolCall(msgspec.Struct):
    function: _Called
    id: str = ""
    type: str = "function"


class Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    function_call: Json | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    """vLLM's later name for the same."""


class _Function(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: Json | None = None
    strict: bool | None = None


class Tool(msgspec.Struct):
    type: str
    function: _Function


class _ChosenFunction(msgspec.Struct):
    name: str


class _ToolChoice(msgspec.Struct):
    type: str
    function: _ChosenFunction | None = None


class _Body(SamplingFields, kw_only=True):
    messages: list[Message]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    modalities: list[str] | None = None
    tools: list[Tool] | None = None
    tool_choice: str | _ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: Json | None = None
    reasoning_effort: Effort | None = None


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request the engine can answer exactly as asked."""

    model: str
    messages: tuple[Json, ...]
    tools: tuple[Json, ...]
    variables: Json
    """See `variables_of`."""
    params: SamplingParams
    num_choices: int
    is_stream: bool
    include_usage: bool
    usage_so_far: bool
    """Each part of a stream gives the usage up to it."""
    is_call_forced: bool
    """A grammar makes the complete answer one tool call."""
    grammar_field: str
    may_call: bool
    has_one_call: bool
    """A second call of an answer is not passed on."""
    wants_token_ids: bool
    names_tokens_by_id: bool
    keeps_special: bool
    """Control tokens stay in the text: the caller asks for them, or a parser looks for calls."""
    cache_salt: str


def decode_body(
    body: bytes,
    kind: Any,
    unsupported: tuple[str, ...],
    always_on: tuple[str, ...] = ALWAYS_ON,
) -> Any:
    """The body as `kind`; raises `InvalidRequest` for what cannot be read or answered.

    What is `always_on` is done without being asked, and cannot be turned off.
    """
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        for param in unsupported:
            if param in fields and bytes(fields[param]) not in {b"null", b"[]", b"false"}:
                raise unsupported_parameter(param)
        for param in always_on:
            if bytes(fields.get(param, b"")) == b"false":
                raise unsupported_parameter(param)
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _as_invalid_request(error) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = "The request body is not valid JSON."
        raise InvalidRequest(message, code="invalid_json") from error


def read_chat_request(
    body: bytes, defaults: SamplingDefaults, tokenizer: ChatTokenizer
) -> ChatRequest:
    """Parse and check; raises `InvalidRequest` naming the parameter at fault."""
    parsed: _Body = decode_body(body, _Body, _UNSUPPORTED)
    if parsed.modalities not in (None, ["text"]):
        raise unsupported_parameter("modalities")
    if (most := parsed.max_completion_tokens) is not None:
        if not 1 <= most <= MAX_TOKENS:
            message = f"max_completion_tokens must be 1 to {MAX_TOKENS}."
            raise _invalid(message, "max_completion_tokens")
        parsed.max_tokens = most
    messages = messages_of(parsed.messages)
    tools = tools_of(parsed.tools or [])
    grammar = _forced_call(parsed, tools)
    params = read_params(
        parsed,
        defaults,
        tokenizer,
        grammar=grammar,
        logprobs=bool(parsed.logprobs),
        top_logprobs=parsed.top_logprobs or 0,
    )
    return ChatRequest(
        model=parsed.model,
        messages=messages,
        tools=() if parsed.tool_choice == "none" else tools,
        variables=variables_of(parsed.chat_template_kwargs, parsed.reasoning_effort),
        params=params,
        num_choices=parsed.num_choices,
        is_stream=bool(parsed.stream),
        include_usage=parsed.include_usage,
        usage_so_far=parsed.usage_so_far,
        is_call_forced=grammar is not None,
        grammar_field="tools" if grammar is not None else grammar_field(parsed),
        may_call=bool(tools) and parsed.tool_choice != "none",
        has_one_call=parsed.parallel_tool_calls is False,
        wants_token_ids=bool(parsed.return_token_ids),
        names_tokens_by_id=bool(parsed.return_tokens_as_token_ids),
        keeps_special=parsed.keeps_special or (bool(tools) and parsed.tool_choice != "none"),
        cache_salt=parsed.cache_salt or "",
    )


def unsupported_parameter(param: str, message: str | None = None) -> InvalidRequest:
    return InvalidRequest(
        message or f"This engine does not support the parameter '{param}'.",
        code="unsupported_parameter",
        param=param,
    )


def _as_invalid_request(error: msgspec.ValidationError) -> InvalidRequest:
    text = str(error)
    found, missing = _PARAM_IN_ERROR.search(text), _MISSING_IN_ERROR.match(text)
    names = [each[1] for each in (found, missing) if each and each[1]]
    return InvalidRequest(text, code="invalid_type", param=".".join(names) or None)


def _invalid(message: str, param: str) -> InvalidRequest:
    return InvalidRequest(message, code="invalid_value", param=param)


def variables_of(given: Json | None, effort: Effort | None) -> Json:
    """The variables that a caller sets in the template, such as Qwen's `enable_thinking`.

    An effort is passed there, as by vLLM; a variable that is set by name has precedence.
    """
    if effort is None:
        return given or {}
    return {"reasoning_effort": effort, "enable_thinking": effort != "none", **(given or {})}


def tools_of(tools: list[Tool]) -> tuple[Json, ...]:
    """Tools in the form that templates expect; raises `InvalidRequest`."""
    if len(tools) > MAX_TOOLS:
        raise _invalid(f"tools has more than {MAX_TOOLS} entries.", "tools")
    if any(tool.type != "function" for tool in tools):
        raise _invalid("Only tools of type function are supported.", "tools")
    found = msgspec.to_builtins(tools)
    for tool in found:
        tool["function"] = {k: v for k, v in tool["function"].items() if v is not None}
    return tuple(found)


def _forced_call(body: _Body, tools: tuple[Json, ...]) -> str | None:
    """The grammar of one call if `tool_choice` names or requires one."""
    choice = body.tool_choice
    if choice in (None, "none", "auto"):
        return None
    functions = {tool["function"]["name"]: tool["function"] for tool in tools}
    if isinstance(choice, _ToolChoice):
        name = "" if choice.function is None else choice.function.name
        if choice.type != "function" or name not in functions:
            raise _invalid("tool_choice names no tool of this request.", "tool_choice")
        functions = {name: functions[name]}
    elif choice != "required":
        raise _invalid("tool_choice is none of none, auto, required.", "tool_choice")
    if not functions:
        raise _invalid("tool_choice needs tools.", "tool_choice")
    calls = [
        {
            "type": "object",
            "properties": {
                "name": {"const": name},
                "arguments": _arguments(number, function.get("parameters")),
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for number, (name, function) in enumerate(functions.items())
    ]
    try:
        return grammar_of_schema(calls[0] if len(calls) == 1 else {"anyOf": calls})
    except GrammarRefused as error:
        message = f"The tools' parameters cannot be used: {error}"
        raise InvalidRequest(message, code="invalid_grammar", param="tools") from error


def _arguments(number: int, parameters: Json | None) -> Json:
    """A tool's parameters as a part of another schema.

    With an id of its own, `#/$defs/City` still refers to its own definitions, not to the outer
    schema's. Before 2019 a reference replaced everything beside it, including the id, so it goes
    one level down.
    """
    if not parameters:
        return {"type": "object"}
    own = {"$id": f"tool:{number}", **parameters}
    if "$ref" in own:
        beside = {"allOf": own["allOf"]} if "allOf" in own else {}
        own["allOf"] = [{"$ref": own.pop("$ref")}, beside]
    return own


def messages_of(messages: list[Message]) -> tuple[Json, ...]:
    """Messages in the form that templates expect, with text contents; raises `InvalidRequest`."""
    if not messages:
        raise _invalid("messages is empty.", "messages")
    if len(messages) > MAX_MESSAGES:
        raise _invalid(f"messages has more than {MAX_MESSAGES} entries.", "messages")
    return tuple(_message(message, index) for index, message in enumerate(messages))


def _message(message: Message, index: int) -> Json:
    param = f"messages[{index}]"
    if message.function_call or message.role == "function":
        raise unsupported_parameter(param, "Functions are called tools now: use tool_calls.")
    if message.role not in _ROLES:
        raise _invalid("The role is unknown.", f"{param}.role")
    found: Json = {"role": message.role, "content": _text(message, param)}
    if message.tool_calls:
        found["tool_calls"] = [_call(call, param) for call in message.tool_calls]
    thought = message.reasoning_content or message.reasoning
    if thought and message.role == "assistant":
        found["reasoning_content"] = thought
    if message.role == "tool":
        found["tool_call_id"] = message.tool_call_id or ""
        found["name"] = message.name or ""
    return found


def _call(call: _ToolCall, param: str) -> Json:
    """Templates expect arguments as a mapping, not as the text that clients send."""
    try:
        arguments = json.loads(call.function.arguments or "{}")
        if _MAYBE_HALF.search(call.function.arguments):
            # Half a character is not text, and no template can write it; this raises for one.
            json.dumps(arguments, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise _invalid("A tool call's arguments are not JSON.", f"{param}.tool_calls") from error
    if not isinstance(arguments, dict):
        raise _invalid("A tool call's arguments are not an object.", f"{param}.tool_calls")
    function = {"name": call.function.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _text(message: Message, param: str) -> str:
    if isinstance(message.content, str):
        return message.content
    if message.content is None:
        if message.role == "assistant":
            return ""
        raise _invalid("The message has no content.", f"{param}.content")
    texts: list[str] = []
    for part in message.content:
        if part.type != "text" or part.text is None:
            raise InvalidRequest(
                "This engine reads text only: other content parts are not supported.",
                code="unsupported_content",
                param=f"{param}.content",
            )
        texts.append(part.text)
    return "\n".join(texts)
