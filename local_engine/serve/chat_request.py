"""Reads a chat completion request: known fields typed, unsupported ones refused by name."""

import re
from typing import Any

import msgspec

from local_engine.core.sampling_params import InvalidParameter, SamplingParams
from local_engine.model.config import SamplingDefaults
from local_engine.serve.errors import InvalidRequest


MAX_MESSAGES = 2048
_ROLES = frozenset({"system", "developer", "user", "assistant"})
# Answering as if these were not there would be a lie; everything else unknown is harmless.
_UNSUPPORTED = (
    "tools",
    "functions",
    "function_call",
    "audio",
    "prediction",
    "web_search_options",
    "best_of",
    "echo",
    "min_tokens",
    "bad_words",
    "stop_token_ids",
    "repetition_penalty",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
)
_PARAM_IN_ERROR = re.compile(r" - at `\$\.?([^`]*)`$")


class _Part(msgspec.Struct):
    type: str
    text: str | None = None


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None
    tool_calls: list[Any] | None = None
    function_call: dict[str, Any] | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


class _ResponseFormat(msgspec.Struct):
    type: str


class _Body(msgspec.Struct):
    model: str
    messages: list[_Message]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    response_format: _ResponseFormat | None = None
    modalities: list[str] | None = None
    tool_choice: str | dict[str, Any] | None = None


class ChatRequest(msgspec.Struct, frozen=True):
    """A request the engine can answer exactly as asked."""

    model: str
    messages: tuple[dict[str, str], ...]
    params: SamplingParams
    is_stream: bool
    include_usage: bool


def read_chat_request(body: bytes, defaults: SamplingDefaults) -> ChatRequest:
    """Parse and check; raises `InvalidRequest` naming the parameter at fault."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        _refuse_unsupported(fields)
        parsed = msgspec.json.decode(body, type=_Body)
    except msgspec.ValidationError as error:
        raise _as_invalid_request(error) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = "The request body is not valid JSON."
        raise InvalidRequest(message, code="invalid_json") from error
    _refuse_unsupported_values(parsed)
    return ChatRequest(
        model=parsed.model,
        messages=_messages(parsed.messages),
        params=_params(parsed, defaults),
        is_stream=bool(parsed.stream),
        include_usage=parsed.stream_options is not None and parsed.stream_options.include_usage,
    )


def _as_invalid_request(error: msgspec.ValidationError) -> InvalidRequest:
    text = str(error)
    found = _PARAM_IN_ERROR.search(text)
    return InvalidRequest(text, code="invalid_type", param=(found[1] or None) if found else None)


def _unsupported(param: str, message: str | None = None) -> InvalidRequest:
    return InvalidRequest(
        message or f"This engine does not support the parameter '{param}'.",
        code="unsupported_parameter",
        param=param,
    )


def _refuse_unsupported(fields: dict[str, msgspec.Raw]) -> None:
    for param in _UNSUPPORTED:
        if param in fields and bytes(fields[param]) not in {b"null", b"[]", b"false"}:
            raise _unsupported(param)


def _refuse_unsupported_values(body: _Body) -> None:
    if body.n not in {None, 1}:
        raise _unsupported("n", "This engine writes one choice per request: n must be 1.")
    if body.response_format is not None and body.response_format.type != "text":
        raise _unsupported(
            "response_format", "This engine writes plain text only: response_format must be text."
        )
    if body.modalities not in (None, ["text"]):
        raise _unsupported("modalities")
    if body.tool_choice not in (None, "none", "auto"):
        raise _unsupported("tool_choice")


def _messages(messages: list[_Message]) -> tuple[dict[str, str], ...]:
    if not messages:
        raise InvalidRequest("messages is empty.", code="invalid_value", param="messages")
    if len(messages) > MAX_MESSAGES:
        message = f"messages has more than {MAX_MESSAGES} entries."
        raise InvalidRequest(message, code="invalid_value", param="messages")
    return tuple(_message(message, index) for index, message in enumerate(messages))


def _message(message: _Message, index: int) -> dict[str, str]:
    param = f"messages[{index}]"
    if message.role in {"tool", "function"} or message.tool_calls or message.function_call:
        raise _unsupported(param, "This engine does not support tool calls.")
    if message.role not in _ROLES:
        raise InvalidRequest("The role is unknown.", code="invalid_value", param=f"{param}.role")
    return {"role": message.role, "content": _text(message, param)}


def _text(message: _Message, param: str) -> str:
    if isinstance(message.content, str):
        return message.content
    if message.content is None:
        if message.role == "assistant":
            return ""
        raise InvalidRequest(
            "The message has no content.", code="invalid_value", param=f"{param}.content"
        )
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


def _params(body: _Body, defaults: SamplingDefaults) -> SamplingParams:
    cap = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    try:
        return SamplingParams(
            temperature=_or(body.temperature, defaults.temperature),
            top_p=_or(body.top_p, defaults.top_p),
            top_k=int(_or(body.top_k, defaults.top_k)),
            min_p=_or(body.min_p, 0.0),
            presence_penalty=_or(body.presence_penalty, 0.0),
            frequency_penalty=_or(body.frequency_penalty, 0.0),
            logit_bias=_logit_bias(body.logit_bias or {}),
            seed=body.seed,
            max_tokens=cap,
            stop=stop,
            logprobs=bool(body.logprobs),
            top_logprobs=body.top_logprobs or 0,
        )
    except InvalidParameter as error:
        raise InvalidRequest(str(error), code="invalid_value", param=error.param) from error


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _logit_bias(entries: dict[str, float]) -> dict[int, float]:
    try:
        return {int(token_id): bias for token_id, bias in entries.items()}
    except ValueError as error:
        raise InvalidParameter("logit_bias", "logit_bias keys must be token ids") from error
