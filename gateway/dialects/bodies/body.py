"""Patches top-level keys of a JSON body and leaves every other byte of every value unchanged.

Key order is kept and unknown fields stay, so that an upstream's prompt cache sees the same prefix,
and fields that we have never heard of still work.
"""

from collections.abc import Mapping
from typing import Final

import msgspec


_LINE_ENDS: Final = (
    *((b"\n", b" "), (b"\r", b" ")),
    *(("\x85".encode(), b"\\u0085"), ("\u2028".encode(), b"\\u2028")),
    ("\u2029".encode(), b"\\u2029"),
)
"""Characters that end a line for some reader, and their replacements."""
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KEYS: dict[str, bytes] = {
    key: f'"{key}":'.encode()
    for key in (
        "model",
        "messages",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "stream",
        "stream_options",
        "system",
        "tools",
        "tool_choice",
        "stop",
        "user",
        "metadata",
    )
}


def split(raw: bytes) -> dict[str, msgspec.Raw]:
    """Top-level keys and the exact bytes of their values, in order."""
    return _FIELDS.decode(raw)


def join(fields: Mapping[str, msgspec.Raw | bytes]) -> bytes:
    """One JSON object made of fields whose values are already JSON."""
    known = _KEYS
    pieces: list[bytes | msgspec.Raw] = []
    separator = b"{"
    for key, value in fields.items():
        prefix = known.get(key) or msgspec.json.encode(key) + b":"
        pieces += (separator, prefix, value)
        separator = b","
    pieces.append(b"}" if pieces else b"{}")
    return b"".join(pieces)


def patch(raw: bytes, changes: Mapping[str, bytes | None]) -> bytes:
    """Replace or add (bytes of JSON) or remove (None) top-level keys of the object in `raw`."""
    fields: dict[str, msgspec.Raw | bytes] = dict(split(raw))
    for key, value in changes.items():
        if value is None:
            fields.pop(key, None)
        else:
            fields[key] = value
    return join(fields)


def one_line(json: bytes) -> bytes:
    """The same JSON, on a single line for every reader of a file of lines.

    A line end between its values becomes a blank. Unicode's line ends occur only in strings, where
    an escape means the same. Otherwise a reader that splits there would read lines that nobody
    wrote or checked.
    """
    for end, instead in _LINE_ENDS:
        if end in json:
            json = json.replace(end, instead)
    return json
