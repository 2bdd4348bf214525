"""An upstream's stream of chat completion chunks → events."""

from collections.abc import Iterator, Sequence

import msgspec

from gateway.dialects import body, sse
from gateway.dialects.naming import tool_id
from gateway.dialects.openai_chat.reply import STOP_REASONS, stopped_by, usage_of
from gateway.dialects.openai_chat.wire import Chunk, ChunkChoice, ReplyMessage, ReplyToolCall
from gateway.errors import UpstreamMalformed
from gateway.types import Delta, StreamEvent, Usage


_CHUNK = msgspec.json.Decoder(Chunk)
_UNNUMBERED = -2
"""Where what nobody counts begins; -1 is an encoder's word for no call at all."""
_NOT_A_CHUNK = "The upstream sent something that is not a chat completion chunk."


class _Call:
    """A tool call under way; `index` counts calls in the order in which they began."""

    __slots__ = ("index", "tool_id")

    def __init__(self, index: int, tool_id: str) -> None:
        self.index = index
        self.tool_id = tool_id


class ChatStreamDecoder:
    """See `ports.StreamDecoder`. Nothing is reported after the terminal event."""

    __slots__ = (
        *("_calls", "_calls_count", "_ended", "_message_id", "_refused", "_splitter", "_started"),
    )

    def __init__(self) -> None:
        self._splitter = sse.Splitter()
        self._started = False
        self._ended = False
        self._refused = False
        self._message_id = ""
        self._calls: dict[tuple[int, int], _Call] = {}
        self._calls_count = 0

    def feed(self, data: bytes) -> list[StreamEvent]:
        only = self._splitter.sole(data)
        if only is not None and not self._ended:
            return self._read(data, b"", only)
        return self._read_all(self._splitter.feed(data))

    def _read_all(self, events: list[sse.Event]) -> list[StreamEvent]:
        return [
            found
            for event in events
            if not self._ended
            for found in self._read(event.raw, event.name, event.data)
        ]

    def close(self) -> list[StreamEvent]:
        return sse.last_read(self._splitter, self._read_all)

    def _read(self, raw: bytes, name: bytes, data: bytes | None) -> list[StreamEvent]:
        if data is None:
            return [StreamEvent(raw, (), settles=())]
        if data == b"[DONE]":
            self._ended = True
            return [StreamEvent(raw, (), is_terminal=True)]
        try:
            chunk = _CHUNK.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UpstreamMalformed(_NOT_A_CHUNK) from error
        if chunk.error is not None or name == b"error":
            return [StreamEvent(b"", (Delta("error", error_type(chunk.error)),))]
        choices = chunk.choices
        if choices is None:
            raise UpstreamMalformed(_NOT_A_CHUNK)
        usage = usage_of(chunk.usage, chunk.service_tier) if chunk.usage is not None else None
        if chunk.usage is not None and (usage is None or usage.estimated):
            raw, data = uncounted(data, choices)
        if self._started and len(choices) == 1 and usage is None:
            choice = choices[0]
            if not choice.finish_reason and (text := _only_text(choice.delta)):
                # One piece of text, which is what nearly every event of a stream is.
                delta = Delta("text", text, choice.index)
                return [StreamEvent(raw, (delta,), has_content=True, settles=(choice.index,))]
        if len(choices) > 1:
            alone = zip(_one_by_one(data), choices, strict=True)
            return [
                self._chunk(said, chunk, [choice], usage if choice is choices[-1] else None)
                for said, choice in alone
            ]
        return [self._chunk(raw, chunk, choices, usage)]

    def _chunk(
        self, raw: bytes, chunk: Chunk, choices: list[ChunkChoice], usage: Usage | None
    ) -> StreamEvent:
        deltas: list[Delta] = []
        if not self._started:
            self._started = True
            self._message_id = chunk.id or ""
            deltas.append(Delta("start", message_id=self._message_id, model=chunk.model or ""))
        has_content = is_closing = False
        settles: list[int] = []
        for choice in choices:
            before = len(deltas)
            has_content |= self._choice(choice, deltas)
            # Some servers say an empty reason with every piece.
            is_closing |= bool(choice.finish_reason)
            if len(deltas) > before or choice.finish_reason:
                settles.append(choice.index)
        if usage is not None:
            deltas.append(Delta("usage", usage=usage))
            return StreamEvent(
                raw,
                tuple(deltas),
                is_usage_only=not choices,
                has_content=has_content,
                is_closing=is_closing,
                settles=tuple(settles) if choices else None,
            )
        return StreamEvent(
            raw,
            tuple(deltas),
            has_content=has_content,
            is_closing=is_closing,
            settles=tuple(settles),
        )

    def _choice(self, choice: ChunkChoice, deltas: list[Delta]) -> bool:
        """Append what one choice says; whether the caller sees part of the answer in it."""
        has_content = False
        piece = choice.delta
        if piece is not None:
            if piece.content:
                deltas.append(Delta("text", piece.content, choice.index))
                has_content = True
            if _is_rare(piece):
                self._rare(piece, choice.index, deltas)
                has_content = True
        if choice.finish_reason and choice.index == 0:
            reason = STOP_REASONS.get(choice.finish_reason, "end")
            if self._refused:
                reason = "content_filter"
            elif reason == "end" and self._calls_count:
                reason = "tool_use"
            stop_sequence = stopped_by(choice) if reason == "end" else None
            if stop_sequence is not None:
                reason = "stop_sequence"
            deltas.append(Delta("stop", stop_reason=reason, stop_sequence=stop_sequence))
        return has_content

    def _rare(self, piece: ReplyMessage, answer: int, deltas: list[Delta]) -> None:
        if reasoning := piece.reasoning_content or piece.reasoning:
            deltas.append(Delta("thinking", reasoning, answer))
        if piece.refusal:
            self._refused |= answer == 0
            deltas.append(Delta("refusal", piece.refusal, answer))
        if piece.function_call is not None and piece.function_call.arguments:
            arguments = piece.function_call.arguments
            deltas.append(Delta("tool_arguments", arguments, _UNNUMBERED - answer))
        if piece.audio is not None and piece.audio.transcript:
            deltas.append(Delta("opaque", piece.audio.transcript, _UNNUMBERED - answer))
        for position, call in enumerate(piece.tool_calls or ()):
            slot = position if call.index is None else call.index
            self._tool_call(call, (answer, slot), deltas)

    def _tool_call(self, call: ReplyToolCall, slot: tuple[int, int], deltas: list[Delta]) -> None:
        """Some upstreams number every call 0: a new id with a name is a new call.

        A custom tool's are no call in other dialects.
        """
        known = self._calls.get(slot)
        if call.custom is not None:
            if known is None:
                known = self._calls[slot] = _Call(self._calls_count, call.id or "")
                self._calls_count += 1
            deltas.append(Delta("opaque", call.custom.input or "", known.index))
            return
        name = call.function.name if call.function is not None else None
        if name and (known is None or (call.id and call.id != known.tool_id)):
            index = self._calls_count
            self._calls_count += 1
            known = _Call(index, call.id or tool_id(self._message_id, index))
            self._calls[slot] = known
            deltas.append(Delta("tool_start", index=index, tool_id=known.tool_id, name=name))
        arguments = call.function.arguments if call.function is not None else None
        if not arguments:
            return
        if known is None:
            raise UpstreamMalformed("The upstream sent arguments of a tool call it never began.")
        deltas.append(Delta("tool_arguments", arguments, known.index))


