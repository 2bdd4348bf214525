"""OpenAI's text completions as a `ports.Dialect`: a prompt in, its continuation out, as it is.

Nothing is converted, neither way: a chat's template would make another prompt of it, and nobody
would see that. Only targets whose upstream continues bare text answer (decision 0040).
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from gateway.dialects import body, sse
from gateway.dialects.loss import check_no_places, check_tier_priced, unsupported
from gateway.dialects.openai_chat.reply import STOP_REASONS, usage_of, with_usage
from gateway.dialects.openai_chat.request import with_usage_asked
from gateway.dialects.openai_chat.stream_in import error_type, uncounted
from gateway.dialects.openai_chat.stream_out import ChatPassThrough
from gateway.dialects.openai_chat.wire import STOPS_MAX, StreamOptions
from gateway.dialects.openai_errors import OpenAIEnvelope
from gateway.dialects.parameters import unfit
from gateway.dialects.strict_json import (
    Fraction,
    ModelName,
    PositiveInt,
    checked,
    decode_object,
)
from gateway.errors import UpstreamMalformed
from gateway.estimate import estimate_input_tokens, estimate_written_tokens
from gateway.ports import StreamDecoder, StreamEncoder, UpstreamBody
from gateway.types import (
    ChatRequest,
    Completion,
    Delta,
    DialectName,
    StreamEvent,
    Target,
    Usage,
)


OUTPUT_TOKENS_DEFAULT = 16
"""What this endpoint has always given who names no limit, at OpenAI as at compatible servers."""

WORDS = (
    *("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty"),
    "logit_bias",
)
"""What shapes the sampling; not every model takes all of it."""

_NOTHING: Mapping[str, object] = {"n": 1, "best_of": 1, "echo": False, "suffix": ""}
"""Values that ask for nothing."""

_REFUSED: Mapping[str, str] = {
    "n": "One answer per request here",
    "best_of": "One answer per request here",
    "echo": "The prompt is not repeated here",
    "suffix": "Nothing is filled in before a suffix here",
    "logprobs": "Token probabilities are told by chat completions only",
    "prompt_logprobs": "Token probabilities are told by chat completions only",
    "use_beam_search": "Beams are not searched here",
    "prompt_embeds": "Send text; vectors cannot be inspected",
}
"""What the answer would lack, or what nobody could read."""

_TEXT_ONLY = "Send text; token numbers cannot be inspected"
_ONE_PROMPT = "One prompt per request here; send the others in requests of their own"

Text = Annotated[str, Meta(min_length=1)]


class CompletionsBody(Struct):
    model: ModelName
    prompt: Text | Annotated[list[Text], Meta(min_length=1, max_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: PositiveInt | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Fraction | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    best_of: Annotated[int, Meta(ge=1, le=128)] | None = None
    echo: bool | None = None
    suffix: str | None = None
    logprobs: Annotated[int, Meta(ge=0)] | None = None
    stop: str | Annotated[list[str], Meta(max_length=STOPS_MAX)] | None = None
    seed: int | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    logit_bias: dict[str, float] | None = None
    user: str | None = None
    service_tier: str | None = None


class Choice(Struct):
    """A whole continuation or, in a stream, a piece of one."""

    text: str | None = None
    finish_reason: str | None = None
    index: int = 0
    stop_reason: object = None
    """vLLM's and our own engine's: the stop string, or the token, that ended the answer."""
    matched_stop: object = None
    """The same in SGLang's words."""


class Reply(Struct):
    choices: Annotated[list[Choice], Meta(min_length=1)]
    id: str | None = None
    model: str | None = None
    usage: object = None
    service_tier: str | None = None


class Piece(Struct):
    choices: list[Choice] | None = None
    id: str | None = None
    model: str | None = None
    usage: object = None
    service_tier: str | None = None
    error: object = None


_REPLY = msgspec.json.Decoder(Reply)
_PIECE = msgspec.json.Decoder(Piece)
_NOT_A_PIECE = "The upstream sent something that is not a piece of a text completion."


