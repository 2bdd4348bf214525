"""One ASCII view of a text, with a way back to the offsets of the original.

Patterns see digits of every script as ASCII digits, full-width and look-alike letters as Latin
ones, exotic spaces and dashes as plain ones, and no zero-width characters at all. Every view
character stands for exactly one original character, so that finding a position back is arithmetic.
"""

# ruff: noqa: PLR2004 - the numbers here are those of the Unicode code charts.

import re
import unicodedata
from bisect import bisect_right
from functools import cache
from itertools import accumulate
from string import ascii_uppercase

from msgspec import Struct


_DROPPED = "\x00"
_UNKNOWN = "?"
_SPACES = "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
_SPACES += "\u202f\u205f\u3000"
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2043\ufe58\ufe63\uff0d\u00b7\u2022"
_QUOTES = {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u3002": ".", "\uff61": "."}
_INVISIBLE = (
    "\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180e\u180f\u2800\u3164\ufeff\uffa0"
)
_INVISIBLE += "\ufff9\ufffa\ufffb\ufffc"
# And marks that combine with the letter or digit before them.
_HIDDEN = frozenset(
    (
        *map(ord, _INVISIBLE),
        *(*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070)),
        *(*range(0xFE00, 0xFE10), *range(0x300, 0x370), *range(0x1AB0, 0x1B00)),
        *(*range(0x1DC0, 0x1E00), *range(0x20D0, 0x2100), *range(0xFE20, 0xFE30)),
    )
)
# Digits of Chinese and Japanese, as spoken and as written on cheques.
HAN_DIGITS = {
    char: str(digit)
    for digit, chars in enumerate(
        (
            *("\u3007\u96f6", "\u4e00\u58f9\u58f1\u5f0c"),
            *("\u4e8c\u8d30\u8cb3\u8cae\u5f10\u5f0d\u5169", "\u4e09\u53c1\u53c2\u53c3\u53c4\u5f0e"),
            *("\u56db\u8086\u4e96", "\u4e94\u4f0d", "\u516d\u9646\u9678", "\u4e03\u67d2"),
            *("\u516b\u634c", "\u4e5d\u7396"),
        )
    )
    for char in chars
}
# Cyrillic and Greek letters that readers take for Latin ones, or for digits.
_LOOK_ALIKE = dict(
    zip(
        "\u0430\u0435\u043e\u0440\u0441\u0445\u0443\u0456\u0458\u0455\u043a\u043c\u0442\u0432\u043d"
        "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0423\u0406\u0408\u0405"
        "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03bf"
        "\u0501\u051b\u051d\u0261\u03f2\u03b1\u03c1\u03b9\u0417\u0437\u0431",
        "aeopcxyijskmtbhABEKMHOPCTXYIJSABEZHIKMNOPTYXodqwgcapi336",
        strict=True,
    )
)


# Roman numerals of one letter look like that letter, and are read as it.
_LETTERS_TOO = frozenset("\u2160\u2164\u2170\u2174")


def _digit(char: str) -> str:
    """The digit that a character stands for, in any script, in a circle or as strokes; else ""."""
    number = unicodedata.numeric(char, -1.0)
    is_one = 0 <= number <= 9 and number.is_integer() and char not in _LETTERS_TOO
    return str(int(number)) if is_one else ""


def _folded(code: int) -> str:
    """The ASCII character for a code point; NUL if it is invisible."""
    char = chr(code)
    if code < 0x80:
        return char
    if code in _HIDDEN:
        return _DROPPED
    special = _LOOK_ALIKE.get(char) or _QUOTES.get(char) or HAN_DIGITS.get(char)
    if special:
        return special
    if digit := _digit(char):
        return digit
    if char in _SPACES:
        return " "
    if char in _DASHES:
        return "-"
    plain = unicodedata.normalize("NFKD", char)[0]
    return plain if plain.isascii() and plain.isprintable() else _UNKNOWN


@cache
def _table() -> str:
    """A string indexed by code point: the cheapest mapping that `str.translate` can read.

    Built for the first text that is not ASCII: it takes as long as scanning a hundred texts.
    """
    blocks = []
    for start in range(0, 0x10000, 0x100):
        # Hangul, Han, surrogates and private use fold to nothing useful: no look-ups for them.
        if 0x3400 <= start < 0xA000 or 0xAC00 <= start < 0xFA00:
            blocks.append(_UNKNOWN * 0x100)
        else:
            blocks.append("".join(map(_folded, range(start, start + 0x100))))
    table = list("".join(blocks))
    for char, digit in HAN_DIGITS.items():
        table[ord(char)] = digit
    return "".join(table)


@cache
def _astral() -> dict[int, str]:
    """Beyond the basic plane: digits of all scripts, letters in other styles, invisible ones."""
    styles = (*range(0x1D400, 0x1D800), *range(0x1F100, 0x1F10B), *range(0x1F130, 0x1F14A))
    table = {code: _folded(code) for code in (*styles, *range(0x1FBF0, 0x1FBFA))}
    table |= {code: digit for code in range(0x10000, 0x20000) if (digit := _digit(chr(code)))}
    for first in (0x1F150, 0x1F170, 0x1F1E6):
        table |= {first + at: letter for at, letter in enumerate(ascii_uppercase)}
    hidden = (*range(0x1D173, 0x1D17B), *range(0xE0000, 0xE0080), *range(0xE0100, 0xE01F0))
    return table | dict.fromkeys(hidden, _DROPPED)


class View(Struct, frozen=True):
    """A text and where its characters came from; `text` is never shown in a repr.

    `kept_before` holds, for each dropped character, how many characters are kept before it.
    """

    text: str
    kept_before: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return f"View(length={len(self.text)}, dropped={len(self.kept_before)})"

    def origin(self, offset: int) -> int:
        """Offset in the original of the view character at `offset`."""
        return offset + bisect_right(self.kept_before, offset) if self.kept_before else offset

    def origin_end(self, offset: int) -> int:
        """Offset in the original just after the view character that ends at `offset`."""
        return self.origin(offset - 1) + 1 if offset else 0


# Characters that spoil words without changing their looks: dropped or folded for the tagger too.
_UNREADABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uff01-\uff5e\uffa0]|[\U0001d400-\U0001d7ff]|[\U000e0000-\U000e007f]"
)


def readable(text: str) -> View:
    """The text in its own script, without invisible characters and with plain letter forms."""
    if text.isascii() or _UNREADABLE.search(text) is None:
        return View(text)
    folded = _UNREADABLE.sub(lambda match: _plain(match[0]), text)
    if _DROPPED not in folded:
        return View(folded)
    parts = folded.split(_DROPPED)
    return View("".join(parts), tuple(accumulate(map(len, parts[:-1]))))


def _plain(char: str) -> str:
    code = ord(char)
    table = _table()
    return table[code] if code < len(table) else _astral().get(code, _UNKNOWN)


def warm() -> None:
    """Build the tables now."""
    _table()
    _astral()


def normalise(text: str) -> View:
    """The view of a text; an ASCII text without NUL is its own view."""
    if not text.isascii():
        text = text.translate(_table())
        if not text.isascii():  # Characters beyond the basic plane are left over.
            text = text.translate(_astral()).encode("ascii", "replace").decode("ascii")
    if _DROPPED not in text:
        return View(text)
    parts = text.split(_DROPPED)
    return View("".join(parts), tuple(accumulate(map(len, parts[:-1]))))
