"""Computes how large the values of a chat template are when everything in them is visited.

A list that holds another one twice, which holds a third one twice, and so on, is small, but it has
no end when it is written, compared or looked up. Such values are refused before they are made.
"""

from collections.abc import ItemsView, KeysView, ValuesView
from itertools import chain
from typing import Any

from jinja2 import TemplateError
from jinja2.utils import Namespace


MAX_TEXT_CHARS = 32 * 1024 * 1024
"""The longest text that a template may make on its way, and the longest list if it were written."""
_MOST_ENTRIES = 1024 * 1024
_MOST_LEVELS = 200
_LEAF_CHARS = 4
# This many entries of lists are remembered; then all are measured again.
_MOST_KNOWN = 4 * 1024 * 1024


class TooDear(TemplateError):
    """The template takes too long, or makes too long a text."""


class UnwrittenNamespace(Namespace):
    """A namespace that cannot be written: it may contain itself, or another one twice."""

    def __repr__(self) -> str:
        raise TooDear("it makes too long a text of a namespace")


class Sizes:
    """Sizes of the lists, tuples and dictionaries of one rendering, none of which ever changes."""

    def __init__(self) -> None:
        # Each with the object itself: its id stays its own for as long as it is held.
        self._known: dict[int, tuple[Any, int, int]] = {}
        self._num_entries = 0

    def size(self, value: Any) -> int:
        """Characters of all texts in it, a few for each other value, and one for each entry.

        Raises `TooDear` for more than a template may make.
        """
        if isinstance(value, str):
            return len(value)
        if self._num_entries > _MOST_KNOWN:
            self._known.clear()
            self._num_entries = 0
        return self._measured(value)[0]

    def joined(self, left: Any, right: Any, whole: Any) -> Any:
        """Note the result of joining two values, without going through it again."""
        if isinstance(whole, list | tuple):
            (size, levels), (more, below) = self._measured(left), self._measured(right)
            self._num_entries += len(whole)
            self._known[id(whole)] = (whole, size + more, max(levels, below))
        return whole

    def _measured(self, value: Any) -> tuple[int, int]:
        """Size and levels of nesting."""
        if isinstance(value, str):
            return len(value), 0
        if not isinstance(value, list | tuple | dict | KeysView | ValuesView | ItemsView):
            return _LEAF_CHARS, 0
        found = self._known.get(id(value))
        if found is None:
            if len(value) > _MOST_ENTRIES:
                raise TooDear("it makes too long a list")
            inner = chain(value, value.values()) if isinstance(value, dict) else value
            size, levels = len(value), 0
            for each in inner:
                more, below = self._measured(each)
                size, levels = size + more, max(levels, below)
            check_size(size)
            if levels >= _MOST_LEVELS:
                raise TooDear("it makes lists that nest too deeply")
            self._num_entries += len(value)
            self._known[id(value)] = found = (value, size, levels + 1)
        return found[1], found[2]


def check_size(size: int) -> None:
    """Raise `TooDear` if a text of this many characters is too long."""
    if size > MAX_TEXT_CHARS:
        raise TooDear("it makes too long a text")
