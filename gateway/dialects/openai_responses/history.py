"""Converts calls of built-in tools, and their results, in a history for other dialects."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.conversation import Part, TextPart, ToolCallPart, ToolResultPart, Turn
from gateway.dialects.loss import Losses, unsupported
from gateway.dialects.openai_responses import built_in
from gateway.dialects.openai_responses.tools import Called, Toolbox


_UNREADABLE = "This item cannot be read"
_DIRECT = {"type": "direct"}
"""The caller of a tool, if the model called it directly."""


class BuiltInItems:
    """The items of a request's history, by place; they must be read in order."""

    def __init__(self, tree: Mapping[str, Any], box: Toolbox) -> None:
        given = tree.get("input")
        self._items: list[Any] = given if isinstance(given, list) else []
        self._box = box
        self._ids: dict[str, str] = {}
        """Ids of calls' items, which results of `local_shell` refer to → ids of calls."""
        self._left: set[str] = set()
        """Calls that their vendor answered itself."""

    def calls(self, index: int, losses: Losses) -> list[Part] | None:
        """An item's call; empty if its vendor ran the call, None if the item is no such call.

        Raises:
            FeatureUnsupported: it cannot be read.
        """
        item = self._at(index)
        kind = built_in.called_in(item)
        if not kind:
            return self._without_vendors_result(index)
        call_id = item.get("call_id")
        if not built_in.is_callers(kind, item.get("execution"), item.get("environment")):
            self._left.add(str(call_id))
            self._box.leave(f"{kind}_call", f"input[{index}]")
            return []
        place = f"input[{index}]"
        if not isinstance(call_id, str) or not call_id:
            raise unsupported(f"{place}.call_id", _UNREADABLE, 14)
        self._note(item, losses)
        self._ids[str(item.get("id"))] = call_id
        try:
            arguments = built_in.arguments_of(item)
        except msgspec.ValidationError:
            raise unsupported(place, _UNREADABLE, 8) from None
        return [ToolCallPart(call_id, self._box.there(Called(kind, kind=kind)), arguments)]

    def _without_vendors_result(self, index: int) -> list[Part] | None:
        """Nothing that its vendor found or wrote, except the tools that a search brought."""
        item = self._at(index)
        kind = built_in.answered_in(item)
        is_vendors = kind == built_in.SEARCH and item.get("execution") != "client"
        if not is_vendors and not (kind and str(item.get("call_id")) in self._left):
            return None
        if is_vendors:
            self._box.bring(item.get("tools"), f"input[{index}].tools")
        self._box.leave(item["type"], f"input[{index}]")
        return []

    def result(self, index: int, losses: Losses) -> Turn | None:
        """The result from a caller's program; None if the item is no such result.

        Raises:
            FeatureUnsupported: it cannot be read.
        """
        item = self._at(index)
        kind = built_in.answered_in(item)
        if not kind:
            return None
        place = f"input[{index}]"
        call_id = item.get("call_id") or self._ids.get(str(item.get("id")), item.get("id"))
        if not isinstance(call_id, str):
            raise unsupported(f"{place}.call_id", _UNREADABLE, 14)
        self._note(item, losses)
        if kind == built_in.SEARCH:
            names = self._box.bring(item.get("tools"), f"{place}.tools")
            text, is_error = msgspec.json.encode({"tools": names}).decode(), False
        else:
            try:
                text, is_error = built_in.result_of(item)
            except msgspec.ValidationError:
                raise unsupported(place, _UNREADABLE, 8) from None
        return Turn("user", (ToolResultPart(call_id, (TextPart(text),), is_error),))

    def _at(self, index: int) -> dict[str, Any]:
        return self._items[index] if index < len(self._items) else {}

    def _note(self, item: dict[str, Any], losses: Losses) -> None:
        told = {**item, "caller": None} if item.get("caller") == _DIRECT else item
        losses.add_unknown(told, built_in.PLACED, "input.")
