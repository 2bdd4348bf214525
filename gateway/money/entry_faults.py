"""Finds every fault in each entry of a price file, to report them all at once. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct, structs

from gateway.errors import ConfigurationInvalid


SAID_MAX: Final = 20
"""With more faulty entries than this, only the number of the others is said."""


def entry_faults(models: Mapping[str, object], kind: type[Struct]) -> list[tuple[str, str]]:
    """Keys of a file, each with its fault; one for every entry that is not of `kind`."""
    found: list[tuple[str, str]] = []
    for name, entry in models.items():
        key = f"models.{name}"
        if lacks := _lacks(entry, kind) if isinstance(entry, dict) else "":
            found.append((key, lacks))
            continue
        try:
            msgspec.convert(entry, kind)
        except msgspec.ValidationError as error:
            reason, _, where = str(error).partition(" - at `$")
            found.append((key + where.rstrip("`"), reason))
    return found


def _lacks(entry: Mapping[str, object], kind: type[Struct]) -> str:
    """Missing and unknown names in an entry: a misspelt name is both."""
    fields = structs.fields(kind)
    lacking = [field.name for field in fields if field.required and field.name not in entry]
    if not lacking:
        return ""
    several = "s" if len(lacking) > 1 else ""
    said = f"missing required field{several} {_quoted(lacking)}"
    unknown = sorted(entry.keys() - {field.name for field in fields})
    return f"{said}; unknown: {_quoted(unknown)}" if unknown else said


def _quoted(names: Sequence[str]) -> str:
    more = len(names) - SAID_MAX
    said = ", ".join(f"`{each}`" for each in names[:SAID_MAX])
    return f"{said} and {more} more" if more > 0 else said


def refusal_of(source: str, faults: Sequence[tuple[str, str]]) -> ConfigurationInvalid:
    """One error with a line for each fault; its key is that of the first one."""
    (key, reason), *others = faults
    lines = [f"{source}: {each}: {said}" for each, said in others[: SAID_MAX - 1]]
    if len(faults) > SAID_MAX:
        lines.append(f"{source}: and {len(faults) - SAID_MAX} more entries")
    return ConfigurationInvalid(source, key, "\n".join((reason, *lines)))
