"""Anthropic's `count_tokens`: a message that is counted instead of answered."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct, structs

from gateway.dialects import body
from gateway.dialects.anthropic_messages import request as requests
from gateway.dialects.anthropic_messages.dialect import AnthropicMessages
from gateway.dialects.strict_json import Count, decode_object
from gateway.errors import UpstreamMalformed
from gateway.ports import UpstreamBody
from gateway.types import ChatRequest, Completion, Target, Usage


UNCOUNTED = frozenset(
    {
        *("container", "diagnostics", "fallback_credit_token", "fallbacks", "inference_geo"),
        *("max_tokens", "metadata", "service_tier", "stop_sequences", "stream", "thread"),
        *("temperature", "top_k", "top_p"),
    }
)
"""What a message may say and its count may not: none of it makes the input longer."""


class _Counted(Struct):
    input_tokens: Count


_REPLY = msgspec.json.Decoder(_Counted)


class AnthropicTokenCount(AnthropicMessages):
    """Stateless. What policy and inspection see is the message; nothing of an answer is in it."""

    def decode_request(
        self, raw: bytes, request_id: str, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> ChatRequest:
        """A messages request that needs no limit, is never a stream and uses up no tokens."""
        tree = {**decode_object(raw), "max_tokens": 1}
        message = requests.read_request(tree, raw, request_id, headers)
        return structs.replace(message, stream=False, max_output_tokens=None, input_tokens_most=0)

    def encode_request(
        self, request: ChatRequest, target: Target, output_tokens_cap: int
    ) -> UpstreamBody:
        """The caller's own bytes with the model set and without what a count does not take."""
        message = requests.patch_request(request, target, output_tokens_cap)
        counted = {
            name: value for name, value in body.split(message.body).items() if name not in UNCOUNTED
        }
        return UpstreamBody(body.join(counted), message.dropped)

    def decode_reply(self, raw: bytes) -> Completion:
        """The count is the input of the usage; `raw` may say more about it."""
        try:
            tokens = _REPLY.decode(raw).input_tokens
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UpstreamMalformed("The upstream's answer is no count of tokens.") from error
        return Completion(
            raw=raw,
            message_id="",
            model="",
            text="",
            tool_calls=(),
            stop_reason="end",
            stop_sequence=None,
            usage=Usage(input_tokens=tokens),
        )
