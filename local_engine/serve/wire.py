"""Messages between the HTTP side and the worker: msgpack frames over a socket pair.

Every message is a typed struct that is checked when it is decoded; nothing is ever unpickled. The
socket is inherited and has no name, so no other process can use it.
"""

import socket
import struct
from collections.abc import Iterator
from typing import Any

import msgspec

from local_engine.sampling_params import SamplingParams


MAX_FRAME_BYTES = 256 << 20
_LENGTH = struct.Struct("!I")


class Submit(msgspec.Struct, frozen=True, tag=True):
    """Compute a sequence."""

    sequence_id: str
    token_ids: list[int]
    params: SamplingParams
    tier: str = "standard"
    tenant: str = ""
    data_class: str = ""
    is_zeroed: bool = False
    request_id: str = ""
    """Set for a request of several sequences: they may share each other's blocks in any case."""
    cache_salt: str = ""
    """Keeps a request apart even from others of its own group."""


class Abort(msgspec.Struct, frozen=True, tag=True):
    """Stop computing a sequence, or a text's embedding, that nobody waits for any more."""

    sequence_id: str


class Embed(msgspec.Struct, frozen=True, tag=True):
    """Compute one text's embedding."""

    request_id: str
    token_ids: list[int]


class Chain(msgspec.Struct, frozen=True, tag=True):
    """Ask under which hashes the blocks of a prompt are cached for a group."""

    request_id: str
    token_ids: list[int]
    tenant: str = ""
    data_class: str = ""


class ClearCache(msgspec.Struct, frozen=True, tag=True):
    """Forget every cached prefix."""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """End after the current step."""


class Token(msgspec.Struct, frozen=True, array_like=True):
    """A chosen token, with what was asked about its probability."""

    token_id: int
    logprob: float | None = None
    top: list[tuple[int, float]] = []
    rank: int | None = None


class Update(msgspec.Struct, frozen=True, array_like=True):
    """What one step added to one sequence."""

    sequence_id: str
    tokens: list[Token]
    finish_reason: str | None = None
    num_cached_tokens: int = 0
    prompt_logprobs: list[Token] = []


class Stats(msgspec.Struct, frozen=True, array_like=True):
    """The worker's gauges and counters."""

    num_waiting: int = 0
    num_running: int = 0
    num_blocks: int = 0
    num_free_blocks: int = 0
    num_preemptions: int = 0
    num_steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    num_host_blocks_used: int = 0
    device_bytes: int = 0
    device_free_bytes: int = 0


class Updates(msgspec.Struct, frozen=True, tag=True):
    """What one step added to all sequences."""

    updates: list[Update]
    stats: Stats


class Failed(msgspec.Struct, frozen=True, tag=True):
    """A sequence or an embedding will not be computed; `code` says why in one word."""

    request_id: str
    code: str
    message: str = ""


class Embedded(msgspec.Struct, frozen=True, tag=True):
    request_id: str
    embedding: list[float]


class Chained(msgspec.Struct, frozen=True, tag=True):
    """Short hashes of a prompt's full blocks, one after the other; empty for a group of one."""

    request_id: str
    block_tokens: int
    chain: bytes


class CacheNews(msgspec.Struct, frozen=True, tag=True):
    """What happened to cached blocks; see `local_engine.serve.cache_log`."""

    number: int
    news: bytes


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The model is loaded; everything the HTTP side needs to know about it."""

    name: str
    digest: str
    dtype: str
    device: str
    precision: str
    """Formats and device of its products: the same weights round differently with others."""
    vocab_size: int
    context_window: int
    eos_token_ids: tuple[int, ...]
    defaults: dict[str, float]
    tokenizer_json: bytes
    tokenizer_config: bytes
    chat_template: bytes
    max_places: int
    memory: dict[str, int]
    description: dict[str, int]


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The model cannot be served."""

    reason: str


ToWorker = Submit | Abort | Embed | Chain | ClearCache | Stop
FromWorker = Updates | Failed | Embedded | Chained | CacheNews | Ready | Refused
_ENCODER = msgspec.msgpack.Encoder()
_TO_WORKER = msgspec.msgpack.Decoder(ToWorker)
_FROM_WORKER: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)


class BrokenFrame(ValueError):
    """The other side sent something that is not a message."""


def encode(message: Any) -> bytes:
    body = _ENCODER.encode(message)
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Assembles messages from bytes, however they were split."""

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        self._held = bytearray()

    @classmethod
    def for_worker(cls) -> "Frames":
        return cls(_TO_WORKER)

    @classmethod
    def for_engine(cls) -> "Frames":
        return cls(_FROM_WORKER)

    def push(self, data: bytes) -> Iterator[Any]:
        """The messages that are complete now; raises `BrokenFrame`."""
        self._held += data
        while len(self._held) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._held)
            if length > MAX_FRAME_BYTES:
                raise BrokenFrame("a frame is too long")
            end = _LENGTH.size + length
            if len(self._held) < end:
                return
            body = bytes(self._held[_LENGTH.size : end])
            del self._held[:end]
            try:
                yield self._decoder.decode(body)
            except (msgspec.DecodeError, ValueError) as error:
                raise BrokenFrame(type(error).__name__) from error


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of one nameless Unix socket."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
