"""Describes in words, field by field, what a deed changed. Pure.

Deeds hold the old and the new state as plain values of any shape: an object, several of them, pairs
such as roles with their organisations, or text that was cut to fit into its record.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct


AS_IT_WAS: Final = "as it was"
NOTHING: Final = "none"
_SHOWN_CHARS: Final = 160
_DIGEST: Final = re.compile(r"([0-9a-f]{12})[0-9a-f]{52}")
"""A SHA-256: a list shows its beginning, as every other list does; the record has all of it."""
_APART: Final = frozenset({"organisation", "before", "after"})
"""Keys of a deed's detail that are not listed: its log, and those that `changes_of` reads."""
_TOLD_FIRST: Final = ("request_id", "level", "version", "percent", "reason", "ticket")
"""The fields that people look for: they come first, since a list has room for few."""


class Change(Struct, frozen=True):
    """One thing that a deed changed; an empty text means that it was absent."""

    name: str
    before: str
    after: str


def changes_of(detail: Mapping[str, str]) -> tuple[Change, ...]:
    """The new state, field by field, beside the old one; unchanged fields are left out.

    A field that was there and is not ordered anew is only shown if nothing is ordered at all, or if
    the old state has another shape than the new one.
    """
    before, after = (decoded(detail.get(name, "")) for name in ("before", "after"))
    was, ordered = _fields(before), _fields(after)
    if was is None and ordered is None:
        return _beside({"": before}, {"": after})
    if was is None:
        was_apart = _beside({AS_IT_WAS if ordered else "": before}, {})
        return (*was_apart, *_beside({}, ordered or {}))
    if ordered is None:
        ordered = dict(_numbered(after))
        return (*_beside(was, {}), *_beside({}, ordered))
    return _beside(was, ordered)


def told_of(detail: Mapping[str, str]) -> tuple[Change, ...]:
    """A list's text on a deed: what it changed, or else what it was about and why."""
    changed = changes_of(detail)
    if not changed:
        told = {name: text for name, text in detail.items() if name not in _APART}
        first = [name for name in _TOLD_FIRST if name in told]
        changed = tuple(
            Change(name, "", _cut(told[name])) for name in [*first, *sorted({*told} - {*first})]
        )
    return tuple(
        Change(each.name, *(_DIGEST.sub(r"\1…", text) for text in (each.before, each.after)))
        for each in changed
    )


def decoded(text: str) -> Any:
    """A value as a record keeps it; None if it keeps none."""
    try:
        return msgspec.json.decode(text) if text else None
    except msgspec.DecodeError:
        return text  # Cut to fit into its record.


def _fields(value: object) -> dict[str, object] | None:
    """The fields of an object, or of the only one in a list; None for anything else."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is None:
        return {}
    return value if isinstance(value, dict) else None


def _numbered(value: object) -> Iterator[tuple[str, object]]:
    """Each of several objects by itself; anything else as a whole."""
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        yield from ((f"{number}", each) for number, each in enumerate(value, 1))
    else:
        yield "", value


def _beside(was: Mapping[str, object], ordered: Mapping[str, object]) -> tuple[Change, ...]:
    # Compared in words: a command orders as text what a page orders as a number.
    said = {name: (_said(was.get(name)), _said(ordered.get(name))) for name in ordered or was}
    return tuple(
        Change(name, _cut(before), _cut(after))
        for name, (before, after) in said.items()
        if before != after
    )


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _said(value: object) -> str:
    return "" if value is None else _words(value, ", ")


def _words(value: object, between: str) -> str:
    """A value in words: inner lists and objects are joined more tightly than outer ones."""
    if isinstance(value, dict):
        said = between.join(f"{name}: {_within(each)}" for name, each in value.items())
        return said or NOTHING
    if isinstance(value, list):
        if any(isinstance(each, dict) for each in value):
            between = "; "
        return (
            between.join(_words(each, " " if isinstance(each, list) else ", ") for each in value)
            or NOTHING
        )
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _within(value: object) -> str:
    said = _words(value, ", ")
    is_many = isinstance(value, dict | list) and len(value) > 1
    return f"({said})" if is_many else said or NOTHING
