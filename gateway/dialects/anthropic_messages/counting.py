"""Anthropic's `count_tokens`: counts the tokens of a message instead of answering it."""

from collections.abc import Sequence

import msgspec
from msgspec import structs

from gateway.dialects.anthropic_messages import request as requests
from gateway.dialects.anthropic_messages.dialect import AnthropicMessages
from gateway.dialects.bodies import body
from gateway.dialects.bodies.strict_json import decode_object
from gateway.dialects.counted import read_count
from gateway.ports import UpstreamBody
from gateway.types import ChatRequest, Completion, DialectName, Target


UNCOUNTED = frozenset(
    {
        *("container", "diagnostics", "fallback_credit_token", "fallbacks", "inference_geo"),
        *("max_tokens", "metadata", "service_tier", "stop_sequences", "stream", "thread"),
        *("temperature", "top_k", "top_p"),
    }
)
"""What a message may say and its count may not: none of it makes the input longer."""


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
        return structs.replace(message, body=body.join(counted))

    def decode_reply(self, raw: bytes) -> Completion:
        return read_count(raw)

    def encode_reply(
        self, completion: Completion, source: DialectName, request: ChatRequest
    ) -> bytes:
        """What the vendor said; an estimate of ours in the same words."""
        del source, request
        counted = {"input_tokens": completion.usage.input_tokens}
        return completion.raw or msgspec.json.encode(counted)
