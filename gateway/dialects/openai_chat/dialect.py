"""OpenAI's chat completions as a `ports.Dialect`."""

from collections.abc import Sequence

from gateway.dialects import hub
from gateway.dialects.fitting.naming import made_at
from gateway.dialects.openai_chat import reply, writer
from gateway.dialects.openai_chat import request as requests
from gateway.dialects.openai_chat.stream_in import ChatStreamDecoder
from gateway.dialects.openai_chat.stream_out import ChatPassThrough, ChatStreamEncoder
from gateway.dialects.openai_chat.tools import told_calls
from gateway.dialects.openai_errors import OpenAIEnvelope
from gateway.dialects.token_odds import in_response
from gateway.ports import StreamDecoder, StreamEncoder, UpstreamBody
from gateway.types import ChatRequest, Completion, DialectName, Target


class OpenAIChat(OpenAIEnvelope):
    """Stateless; one object serves every request."""

    name: DialectName = "openai_chat"

    def decode_request(
        self, raw: bytes, request_id: str, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> ChatRequest:
        del headers
        return requests.decode_request(raw, request_id)

    def encode_request(
        self, request: ChatRequest, target: Target, output_tokens_cap: int
    ) -> UpstreamBody:
        if request.dialect == self.name:
            return requests.patch_request(request, target, output_tokens_cap)
        return hub.put_to(target, request, output_tokens_cap, writer.write_request)

    def decode_reply(self, raw: bytes) -> Completion:
        return reply.decode_reply(raw)

    def encode_reply(
        self, completion: Completion, source: DialectName, request: ChatRequest
    ) -> bytes:
        if source == self.name:
            return reply.with_usage(completion)
        made = made_at(request.request_id)
        tokens = in_response(completion.raw) if request.tree.get("logprobs") else ()
        return reply.encode_reply(completion, told_calls(request.tree), made, tokens)

    def unmet(self, request: ChatRequest, text: str) -> str:
        return hub.unmet(request, text)

    def stream_decoder(self, answers: int = 1) -> StreamDecoder:
        return ChatStreamDecoder(answers)

    def stream_encoder(self, request: ChatRequest, source: DialectName) -> StreamEncoder:
        return ChatPassThrough(request) if source == self.name else ChatStreamEncoder(request)
