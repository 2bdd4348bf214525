"""Decodes ROT13 if the text names it, or has a word for a password written in it."""

import codecs
import re
from collections.abc import Iterator
from typing import Final

from classifiers.pii.views.decoded import Change
from classifiers.pii.views.encodings import DECODED_MAX


TRIGGER: Final = r"(?i)\brot[ _\-]?13\b|\b(?:cnffjbeq|cnffjq|frperg|ncvxrl|ncv[ _\-]xrl)"
_WITNESS = re.compile(TRIGGER)
_REACH: Final = 1024
"""The distance from a witness within which words are read."""
_WORD = re.compile(r"(?=\S{0,200}[A-Za-z])\S{2,200}")


def rotated(text: str) -> Iterator[Change]:
    reached, left = 0, DECODED_MAX
    for witness in _WITNESS.finditer(text):
        start, end = max(reached, witness.start() - _REACH), witness.end() + _REACH
        for word in _WORD.finditer(text, start, end):
            left -= len(word[0])
            if left < 0:
                return
            yield *word.span(), codecs.encode(word[0], "rot13")
            reached = word.end()
