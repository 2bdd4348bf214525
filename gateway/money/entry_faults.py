"""What is wrong with the entries of a price file: of each all that it lacks at once. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct, structs

from gateway.errors import ConfigurationInvalid


SAID_MAX: Final = 20
"""Of more entries than this only the number is said."""


def entry_faults(models: Mapping[str, object], kind: type[Struct]) -> list[tuple[str, str]]:
    """Keys of a file, each with what is wrong there; one for every entry that is not of `kind`."""
    needed = [field.name for field in structs.fields(kind) if field.required]
    found: list[tuple[str, str]] = []
    for name, entry in models.items():
        key = f"models.{name}"
        lacking = [each for each in needed if isinstance(entry, dict) and each not in entry]
        if lacking:
            several = "s" if len(lacking) > 1 else ""
            fields = ", ".join(f"`{each}`" for each in lacking)
            found.append((key, f"missing required field{several} {fields}"))
            continue
        try:
            msgspec.convert(entry, kind)
        except msgspec.ValidationError as error:
            reason, _, where = str(error).partition(" - at `$")
            found.append((key + where.rstrip("`"), reason))
    return found


def refusal_of(source: str, faults: Sequence[tuple[str, str]]) -> ConfigurationInvalid:
    """One error with a line for each of the faults; the first one's key is the error's."""
    (key, reason), *others = faults
    lines = [f"{source}: {each}: {said}" for each, said in others[: SAID_MAX - 1]]
    if len(faults) > SAID_MAX:
        lines.append(f"{source}: and {len(faults) - SAID_MAX} more entries")
    return ConfigurationInvalid(source, key, "\n".join((reason, *lines)))
