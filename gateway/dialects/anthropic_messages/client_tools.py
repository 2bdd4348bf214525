"""Anthropic's typed tools that the caller runs, converted to functions for other vendors.

Anthropic's models know from a tool's type what it does and which arguments it takes; other models
have to be told. In every dialect a call of such a tool is a call by its name, so nothing has to be
converted back. Only tool versions whose arguments are known are included.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec


PLACED: Final = frozenset(
    {
        *("name", "type", "strict", "cache_control", "max_characters", "enable_zoom"),
        *("display_width_px", "display_height_px", "display_number"),
    }
)
"""What such a tool says of itself that is told elsewhere, too."""

Json = dict[str, object]

_STRING: Final = {"type": "string"}
_WHOLE: Final = {"type": "integer"}
_POINT: Final = {"type": "array", "items": _WHOLE, "minItems": 2, "maxItems": 2}
_VIEWING: Final[Mapping[str, object]] = {
    "path": _STRING,
    "view_range": _POINT | {"description": "The first and the last line to view, from 1."},
    "file_text": _STRING | {"description": "What `create` writes."},
    "old_str": _STRING | {"description": "What `str_replace` replaces; it stands there once."},
    "new_str": _STRING | {"description": "What `str_replace` puts in its place."},
    "insert_line": _WHOLE | {"description": "The line after which `insert` inserts, 0 for none."},
}
_INSERTED: Final[Mapping[str, object]] = {
    "insert_text": _STRING | {"description": "What `insert` inserts."}
}
_MOVED: Final[Mapping[str, object]] = {"old_path": _STRING, "new_path": _STRING}
_EDITS: Final = ("view", "create", "str_replace", "insert")
_POINTING: Final = (
    *("key", "type", "mouse_move", "left_click", "left_click_drag", "right_click"),
    *("middle_click", "double_click", "screenshot", "cursor_position"),
)
_PRESSING: Final = (
    *("left_mouse_down", "left_mouse_up", "triple_click", "scroll", "hold_key", "wait"),
)
_ON_SCREEN: Final[Mapping[str, object]] = {
    "coordinate": _POINT | {"description": "Where on the screen, as [x, y] in pixels."},
    "text": _STRING | {"description": "What to type, or a key or keys such as ctrl+s."},
}
_HELD: Final[Mapping[str, object]] = {
    "start_coordinate": _POINT | {"description": "Where a drag begins."},
    "scroll_direction": _STRING | {"enum": ["up", "down", "left", "right"]},
    "scroll_amount": _WHOLE,
    "duration": {"type": "number", "description": "Seconds to wait, or to hold a key."},
}
_ZOOMED: Final[Mapping[str, object]] = {
    "region": {
        "type": "array",
        "items": _WHOLE,
        "minItems": 4,
        "maxItems": 4,
        "description": "What `zoom` shows at full size, as [x0, y0, x1, y1].",
    }
}
_BASH: Final = (
    "Run a command in a bash shell on the user's machine, which stays open from call to call. "
    "With `restart` it is begun anew, without a command."
)
_EDITOR: Final = (
    "View, create and change files of text on the user's machine. Paths are absolute; a folder "
    "may be viewed, too."
)
_MEMORY: Final = (
    "Notes that last from one conversation to the next: files of text below /memories. View that "
    "folder before anything else, and write down what has been reached before it is forgotten."
)
_COMPUTER: Final = (
    "Use the screen, the mouse and the keyboard of the user's machine. Look at a screenshot "
    "before anything is clicked, and after it."
)


def _shape(needed: str, words: tuple[str, ...], properties: Mapping[str, object]) -> Json:
    named = {needed: _STRING | {"enum": list(words)}}
    return _object({**named, **properties}, [needed])


def _object(properties: Mapping[str, object], required: list[str]) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


_COMMAND: Final = _object({"command": _STRING, "restart": {"type": "boolean"}}, [])
_OLD_EDITS: Final = _shape("command", (*_EDITS, "undo_edit"), _VIEWING)
_NEW_EDITS: Final = _shape("command", _EDITS, {**_VIEWING, **_INSERTED})
_NOTES: Final = _shape(
    "command", (*_EDITS, "delete", "rename"), {**_VIEWING, **_INSERTED, **_MOVED}
)
_ACTIONS: Final = {**_ON_SCREEN, **_HELD}

_KNOWN: Final[Mapping[str, tuple[str, Json]]] = {
    "bash_20241022": (_BASH, _COMMAND),
    "bash_20250124": (_BASH, _COMMAND),
    "text_editor_20241022": (_EDITOR, _OLD_EDITS),
    "text_editor_20250124": (_EDITOR, _OLD_EDITS),
    "text_editor_20250429": (_EDITOR, _NEW_EDITS),
    "text_editor_20250728": (_EDITOR, _NEW_EDITS),
    "memory_20250818": (_MEMORY, _NOTES),
    "computer_20241022": (_COMPUTER, _shape("action", _POINTING, _ON_SCREEN)),
    "computer_20250124": (_COMPUTER, _shape("action", (*_POINTING, *_PRESSING), _ACTIONS)),
    "computer_20251124": (_COMPUTER, _shape("action", (*_POINTING, *_PRESSING), _ACTIONS)),
}
_ZOOMING: Final = _shape("action", (*_POINTING, *_PRESSING, "zoom"), {**_ACTIONS, **_ZOOMED})


def is_known(kind: str | None) -> bool:
    """Whether it is the type of a tool that the caller runs, in a version whose words are known."""
    return kind in _KNOWN


def about(tool: Mapping[str, Any]) -> str:
    """What such a tool says of itself to a model that does not know its type."""
    text, _ = _KNOWN[tool["type"]]
    width, height = tool.get("display_width_px"), tool.get("display_height_px")
    if width is not None and height is not None:
        text += f" The screen is {_told(width)} pixels wide and {_told(height)} pixels high."
    if (number := tool.get("display_number")) is not None:
        text += f" It is display {_told(number)}."
    if (most := tool.get("max_characters")) is not None:
        text += f" No more than {_told(most)} characters of a file are shown."
    return text


def schema(tool: Mapping[str, Any]) -> Json:
    """What a call of such a tool says."""
    return _ZOOMING if tool.get("enable_zoom") is True else _KNOWN[tool["type"]][1]


def _told(value: object) -> str:
    return msgspec.json.encode(value).decode()
