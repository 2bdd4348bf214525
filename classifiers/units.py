"""The unit that is judged as a whole: one message, with the end of the text before it."""

from typing import Final

from msgspec import Struct


# Joins keys to values and segments to each other; rules read it as "keyword, then value".
SEAM: Final = "\x1f"
# A word that announces a value may stand at the end of the message before.
LEAD_LENGTH: Final = 64


Chain = tuple[tuple[int, int], ...]
"""Places of consecutive text parts: each may go on in the next."""


class Unit(Struct, frozen=True):
    """A text that is judged as one, and the end of the text before it."""

    text: str
    lead: str = ""
    chains: tuple[Chain, ...] = ()

    def __repr__(self) -> str:
        return f"Unit(length={len(self.text)})"
