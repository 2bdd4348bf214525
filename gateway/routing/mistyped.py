"""Guesses which model was meant by a name that is spelled differently. Pure."""

import difflib
from collections.abc import Iterable


_ALIKE = 0.9
"""One letter in ten may differ: a typing error, or one digit of a long name."""


def meant(asked: str, names: Iterable[str]) -> str:
    """The one name that resembles what was asked; empty if there is none, or several.

    Names that differ only in spelling come first: capitals, surrounding blanks, dots for dashes,
    and a vendor in front (`openai/NAME`), as other gateways want them. Typing errors come after.
    """
    known = list(names)
    wanted = {_plain(asked), _plain(asked.rpartition("/")[2])}
    found = [name for name in known if _plain(name) in wanted]
    if not found:
        plain = [_plain(name) for name in known]
        alike = {
            each
            for word in wanted
            for each in difflib.get_close_matches(word, plain, len(plain) or 1, cutoff=_ALIKE)
        }
        found = [name for name in known if _plain(name) in alike]
    return found[0] if len(found) == 1 else ""


def _plain(name: str) -> str:
    return name.strip().lower().replace(".", "-").replace("_", "-")
