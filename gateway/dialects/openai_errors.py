"""Converts our errors to OpenAI's error format."""

import msgspec

from gateway.dialects import upstream_errors
from gateway.dialects.allowances import openai_headers
from gateway.dialects.openai_mending import mended
from gateway.errors import BudgetExhausted, ContextTooLong, GatewrightError, UpstreamRefused
from gateway.ports import Standing, UpstreamBody


_TYPES = {
    400: "invalid_request_error",
    401: "invalid_request_error",
    402: "insufficient_quota",
    403: "permission_error",
    404: "invalid_request_error",
    413: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}
_STATUS = {529: 503}
"""Statuses that only another vendor's clients know."""

_TOO_LONG = (
    "Input tokens exceed the configured limit: the input exceeds the context window, "
    "the model's maximum context length"
)
"""By some part of it each framework recognises that it has to shorten the history; many look only
at the message."""
_TOO_LONG_WORDS = (
    "input tokens exceed the configured limit",
    "exceeds the context window",
    "maximum context length",
)
_SERVER_ERROR_MIN = 500


class OpenAIEnvelope:
    """What all of the vendor's endpoints have in common: see `ports.Dialect`."""

    def mend_request(self, body: bytes, error: GatewrightError) -> UpstreamBody | None:
        return mended(body, error)

    def decode_error(self, status: int, raw: bytes, retry_after_s: float | None) -> GatewrightError:
        return upstream_errors.decode_error(status, raw, retry_after_s)

    def encode_error(self, error: GatewrightError, request_id: str) -> tuple[int, bytes]:
        return encode_error(error, request_id)

    def encode_standing(self, standing: Standing, utc_us: int) -> dict[str, str]:
        del utc_us
        return openai_headers(standing)


def encode_error(error: GatewrightError, request_id: str) -> tuple[int, bytes]:
    """Status and envelope. The request id travels in a header in this dialect, not in the body."""
    del request_id
    status = _STATUS.get(error.http_status, error.http_status)
    default = "invalid_request_error" if status < _SERVER_ERROR_MIN else "server_error"
    kind = _TYPES.get(status, default)
    if isinstance(error, BudgetExhausted):
        kind = "insufficient_quota"
    envelope = {
        "message": message_of(error),
        "type": kind,
        "param": error.parameter,
        "code": code_of(error),
    }
    return status, msgspec.json.encode({"error": envelope})


def message_of(error: GatewrightError) -> str:
    """The message, in this vendor's words if clients go by them."""
    said = error.message.lower()
    if code_of(error) != ContextTooLong.code or any(words in said for words in _TOO_LONG_WORDS):
        return error.message
    return f"{_TOO_LONG}: {error.message}"


def code_of(error: GatewrightError) -> str:
    """The upstream's own code if the caller can act on it, e.g. by compacting the history."""
    if isinstance(error, UpstreamRefused) and error.is_callers_fault and error.upstream_code:
        return error.upstream_code
    return error.code
