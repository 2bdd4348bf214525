"""Anthropic's Messages API as a `ports.Dialect`."""

from collections.abc import Sequence

from msgspec import structs

from gateway.dialects import hub, upstream_errors
from gateway.dialects.allowances import anthropic_headers
from gateway.dialects.anthropic_messages import errors, reply, writer
from gateway.dialects.anthropic_messages import request as requests
from gateway.dialects.anthropic_messages.caching import FIELD, MARKER, is_worth_caching
from gateway.dialects.anthropic_messages.stream_in import MessageStreamDecoder
from gateway.dialects.anthropic_messages.stream_out import (
    MessagePassThrough,
    MessageStreamEncoder,
)
from gateway.dialects.bodies import body
from gateway.dialects.fitting.naming import renamed_tools
from gateway.errors import GatewrightError
from gateway.ports import Standing, StreamDecoder, StreamEncoder, UpstreamBody
from gateway.types import ChatRequest, Completion, DialectName, Target


class AnthropicMessages:
    """Stateless; one object serves every request."""

    name: DialectName = "anthropic_messages"

    def decode_request(
        self, raw: bytes, request_id: str, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> ChatRequest:
        return requests.decode_request(raw, request_id, headers)

    def encode_request(
        self, request: ChatRequest, target: Target, output_tokens_cap: int
    ) -> UpstreamBody:
        if request.dialect == self.name:
            return requests.patch_request(request, target, output_tokens_cap)
        upstream = hub.put_to(target, request, output_tokens_cap, writer.write_request)
        if not is_worth_caching(request, target):
            return upstream
        return structs.replace(upstream, body=body.patch(upstream.body, {FIELD: MARKER}))

    def mend_request(self, body: bytes, error: GatewrightError) -> UpstreamBody | None:
        """Signed thinking must come back complete: without it, a tool's result has no question."""
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
        return anthropic_headers(standing, utc_us)

    def stream_decoder(self, answers: int = 1) -> StreamDecoder:
        """There is one answer to each request."""
        del answers
        return MessageStreamDecoder()

    def stream_encoder(self, request: ChatRequest, source: DialectName) -> StreamEncoder:
        return MessagePassThrough() if source == self.name else MessageStreamEncoder(request)
