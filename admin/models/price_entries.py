"""Prepares the text for changing one price: the file in force, with the model's entry in it.

A new file replaces the whole previous file, so an entry alone would undo all others. Pure.
"""

import tomllib
from collections.abc import Collection, Mapping

from msgspec import Struct

from gateway.errors import RequestInvalid


class Entries(Struct, frozen=True):
    """Models whose price can be changed, in order."""

    serving: tuple[str, ...]
    """Those that a target asks."""
    others: tuple[str, ...]


def entries_of(models: Collection[str], asked: Collection[str]) -> Entries:
    """`models` have an entry in force; `asked` are those of the targets."""
    serving = tuple(sorted(set(models) & set(asked)))
    return Entries(serving, tuple(sorted(set(models) - set(asked))))


class Begun(Struct, frozen=True):
    """The text of a price file that has an entry of a model."""

    model: str = ""
    """Empty where none was chosen."""
    text: str = ""
    is_added: bool = False
    """Whether the entry is the shipped one, behind what was in force."""


def begun_with(model: str, own: str, shipped: str) -> Begun:
    """What a change of a model's price begins with.

    `own` is the file in force, empty for none; `shipped` is what comes with this release. Both are
    known to be price files.

    Raises:
        RequestInvalid: neither has an entry of this name.
    """
    if model in _models_in(own):
        return Begun(model, own)
    entry = entry_in(shipped, model)
    text = f"{own.rstrip()}\n\n{entry}" if own.strip() else entry
    return Begun(model, text, is_added=True)


def entry_in(text: str, model: str) -> str:
    """The lines of one entry as they stand in a price file; raises RequestInvalid for none."""
    lines = text.splitlines()
    heads = [at for at, line in enumerate(lines) if line.startswith("[")]
    for at, following in zip(heads, [*heads[1:], len(lines)], strict=True):
        block = lines[at:following]
        if list(_models_in(block[0])) == [model]:
            while not block[-1].strip() or block[-1].startswith("#"):
                block.pop()  # What stands before the next entry is about that one.
            return "\n".join(block) + "\n"
    raise RequestInvalid(f"there is no entry of {model[:100]!r}", parameter="model")


def _models_in(text: str) -> Mapping[str, object]:
    found: Mapping[str, object] = tomllib.loads(text).get("models", {})
    return found
