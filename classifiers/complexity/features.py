"""What the complexity score looks at in a prompt: its words and eleven measures of its shape.

The text is capped first (head and tail), so the cost is bounded whatever is sent. The measures
are plain counts made with C-speed string methods; the same code runs in training and in service.
"""

from math import log1p

from msgspec import Struct


HEAD_LENGTH = 2_000
TAIL_LENGTH = 1_000
SHAPE_NAMES = (
    "log_length",
    "log_words",
    "digit_share",
    "capital_share",
    "log_lines",
    "log_questions",
    "log_formula_marks",
    "log_code_marks",
    "non_ascii_share",
    "word_length",
    "repetition",
)
_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\r\n\t"
_TO_SPACE = str.maketrans(_PUNCTUATION, " " * len(_PUNCTUATION))
_DIGITS = b"0123456789"
_CAPITALS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_FORMULA = b"=+*^\\$<>%"
_CODE = b"{}[]();_#`"
_NON_ASCII = bytes(range(0x80, 0x100))
_MAX_WORD_LENGTH = 24


class Features(Struct, frozen=True):
    """The distinct words of a capped text and its shape, in the order of SHAPE_NAMES."""

    words: frozenset[str]
    shape: tuple[float, ...]

    def __repr__(self) -> str:
        return f"Features(words={len(self.words)}, shape={self.shape})"


def features(text: str) -> Features:
    """Features of a prompt; bounded work for a text of any length."""
    capped = text
    if len(text) > HEAD_LENGTH + TAIL_LENGTH:
        capped = text[:HEAD_LENGTH] + "\n" + text[-TAIL_LENGTH:]
    words = capped.lower().translate(_TO_SPACE).split()
    distinct = frozenset(words)
    data = capped.encode("utf-8", "replace")
    size = len(data) or 1
    count = len(words) or 1
    shape = (
        log1p(len(text)),
        log1p(len(words)),
        (size - len(data.translate(None, _DIGITS))) / size,
        (size - len(data.translate(None, _CAPITALS))) / size,
        log1p(data.count(b"\n")),
        log1p(data.count(b"?")),
        log1p(size - len(data.translate(None, _FORMULA))),
        log1p(size - len(data.translate(None, _CODE))),
        (size - len(data.translate(None, _NON_ASCII))) / size,
        min(_MAX_WORD_LENGTH, len(capped) / count),
        1.0 - len(distinct) / count,
    )
    return Features(distinct, shape)
