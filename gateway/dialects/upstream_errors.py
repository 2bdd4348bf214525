"""Converts an upstream's error body to one of our errors, with only what the caller can use.

The upstream's own message is kept for faults that the caller can fix. A 401, 403 or 5xx concerns
our credential or the upstream's machines, so the caller gets a sentence of ours.
"""

import re

import msgspec
from msgspec import Struct

from gateway.dialects.bodies.flaws import known_path
from gateway.errors import UpstreamRefused, UpstreamUnpaid


MESSAGE_LENGTH_MAX = 500

_MENDABLE = frozenset({400, 409, 413, 422})
_GENERIC = {
    401: "The upstream refused the gateway's credential.",
    403: "The upstream refused the gateway's credential.",
    404: "The upstream does not have this model.",
    408: "The upstream waited too long for the request.",
    429: "The upstream's rate limit was reached.",
    503: "The upstream is overloaded or down.",
    504: "The upstream did not answer in time.",
    529: "The upstream is overloaded.",
}
_CLIENT_FAULT = "The upstream refused the request."
_SERVER_ERROR_MIN = 500
_SERVER_FAULT = "The upstream failed."

_UNPRINTABLE = re.compile(r"[^ -~\u00a0-\ud7ff\ue000-\ufffd]+")
_SECRETIVE = re.compile(
    r"""
      [a-z][a-z0-9+.-]*://\S+                          # addresses
    | \b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b             # IPv4, with port
    | \b(?:[a-z0-9-]+\.)+(?:com|net|org|io|ai|dev|internal|local|svc|lan|cluster)\b(?::\d+)?
    | \blocalhost(?::\d+)?
    | \b(?:sk|pk|key|org|proj)-[A-Za-z0-9_*-]{6,}      # keys and account names
    | \bbearer\s+\S+
    """,
    re.IGNORECASE | re.VERBOSE,
)
_CONTEXT_WORDS = (
    "maximum context length",
    "context window",
    "prompt is too long",
    "exceed context limit",
    "exceeds the maximum number of tokens",
)
_UNPAID_STATUS = 402
_UNPAID_CODES = frozenset(
    {
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "billing_error",
        "exceeded_current_quota_error",
    }
)
"""OpenAI's (429 and 400), Anthropic's and Moonshot's."""
_UNPAID_WORDS = ("credit balance is too low", "used all available credits")
"""Anthropic's (400) and xAI's (429), whose codes are those of any such status. OpenAI's words for
the same are not here: Gemini uses them for a limit that is over within the minute."""
_UNPAID = "The gateway's account at the upstream has no money left: tell whoever runs the gateway."
_CODE = re.compile(r"\A[A-Za-z0-9_.-]{1,64}\Z")
CONTEXT_CODE = "context_length_exceeded"
CALL_ID_CODE = "3280"
"""Mistral's code for a call id that is not of nine letters and digits; engines that run its models
send only the words."""
_CALL_ID_WORDS = "must be a-z, a-z, 0-9, with a length of 9"
THOUGHT_CODE = "unknown_reasoning_content"
"""Our code for what servers say only in words or by a place: their turns have no such field."""
SEAL_CODE = "unknown_extra_content"
"""The same for what Google's models seal a call with."""
UNSEALED_CODE = "missing_thought_signature"
"""Ours again: Google's newer models refuse a call of the current turn without a seal."""
_REFUSED = r"(?:unsupported|not (?:permitted|allowed|supported)|unexpected|cannot find)"
_SAID_OF_HISTORY = (
    (CALL_ID_CODE, re.compile(re.escape(_CALL_ID_WORDS))),
    *(
        (
            code,
            re.compile(
                rf"\b{field}\b.{{0,80}}{_REFUSED}"
                rf"|unknown parameter\W{{1,4}}messages\S{{0,32}}{field}\b"
            ),
        )
        for code, field in ((THOUGHT_CODE, "reasoning_content"), (SEAL_CODE, "extra_content"))
    ),
    (UNSEALED_CODE, re.compile(r"missing an? .?thought_signature\b")),
)
_LOOKED_AT = 1_000


