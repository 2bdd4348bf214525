"""Reads an upstream's stream of chat completion chunks."""

import msgspec

from gateway.dialects.fitting.naming import own_id
from gateway.dialects.openai_chat.reply import said_of, stopped_by
from gateway.dialects.openai_chat.seals import seal_of
from gateway.dialects.openai_chat.wire import (
    ChunkChoice,
    ReplyCustom,
    ReplyMessage,
    ReplyToolCall,
)
from gateway.dialects.openai_chunks import Chunk, ChunkDecoder
from gateway.errors import UpstreamMalformed
from gateway.types import Delta


_CHUNK = msgspec.json.Decoder(Chunk[ChunkChoice])
_UNNUMBERED = -2
"""First number for calls that have none; -1 is an encoder's word for no call at all."""
_NOT_A_CHUNK = "The upstream sent something that is not a chat completion chunk."


class _Call:
    """A tool call under way; `index` counts calls in the order in which they began."""

    __slots__ = ("index", "name", "said", "tool_id")

    def __init__(self, index: int, tool_id: str, name: str = "", *, is_named: bool = True) -> None:
        """`is_named` says whether its upstream gave it an id."""
        self.index = index
        self.tool_id = tool_id
        self.name = name
        self.said: list[str] | None = None if is_named else []
        """Its arguments, if only their end can tell it from the next call."""

    def goes_on_in(self, piece: ReplyToolCall, name: str) -> bool:
        """Whether a named piece belongs to this call, rather than beginning a new one."""
        if piece.id:
            return piece.id == self.tool_id
        says_more = piece.function is not None and piece.function.arguments
        if name != self.name or not self.said or not says_more:
            return name == self.name
        is_whole = _is_whole("".join(self.said))
        # An upstream that names a call in the middle of its arguments does so in every piece.
        self.said = None
        return not is_whole


class ChatStreamDecoder(ChunkDecoder[ChunkChoice]):
    """See `ports.StreamDecoder`."""

    __slots__ = ("_calls", "_calls_count", "_ids", "_ids_told", "_refused")

    def __init__(self, answers: int = 1) -> None:
        super().__init__(_CHUNK, _NOT_A_CHUNK, answers)
        self._refused = False
        self._calls: dict[tuple[int, int], _Call] = {}
        self._calls_count = 0
        self._ids: dict[tuple[int, int], str] = {}
        """Ids of calls whose name has not come yet."""
        self._ids_told: set[str] = set()

    def _text_alone(self, choice: ChunkChoice) -> str | None:
        piece = choice.delta
        if piece is None or _is_rare(piece):
            return None
        text = piece.content
        return text if isinstance(text, str) else None

    def _said(self, choice: ChunkChoice, deltas: list[Delta]) -> bool:
        piece = choice.delta
        if piece is None:
            return False
        text, thought = said_of(piece)
        if thought:
            # If servers send everything at once, the thinking comes first.
            deltas.append(Delta("thinking", thought, choice.index))
        if text:
            deltas.append(Delta("text", text, choice.index))
        if _is_rare(piece):
            self._rare(piece, choice.index, deltas)
            return True
        return bool(piece.content)

    def _stopped(self, choice: ChunkChoice, reason: str) -> tuple[str, str | None]:
        if self._refused:
            return "content_filter", None
        if reason != "end":
            return reason, None
        if self._calls_count:
            return "tool_use", None
        sequence = stopped_by(choice)
        return (reason, None) if sequence is None else ("stop_sequence", sequence)

    def _rare(self, piece: ReplyMessage, answer: int, deltas: list[Delta]) -> None:
        if piece.refusal:
            self._refused |= answer == 0
            self._is_repeatable = False
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

        Google sends complete calls with neither numbers nor ids: there another name means a new
        call, and so does the same name after complete arguments. Calls of custom tools hold text,
        and are ignored unless the caller brought such a tool.
        """
        known = self._calls.get(slot)
        if call.custom is not None:
            self._text_call(call, call.custom, slot, deltas)
            return
        name = call.function.name if call.function is not None else None
        if name and (known is None or not known.goes_on_in(call, name)):
            index = self._calls_count
            self._calls_count += 1
            named = call.id or self._ids.pop(slot, "")
            call_id = own_id(named, self._message_id, index, self._ids_told)
            known = _Call(index, call_id, name, is_named=bool(named))
            self._calls[slot] = known
            if (seal := seal_of(call.extra_content, call_id)) is not None:
                deltas.append(seal)
            deltas.append(Delta("tool_start", index=index, tool_id=known.tool_id, name=name))
        elif known is None and call.id:
            self._ids[slot] = call.id
        arguments = call.function.arguments if call.function is not None else None
        if not arguments:
            return
        if known is None:
            raise UpstreamMalformed("The upstream sent arguments of a tool call it never began.")
        if known.said is not None:
            known.said.append(arguments)
        deltas.append(Delta("tool_arguments", arguments, known.index))

    def _text_call(
        self, call: ReplyToolCall, said: ReplyCustom, slot: tuple[int, int], deltas: list[Delta]
    ) -> None:
        known = self._calls.get(slot)
        if known is None or (said.name and call.id and call.id != known.tool_id):
            name, index = said.name or "", self._calls_count
            self._calls_count += 1
            call_id = own_id(call.id or "", self._message_id, index, self._ids_told)
            known = self._calls[slot] = _Call(index, call_id, name)
            if name:
                deltas.append(Delta("text_tool_start", index=index, tool_id=call_id, name=name))
        deltas.append(Delta("opaque", said.input or "", known.index))


def _is_whole(arguments: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(arguments), dict)
    except (msgspec.DecodeError, RecursionError):
        return False


def _is_rare(piece: ReplyMessage) -> bool:
    """Whether a piece says more than text."""
    if piece.tool_calls or piece.reasoning_content or piece.reasoning or piece.refusal:
        return True
    return piece.function_call is not None or piece.audio is not None
