"""The features of the complexity score: words, pairs of neighbours, measures of a prompt's shape.

The text is bared and capped first (`bare.py`), so the cost is bounded whatever is sent. Everything
runs at C speed over bytes, without a loop over words; training and service run the same code.
"""

from itertools import pairwise
from math import log1p

from msgspec import Struct

from classifiers.complexity.bare import bare, worded


PAIRED_WORDS_MAX = 160
"""Pairs are taken from this many words, half from each end: they cost more than words."""

SHAPE_NAMES = (
    "log_words",
    "log_bytes",
    "log_numbers",
    "log_distinct_numbers",
    "number_share",
    "log_lines",
    "log_full_stops",
    "log_questions",
    "log_percent_signs",
    "log_dollar_signs",
    "log_quotes",
    "formula_share",
    "code_share",
    "non_ascii_share",
    "word_length",
    "distinct_share",
    "rate_words",
    "time_words",
    "number_words",
    "order_words",
    "comparison_words",
    "condition_words",
)
_LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_CAPITALS = _LETTERS[26:]
_DIGITS = b"0123456789"
_NON_ASCII = bytes(range(0x80, 0x100))
_FORMULA = b"=+*^\\<>|~/"
_CODE = b"{}[]();_#`"


def _word_table() -> bytes:
    """Byte → byte: letters to lower case, ASCII punctuation and control characters to a space."""
    table = bytearray(range(256))
    for byte in range(128):
        if not chr(byte).isalnum():
            table[byte] = 0x20
    for byte in _CAPITALS:
        table[byte] = byte + 32
    return bytes(table)


_TO_WORDS = _word_table()
_TO_NUMBERS = bytes(byte if byte in _DIGITS else 0x20 for byte in range(256))
_PLAIN = _LETTERS + _DIGITS + b" "
_RATE = frozenset((b"each", b"every", b"per", b"times", b"twice", b"double", b"half", b"third"))
_TIME = frozenset(
    word + ending
    for word in (b"second", b"minute", b"hour", b"day", b"week", b"month", b"year")
    for ending in (b"", b"s")
)
_NUMBER = frozenset(
    (b"two", b"three", b"four", b"five", b"six", b"seven", b"eight", b"nine", b"ten", b"dozen")
)
_ORDER = frozenset((b"first", b"then", b"after", b"before", b"next", b"finally", b"average"))
_COMPARISON = frozenset((b"than", b"more", b"less", b"fewer", b"most", b"least", b"remaining"))
_CONDITION = frozenset((b"if", b"not", b"except", b"must", b"only", b"cannot", b"unless"))


class Features(Struct, frozen=True):
    """The distinct words and pairs of a capped text, and its shape in the order of SHAPE_NAMES.

    Words are lower-case UTF-8 between punctuation; in Chinese and Japanese, each sign is a word.
    """

    words: frozenset[bytes]
    pairs: frozenset[tuple[bytes, bytes]]
    shape: tuple[float, ...]

    def __repr__(self) -> str:
        return f"Features(words={len(self.words)}, pairs={len(self.pairs)}, shape={self.shape})"


def features(text: str) -> Features:
    """Features of a prompt; bounded work for a text of any length."""
    text = bare(text)
    data = text.encode("utf-8", "replace")
    told = data if text.isascii() else worded(text).encode("utf-8", "replace")
    words = told.translate(_TO_WORDS).split()
    distinct = frozenset(words)
    paired = words
    if len(words) > PAIRED_WORDS_MAX:
        half = PAIRED_WORDS_MAX // 2
        paired = words[:half] + words[-half:]
    return Features(distinct, frozenset(pairwise(paired)), _shape(data, words, distinct))


def _shape(data: bytes, words: list[bytes], distinct: frozenset[bytes]) -> tuple[float, ...]:
    numbers = data.translate(_TO_NUMBERS).split()
    marks = data.translate(None, _PLAIN)
    size = len(data) or 1
    count = len(words) or 1
    return (
        log1p(len(words)),
        log1p(len(data)),
        log1p(len(numbers)),
        log1p(len(frozenset(numbers))),
        len(numbers) / count,
        log1p(marks.count(b"\n")),
        log1p(marks.count(b".")),
        log1p(marks.count(b"?")),
        log1p(marks.count(b"%")),
        log1p(marks.count(b"$")),
        log1p(marks.count(b'"') + marks.count(b"'")),
        (len(marks) - len(marks.translate(None, _FORMULA))) / size,
        (len(marks) - len(marks.translate(None, _CODE))) / size,
        (len(marks) - len(marks.translate(None, _NON_ASCII))) / size,
        size / count,
        len(distinct) / count,
        len(_RATE & distinct),
        len(_TIME & distinct),
        len(_NUMBER & distinct),
        len(_ORDER & distinct),
        len(_COMPARISON & distinct),
        len(_CONDITION & distinct),
    )
