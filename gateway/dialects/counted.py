"""Answers that are token counts: read from a vendor, or made from our own estimate."""

import msgspec
from msgspec import Struct

from gateway.dialects.bodies.strict_json import Count
from gateway.errors import UpstreamMalformed
from gateway.types import Completion, Usage


class _Counted(Struct):
    input_tokens: Count


REPLY_BYTES_MAX = 256 * 1024
"""Read in one go; a count is a number and a few words."""
_REPLY = msgspec.json.Decoder(_Counted)


def read_count(raw: bytes) -> Completion:
    """A vendor's count is the input of the usage; `raw` may say more about it.

    Raises:
        UpstreamMalformed
    """
    if len(raw) > REPLY_BYTES_MAX:
        raise UpstreamMalformed("The upstream's answer is too long for a count of tokens.")
    try:
        tokens = _REPLY.decode(raw).input_tokens
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UpstreamMalformed("The upstream's answer is no count of tokens.") from error
    return count_of(tokens, raw)


def count_of(tokens: int, raw: bytes = b"") -> Completion:
    """An answer that is only a count; without `raw` it does not come from a vendor."""
    return Completion(
        raw=raw,
        message_id="",
        model="",
        text="",
        tool_calls=(),
        stop_reason="end",
        stop_sequence=None,
        usage=Usage(input_tokens=tokens, estimated=not raw),
    )
