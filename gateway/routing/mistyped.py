"""Guesses which model was meant by a name that is spelled differently. Pure."""

import difflib
from collections.abc import Iterable


_ALIKE = 0.9
"""A letter in ten: a slip of the hand, or one digit of a long name."""


def meant(asked: str, names: Iterable[str]) -> str:
    """The one name that is like what was asked; empty where none is, or several are.

    First those that differ in ways of writing only: capitals, blanks around, dots for dashes, and
    a vendor in front (`openai/NAME`), as other gateways want them. Then slips of the hand.
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
