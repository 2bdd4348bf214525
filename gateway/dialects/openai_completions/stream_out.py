"""Writes a chat's events as a stream of one text completion."""

from collections.abc import Callable

import msgspec

from gateway.dialects import sse
from gateway.dialects.fitting.naming import made_at, message_id
from gateway.dialects.openai_chat.reply import FINISH_REASONS, encode_usage, told_tier
from gateway.dialects.openai_chat.stream_out import DONE, PING, failure
from gateway.errors import GatewrightError
from gateway.types import ChatRequest, Delta, StreamEvent, Usage


_encode = msgspec.json.encode
_SPOKEN = frozenset({"text", "refusal"})
"""Kinds that have a place in a continuation; thinking has none."""


class CompletionStreamEncoder:
    """See `ports.StreamEncoder`: pieces of text, the reason to stop, usage, `[DONE]`."""

    response = b""
    is_cut_on_failure = True

    def __init__(self, request: ChatRequest) -> None:
        self._wants_usage = request.wants_stream_usage
        self._head = _head(request.request_id.encode(), Delta("start", model=request.model))
        self._seed = request.request_id.encode()
        self._model = request.model
        self._stopped = b""
        """The piece with the finish reason, held back until the answer is known to be complete."""
        self._failed = False

    def encode(self, events: list[StreamEvent]) -> bytes:
        return b"".join([self._delta(delta) for event in events for delta in event.deltas])

    def _delta(self, delta: Delta) -> bytes:
        if delta.kind in _SPOKEN:
            return self._piece(delta.text) if delta.text else b""
        if delta.kind == "start":
            model = delta.model or self._model
            self._head = _head(self._seed, Delta("start", message_id=delta.message_id, model=model))
        elif delta.kind == "stop":
            self._stopped = self._piece("", FINISH_REASONS.get(delta.stop_reason, "stop"))
        return b""

    def _piece(self, text: str, finish: str | None = None) -> bytes:
        piece = b'%b[{"index":0,"text":%b,"logprobs":null,"finish_reason":%b}]}\n\n'
        return piece % (self._head, _encode(text), _encode(finish))

    def finish(self, comment: str, usage: Usage) -> bytes:
        if self._failed:
            return b""
        counted = b""
        if self._wants_usage:
            tier = told_tier(usage)
            served = b',"service_tier":%b' % _encode(tier) if tier else b""
            told = _encode(encode_usage(usage))
            counted = b'%b[]%b,"usage":%b}\n\n' % (self._head, served, told)
        return self._stopped + counted + sse.comment(comment) + DONE

    def fail(self, error: GatewrightError, request_id: str) -> bytes:
        self._failed = True
        return failure(error, request_id)

    def plain(self, _: Callable[[bytes], bool]) -> None:
        """None: each event is written anew."""

    def ping(self) -> bytes:
        return PING


def _head(seed: bytes, start: Delta) -> bytes:
    """The beginning of every piece, up to its choices."""
    identity = message_id("cmpl-", start.message_id, seed)
    return b'data: {"id":%b,"object":"text_completion","created":%d,"model":%b,"choices":' % (
        _encode(identity),
        made_at(seed.decode()),
        _encode(start.model),
    )
