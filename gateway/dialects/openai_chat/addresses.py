"""Addresses (URLs) in content parts and tools of unknown types in a chat request.

Compatible servers accept videos, sounds and files by address, and fetch them from inside their
network. The field that holds the address differs from server to server.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final


_HOLDERS: Final = frozenset({"data", "file_data", "file", "image", "video", "audio", "path", "uri"})
"""Fields that may hold an address instead of bytes."""
_SOUNDS: Final = frozenset({"input_audio", "image_embeds", "audio_embeds", "uuid"})
_SCHEME: Final = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*:|\s*//")
_INLINE: Final = "data:"
_OWN_TOOLS: Final = ("function", "custom")
"""Keys that describe a tool that the caller runs: schemas, which may contain any name."""
_TOLD: Final = frozenset({"image_url", "video_url", "audio_url", "file_url", "server_url", "file"})
_TOOL_FIELDS: Final = 2


def is_inline(address: str) -> bool:
    """Whether the address contains the content itself."""
    return address[: len(_INLINE)].lower() == _INLINE


def carries(name: str) -> bool:
    """Whether a field of a part may hold or name something other than text, in any letter case."""
    word = name.casefold()
    return word.endswith("url") or word in _HOLDERS or word in _SOUNDS


def in_part(part: object, place: str) -> Iterator[tuple[str, str]]:
    """Addresses from which a part of a message is to be fetched, each with its place."""
    for name, value in part.items() if isinstance(part, dict) else ():
        where = f"{place}.{name}" if name in _TOLD else place
        for address in _addresses(value, name):
            yield where, address


def in_tools(tree: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Servers at which a tool that the caller does not run would be run."""
    for index, tool in enumerate(tree.get("tools") or ()):
        if len(tool) > _TOOL_FIELDS or tool.get("type") not in _OWN_TOOLS:
            yield from in_part(
                {name: value for name, value in tool.items() if name not in _OWN_TOOLS},
                f"tools[{index}]",
            )


def _addresses(value: object, name: str) -> Iterator[str]:
    """Addresses in a field and everything below it, whatever letter case its name is written in."""
    if isinstance(value, str):
        word = name.casefold()
        is_one = word.endswith("url") or (word in _HOLDERS and _SCHEME.match(value) is not None)
        if is_one and not is_inline(value):
            yield value
    elif isinstance(value, dict):
        for inner, each in value.items():
            yield from _addresses(each, inner)
    elif isinstance(value, list):
        for each in value:
            yield from _addresses(each, name)
