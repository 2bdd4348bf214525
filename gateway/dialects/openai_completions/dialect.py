"""OpenAI's text completions as a `ports.Dialect`: prompts in, continuations out.

A target that continues bare text gets the caller's bytes. A chat model that the caller named gets
the prompt as a user turn. This is reported, because a chat template makes another prompt of it.
"""

from collections.abc import Sequence

from gateway.dialects.fitting.naming import made_at
from gateway.dialects.loss import unsupported
from gateway.dialects.openai_chat.stream_out import ChatPassThrough
from gateway.dialects.openai_completions import reply
from gateway.dialects.openai_completions import request as requests
from gateway.dialects.openai_completions.stream_in import CompletionStreamDecoder
from gateway.dialects.openai_completions.stream_out import CompletionStreamEncoder
from gateway.dialects.openai_errors import OpenAIEnvelope
from gateway.ports import StreamDecoder, StreamEncoder, UpstreamBody
from gateway.types import ChatRequest, Completion, DialectName, Target


class OpenAICompletions(OpenAIEnvelope):
    """Stateless; one object serves every request."""

    name: DialectName = "openai_completions"

    def decode_request(
        self, raw: bytes, request_id: str, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> ChatRequest:
        del headers
        return requests.decode_request(raw, request_id)

    def encode_request(
        self, request: ChatRequest, target: Target, output_tokens_cap: int
    ) -> UpstreamBody:
        if request.dialect != self.name:
            raise unsupported("model", "This model continues bare text only", 59)
        return requests.patch_request(request, target, output_tokens_cap)

    def decode_reply(self, raw: bytes) -> Completion:
        return reply.decode_reply(raw)

    def encode_reply(
        self, completion: Completion, source: DialectName, request: ChatRequest
    ) -> bytes:
        if source == self.name:
            return reply.passed_on(completion, request)
        return reply.encode_reply(completion, made_at(request.request_id))

    def unmet(self, request: ChatRequest, text: str) -> str:
        """Always empty: this dialect has no field for a format; an engine's own is left to it."""
        del request, text
        return ""

    def stream_decoder(self, answers: int = 1) -> StreamDecoder:
        return CompletionStreamDecoder(answers)

    def stream_encoder(self, request: ChatRequest, source: DialectName) -> StreamEncoder:
        """The upstream's own events; those of a chat's stream end and fail in the same way."""
        if source == self.name:
            return ChatPassThrough(request, b"text_completion")
        return CompletionStreamEncoder(request)
