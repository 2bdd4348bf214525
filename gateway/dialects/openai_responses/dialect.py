"""OpenAI's Responses API as a `ports.Dialect`."""

from collections.abc import Sequence

from gateway.dialects import hub
from gateway.dialects.openai_errors import OpenAIEnvelope
from gateway.dialects.openai_responses import reply, writer
from gateway.dialects.openai_responses import request as requests
from gateway.dialects.openai_responses.pass_through import ResponsePassThrough
from gateway.dialects.openai_responses.request import UNREADABLE, without_sealed
from gateway.dialects.openai_responses.stream_in import ResponseStreamDecoder
from gateway.dialects.openai_responses.stream_out import ResponseStreamEncoder
from gateway.dialects.openai_responses.tools import called_there
from gateway.errors import GatewrightError, UpstreamRefused
from gateway.ports import StreamDecoder, StreamEncoder, UpstreamBody
from gateway.types import ChatRequest, Completion, DialectName, Target


class OpenAIResponses(OpenAIEnvelope):
    """Stateless; one object serves every request."""

    name: DialectName = "openai_responses"

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

    def mend_request(self, body: bytes, error: GatewrightError) -> UpstreamBody | None:
        if not isinstance(error, UpstreamRefused) or error.upstream_code != UNREADABLE:
            return None
        return without_sealed(body)

    def decode_reply(self, raw: bytes) -> Completion:
        return reply.decode_reply(raw)

    def encode_reply(
        self, completion: Completion, source: DialectName, request: ChatRequest
    ) -> bytes:
        if source == self.name:
            return reply.patched(completion, request)
        return reply.encode_reply(completion, request, called_there(request.tree))

    def unmet(self, request: ChatRequest, text: str) -> str:
        return hub.unmet(request, text)

    def stream_decoder(self, answers: int = 1) -> StreamDecoder:
        """There is one answer to each request."""
        del answers
        return ResponseStreamDecoder()

    def stream_encoder(self, request: ChatRequest, source: DialectName) -> StreamEncoder:
        if source == self.name:
            return ResponsePassThrough(request)
        return ResponseStreamEncoder(request)
