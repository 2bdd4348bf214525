"""A scripted provider without a network, for tests, benchmarks and dry runs.

It replays what it was given and never poses as a model: its targets must be named `scripted/…`.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping

import msgspec
from msgspec import Struct

from gateway.errors import (
    NO_RATE_LIMITS,
    ConfigurationInvalid,
    UpstreamFailed,
    UpstreamUnreachable,
)
from gateway.ports import Take, UpstreamCall
from gateway.providers.egress.client import check_clearance
from gateway.providers.parcels.scripted import ScriptedParcels
from gateway.types import ChatRequest, DialectName, Target


TARGET_PREFIX = "scripted/"
_TEXT = "scripted"
CALLS_KEPT = 1_000
"""A worker that is tried out for days must not keep every call it got."""


class ScriptedReply(Struct, frozen=True, kw_only=True):
    """What one call gets. Faults are our own errors, raised where a real upstream would fail."""

    status: int = 200
    pieces: tuple[bytes, ...] = ()
    """The body as it arrives."""
    is_event_stream: bool = False
    retry_after_s: float | None = None
    refusal: UpstreamFailed | None = None
    """Raised instead of headers."""
    break_off: UpstreamFailed | None = None
    """Raised after the pieces."""
    gap_s: float = 0.0
    """A pause before each piece."""
    upstream_ids: tuple[str, ...] = ()


class ScriptedProvider:
    """Implements `gateway.ports.Provider`; `calls` are the newest accepted ones."""

    counts_tokens = False

    def __init__(
        self,
        name: str,
        jurisdiction: str,
        dialect: DialectName = "openai_chat",
        replies: Iterable[ScriptedReply] = (),
    ) -> None:
        self.name = name
        self.jurisdiction = jurisdiction
        self.dialect: DialectName = dialect
        self.unavailable_reason = ""
        self.probe_verdict = ""
        self.calls: list[UpstreamCall] = []
        self.cancelled = 0
        self._replies = deque(replies)
        self.parcels = ScriptedParcels(
            jurisdiction, dialect, lambda call: b"".join(good_reply(dialect, call).pieces)
        )

    def speaks(self, request: ChatRequest, target: Target) -> DialectName:
        """Always the one dialect it was made with."""
        del request, target
        return self.dialect

    def add(self, *replies: ScriptedReply) -> None:
        """Queue replies; when none is left, calls get a small good answer."""
        self._replies.extend(replies)

    async def open(self, call: UpstreamCall) -> "ScriptedUpstreamReply":
        check_clearance(self.jurisdiction, call)
        if not call.target.name.startswith(TARGET_PREFIX):
            reason = f"a scripted target must be named {TARGET_PREFIX}…"
            raise ConfigurationInvalid(self.name, call.target.name, reason)
        self.calls.append(call)
        del self.calls[:-CALLS_KEPT]
        reply = self._replies.popleft() if self._replies else good_reply(self.dialect, call)
        if not isinstance(reply.refusal, UpstreamUnreachable):
            call.leaves()
        if reply.refusal is not None:
            raise reply.refusal
        return ScriptedUpstreamReply(self, reply)

    async def probe(self) -> str:
        return self.unavailable_reason or self.probe_verdict

    async def close(self) -> None:
        """There is nothing to close."""


class ScriptedUpstreamReply:
    """An answer being replayed; see `gateway.ports.UpstreamReply`."""

    def __init__(self, provider: ScriptedProvider, reply: ScriptedReply) -> None:
        self.status = reply.status
        self.retry_after_s = reply.retry_after_s
        self.is_event_stream = reply.is_event_stream
        self.rate_limits: Mapping[str, str] = NO_RATE_LIMITS
        self.upstream_ids = reply.upstream_ids
        self._provider = provider
        self._reply = reply
        self._pieces = iter(reply.pieces)
        self._is_over = False

    @property
    def body_bytes(self) -> int:
        return sum(len(piece) for piece in self._reply.pieces)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._is_over:
            raise StopAsyncIteration
        if self._reply.gap_s:
            await asyncio.sleep(self._reply.gap_s)
        for piece in self._pieces:
            return piece
        self._is_over = True
        if self._reply.break_off is not None:
            raise self._reply.break_off
        raise StopAsyncIteration

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self])

    def chunks(self) -> AsyncIterator[bytes]:
        return self

    async def flow(self, take: Take) -> None:
        while not self._is_over:
            if self._reply.gap_s:
                await asyncio.sleep(self._reply.gap_s)
            for piece in self._pieces:
                if take(piece):
                    return
                break
            else:
                return

    def told(self, status: int, said: bytes) -> tuple[int, bytes]:
        return status, said

    async def close(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._provider.cancelled += 1


def good_reply(dialect: DialectName, call: UpstreamCall) -> ScriptedReply:
    """A small complete answer in a dialect, streamed if the call asks for that."""
    if call.stream:
        events = tuple(_STREAMS[dialect](call.target.model, _TEXT))
        return ScriptedReply(pieces=events, is_event_stream=True)
    return ScriptedReply(
        pieces=(msgspec.json.encode(_COMPLETIONS[dialect](call.target.model, _TEXT)),)
    )


def _openai_completion(model: str, text: str) -> dict[str, object]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def _openai_stream(model: str, text: str) -> Iterable[bytes]:
    shell = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": model,
    }
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    first = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    for tree in (
        {**shell, "choices": [first]},
        {**shell, "choices": [last]},
        {**shell, "choices": [], "usage": usage},
    ):
        yield b"data: " + msgspec.json.encode(tree) + b"\n\n"
    yield b"data: [DONE]\n\n"


def _anthropic_message(model: str, text: str) -> dict[str, object]:
    return {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _anthropic_stream(model: str, text: str) -> Iterable[bytes]:
    message = _anthropic_message(model, text) | {"content": [], "stop_reason": None}
    block = {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": text}
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    trees: tuple[dict[str, object], ...] = (
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    )
    for tree in trees:
        yield b"event: %b\ndata: %b\n\n" % (str(tree["type"]).encode(), msgspec.json.encode(tree))


_COMPLETIONS = {"openai_chat": _openai_completion, "anthropic_messages": _anthropic_message}
_STREAMS = {"openai_chat": _openai_stream, "anthropic_messages": _anthropic_stream}
