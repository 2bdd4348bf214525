"""One sentence for each error code of a record: what it means to the caller, and what helps.

The codes themselves are the API's (`gateway.errors`); no sentence contains anything of a request.
"""

from collections.abc import Mapping
from typing import Final


_UNKNOWN_ID: Final = "The project has nothing with this id, or no longer has it: check the id."
_RUN_BY_OTHERS: Final = "Contact whoever runs the platform:"
MEANINGS: Final[Mapping[str, str]] = {
    "invalid_request": "The request is not valid for its API. The caller was told which field.",
    "request_too_large": "The body is larger than the limit: send less in one request.",
    "unsupported_encoding": "The body's compression is not supported: send it uncompressed.",
    "unknown_url": "There is nothing at this address: check the client's base URL.",
    "method_not_allowed": "The address needs another HTTP method: check the client.",
    "model_not_found": "No target or route had the requested name at that time.",
    "response_not_found": _UNKNOWN_ID,
    "file_not_found": _UNKNOWN_ID,
    "batch_not_found": _UNKNOWN_ID,
    "previous_response_not_found": _UNKNOWN_ID,
    "conversation_not_found": _UNKNOWN_ID,
    "item_not_found": _UNKNOWN_ID,
    "conversation_locked": "Another request was using the same conversation: try again "
    "once it has ended.",
    "context_length_exceeded": "The input is too long for every permitted target: send less.",
    "unsupported_parameter": "No permitted target supports what it needs. The caller was told.",
    "invalid_api_key": "The key is missing, malformed, unknown, expired or revoked: see Keys.",
    "policy_denied": "A policy rule refuses it; the same request would be refused again.",
    "no_permitted_target": "Policy and the key's permissions left no target; the same request is "
    "refused again.",
    "rate_limited": "A rate limit of its key, or above it, was reached: wait, or have the "
    "limit raised under Limits.",
    "insufficient_quota": "Its highest possible cost exceeded a budget of its key or above: retry "
    "in the next budget period, or have the limit raised under Limits.",
    "unavailable": "The worker was at capacity: try again.",
    "no_target_available": "None of the permitted targets could answer: try again; Models shows "
    "which are unavailable.",
    "no_target_configured": f"{_RUN_BY_OTHERS} no target that could answer has a credential.",
    "audit_unavailable": f"{_RUN_BY_OTHERS} the audit log could not be written; nothing was sent.",
    "lease_over": "Another worker may have taken over this line of the batch and answers it.",
    "worker_stopped": "The worker was stopped before the answer was complete: try again.",
    "not_ready": "The worker was not ready, or its configuration was out of date: try again.",
    "upstream_failed": "The target failed, and no other permitted target answered: try "
    "again; Models shows its state.",
    "upstream_refused": "The target answered with an error of its own; its status is kept.",
    "upstream_unpaid": f"{_RUN_BY_OTHERS} the account at the provider has no credit left.",
    "upstream_timeout": "No permitted target answered in time: try again, or ask for less.",
    "upstream_unreachable": "No connection could be made: try again; Models shows what is down.",
    "pool_busy": "No replica of the in-house pool is running with free capacity: try again.",
    "upstream_malformed": "The answer did not follow its protocol, so it was not passed on: "
    "try again.",
    "stream_broken": "The stream ended early, so the answer is incomplete: try again.",
    "sovereignty_violation": f"{_RUN_BY_OTHERS} a call was blocked that should never have been "
    "planned; nothing was sent.",
    "client_gone": "The caller disconnected before the answer was complete: check its timeout.",
    "internal_error": f"{_RUN_BY_OTHERS} there was an internal error; the log has the details.",
}


def meaning_of(code: str) -> str:
    """A sentence or two; empty for no error, and for a code that came from elsewhere."""
    return MEANINGS.get(code, "")
