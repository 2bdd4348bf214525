"""Converts tools that take text to functions with one text argument, and their calls back.

OpenAI's dialects call them custom tools; other dialects know only functions.
"""

import msgspec
from msgspec import Struct

from gateway.conversation import TextForm


INPUT = "input"
"""The one argument of such a function: the complete text."""


def text_schema(form: TextForm) -> dict[str, object]:
    """The schema of a function that takes a text, whose required form is only described."""
    about = "The whole input, as plain text."
    if form.syntax:
        about = f"{about} It has to follow this {form.syntax} grammar:\n{form.definition}"
    return {
        "type": "object",
        "properties": {INPUT: {"type": "string", "description": about}},
        "required": [INPUT],
        "additionalProperties": False,
    }


def text_as_arguments(text: str) -> str:
    return msgspec.json.encode({INPUT: text}).decode()


def text_of(arguments: str) -> str:
    """The text that a model meant for such a tool; all it wrote if it did not follow the schema."""
    if arguments.strip() in _NOTHING:
        return ""
    try:
        return _TEXT.decode(arguments).input
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return arguments


_NOTHING = frozenset({"", "{}"})


class _Text(Struct):
    input: str


_TEXT = msgspec.json.Decoder(_Text)
