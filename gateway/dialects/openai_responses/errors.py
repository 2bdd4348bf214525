"""Our errors inside a stream of responses; elsewhere they have the format of chat completions."""

import msgspec

from gateway.dialects.openai_errors import code_of, encode_error, message_of
from gateway.errors import ContextTooLong, GatewrightError


_RATE_LIMITED = 429
_BAD_REQUEST = 400


def response_error(error: GatewrightError) -> dict[str, object]:
    """The `error` of a failed response, with one of the codes that the vendor's types know.

    Or with a code they do not know, by which the vendor's own agent sees a full context.
    """
    status = encode_error(error, "")[0]
    code = {_RATE_LIMITED: "rate_limit_exceeded", _BAD_REQUEST: "invalid_prompt"}.get(status)
    if code_of(error) == ContextTooLong.code:
        code = ContextTooLong.code
    return {"code": code or "server_error", "message": message_of(error)}


def error_event(error: GatewrightError, sequence_number: int) -> bytes:
    """An `error` event, for a stream whose response never began."""
    data = {
        "type": "error",
        "code": code_of(error),
        "message": message_of(error),
        "param": error.parameter,
        "sequence_number": sequence_number,
    }
    return b"event: error\ndata: " + msgspec.json.encode(data) + b"\n\n"
