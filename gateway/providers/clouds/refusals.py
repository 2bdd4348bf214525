"""Rewrites a cloud's refusals in Anthropic's format, without details of the installation. Pure.

Clouds answer with names of accounts, projects, roles and resources, and a cloud that does not
accept a signature repeats everything that was signed. A caller is told what to do about it, and no
more.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from gateway.admission.answer_bounds import holds_more
from gateway.dialects.anthropic_messages.errors import TYPES


DENIED: Final = 401
SAID_BYTES_MAX: Final = 64 * 1024
VALUES_MAX: Final = 2000
MESSAGE_LENGTH_MAX: Final = 2000
_STATUSES: Final[Mapping[str, int]] = {
    # Amazon's: its error names without `Exception`.
    **dict.fromkeys(
        (
            *("ExpiredToken", "UnrecognizedClient", "InvalidClientTokenId", "InvalidSignature"),
            *("SignatureDoesNotMatch", "MissingAuthenticationToken", "IncompleteSignature"),
            *("RequestExpired", "RequestTimeTooSkewed", "NotAuthorized", "UnauthorizedOperation"),
        ),
        DENIED,
    ),
    **dict.fromkeys(
        ("Throttling", "TooManyRequests", "ServiceQuotaExceeded", "ModelNotReady"), 429
    ),
    "AccessDenied": 403,
    "Validation": 400,
    "ResourceNotFound": 404,
    "ModelTimeout": 504,
    "ServiceUnavailable": 503,
    "InternalServer": 500,
    "InternalFailure": 500,
    "ModelError": 502,
    "ModelStreamError": 502,
    # Google's.
    "UNAUTHENTICATED": DENIED,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 429,
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "NOT_FOUND": 404,
    "UNAVAILABLE": 503,
    "INTERNAL": 500,
    "DEADLINE_EXCEEDED": 504,
}
_WORDS: Final[Mapping[int, str]] = {
    DENIED: "The cloud does not accept what this gateway proves itself with.",
    403: "The cloud does not let this gateway use this model.",
    404: "The cloud does not know this model there.",
    429: "The cloud has too much to do for this account.",
    500: "The cloud failed.",
    502: "The model failed.",
    503: "The cloud cannot answer now.",
    504: "The model did not answer in time.",
}
_SKEWED: Final = "The clocks of this gateway and of the cloud differ too much for a signature."
_ABOUT_PROOF: Final = re.compile(r"(?i)signature|security token|credential|access key|api key")
_ABOUT_CLOCKS: Final = re.compile(
    r"(?i)signature expired|not yet current|time too skewed|request has expired"
)
_OWN_BUSINESS: Final = (
    (re.compile(r"arn:aws[a-z-]*:[^\s\"',;)]*"), "[resource]"),
    (re.compile(r"(?://)?(?:[a-z-]+\.googleapis\.com/)?projects/[^\s\"',;)]*"), "[resource]"),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "[account]"),
    (re.compile(r"\bA[A-Z]{3}[A-Z0-9]{12,}\b"), "[key]"),
    (re.compile(r"\b[0-9]{12}\b"), "[account]"),
    (re.compile(r"\b[a-z]+-[a-z0-9-]+-aiplatform|\bvpce-[a-z0-9-]+"), "[endpoint]"),
)


def retold(status: int, raw: bytes, hidden: Sequence[str]) -> tuple[int, bytes]:
    """A refusal's actual status, and its body in the format of Anthropic's API.

    `hidden` are texts that are removed wherever they occur.
    """
    kind, message, is_vendors = _said(raw)
    if not is_vendors:
        status = _STATUSES.get(kind.removesuffix("Exception"), status)
    if status == 403 and not kind and _ABOUT_PROOF.search(message):  # noqa: PLR2004
        status = DENIED
    is_about_clocks = status == DENIED and _ABOUT_CLOCKS.search(message) is not None
    if is_about_clocks:
        told = _SKEWED
    elif status in _WORDS and (not is_vendors or status in (DENIED, 403)):
        told = _WORDS[status]
    else:
        told = without_business(message, hidden) or "The cloud gave no reason."
    word = kind if is_vendors else TYPES.get(status, "api_error" if status >= 500 else "")  # noqa: PLR2004
    inner = {"type": word or "invalid_request_error", "message": told[:MESSAGE_LENGTH_MAX]}
    return status, msgspec.json.encode({"type": "error", "error": inner})


def without_business(text: str, hidden: Sequence[str]) -> str:
    """A text without names of accounts, resources, keys and the `hidden` texts."""
    for own in hidden:
        if own:
            text = text.replace(own, "[hidden]")
    for pattern, instead in _OWN_BUSINESS:
        text = pattern.sub(instead, text)
    return text


def _said(raw: bytes) -> tuple[str, str, bool]:
    """Kind and message of a refusal, and whether the model's vendor said it, not the cloud."""
    tree: Any = None
    if len(raw) <= SAID_BYTES_MAX and not holds_more(raw, VALUES_MAX):
        try:
            tree = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            tree = None
    if isinstance(tree, list) and tree:
        tree = tree[0]  # Google's, where a stream was asked for.
    if not isinstance(tree, dict):
        return "", "", False
    error = tree.get("error")
    if isinstance(error, dict):
        kind, message = error.get("type") or error.get("status") or "", error.get("message") or ""
        return str(kind), str(message), "type" in error
    kind = tree.get("__type") or tree.get("code") or ""
    message = tree.get("message") or tree.get("Message") or ""
    return str(kind).rpartition("#")[2].partition(":")[0], str(message), False
