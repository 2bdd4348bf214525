"""Reads an upstream's stream of text completion chunks."""

import msgspec

from gateway.dialects.openai_chunks import Chunk, ChunkDecoder
from gateway.dialects.openai_completions.reply import stop_of
from gateway.dialects.openai_completions.wire import Choice
from gateway.types import Delta


_CHUNK = msgspec.json.Decoder(Chunk[Choice])
_NOT_A_PIECE = "The upstream sent something that is not a piece of a text completion."


class CompletionStreamDecoder(ChunkDecoder[Choice]):
    """See `ports.StreamDecoder`."""

    __slots__ = ()

    def __init__(self, answers: int = 1) -> None:
        super().__init__(_CHUNK, _NOT_A_PIECE, answers)

    def _is_short(self) -> bool:
        """Also if one of several is missing, as in a complete answer: each belongs to a prompt."""
        return super()._is_short() or 1 < self._answers > len(self._begun)

    def _text_alone(self, choice: Choice) -> str | None:
        return choice.text

    def _said(self, choice: Choice, deltas: list[Delta]) -> bool:
        if choice.text:
            deltas.append(Delta("text", choice.text, choice.index))
        return bool(choice.text)

    def _stopped(self, choice: Choice, reason: str) -> tuple[str, str | None]:
        return stop_of(choice, reason)
