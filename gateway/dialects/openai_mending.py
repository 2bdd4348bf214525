"""Mends requests that a server of OpenAI's dialects has refused: fields left out or renamed.

Mistral's API refuses all of what is mended here. Nothing is left out that a caller would miss: such
a server reports its usage without being asked, or the usage is estimated; the limit on an answer's
length has two names; the other fields, and another model's thinking, are of use to one vendor only;
and one call id is as good as another if call and result agree.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from gateway.dialects.bodies.body import join, split
from gateway.dialects.upstream_errors import CALL_ID_CODE, SEAL_CODE, THOUGHT_CODE, UNSEALED_CODE
from gateway.errors import GatewrightError, UpstreamRefused
from gateway.ports import UpstreamBody


_OPTIONS = "stream_options"
_LIMITS = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_IDLE = frozenset({"user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"})
"""Fields that change no answer: whose request it is, and where its prefix may be cached."""
_USAGE = {"include_usage": True}
"""What we ask for in every stream."""
_FORBIDDEN = "extra_forbidden"
_UNKNOWN_FIELD = frozenset({_FORBIDDEN, "unsupported_parameter"})
"""Codes by which servers say that they do not know a field: FastAPI's, and OpenAI's."""
_SHORT_ID = re.compile(r"[A-Za-z0-9]{9}")
_ID_LENGTH = 9
_SEAL = "extra_content"
_UNSEALED = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""Google's own marker for a call that another model made."""

Fields = dict[str, msgspec.Raw | bytes]
_LISTED = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


def mended(body: bytes, error: GatewrightError) -> UpstreamBody | None:
    """See `ports.Dialect.mend_request`."""
    if not isinstance(error, UpstreamRefused) or not error.is_callers_fault:
        return None
    fields: Fields = dict(split(body))
    is_other = _BY_CODE.get(error.upstream_code, _without)
    return UpstreamBody(join(fields)) if is_other(fields, error) else None


def _without(fields: Fields, error: UpstreamRefused) -> bool:
    """Leave out the field that the server does not know; whether that changes the request."""
    field = error.upstream_parameter.partition(".")[0]
    other = _LIMITS.get(field, "")
    if field not in fields or other in fields or not _is_unknown(fields, field, error):
        return False
    value = fields.pop(field)
    if other:
        fields[other] = value
    return True


def _is_unknown(fields: Fields, field: str, error: UpstreamRefused) -> bool:
    """Whether the server refuses a field itself, and not what one caller put into it.

    What is learned here applies to everybody's requests: if a caller sends stream options without a
    stream, or an unknown one among them, all others would lose their usage.
    """
    is_whole = field == error.upstream_parameter
    if field != _OPTIONS:
        is_known_here = field in _LIMITS or field in _IDLE
        return is_whole and is_known_here and error.upstream_code in _UNKNOWN_FIELD
    if is_whole and error.upstream_code == _FORBIDDEN:
        return True
    streams = bytes(fields.get("stream", b"")) == b"true"
    return streams and msgspec.json.decode(fields[_OPTIONS]) == _USAGE


def _with_short_ids(fields: Fields, _: UpstreamRefused) -> bool:
    """Give calls and their results ids of nine letters and digits; equal ids stay equal."""
    given = bytes(fields.get("messages", b"[]"))
    if b'"tool_call' not in given:
        return False
    try:
        messages = _LISTED.decode(given)
        found = [_shorten_in(message) for message in messages]
    except msgspec.DecodeError:
        return False  # Of a text completion it is a field that nobody reads.
    fields["messages"] = msgspec.json.encode(messages)
    return any(found)


def _shorten_in(message: dict[str, msgspec.Raw]) -> bool:
    found = [_shorten(message, "tool_call_id")]
    if bytes(message.get("tool_calls", b"null")) != b"null":
        calls = _LISTED.decode(message["tool_calls"])
        found += [_shorten(call, "id") for call in calls]
        message["tool_calls"] = msgspec.Raw(msgspec.json.encode(calls))
    return any(found)


def _shorten(holder: dict[str, msgspec.Raw], name: str) -> bool:
    """Shorten an id; whether there was one to shorten."""
    given = msgspec.json.decode(holder.get(name, b"null"))
    if not isinstance(given, str) or _SHORT_ID.fullmatch(given) is not None:
        return False
    short = hashlib.sha256(given.encode()).hexdigest()[:_ID_LENGTH]
    holder[name] = msgspec.Raw(msgspec.json.encode(short))
    return True


def _without_thoughts(fields: Fields, _: UpstreamRefused) -> bool:
    """Remove models' thinking from a history; whether there was any."""
    given = bytes(fields.get("messages", b"[]"))
    if b'"reasoning_content' not in given:
        return False
    try:
        messages = _LISTED.decode(given)
    except msgspec.DecodeError:
        return False
    told = [message.pop("reasoning_content", None) for message in messages]
    fields["messages"] = msgspec.json.encode(messages)
    return any(each is not None for each in told)


def _in_calls(
    fields: Fields, _: UpstreamRefused, *, change: Callable[[list[dict[str, msgspec.Raw]]], bool]
) -> bool:
    """Change the calls of each message of a history; whether any was changed."""
    given = bytes(fields.get("messages", b"[]"))
    if b'"tool_calls' not in given:
        return False
    is_changed = False
    try:
        messages = _LISTED.decode(given)
        for message in messages:
            if bytes(message.get("tool_calls", b"null")) == b"null":
                continue
            calls = _LISTED.decode(message["tool_calls"])
            if change(calls):
                message["tool_calls"] = msgspec.Raw(msgspec.json.encode(calls))
                is_changed = True
    except msgspec.DecodeError:
        return False
    fields["messages"] = msgspec.json.encode(messages)
    return is_changed


def _unseal(calls: list[dict[str, msgspec.Raw]]) -> bool:
    found = [call.pop(_SEAL, None) for call in calls]
    return any(seal is not None for seal in found)


def _seal_first(calls: list[dict[str, msgspec.Raw]]) -> bool:
    """Of calls that were made at once only the first is sealed."""
    if not calls or any(_SEAL in call for call in calls):
        return False
    calls[0][_SEAL] = msgspec.Raw(msgspec.json.encode(_UNSEALED))
    return True


_BY_CODE: Final[Mapping[str, Callable[[Fields, UpstreamRefused], bool]]] = {
    CALL_ID_CODE: _with_short_ids,
    SEAL_CODE: partial(_in_calls, change=_unseal),
    THOUGHT_CODE: _without_thoughts,
    UNSEALED_CODE: partial(_in_calls, change=_seal_first),
}
