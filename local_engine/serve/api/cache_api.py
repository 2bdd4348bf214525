"""`/cache/events` and `/cache/chain`: what a pool needs to know of this engine's prefix cache.

Both answer in msgpack, because hashes are bytes. Neither says anything about a text.
"""

import msgspec

from local_engine.serve.api.chat_request import decode_body
from local_engine.serve.api.errors import api_error_of
from local_engine.serve.api.http import Send, send_body
from local_engine.serve.api.prompts import AskedPrompt, tokens_of
from local_engine.serve.engine import Engine
from local_engine.serve.generation import Caller
from local_engine.serve.link import StepFailed


WAIT_S_MAX = 20.0
_MSGPACK = b"application/msgpack"


class _Since(msgspec.Struct):
    epoch: str = ""
    since: int = 0
    wait_s: float = 0.0


async def answer_cache_events(body: bytes, send: Send, engine: Engine) -> None:
    """Changes of cached blocks since the reader's last call; see `CacheReport`."""
    asked: _Since = decode_body(body, _Since, ())
    wait_s = min(max(asked.wait_s, 0.0), WAIT_S_MAX)
    report = await engine.cache.read(asked.epoch, asked.since, wait_s)
    await send_body(send, 200, msgspec.msgpack.encode(report), content_type=_MSGPACK)


async def answer_cache_chain(body: bytes, send: Send, engine: Engine, caller: Caller) -> None:
    """The hashes under which a conversation's blocks are cached for this caller's group."""
    asked: AskedPrompt = decode_body(body, AskedPrompt, ())
    tokens = await tokens_of(asked, engine)
    try:
        found = await engine.chain(tokens, caller)
    except StepFailed as error:
        raise api_error_of(error.code, str(error)) from error
    answer = {
        "block_tokens": found.block_tokens,
        "num_tokens": len(tokens),
        "chain": found.chain if not caller.is_zeroed else b"",
    }
    await send_body(send, 200, msgspec.msgpack.encode(answer), content_type=_MSGPACK)
