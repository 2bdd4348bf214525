"""Turns a text into hashed features: words, pairs of words, and pieces of four characters."""

import re
from collections.abc import Iterator
from itertools import pairwise
from zlib import crc32


BUCKETS = 1 << 16
WINDOW_LENGTH = 480
WINDOW_STRIDE = 240
LENGTH_MAX = 20_000
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?|[?!:<>\[\]{}\"`#=]")
_PIECE_LENGTH = 4


def features(text: str) -> set[int]:
    """Buckets of one window of text; linear in its length."""
    lowered = text.lower()
    words = _WORD.findall(lowered)
    found = {_bucket("w " + word) for word in words}
    found.update(_bucket(f"p {a} {b}") for a, b in pairwise(words))
    squeezed = " " + " ".join(words) + " "
    found.update(
        _bucket("c" + squeezed[at : at + _PIECE_LENGTH])
        for at in range(len(squeezed) - _PIECE_LENGTH + 1)
    )
    return found


def windows(text: str) -> Iterator[str]:
    """A short text, or overlapping stretches of a long one: orders hide in long documents."""
    text = text[:LENGTH_MAX]
    if len(text) <= WINDOW_LENGTH:
        yield text
        return
    for start in range(0, len(text) - WINDOW_STRIDE, WINDOW_STRIDE):
        yield text[start : start + WINDOW_LENGTH]


def _bucket(feature: str) -> int:
    return crc32(feature.encode("utf-8", "replace")) & (BUCKETS - 1)
