"""Errors of the HTTP API, each with the status and code that OpenAI's SDKs understand.

ApiError
├── InvalidRequest        400  invalid_value, context_length_exceeded, unsupported_parameter,
│                              invalid_grammar, invalid_http, …
├── Unauthorized          401  invalid_api_key
├── NotFound              404  model_not_found, unknown_url
├── MethodNotAllowed      405  method_not_allowed
├── BodyTooLate           408  request_timeout
├── BodyTooLarge          413  request_too_large
├── EngineFailed          500  engine_failed
└── Unavailable           503  queue_full, busy, model_loading, worker_gone,
                               draining, stopping
"""

import msgspec


class ApiError(Exception):
    """Carries what the OpenAI error envelope shows; the message never quotes the prompt."""

    status = 500
    type = "server_error"

    def __init__(self, message: str, *, code: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param
        self.retry_after_s: int | None = None

    def envelope(self) -> bytes:
        return msgspec.json.encode(
            {
                "error": {
                    "message": self.message,
                    "type": self.type,
                    "code": self.code,
                    "param": self.param,
                }
            }
        )


class InvalidRequest(ApiError):
    status = 400
    type = "invalid_request_error"


class Unauthorized(ApiError):
    status = 401
    type = "authentication_error"


class NotFound(ApiError):
    status = 404
    type = "invalid_request_error"


def unknown_model(served_name: str) -> NotFound:
    """The error for a request that names a model other than the served one."""
    message = f"The model does not exist. This engine serves `{served_name}`."
    return NotFound(message, code="model_not_found", param="model")


class MethodNotAllowed(ApiError):
    """Says which methods are allowed instead (RFC 9110 §15.5.6)."""

    status = 405
    type = "invalid_request_error"

    def __init__(self, allowed: str) -> None:
        super().__init__("The method is not allowed here.", code="method_not_allowed")
        self.allowed = allowed


class BodyTooLate(ApiError):
    status = 408
    type = "invalid_request_error"


class BodyTooLarge(ApiError):
    status = 413
    type = "invalid_request_error"


class EngineFailed(ApiError):
    status = 500


class Unavailable(ApiError):
    """The request may be tried again a little later."""

    status = 503
    type = "overloaded_error"

    def __init__(self, message: str, *, code: str, retry_after_s: int) -> None:
        super().__init__(message, code=code)
        self.retry_after_s = retry_after_s


def queue_full() -> Unavailable:
    return Unavailable("The engine's queue is full.", code="queue_full", retry_after_s=1)


def api_error_of(
    code: str, message: str, param: str = "messages", grammar_param: str = "response_format"
) -> ApiError:
    """What a caller is told about a generation that the worker did not finish."""
    if code == "queue_full":
        return queue_full()
    if code == "worker_gone":
        return Unavailable("The engine lost its worker.", code="worker_gone", retry_after_s=2)
    if code == "invalid_grammar":
        text = f"The grammar cannot be used: {message}"
        return InvalidRequest(text, code="invalid_grammar", param=grammar_param)
    if code == "context_length_exceeded":
        return InvalidRequest(message, code=code, param=param)
    return EngineFailed("The engine failed on this request.", code="engine_failed")
