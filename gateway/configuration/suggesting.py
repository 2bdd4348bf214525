"""Suggests what somebody probably meant, where a setting is wrong."""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import Struct

from gateway.configuration.sections import SecretReference
from gateway.configuration.settings import Settings


_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")
_NO_MEMBER = "Invalid enum value"
_ALIKE = 0.88
"""One letter in eight; what Kubernetes sets for a Service (`…_SERVICE_PORT`) is less alike."""
_INDEX = re.compile(r"\[\d+\]$")


def said_of(key: str, reason: str) -> str:
    """What is wrong, in words for its author, but never the value: it may be a secret."""
    if not reason.startswith(_NO_MEMBER):
        return f"{reason}{suggestion(key, reason)}"
    *above, last = key.split(".")
    kind = _kind_at([*above, _INDEX.sub("", last)])
    words = _words_of(kind)
    return f"must be one of {', '.join(words)}" if words else "is none of what it may be"


def suggestion(key: str, reason: str) -> str:
    """What to write instead, to follow the reason; empty if nothing can be suggested."""
    *above, last = key.split(".")
    if _UNKNOWN.match(reason):
        kind = _kind_at(above)
        names = msgspec.structs.fields(kind) if _is_struct(kind) else ()
        return closest(last, [each.name for each in names])
    if reason.endswith("got `str`") and _kind_at([*above, last]) is SecretReference:
        return '; say where it is kept: { env = "VARIABLE" } or { file = "PATH" }'
    return ""


def variable_meant(name: str, alone: Iterable[str]) -> str:
    """The variable that was probably meant by one without a section, both as in `log_level`.

    It is one of `alone`, or one of a section's (`data_plane__port`) that differs by an underscore
    or a typing error; empty if none is similar.
    """
    known = {each: each for each in alone}
    for section in msgspec.structs.fields(Settings):
        if _is_struct(section.type):
            keys = [each.name for each in msgspec.structs.fields(section.type)]
            known |= {f"{section.name}_{key}": f"{section.name}__{key}" for key in keys}
    close = difflib.get_close_matches(name, known, 1, cutoff=_ALIKE)
    return known[close[0]] if close else ""


def closest(name: str, names: Iterable[str]) -> str:
    """The most similar name, to follow the reason; empty if none is similar."""
    close = difflib.get_close_matches(name, names, 1)
    return f"; did you mean `{close[0]}`?" if close else ""


def _kind_at(names: list[str]) -> Any:
    """The type of the setting at this place; None if there cannot be one."""
    kind: Any = Settings
    for name in names:
        if get_origin(kind) is Mapping:
            _, kind = get_args(kind)
        elif _is_struct(kind):
            kinds = {each.name: each.type for each in msgspec.structs.fields(kind)}
            kind = kinds.get(name)
        else:
            return None
        if get_origin(kind) is not Mapping:
            kind = next((each for each in get_args(kind) if _is_struct(each)), kind)
    return kind


def _words_of(kind: Any) -> tuple[str, ...]:
    """The words of a choice, also in a list or where it may be left out."""
    if get_origin(kind) is Literal:
        return tuple(map(str, get_args(kind)))
    return next(filter(None, map(_words_of, get_args(kind))), ())


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)
