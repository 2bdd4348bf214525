"""OpenAI's chat completions as a `ports.Dialect`."""

from collections.abc import Sequence

from gateway.dialects import hub, upstream_errors
from gateway.dialects.allowances import openai_headers
from gateway.dialects.naming import renamed_tools
from gateway.dialects.openai_chat import errors, reply, writer
from gateway.dialects.openai_chat import request as requests
from gateway.dialects.openai_chat.stream_in import ChatStreamDecoder
from gateway.dialects.openai_chat.stream_out import ChatPassThrough, ChatStreamEncoder
from gateway.errors import GatewrightError
from gateway.ports import Standing, StreamDecoder, StreamEncoder, UpstreamBody
from gateway.types import ChatRequest, Completion, DialectName, Target


class OpenAIChat:
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
        talk = hub.read_conversation(request)
        return writer.write_request(talk, target, output_tokens_cap)

    def mend_request(self, body: bytes, error: GatewrightError) -> UpstreamBody | None:
        """Its requests hold nothing that only one upstream can read."""
        del body, error
        return None

    def decode_reply(self, raw: bytes) -> Completion:
        return reply.decode_reply(raw)

    def encode_reply(
        self, completion: Completion, source: DialectName, request: ChatRequest
    ) -> bytes:
        if source == self.name:
            return reply.with_usage(completion)
        return reply.encode_reply(completion, renamed_tools(request.tree))

    def unmet(self, request: ChatRequest, text: str) -> str:
        return hub.unmet(request, text)

    def decode_error(self, status: int, raw: bytes, retry_after_s: float | None) -> GatewrightError:
        return upstream_errors.decode_error(status, raw, retry_after_s)

    def encode_error(self, error: GatewrightError, request_id: str) -> tuple[int, bytes]:
        return errors.encode_error(error, request_id)

    def encode_standing(self, standing: Standing, utc_us: int) -> dict[str, str]:
        del utc_us
        return openai_headers(standing)

    def stream_decoder(self) -> StreamDecoder:
        return ChatStreamDecoder()

    def stream_encoder(self, request: ChatRequest, source: DialectName) -> StreamEncoder:
        return ChatPassThrough(request) if source == self.name else ChatStreamEncoder(request)
