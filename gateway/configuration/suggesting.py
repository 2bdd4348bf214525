"""What somebody probably meant, where a setting is wrong."""

import difflib
import re
from collections.abc import Mapping
from typing import Any, get_args, get_origin

import msgspec
from msgspec import Struct

from gateway.configuration.sections import SecretReference
from gateway.configuration.settings import Settings


_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")


def suggestion(key: str, reason: str) -> str:
    """What to write instead, to be said after the reason; empty where nobody can tell."""
    *above, last = key.split(".")
    if _UNKNOWN.match(reason):
        kind = _kind_at(above)
        names = msgspec.structs.fields(kind) if _is_struct(kind) else ()
        close = difflib.get_close_matches(last, [each.name for each in names], 1)
        return f"; did you mean `{close[0]}`?" if close else ""
    if reason.endswith("got `str`") and _kind_at([*above, last]) is SecretReference:
        return '; say where it is kept: { env = "VARIABLE" } or { file = "PATH" }'
    return ""


def _kind_at(names: list[str]) -> Any:
    """The type of what stands there; None where nothing can."""
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


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)
