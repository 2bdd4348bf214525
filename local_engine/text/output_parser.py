"""Splits what a model writes into reasoning, content and tool calls, as it comes.

One state machine for all formats. Reasoning and content are passed on at once; only a possible
start of a tag, and the inside of a tool call, are held back. However the text is cut into pieces,
the joined parts are the same.
"""

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any


class ToolFormat(Enum):
    """How a family of models writes a tool call."""

    NONE = "none"
    HERMES = "hermes"
    """`<tool_call>{"name": …, "arguments": …}</tool_call>`; also Qwen."""
    LLAMA3 = "llama3"
    """The complete answer is `{"name": …, "parameters": …}`, several joined by semicolons."""
    MISTRAL = "mistral"
    """`[TOOL_CALLS]` and a JSON list, or `[TOOL_CALLS]name[ARGS]{…}`."""
    FORCED = "forced"
    """The complete answer is one call, enforced by a grammar."""


@dataclass(frozen=True, slots=True)
class Content:
    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A complete call; `arguments` is JSON text."""

    name: str
    arguments: str


Part = Content | Reasoning | ToolCall
THINK, END_THINK = "<think>", "</think>"
_CALL, _END_CALL = "<tool_call>", "</tool_call>"
_PYTHON_TAG = "<|python_tag|>"
_MISTRAL, _MISTRAL_ARGS = "[TOOL_CALLS]", "[ARGS]"


def tool_format_of(template: str) -> ToolFormat:
    """The format that a chat template teaches; None if it knows no tools."""
    if "tools" not in template:
        return ToolFormat.NONE
    if _CALL in template:
        return ToolFormat.HERMES
    if _MISTRAL in template:
        return ToolFormat.MISTRAL
    return ToolFormat.LLAMA3 if '"parameters"' in template else ToolFormat.NONE


class OutputParser:
    """Push text, get parts; `finish` gives what was held back."""

    def __init__(
        self,
        tool_format: ToolFormat,
        *,
        may_reason: bool = False,
        starts_reasoning: bool = False,
    ) -> None:
        self._format = tool_format
        self._may_open_reasoning = may_reason and not starts_reasoning
        self._state = "reasoning" if starts_reasoning else "content"
        self._held = ""
        # JSON formats without an opening tag are recognised by the first character of the content.
        self._is_start = True

    def push(self, text: str) -> list[Part]:
        self._held += text
        parts: list[Part] = []
        while self._step(parts):
            pass
        return parts

    def finish(self) -> list[Part]:
        """The rest, now that nothing follows; a call never closed becomes content again."""
        held, self._held = self._held, ""
        if self._state == "reasoning":
            return [Reasoning(held)] if held else []
        if self._state == "tool":
            found = _parse_call(held)
            return list(found) if found else [Content(_CALL + held)]
        if self._state == "whole":
            found = _parse_whole(held, self._format)
            if found:
                return list(found)
        return [Content(held)] if held else []

    def _step(self, parts: list[Part]) -> bool:
        """Move on by one tag; False if more text is needed."""
        if self._state == "whole":
            return False
        if self._state == "reasoning":
            return self._until(END_THINK, "content", Reasoning, parts)
        if self._state == "tool":
            return self._close_call(parts)
        return self._in_content(parts)

    def _in_content(self, parts: list[Part]) -> bool:
        if self._may_open_reasoning and self._open_reasoning():
            return self._state == "reasoning"
        if self._is_start:
            if self._starts_whole():
                self._state = "whole"
                return False
            if self._may_start_whole():
                return False
        opening = {ToolFormat.HERMES: _CALL, ToolFormat.MISTRAL: _MISTRAL}.get(self._format)
        if opening is None:
            self._emit(Content, self._held, parts)
            self._held = ""
            return False
        state = "tool" if self._format is ToolFormat.HERMES else "whole"
        return self._until(opening, state, Content, parts)

    def _open_reasoning(self) -> bool:
        """Whether a `<think>` at the very start was opened, or may still be coming."""
        text = self._held.lstrip()
        if text.startswith(THINK):
            self._held = text[len(THINK) :]
            self._state, self._may_open_reasoning = "reasoning", False
            return True
        if THINK.startswith(text):
            return True
        self._may_open_reasoning = False
        return False

    def _starts_whole(self) -> bool:
        text = self._held.lstrip()
        if self._format is ToolFormat.FORCED:
            return True
        return self._format is ToolFormat.LLAMA3 and text.startswith(("{", _PYTHON_TAG))

    def _may_start_whole(self) -> bool:
        """Whether a call may still be coming, after spaces or a part of its tag."""
        return self._format is ToolFormat.LLAMA3 and _PYTHON_TAG.startswith(self._held.lstrip())

    def _until(
        self, tag: str, state: str, kind: type[Content | Reasoning], parts: list[Part]
    ) -> bool:
        before, found, after = self._held.partition(tag)
        if found:
            self._emit(kind, before, parts)
            self._held, self._state = after, state
            return True
        keep = next(n for n in range(len(tag) - 1, -1, -1) if self._held.endswith(tag[:n]))
        self._emit(kind, self._held[: len(self._held) - keep], parts)
        self._held = self._held[len(self._held) - keep :]
        return False

    def _close_call(self, parts: list[Part]) -> bool:
        inside, found, after = self._held.partition(_END_CALL)
        if not found:
            return False
        self._held, self._state = after, "content"
        calls = _parse_call(inside)
        if calls:
            parts += calls
        else:
            self._emit(Content, _CALL + inside + _END_CALL, parts)
        return True

    def _emit(self, kind: type[Content | Reasoning], text: str, parts: list[Part]) -> None:
        if text:
            # Reasoning is not part of the content, which may be a call as a whole.
            self._is_start &= kind is Reasoning
            parts.append(kind(text))


def _parse_whole(text: str, tool_format: ToolFormat) -> list[ToolCall]:
    if tool_format is ToolFormat.MISTRAL:
        if _MISTRAL_ARGS in text:
            name, _, arguments = text.partition(_MISTRAL_ARGS)
            return _calls_of([{"name": name.strip(), "arguments": _json(arguments)}])
        found = _json(text)
        return _calls_of(found if isinstance(found, list) else [found])
    stripped = text.strip().removeprefix(_PYTHON_TAG)
    return _calls_of(_json_texts(stripped))


def _parse_call(text: str) -> list[ToolCall]:
    return _calls_of([_json(text)])


def _calls_of(values: list[Any]) -> list[ToolCall]:
    """All of them, or none: half a list of calls would not be what was meant."""
    calls = []
    for value in values:
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            return []
        arguments = value.get("arguments", value.get("parameters", {}))
        if not isinstance(arguments, dict):
            return []
        calls.append(ToolCall(value["name"], json.dumps(arguments, ensure_ascii=False)))
    return calls


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _json_texts(text: str) -> list[Any]:
    """Several JSON objects after each other, separated by semicolons."""
    decoder, values, at = json.JSONDecoder(), [], 0
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return []
        values.append(value)
        while at < len(text) and text[at] in "; \n\t":
            at += 1
    return values
