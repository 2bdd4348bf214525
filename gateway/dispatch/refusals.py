"""Converts an upstream's refusal for the caller, naming the wrong field if it is the caller's."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from gateway.admission.answer_bounds import holds_more
from gateway.errors import GatewrightError, UpstreamRefused
from gateway.ports import Dialect
from gateway.types import ChatRequest
from gateway.veiling.rewriting import AnswerRewriter


REFUSAL_BYTES_MAX: Final = 1024 * 1024
"""Of a longer refusal only the status is read: thirty megabytes of reasons take seconds."""
VALUES_MAX: Final = 20_000
"""The same for a refusal with more keys and list elements."""
SAID_BYTES_MAX: Final = 64 * 1024
"""A refusal behind a good status is no longer than this; a longer body is an answer, or rubbish."""
_STATUS = re.compile(r"[45][0-9]{2}")
BAD_GATEWAY = 502
_STATUSES: Final[Mapping[str, int]] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "rate_limit_error": 429,
    "overloaded_error": 529,
    "billing_error": 402,
    "context_length_exceeded": 400,
    "insufficient_quota": 429,
    "invalid_prompt": 400,
    "rate_limit_exceeded": 429,
    "server_error": 500,
}
"""The status that the vendors' error types and codes mean, if they come without one."""
_FIELD_END = re.compile(r"[.\[]")


def refusal_of(
    request: ChatRequest, dialect: Dialect, status: int, raw: bytes, retry_after_s: float | None
) -> GatewrightError:
    """The error of an upstream that was asked in `dialect`.

    It names no field that the caller did not send: what we put into a body is our responsibility.
    In another dialect, or behind a history that was stored here, the caller would not find a place
    inside a field, so only the field is named.
    """
    said = raw if len(raw) <= REFUSAL_BYTES_MAX and not holds_more(raw, VALUES_MAX) else b""
    error = dialect.decode_error(status, said, retry_after_s)
    if not isinstance(error, UpstreamRefused) or not error.is_callers_fault:
        return error
    field = _FIELD_END.split(error.upstream_parameter, maxsplit=1)[0]
    if field in request.tree:
        continues = request.thread is not None and request.thread.goes_on
        is_as_sent = dialect.name == request.dialect and not continues
        error.parameter = error.upstream_parameter if is_as_sent else field
    return error


def status_said(raw: bytes) -> int:
    """The status of an error that came in place of an answer; 0 if the body is no error.

    Relays answer 200 before they ask a provider of theirs, and report afterwards how that went.
    """
    if len(raw) > SAID_BYTES_MAX or holds_more(raw, VALUES_MAX):
        return 0
    try:
        said = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0
    if not isinstance(said, dict):
        return 0
    error = said.get("error")
    if said.get("output") or said.get("choices"):
        return 0  # An answer has begun, and is paid for.
    if not error and "error" not in (said.get("object"), said.get("type")):
        return 0
    inner = error if isinstance(error, dict) else said
    for code in (inner.get("code"), inner.get("status"), said.get("code")):
        if isinstance(code, int | str) and (status := _STATUS.fullmatch(str(code))):
            return int(status.group())
    words = (str(inner.get("code")), str(inner.get("type")))
    return next((_STATUSES[word] for word in words if word in _STATUSES), BAD_GATEWAY)


def retold(error: UpstreamRefused, rewriting: AnswerRewriter | None) -> UpstreamRefused:
    """The same refusal, rewritten as an answer to this caller would be.

    A code that rewriting changes is dropped.
    """
    if rewriting is None:
        return error
    said = {
        "message": error.message,
        "code": error.upstream_code,
        "detail": error.upstream_detail,
    }
    told = msgspec.json.decode(rewriting.unveiled(msgspec.json.encode(said)), type=dict[str, str])
    error.message = told["message"]
    error.upstream_code = error.upstream_code if told["code"] == said["code"] else ""
    error.upstream_detail = error.upstream_detail if told["detail"] == said["detail"] else ""
    return error
