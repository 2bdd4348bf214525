"""Framing that all of OpenAI's completion streams share: chunks, usage and the end.

Chats and text completions are streamed alike: chunks with choices, an error as a chunk, `[DONE]`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from gateway.dialects import sse
from gateway.dialects.bodies import body
from gateway.dialects.openai_chat.reply import GIVEN_UP, REPEATABLE, STOP_REASONS, usage_of
from gateway.dialects.openai_chat.wire import Piece
from gateway.dialects.plain_pieces import PlainPieces
from gateway.errors import UpstreamMalformed
from gateway.types import CUT_SHORT, Delta, StreamEvent, Usage


VALUES_MAX = 5_000
"""For one chunk without its probabilities: a thousand answers or calls may go on in it."""

Choice = TypeVar("Choice", bound=Piece)


class Chunk(Struct, Generic[Choice]):
    choices: list[Choice] | None = None
    id: str | None = None
    model: str | None = None
    usage: object = None
    service_tier: str | None = None
    error: object = None


class ChunkDecoder(ABC, Generic[Choice]):
    """See `ports.StreamDecoder`. Nothing is reported after the terminal event."""

    __slots__ = (
        *("_answers", "_begun", "_decoder", "_ended", "_finished", "_foreign", "_given_up"),
        *("_is_repeatable", "_message_id", "_pieces", "_splitter", "_started"),
        *("is_told", "plain_words"),
    )

    def __init__(
        self, decoder: msgspec.json.Decoder[Chunk[Choice]], foreign: str, answers: int
    ) -> None:
        """`foreign` is the error message for anything that is not such a chunk."""
        self._answers = answers
        self._begun: set[int] = set()
        self._finished: set[int] = set()
        """Answers that said something, and those that said why they ended."""
        self._decoder = decoder
        self._foreign = foreign
        self._splitter = sse.Splitter(VALUES_MAX)
        self._pieces = PlainPieces(self._splitter)
        self.plain_words = self._pieces.words_of
        self._started = False
        self._ended = False
        self._given_up = ""
        """The reason with which an answer was given up; its count may still come."""
        self.is_told = False
        self._is_repeatable = True
        """False once an answer was refused, or ended for a reason why it must not be repeated."""
        self._message_id = ""

    @abstractmethod
    def _text_alone(self, choice: Choice) -> str | None:
        """The text of a choice that contains nothing else and does not end."""

    @abstractmethod
    def _said(self, choice: Choice, deltas: list[Delta]) -> bool:
        """Append what a choice says; whether the caller sees part of the answer in it."""

    @abstractmethod
    def _stopped(self, choice: Choice, reason: str) -> tuple[str, str | None]:
        """Why the first answer ended, and at which stop string if that is reported.

        `reason` is the upstream's finish reason in the words of `types.Delta`.
        """

    def _is_short(self) -> bool:
        """Whether an answer that began never said why it ended, while another one did."""
        return bool(self._finished) and not self._begun <= self._finished

    def feed(self, data: bytes) -> list[StreamEvent]:
        only = self._splitter.sole(data)
        if only is not None and not self._ended and self._splitter.is_untorn(data):
            return self._read(data, b"", only)
        return self._read_all(self._splitter.feed(data))

    def close(self) -> list[StreamEvent]:
        return sse.last_read(self._splitter, self._read_all)

    def conclude(self) -> list[StreamEvent]:
        return [self._end(b"data: [DONE]\n\n")]

    def _is_whole(self) -> bool:
        """Whether every answer has said why it ended."""
        return len(self._finished) >= self._answers and self._begun <= self._finished

    def _read_all(self, events: list[sse.Event]) -> list[StreamEvent]:
        return [
            found
            for event in events
            if not self._ended
            for found in self._read(event.raw, event.name, event.data)
        ]

    def _read(self, raw: bytes, name: bytes, data: bytes | None) -> list[StreamEvent]:
        if data is None:
            return [StreamEvent(raw, (), settles=())]
        if data == b"[DONE]":
            return [self._end(raw)]
        try:
            chunk = self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UpstreamMalformed(self._foreign) from error
        if chunk.error is not None or name == b"error":
            return [StreamEvent(b"", (Delta("error", error_type(chunk.error)),), said=data)]
        if chunk.choices is None and chunk.usage is None:
            raise UpstreamMalformed(self._foreign)
        # Some leave an empty list out, where nothing but the usage is told.
        choices = chunk.choices or []
        usage = usage_of(chunk.usage, chunk.service_tier) if chunk.usage is not None else None
        if chunk.usage is not None and (usage is None or usage.estimated):
            raw, data = _uncounted(data, choices)
        if self._started and len(choices) == 1 and usage is None:
            choice = choices[0]
            if not choice.finish_reason and (text := self._text_alone(choice)):
                # One piece of text, which is what nearly every event of a stream is.
                self._begun.add(choice.index)
                self._pieces.learn(raw, text)
                delta = Delta("text", text, choice.index)
                return [StreamEvent(raw, (delta,), has_content=True, settles=(choice.index,))]
        if len(choices) > 1:
            alone = zip(_one_by_one(data), choices, strict=True)
            return [
                self._event(said, chunk, [choice], usage if choice is choices[-1] else None)
                for said, choice in alone
            ]
        return [self._event(raw, chunk, choices, usage)]

    def _give_up(self, choices: Sequence[Choice]) -> None:
        for choice in choices:
            if choice.finish_reason in GIVEN_UP:
                self._given_up = self._given_up or choice.finish_reason
                self._finished.add(choice.index)

    def _is_counted(self, choices: Sequence[Choice]) -> bool:
        """Whether a usage is the last one: some servers send one with every chunk."""
        is_given_up = all(choice.finish_reason in GIVEN_UP for choice in choices)
        return is_given_up and (not choices or len(self._finished) >= self._answers)

    def _end(self, raw: bytes) -> StreamEvent:
        self._ended = True
        self._pieces.forget()
        if self._given_up:
            return StreamEvent(b"", (Delta("error", self._given_up),))
        if self._is_short():
            return StreamEvent(b"", (Delta("error", CUT_SHORT),))
        is_explained = bool(self._finished)
        return StreamEvent(
            raw,
            (),
            is_terminal=True,
            is_unexplained=not is_explained,
            is_repeatable=is_explained and self._is_repeatable,
        )

    def _event(
        self, raw: bytes, chunk: Chunk[Choice], choices: Sequence[Choice], usage: Usage | None
    ) -> StreamEvent:
        self._pieces.forget()
        self._give_up(choices)
        if self._given_up and usage is not None and self._is_counted(choices):
            self._ended = True
            error = (Delta("error", self._given_up), Delta("usage", usage=usage))
            return StreamEvent(b"", error)
        deltas: list[Delta] = []
        if not self._started:
            self._started = True
            self._message_id = chunk.id or ""
            deltas.append(Delta("start", message_id=self._message_id, model=chunk.model or ""))
        has_content = is_closing = False
        settles: list[int] = []
        for choice in choices:
            if choice.finish_reason in GIVEN_UP:
                counted = () if usage is None else (Delta("usage", usage=usage),)
                return StreamEvent(b"", counted, settles=())
            before = len(deltas)
            has_content |= self._said(choice, deltas)
            # Some servers say an empty reason with every piece.
            is_closing |= bool(choice.finish_reason)
            if len(deltas) > before or choice.finish_reason:
                settles.append(choice.index)
            self._begun.add(choice.index)
            if choice.finish_reason:
                self._finished.add(choice.index)
                self._is_repeatable &= choice.finish_reason in REPEATABLE
                self._pieces.end()
            if choice.finish_reason and choice.index == 0:
                reason = STOP_REASONS.get(choice.finish_reason, "end")
                reason, sequence = self._stopped(choice, reason)
                deltas.append(Delta("stop", stop_reason=reason, stop_sequence=sequence))
        if usage is not None:
            deltas.append(Delta("usage", usage=usage))
            # One that came before the last reason is not the last one: it may have been told with
            # every chunk.
            self.is_told = self._is_whole() and not usage.estimated
        is_usage_only = usage is not None and not choices
        return StreamEvent(
            raw,
            tuple(deltas),
            is_usage_only=is_usage_only,
            has_content=has_content,
            is_closing=is_closing,
            settles=None if is_usage_only else tuple(settles),
        )


def _one_by_one(data: bytes) -> Iterator[bytes]:
    """Splits a chunk that continues several answers into one event for each.

    Most upstreams send them so. Otherwise code that holds back or changes one answer's words would
    send those of the others with them. The usage comes with the last event.

    Raises:
        UpstreamMalformed: what stands beside the choices would be repeated unreasonably often.
    """
    fields = body.split(data)
    choices = msgspec.json.decode(fields["choices"], type=list[msgspec.Raw])
    if len(choices) * (len(data) - len(bytes(fields["choices"]))) > sse.EVENT_BYTES_MAX:
        # Half a megabyte of anything beside twenty thousand empty choices would be ten gigabytes.
        raise UpstreamMalformed("The upstream sent an event that is too large.")
    counted = fields.pop("usage", None)
    for number, choice in enumerate(choices, start=1):
        said = fields | {"choices": b"[" + bytes(choice) + b"]"}
        if number == len(choices) and counted is not None:
            said["usage"] = counted
        yield b"data: " + body.join(said) + b"\n\n"


def _uncounted(data: bytes, choices: Sequence[object]) -> tuple[bytes, bytes]:
    """A chunk, and its JSON, without an unreadable usage; nothing if it contains no more.

    Its caller gets the estimate instead, at the end.
    """
    data = body.patch(data, {"usage": None})
    return (b"data: " + data + b"\n\n" if choices else b""), data


def error_type(error: object) -> str:
    """The upstream's word for an error inside its stream; never its message."""
    for key in ("type", "code"):
        word = error.get(key) if isinstance(error, dict) else None
        if isinstance(word, str) and word.isidentifier():
            return word[:64]
    return "error"