class OpenAICompletions(OpenAIEnvelope):
    """Stateless; one object serves every request."""

    name: DialectName = "openai_completions"

    def decode_request(
        self, raw: bytes, request_id: str, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> ChatRequest:
        del headers
        tree = decode_object(raw)
        check_no_places(tree)
        _check_prompt(tree.get("prompt"))
        wire = checked(tree, CompletionsBody)
        for name, reason in _REFUSED.items():
            if tree.get(name) not in (None, _NOTHING.get(name)):
                raise unsupported(name, reason, 24)
        options = wire.stream_options
        about, most = estimate_input_tokens(raw, 0, 0, 0)
        return ChatRequest(
            request_id=request_id,
            dialect=self.name,
            raw=raw,
            tree=tree,
            model=wire.model,
            stream=bool(wire.stream),
            max_output_tokens=wire.max_tokens or OUTPUT_TOKENS_DEFAULT,
            wants_stream_usage=options is not None and bool(options.include_usage),
            has_tools=False,
            has_images=False,
            has_documents=False,
            wants_json_schema=False,
            input_tokens_estimate=about,
            input_tokens_most=most,
        )

    def encode_request(
        self, request: ChatRequest, target: Target, output_tokens_cap: int
    ) -> UpstreamBody:
        if request.dialect != self.name:
            raise unsupported("model", "This model continues bare text only", 59)
        check_tier_priced(request, target)
        left_out = unfit(request.tree, target, WORDS, reasons=True)
        changes: dict[str, bytes | None] = dict.fromkeys(left_out.fields)
        changes["model"] = msgspec.json.encode(target.model)
        changes["max_tokens"] = b"%d" % output_tokens_cap
        prompt = request.tree["prompt"]
        if isinstance(prompt, list):
            # Not every compatible server takes a list of one.
            changes["prompt"] = msgspec.json.encode(prompt[0])
        if request.stream and not request.wants_stream_usage:
            changes["stream_options"] = with_usage_asked(body.split(request.raw))
        return UpstreamBody(body.patch(request.raw, changes), left_out.dropped)

    def decode_reply(self, raw: bytes) -> Completion:
        try:
            wire = _REPLY.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UpstreamMalformed("The upstream's answer is no text completion.") from error
        choice = wire.choices[0]
        if choice.text is None:
            raise UpstreamMalformed("The upstream's answer is no text completion.")
        stop_reason, stop_sequence = _stop(choice)
        return Completion(
            raw=raw,
            message_id=wire.id or "",
            model=wire.model or "",
            text=choice.text,
            tool_calls=(),
            stop_reason=stop_reason,
            stop_sequence=stop_sequence,
            usage=usage_of(wire.usage, wire.service_tier) or _estimated(choice.text),
        )

    def encode_reply(
        self, completion: Completion, source: DialectName, request: ChatRequest
    ) -> bytes:
        """The upstream's own bytes: nobody else's answer gets here."""
        del source, request
        return with_usage(completion)

    def unmet(self, request: ChatRequest, text: str) -> str:
        """No word of this dialect asks for a format; what an engine calls so it keeps itself."""
        del request, text
        return ""

    def stream_decoder(self) -> StreamDecoder:
        return CompletionStreamDecoder()

    def stream_encoder(self, request: ChatRequest, source: DialectName) -> StreamEncoder:
        """The upstream's own events: those of a chat's stream end and fail in the same way."""
        del source
        return ChatPassThrough(request)


class CompletionStreamDecoder:
    """See `ports.StreamDecoder`. Nothing is reported after the terminal event."""

    __slots__ = ("_ended", "_splitter", "_started")

    def __init__(self) -> None:
        self._splitter = sse.Splitter()
        self._started = False
        self._ended = False

    def feed(self, data: bytes) -> list[StreamEvent]:
        return self._read_all(self._splitter.feed(data))

    def close(self) -> list[StreamEvent]:
        return sse.last_read(self._splitter, self._read_all)

    def _read_all(self, events: list[sse.Event]) -> list[StreamEvent]:
        return [
            self._read(event.raw, event.name, event.data) for event in events if not self._ended
        ]

    def _read(self, raw: bytes, name: bytes, data: bytes | None) -> StreamEvent:
        if data is None:
            return StreamEvent(raw, (), settles=())
        if data == b"[DONE]":
            self._ended = True
            return StreamEvent(raw, (), is_terminal=True)
        try:
            piece = _PIECE.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UpstreamMalformed(_NOT_A_PIECE) from error
        if piece.error is not None or name == b"error":
            return StreamEvent(b"", (Delta("error", error_type(piece.error)),))
        if piece.choices is None:
            raise UpstreamMalformed(_NOT_A_PIECE)
        usage = usage_of(piece.usage, piece.service_tier)
        if piece.usage is not None and (usage is None or usage.estimated):
            raw, _ = uncounted(data, piece.choices)
        return self._piece(raw, piece, piece.choices, usage)

    def _piece(
        self, raw: bytes, piece: Piece, choices: list[Choice], usage: Usage | None
    ) -> StreamEvent:
        deltas: list[Delta] = []
        if not self._started:
            self._started = True
            deltas.append(Delta("start", message_id=piece.id or "", model=piece.model or ""))
        has_content = is_closing = False
        settles: list[int] = []
        for choice in choices:
            if choice.text:
                deltas.append(Delta("text", choice.text, choice.index))
                has_content = True
            if choice.text or choice.finish_reason:
                settles.append(choice.index)
            if choice.finish_reason:
                stop_reason, stop_sequence = _stop(choice)
                deltas.append(Delta("stop", stop_reason=stop_reason, stop_sequence=stop_sequence))
                is_closing = True
        if usage is not None:
            deltas.append(Delta("usage", usage=usage))
        is_usage_only = usage is not None and not choices
        return StreamEvent(
            raw,
            tuple(deltas),
            is_usage_only=is_usage_only,
            has_content=has_content,
            is_closing=is_closing,
            settles=None if is_usage_only else tuple(settles),
        )


def _check_prompt(prompt: object) -> None:
    """Refuse prompts that nobody could read, and several of them."""
    listed = prompt if isinstance(prompt, list) else ()
    if any(not isinstance(each, str) for each in listed):
        raise unsupported("prompt", _TEXT_ONLY, 59)
    if len(listed) > 1:
        raise unsupported("prompt", _ONE_PROMPT, 24)


def _stop(choice: Choice) -> tuple[str, str | None]:
    """Why an answer ended, and at which stop string where an upstream tells it."""
    reason = STOP_REASONS.get(choice.finish_reason or "", "end")
    told = choice.stop_reason or choice.matched_stop
    if reason == "end" and isinstance(told, str):
        return "stop_sequence", told
    return reason, None


def _estimated(text: str) -> Usage:
    return Usage(output_tokens=estimate_written_tokens([text]), estimated=True)