def _one_by_one(data: bytes) -> Iterator[bytes]:
    """Of a chunk that goes on with several answers, each as an event of its own.

    Most upstreams send them so. Whoever holds an answer's words back, or changes them, would else
    tell those of the others with them. What was counted comes with the last.
    """
    fields = body.split(data)
    choices = msgspec.json.decode(fields["choices"], type=list[msgspec.Raw])
    counted = fields.pop("usage", None)
    for number, choice in enumerate(choices, start=1):
        said = fields | {"choices": b"[" + bytes(choice) + b"]"}
        if number == len(choices) and counted is not None:
            said["usage"] = counted
        yield b"data: " + body.join(said) + b"\n\n"


def uncounted(data: bytes, choices: Sequence[object]) -> tuple[bytes, bytes]:
    """A chunk, and its JSON, without a usage that cannot be read; nothing if it says no more.

    Its caller gets the estimate instead, at the end.
    """
    data = body.patch(data, {"usage": None})
    return (b"data: " + data + b"\n\n" if choices else b""), data


def _only_text(piece: ReplyMessage | None) -> str | None:
    """The text of a piece that says nothing else."""
    return None if piece is None or _is_rare(piece) else piece.content


def _is_rare(piece: ReplyMessage) -> bool:
    """Whether a piece says more than text."""
    if piece.tool_calls or piece.reasoning_content or piece.reasoning or piece.refusal:
        return True
    return piece.function_call is not None or piece.audio is not None


def error_type(error: object) -> str:
    """The upstream's word for an error inside its stream; never its message."""
    for key in ("type", "code"):
        word = error.get(key) if isinstance(error, dict) else None
        if isinstance(word, str) and word.isidentifier():
            return word[:64]
    return "error"
