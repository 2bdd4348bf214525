"""Our error tree in the words that OpenAI's clients know."""

import msgspec

from gateway.errors import BudgetExhausted, GatewrightError, UpstreamRefused


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

_SERVER_ERROR_MIN = 500


def encode_error(error: GatewrightError, request_id: str) -> tuple[int, bytes]:
    """Status and envelope. The request id travels in a header in this dialect, not in the body."""
    del request_id
    status = _STATUS.get(error.http_status, error.http_status)
    default = "invalid_request_error" if status < _SERVER_ERROR_MIN else "server_error"
    kind = _TYPES.get(status, default)
    if isinstance(error, BudgetExhausted):
        kind = "insufficient_quota"
    envelope = {
        "message": error.message,
        "type": kind,
        "param": error.parameter,
        "code": _code(error),
    }
    return status, msgspec.json.encode({"error": envelope})


def _code(error: GatewrightError) -> str:
    """The upstream's own code where the caller can act on it, e.g. by compacting the history."""
    if isinstance(error, UpstreamRefused) and error.is_callers_fault and error.upstream_code:
        return error.upstream_code
    return error.code
