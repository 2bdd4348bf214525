"""Whether what the tagger took for an address may be one: no code, no amount, no time."""

import re
from typing import Final

from classifiers.pii.everyday import is_everyday


_NOT_IN_ADDRESSES: Final = re.compile(r"[\[\]{}<>=_\\;|$`]|[A-Za-z_]\(|^[a-z]+:$")
_BESIDE_CODE: Final = frozenset("[]{}()<>=_\\$`")
_SHORT_WORD: Final = 4
# What is an address whatever stands beside it: a number and a word with a capital, a kind of
# street, a British postal code.
_SURELY_PLACE: Final = re.compile(
    r"[0-9][A-Za-z]?,? +(?:[\w.]+ +){0,3}[A-Z\u00c0-\u00de]\w{2,}"
    r"|[A-Z\u00c0-\u00de][\w.'-]{3,}(?: [\w.]+){0,2},? +[0-9]"
    r"|\b[A-Z]{1,2}[0-9][A-Z0-9]? ?[0-9][A-Z]{2}\b"
    r"|(?i:\b(?:street|road|lane|avenue|drive|boulevard|court|square|platz|weg|gasse|allee|rue|via"
    r"|calle|nagar|marg)\b|stra(?:\u00df|ss)e)"
)
_NO_PLACE: Final = re.compile(
    r"(?:an?|any|each|every|no|one|our|some|the|this|that|which|your) [^0-9A-Z\u00c0-\u00de]*"
    r"|[A-Za-z][0-9]"
)
_CODE_OF_TOWN: Final = re.compile(r"[0-9]{4,6}")
_TOWN: Final = re.compile(r" [A-Z\u00c0-\u00de]\w{2,}")
_COUNTED: Final = re.compile(
    r"\b(?:to|max|min|of|than|least|most|up|by|about|over|under|after|every|limit|defaults?)\W{0,2}\Z",
    re.IGNORECASE,
)
_IS_TIME: Final = re.compile(r"[0-2]?[0-9] ?h ?[0-5][0-9]")
_GOES_ON_AS_NUMBER: Final = re.compile(r"[0-9]?[.,][0-9]")


def is_place(said: str, before: str, after: str) -> bool:
    """No stretch of code: not torn out of a word, not between marks, not of short words alone.

    Nor a kind of road that no name and no number goes with ("a sovereign route"), nor a grade
    ("S0").
    """
    if _SURELY_PLACE.search(said) is not None:
        return True
    if _CODE_OF_TOWN.fullmatch(said) is not None and _TOWN.match(after) is not None:
        return True
    if _NOT_IN_ADDRESSES.search(said) is not None or _is_torn(said, before, after):
        return False
    if before[-1:] in _BESIDE_CODE or after[:1] in _BESIDE_CODE or said.endswith("-"):
        return False
    if said.isdigit() and _COUNTED.search(before) is not None:
        return False
    if _IS_TIME.fullmatch(said) is not None or _is_amount(said, before, after):
        return False
    if _NO_PLACE.fullmatch(said) is not None:
        return False
    words = [word for word in re.findall(r"\w+", said) if not is_everyday(word)]
    return any(len(word) > _SHORT_WORD or not word.islower() for word in words)


def _is_amount(said: str, before: str, after: str) -> bool:
    """Whether it is digits alone, and the number goes on behind a point or a comma."""
    if any(map(str.isalpha, said)):
        return False
    return (said[:1] in ".," and before[-1:].isdigit()) or (
        _GOES_ON_AS_NUMBER.match(said[-1:] + after) is not None
    )


def _is_torn(said: str, before: str, after: str) -> bool:
    """Whether the word goes on beside it."""
    return (said[:1].isalnum() and before[-1:].isalnum()) or (
        said[-1:].isalnum() and after[:1].isalnum()
    )
