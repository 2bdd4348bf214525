"""Reads an OpenTelemetry collector's answer, which may say that it rejected a part. Pure.

The format is `Export…ServiceResponse.partial_success` of opentelemetry-proto, in protobuf's JSON
form.
"""

from typing import Any, Final

import msgspec
from msgspec import Struct


ANSWER_BYTES_MAX: Final = 64 * 1024
MESSAGE_CHARS_MAX: Final = 200
COUNT_DIGITS_MAX: Final = 18
_COUNTS = ("rejectedSpans", "rejected_spans", "rejectedDataPoints", "rejected_data_points")
_MESSAGES = ("errorMessage", "error_message")
"""Readers of the JSON form accept a field by either of its names."""


class Rejected(Struct, frozen=True):
    """What a collector dropped of an accepted post; the count is 0 if it only warns."""

    count: int
    message: str
    """Its own words, as they came: `one_line` makes them fit for a log."""


def rejected_in(body: bytes) -> Rejected | None:
    """None if everything was kept, or if the answer cannot be read."""
    try:
        answer = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    said = answer.get("partialSuccess", answer.get("partial_success"))
    if not isinstance(said, dict):
        return None
    count = max(map(_count, (said.get(name) for name in _COUNTS)))
    message = next((said[name] for name in _MESSAGES if isinstance(said.get(name), str)), "")
    return Rejected(count, message) if count or message else None


def one_line(text: str) -> str:
    """Foreign text made safe for one line of a log."""
    kept = "".join(character if character.isprintable() else " " for character in text)
    return kept.strip()[:MESSAGE_CHARS_MAX]


def _count(value: object) -> int:
    """64-bit numbers are texts in this form; anything else counts as 0."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    is_number = text.isascii() and text.isdigit() and len(text) <= COUNT_DIGITS_MAX
    return int(text) if is_number else 0
