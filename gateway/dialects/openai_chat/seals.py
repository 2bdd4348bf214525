"""Carries Google's thought signatures of tool calls through clients of other dialects.

Google's newer models refuse a tool result if the call comes back without the signature of the
thinking before it. Clients of other dialects carry the signature as an opaque block, as they carry
reasoning items.
"""

from base64 import b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from gateway.conversation import CALL_MARK, ThinkingPart, Turn
from gateway.dialects.fitting.naming import call_id
from gateway.types import Delta


class _Wrapped(Struct, tag="reasoning", tag_field="type"):
    """Sealed reasoning in the form that inspection knows."""

    id: str
    encrypted_content: str


_WRAPPED = msgspec.json.Decoder(_Wrapped)


def seal_of(extra: object, tool_id: str) -> Delta | None:
    """A call's seal, as reasoning that only its vendor can read; None without a seal."""
    google = extra.get("google") if isinstance(extra, dict) else None
    signature = google.get("thought_signature") if isinstance(google, dict) else None
    if not isinstance(signature, str) or not signature:
        return None
    wrapped = urlsafe_b64encode(msgspec.json.encode(_Wrapped(tool_id, signature))).decode()
    return Delta("thinking", redacted=CALL_MARK + wrapped)


def seals_in(turns: Iterable[Turn]) -> dict[str, object]:
    """The seals in a history, by the id that the sealed call has in any dialect."""
    found: dict[str, object] = {}
    for turn in turns:
        for part in turn.parts:
            if isinstance(part, ThinkingPart) and part.redacted.startswith(CALL_MARK):
                try:
                    # Only what inspection opens, too: see `openai_responses.marks`.
                    data = b64decode(part.redacted.removeprefix(CALL_MARK), b"-_", validate=True)
                    seal = _WRAPPED.decode(data)
                except (msgspec.DecodeError, Error, UnicodeError, ValueError):
                    continue
                signed = {"thought_signature": seal.encrypted_content}
                found[call_id(seal.id)] = {"google": signed}
    return found
