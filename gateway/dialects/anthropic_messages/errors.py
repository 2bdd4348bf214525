"""Converts our errors to Anthropic's error format."""

from typing import Final

import msgspec

from gateway.errors import (
    BudgetExhausted,
    ContextTooLong,
    FeatureUnsupported,
    GatewrightError,
    UpstreamRefused,
)


TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""What this vendor calls an error of a status."""
_STATUS = {503: 529}
"""This vendor's word for an overload that passes."""

_TOO_LONG = "prompt is too long"
_TOO_LONG_WITH_ANSWER = "exceed context limit"
"""This vendor's words where input and `max_tokens` together do not fit: a shorter answer would."""

_BILLING_STATUS = 402
_SERVER_ERROR_MIN = 500


def encode_error(error: GatewrightError, request_id: str) -> tuple[int, bytes]:
    """Status and envelope, with the request's id in it."""
    status = error.http_status
    if error.retryable:
        status = _STATUS.get(status, status)
    if isinstance(error, BudgetExhausted):
        status = _BILLING_STATUS
    default = "invalid_request_error" if status < _SERVER_ERROR_MIN else "api_error"
    inner: dict[str, object] = {"type": TYPES.get(status, default), "message": _message(error)}
    if isinstance(error, FeatureUnsupported) and error.parameter == "thread":
        # The official tool runner resends the whole history when it reads this code.
        inner["details"] = {"error_code": "thread_unsupported_request"}
    elif isinstance(error, UpstreamRefused) and error.upstream_detail:
        inner["details"] = {"error_code": error.upstream_detail}
    envelope = {"type": "error", "error": inner, "request_id": request_id}
    return status, msgspec.json.encode(envelope)


def _message(error: GatewrightError) -> str:
    """Clients of this vendor know by these words that they have to shorten the history."""
    code = error.upstream_code if isinstance(error, UpstreamRefused) else error.code
    said = error.message.lower()
    if code != ContextTooLong.code or _TOO_LONG in said or _TOO_LONG_WITH_ANSWER in said:
        return error.message
    return f"{_TOO_LONG}: {error.message}"
