"""Splits text into words for the tagger, with places and rows of the embedding table.

A word is a run of letters with their marks, a run of digits, or one other character. Blanks are not
words; a line break is one.
"""

import re
from collections.abc import Iterable
from itertools import accumulate
from zlib import crc32


_WORD = re.compile(
    r"(?:[^\W\d_]|[\u0300-\u036f\u0900-\u0903\u093a-\u094f\u0962\u0963\u0980-\u0983\u09bc-\u09cd"
    r"\u0a01-\u0a4d\u0b3c-\u0b4d\u0bbe-\u0bcd\u0c3e-\u0c4d\u0cbc-\u0ccd\u0d3e-\u0d4d\u200c\u200d])+"
    r"|\d+|\n|[^\s\w]|_|\x1f"
)
_ASCII_WORD = re.compile(r"[A-Za-z]+|[0-9]+|[^\sA-Za-z0-9]|\n|\x1f")
# The same in a group: splitting then gives what is between, a word, what is between, …
_PARTS, _ASCII_PARTS = (re.compile(f"({p.pattern})") for p in (_WORD, _ASCII_WORD))
LONGEST_WORD = 64
SHAPES = 64
PIECES = 1 << 14
_PIECE_MASK = PIECES - 1
_DIGIT_SHAPE = 16
_OTHER_SHAPE = 8
FEATURES = 9  # vocabulary, shape, names, and six pieces.


def words_of(text: str) -> list[tuple[int, int]]:
    """Start and end of every word, in order."""
    pattern = _ASCII_WORD if text.isascii() else _WORD
    return [match.span() for match in pattern.finditer(text)]


def split(text: str) -> tuple[list[str], list[int], list[int]]:
    """Every word, with its start and its end: the same as `words_of`, in a third of the time."""
    parts = (_ASCII_PARTS if text.isascii() else _PARTS).split(text)
    edges = list(accumulate(map(len, parts)))
    return parts[1::2], edges[:-1:2], edges[1::2]


def shape_of(word: str) -> int:
    """How a word is written: 1 to 7 letters, 8 to 12 other scripts and marks, from 16 digits."""
    first = word[0]
    if first.isdigit():
        return _DIGIT_SHAPE + min(len(word), 24)
    if not first.isalpha():
        return _OTHER_SHAPE + 4
    if not first.isascii() and not (first.isupper() or first.islower()):
        return _OTHER_SHAPE + (first < "\u0980") + 2 * (first > "\u1100")
    if word.islower():
        return 1 if len(word) > 1 else 2
    if word.isupper():
        return 3 if len(word) == 1 else 4 if len(word) < 4 else 5  # noqa: PLR2004 - "CEO", "USA".
    return 6 if first.isupper() and word[1:].islower() else 7


def pieces_of(lowered: str, data: bytes) -> Iterable[int]:
    """Hashes of a word's beginnings and endings; `data` is the word in UTF-8."""
    if len(data) == len(lowered):  # ASCII: a character is a byte.
        return (
            crc32(b"<" + data[:2]) & _PIECE_MASK,
            crc32(b"<" + data[:3]) & _PIECE_MASK,
            crc32(b"<" + data[:4]) & _PIECE_MASK,
            crc32(data[-2:] + b">") & _PIECE_MASK,
            crc32(data[-3:] + b">") & _PIECE_MASK,
            crc32(data[-4:] + b">") & _PIECE_MASK,
        )
    pieces = (
        "<" + lowered[:2],
        "<" + lowered[:3],
        "<" + lowered[:4],
        lowered[-2:] + ">",
        lowered[-3:] + ">",
        lowered[-4:] + ">",
    )
    return [crc32(piece.encode("utf-8", "replace")) & _PIECE_MASK for piece in pieces]


class NameFilter:
    """A Bloom filter of names: never misses one, and accepts one other word in a hundred."""

    def __init__(self, bits: bytes | memoryview) -> None:
        self.bits = bits
        self._mask = len(bits) * 8 - 1

    def __contains__(self, word: str) -> bool:
        return self.has(*two_hashes(word.encode("utf-8", "replace")))

    def has(self, first: int, second: int) -> bool:
        """Whether a word with these two hashes is a name."""
        bits, mask = self.bits, self._mask
        first &= mask
        second &= mask
        return bool(bits[first >> 3] >> (first & 7) & 1 and bits[second >> 3] >> (second & 7) & 1)

    @classmethod
    def of(cls, words: Iterable[str], size_bits: int) -> "NameFilter":
        """`size_bits` is a power of two."""
        bits = bytearray(size_bits // 8)
        for word in words:
            for value in two_hashes(word.encode("utf-8", "replace")):
                place = value & (size_bits - 1)
                bits[place >> 3] |= 1 << (place & 7)
        return cls(bytes(bits))


def two_hashes(data: bytes) -> tuple[int, int]:
    return crc32(data), crc32(data, 0x5BD1E995)


class Lexicon:
    """Word → rows of the embedding table.

    The table's rows are, in order: nothing, the vocabulary, the shapes, four kinds of name, the
    pieces. Row 0 is zero and used as padding.
    """

    def __init__(self, vocabulary: Iterable[str], first: NameFilter, last: NameFilter) -> None:
        self.vocabulary = {word: index for index, word in enumerate(vocabulary, 1)}
        self._first = first
        self._last = last
        self._shapes = 1 + len(self.vocabulary)
        self._names = self._shapes + SHAPES
        self._pieces = self._names + 4
        self.rows = self._pieces + PIECES

    def features(self, word: str) -> tuple[int, ...]:
        """`FEATURES` rows; the first is the word itself or 0."""
        word = word[:LONGEST_WORD]
        lowered = word.lower()
        shape = self._shapes + shape_of(word)
        known = self.vocabulary.get(lowered, 0)
        if not lowered[0].isalpha() or len(lowered) == 1:
            return (known, shape, *_NO_PIECES)
        data = lowered.encode("utf-8", "replace")
        first, second = two_hashes(data)
        names = self._names + self._first.has(first, second) + 2 * self._last.has(first, second)
        at = self._pieces
        return (known, shape, names, *[at + piece for piece in pieces_of(lowered, data)])


_NO_PIECES = (0,) * (FEATURES - 2)