class _Detail(Struct):
    message: str | None = None
    type: str | None = None
    code: str | int | None = None
    details: object = None
    param: object = None


class _Body(Struct):
    error: _Detail | str | None = None
    message: object = None
    type: str | None = None
    code: str | int | None = None
    detail: object = None
    param: object = None


_BODY = msgspec.json.Decoder(_Body | list[_Body])
"""Google's errors, in OpenAI's shape, come in a list."""


def decode_error(status: int, raw: bytes, retry_after_s: float | None) -> UpstreamRefused:
    """See `ports.Dialect.decode_error`; reads both vendors' shapes, and junk."""
    message, code, detail, parameter = _read(raw)
    lowered = message.lower()
    if _is_unpaid(status, code, lowered):
        return UpstreamUnpaid(_UNPAID, upstream_status=status)
    is_mendable = status in _MENDABLE
    if is_mendable and any(words in lowered for words in _CONTEXT_WORDS):
        code = CONTEXT_CODE
    if is_mendable:
        told = f"{parameter} {lowered}"[:_LOOKED_AT]
        code = next((known for known, words in _SAID_OF_HISTORY if words.search(told)), code)
    text = sanitised(message) if is_mendable else ""
    return UpstreamRefused(
        text
        or _GENERIC.get(status)
        or (_CLIENT_FAULT if status < _SERVER_ERROR_MIN else _SERVER_FAULT),
        upstream_status=status,
        upstream_code=code if _CODE.match(code) else "",
        upstream_detail=detail if _CODE.match(detail) else "",
        upstream_parameter=known_path(parameter) if is_mendable else "",
        retry_after_s=retry_after_s,
    )


def _is_unpaid(status: int, code: str, lowered: str) -> bool:
    """Whether nobody is answered until our account there has money again."""
    if status == _UNPAID_STATUS or code in _UNPAID_CODES:
        return True
    return status < _SERVER_ERROR_MIN and any(words in lowered for words in _UNPAID_WORDS)


def _read(raw: bytes) -> tuple[str, str, str, str]:
    """Message, code, detail and parameter of an error body; empty if it has none."""
    try:
        told = _BODY.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "", "", "", ""
    body = (told[0] if told else _Body()) if isinstance(told, list) else told
    if isinstance(body.error, str):
        return body.error, str(body.code or body.type or ""), "", ""
    inner = body.message.get("detail") if isinstance(body.message, dict) else None
    if body.error is None and (listed := inner or body.detail):
        return _read_detail(listed)
    said = body.message if isinstance(body.message, str) else None
    found = body.error or _Detail(said, body.type, body.code, param=body.param)
    detail = found.details.get("error_code") if isinstance(found.details, dict) else None
    parameter = found.param if isinstance(found.param, str) else ""
    return found.message or "", str(found.code or found.type or ""), str(detail or ""), parameter


def _read_detail(detail: object) -> tuple[str, str, str, str]:
    """The error of a server made with FastAPI: a sentence, or a list of flaws with their places.

    Of a list the first one is used: its place, and never its value.
    """
    if isinstance(detail, str):
        return detail, "", "", ""
    flaw = detail[0] if isinstance(detail, list) and detail else None
    if not isinstance(flaw, dict):
        return "", "", "", ""
    place, said, kind = flaw.get("loc"), flaw.get("msg"), flaw.get("type")
    steps = place[1:] if isinstance(place, list) and place[:1] == ["body"] else []
    path = "".join([f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps])[1:]
    message = said if isinstance(said, str) else ""
    if known := known_path(path):
        message = f"{known}: {message}"
    return message, kind if isinstance(kind, str) else "", "", path


def sanitised(text: str) -> str:
    """One line without addresses, host names and keys, at most `MESSAGE_LENGTH_MAX` long."""
    flat = _UNPRINTABLE.sub(" ", text[: 4 * MESSAGE_LENGTH_MAX])
    if flat.lstrip().startswith("<"):
        return ""
    clean = " ".join(_SECRETIVE.sub("[removed]", flat).split())
    return clean[:MESSAGE_LENGTH_MAX]
