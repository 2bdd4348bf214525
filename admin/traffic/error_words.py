"""One sentence for each error code of a record: what it means to the caller, and what helps.

The codes themselves are the API's (`gateway.errors`); no sentence contains anything of a request.
"""

from collections.abc import Mapping
from typing import Final


_UNKNOWN_ID: Final = "The project has none with this id, or has it no more: look at the id."
_RUN_BY_OTHERS: Final = "Whoever runs the platform can help:"
MEANINGS: Final[Mapping[str, str]] = {
    "invalid_request": "The request breaks a rule of its dialect. Its caller was told which field.",
    "request_too_large": "Its body is longer than what is taken: send less in one request.",
    "unsupported_encoding": "Its body was packed in a way that is not taken: send it unpacked.",
    "unknown_url": "Nothing is at this address: look at the client's base URL.",
    "method_not_allowed": "The address takes another method: look at the client.",
    "model_not_found": "No target or route has the name that was asked for, or had it then.",
    "response_not_found": _UNKNOWN_ID,
    "file_not_found": _UNKNOWN_ID,
    "batch_not_found": _UNKNOWN_ID,
    "previous_response_not_found": _UNKNOWN_ID,
    "conversation_not_found": _UNKNOWN_ID,
    "item_not_found": _UNKNOWN_ID,
    "conversation_locked": "Another request was being answered with its conversation: try again "
    "once that is over.",
    "context_length_exceeded": "Its input fits no permitted target: send less of it.",
    "unsupported_parameter": "No permitted target can do what it asks for. Its caller was told.",
    "invalid_api_key": "No key, or one that is malformed, unknown, expired or revoked: see Keys.",
    "policy_denied": "A rule of policy says no: the same request is refused again.",
    "no_permitted_target": "Policy, or what its key may use, left no target: the same request is "
    "refused again.",
    "rate_limited": "Too much at once for a rate limit of its key or above: wait, or have the "
    "limit raised under Limits.",
    "insufficient_quota": "Its worst case did not fit into a budget of its key or above: it does "
    "in the next window, or once the limit is raised under Limits.",
    "unavailable": "The worker had no room: try again.",
    "no_target_available": "Targets were permitted and none could answer: try again; Models says "
    "which are away.",
    "no_target_configured": f"{_RUN_BY_OTHERS} no target that could answer has a credential.",
    "audit_unavailable": f"{_RUN_BY_OTHERS} no record could be made durable, so nothing was sent.",
    "lease_over": "Another worker may have had this line of a batch: it answers it.",
    "worker_stopped": "The worker was ended before the answer was: try again.",
    "not_ready": "The worker was not ready, or its configuration was too old: try again.",
    "upstream_failed": "What was asked failed, and nothing else that is permitted answered: try "
    "again; Models says how it does.",
    "upstream_refused": "What was asked answered with an error of its own: its status is kept.",
    "upstream_unpaid": f"{_RUN_BY_OTHERS} the account at the provider has no money left.",
    "upstream_timeout": "Nothing that is permitted answered in time: try again, or ask for less.",
    "upstream_unreachable": "No connection came about: try again; Models says what is away.",
    "pool_busy": "No replica of the in-house pool is up or has room: try again.",
    "upstream_malformed": "The answer was not what its protocol promises, so none was passed on: "
    "try again.",
    "stream_broken": "The stream ended before its end: what came is not whole. Try again.",
    "sovereignty_violation": f"{_RUN_BY_OTHERS} a call was stopped that should never have been "
    "planned; nothing left.",
    "client_gone": "The caller left before the answer was whole: look at the client's timeout.",
    "internal_error": f"{_RUN_BY_OTHERS} something went wrong here, and the log says where.",
}


def meaning_of(code: str) -> str:
    """A sentence or two; empty for no error, and for a code that came from elsewhere."""
    return MEANINGS.get(code, "")
