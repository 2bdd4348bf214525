"""Decodes what a program would: entities, percents, escapes, base64, bytes as numbers, mail.

Each function gives the changes that decode a text. All of them read it once, and decode a bounded
amount.
"""

import base64
import binascii
import html
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final
from unicodedata import category
from urllib.parse import unquote_to_bytes

from classifiers.pii.views.decoded import Change


DECODED_MAX: Final = 65_536
_ENTITY = re.compile(r"&(?:#[0-9]{1,9};?|#[xX][0-9a-fA-F]{1,8};?|[A-Za-z]{2,8};)")
_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2}){1,4096}")
# JSON in JSON has several backslashes where a text has one.
_ESCAPE = re.compile(
    r"(?:\\{1,8}(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|u\{[0-9a-fA-F]{1,6}\}|U[0-9a-fA-F]{8}|[0-3][0-7]{2})"
    r"|%u[0-9a-fA-F]{4}){1,4096}"
    r"|(?<=[A-Z0-9])(?:\\{1,8}[nrt]){1,4}(?=[A-Z0-9])"
)
_CODE = re.compile(
    r"u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|u\{([0-9a-fA-F]+)|U([0-9a-fA-F]{8})|\\([0-3][0-7]{2})"
)
_BYTE, _OCTAL = 2, 5
_LAST_CODE: Final = 0x10FFFF
# Digits of other scripts and in circles; those of China are words, too, and count three in a row.
_DIGIT_ROWS: Final = (
    r"0[69eE]|00[bB][239]|07[cC]|0[a-dA-D][6eE]|0[cC]7|0[fF]2"
    r"|1(?:0[49]|3[67]|7[eEfF]|81|94|9[dD]|[aA][89]|[bB][5bB]|[cC][45])"
    r"|20[78]|24[6-9a-fA-F]|27[7-9]|302|319|32[28]|[aA](?:62|6[eE]|8[dD]|90|9[dDfF]|[aA]5|[bB][fF])|[fF][fF]1"
    r"|[dD]8(?:0[0-9]|1[aAbB]|3[458aAbB])|[dD]83[cC]\\{1,4}u[dD][dD]0|[dD]83[eE]\\{1,4}u[dD][fF][fF]|[dD][bB]40"
)
_HAN_DIGIT: Final = (
    r"(?:3007|4[eE](?:0[039]|8[cC]|9[46]|5[dD])|4[fF]0[dD]|516[9bBdD]|53[cC][1-4]|56[dD][bB]"
    r"|58[fF][19]|5[fF](?:0[c-eC-E]|10)|634[cC]|67[dD]2|7396|8086|8[cC](?:[aA][eE]|[bB]3)|8[dD]30"
    r"|96(?:46|78|[fF]6))"
)
_UNSEEN_CODE: Final = r"(?:20[06]|00[aA][dD]|03[0-6]|[fF][eE][0fF])"
ESCAPES: Final = (
    rf"\\u(?:00[2-7]|{_DIGIT_ROWS}|\{{)|(?:\\{{1,4}}u{_HAN_DIGIT}){{3}}|[0-9]\\{{1,4}}u{_UNSEEN_CODE}"
    r"|\\x(?:[2-7]|[c-fC-F][0-9a-fA-F]\\{1,4}x[89abAB])|\\U000"
    r"|\\(?:0[4-7]|1[0-7]|3[0-7])[0-7]\\|\\(?:040|(?:x|u00)0[9aAdD])[0-9]|%u(?:00|[fF][fF])|[0-9]\\{1,8}[nrt]"
)
"""Beginnings of escapes that may hide a number, an address or a key; JSON needs the others."""

BREAK: Final = r"[ \t]{0,4}(?:\r?\n|\\r\\n|\\n)[ \t>]{0,8}"
_BASE64 = re.compile(
    rf"(?<![A-Za-z0-9+/_\-])[A-Za-z0-9+/_\-]{{10,65536}}(?:{BREAK}[A-Za-z0-9+/_\-]{{10,}})*"
    rf"(?:{BREAK}[A-Za-z0-9+/_\-]{{1,9}}(?![A-Za-z0-9+/_\-]))?={{0,2}}"
)
_LINES = re.compile(BREAK)
_PIECE = re.compile(r"[A-Za-z0-9]{10,}")
_QUANTUM: Final = 4
_LONG: Final = 256
_GAP = r"(?:[:\-]|,?(?:\s|\\{1,4}[nrt]){0,12}(?:0[xX])?)"
_HEX = re.compile(
    rf"(?<![A-Za-z0-9])(?:\\x|0[xX])?(?:[0-9a-fA-F]{{2}}{_GAP}){{7,32768}}[0-9a-fA-F]{{2,3}}(?![A-Za-z0-9])"
)
_BESIDE: Final = r"(?:[:\-]|,?[\s\\nrt]*(?:0[xX])?)"
_NOT_HEX = re.compile(r"0[xX]|[^0-9a-fA-F]")
# A byte of a letter's tail; a letter of ASCII, and one of any other script.
_TAIL: Final = rf"(?:{_BESIDE}[89abAB][0-9a-fA-F])"
_LETTER: Final = (
    rf"(?:[2-7][0-9a-fA-F]|0[9aAdD]|[cdCD][0-9a-fA-F]{_TAIL}|[eE][0-9a-fA-F]{_TAIL}{{2}}"
    rf"|[fF][0-4]{_TAIL}{{3}})"
)
HEX: Final = (
    rf"(?:{_LETTER}{_BESIDE}){{8}}"
    r"|(?:[2-7][0-9a-fA-F]00){4}|(?:00[2-7][0-9a-fA-F]){4}"
    r"|(?:[0-9a-fA-F]{5}[01]00){3}|(?:00[01][0-9a-fA-F]{5}){3}"
)
_CODES = re.compile(r"(?<![0-9.])(?:[0-9]{2,3}(?:,\s{0,12}|[ ])){9,4096}[0-9]{2,3}(?![0-9.])")
_NUMBERS = re.compile("[0-9]+")
CODES: Final = r"(?:[0-9]{2,3}(?:,\s{0,12}|[ ])){9}"
_QUOTED = re.compile(r"(?:=[0-9A-F]{2}){1,4096}|=\r?\n")
QUOTED: Final = (
    r"=[2-7C-F][0-9A-F]=|[0-9A-Za-z]=\r?\n|=3[AD][0-9]|=20[A-Za-z]+[.,:;]?=20[A-Za-z0-9]"
)
"""An address may have one blank before a number; a word between two blanks is mail's."""
_COMPRESSED: Final = (b"\x1f\x8b", b"x\x01", b"x\x5e", b"x\x9c", b"x\xda")
"""First bytes of gzip and zlib."""
_BOTH_HEADS: Final = 47
"""For `zlib`: the largest window, and whichever of the two headers is there."""
_LEAST_WIDE: Final = 8
_LAST_PLANE: Final = 0x10
_MARKS_16: Final = (b"\xff\xfe", b"\xfe\xff")
_LEAST_ASCII: Final = 0.9
_LAST_ASCII: Final = 0x7E
_LAYOUT: Final = dict.fromkeys(map(ord, "\t\n\r"))
_UNSEEN: Final = frozenset({"Zs", "Zl", "Zp", "Cf", "Co"})
"""Kinds of characters in text although they are not printable; `Co` are the icons of fonts."""
_LEAST_BETWEEN_CONTROLS: Final = 4


def entities(text: str) -> Iterator[Change]:
    for match in _ENTITY.finditer(text):
        decoded = html.unescape(match[0])
        if decoded != match[0]:
            yield match.start(), match.end(), decoded


def percents(text: str) -> Iterator[Change]:
    for match in _PERCENT.finditer(text):
        yield match.start(), match.end(), unquote_to_bytes(match[0]).decode("utf-8", "replace")


def escapes(text: str) -> Iterator[Change]:
    for match in _ESCAPE.finditer(text):
        found = list(_CODE.finditer(match[0]))
        codes = [
            int(code[code.lastindex or 0], 8 if code.lastindex == _OCTAL else 16) for code in found
        ]
        if all(code.lastindex in {_BYTE, _OCTAL} for code in found):
            said = _of_bytes_or_codes(bytes(codes))
        else:
            said = "".join(chr(code) for code in codes if code <= _LAST_CODE)
        # Two halves of a pair are one character; without any code it is the end of a line.
        whole = said.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        yield match.start(), match.end(), whole or "\n"


def _of_bytes_or_codes(data: bytes) -> str:
    """The text of byte escapes: UTF-8 in some languages, one character each in others."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def quoted(text: str) -> Iterator[Change]:
    """Mail's quoted-printable (RFC 2045): bytes after an equals sign, and continued lines."""
    for match in _QUOTED.finditer(text):
        code = match[0].replace("=", "").strip()
        yield match.start(), match.end(), bytes.fromhex(code).decode("utf-8", "replace")


def in_base64(text: str) -> Iterator[Change]:
    """Runs of base64, also over several lines. Parts may be text if the whole is not."""
    left = DECODED_MAX
    for match in _BASE64.finditer(text):
        left -= len(match[0])
        if left < 0:
            return
        lines = _LINES.split(match[0])
        if len(lines) > 1 and (decoded := as_text(_unbase64("".join(lines)))) is not None:
            yield match.start(), match.end(), decoded
            continue
        at = match.start()
        for line in lines:
            at = text.index(line, at)
            yield from _of_run(line, at)
            at += len(line)


def _of_run(line: str, at: int) -> Iterator[Change]:
    run = line.rstrip("=")
    if (decoded := as_text(_unbase64(run))) is not None:
        yield at, at + len(line), decoded
        return
    if not at and len(run) > _LONG:
        # A long text is read in stretches: this one may begin anywhere in a group of four.
        for skipped in range(1, _QUANTUM):
            data = _unbase64(run[skipped:])
            if (decoded := as_text(data)) is not None:
                yield at + skipped, at + len(run), decoded
                return
    if run.isalnum():
        return
    for piece in _PIECE.finditer(run):
        if (decoded := as_text(_unbase64(piece[0]))) is not None:
            yield at + piece.start(), at + piece.end(), decoded


def _unbase64(run: str) -> bytes:
    run = run.rstrip("=")
    if len(run) % _QUANTUM == 1:  # Cut off within a group of four.
        run = run[:-1]
    try:
        return base64.b64decode(run + "=" * (-len(run) % _QUANTUM), altchars=b"-_")
    except (binascii.Error, ValueError):
        return b""


def hexadecimal(text: str) -> Iterator[Change]:
    left = DECODED_MAX
    for match in _HEX.finditer(text):
        left -= len(match[0])
        if left < 0:
            return
        digits = _NOT_HEX.sub("", match[0])
        decoded = as_text(_unhex(digits))
        if decoded is None and not match.start() and len(digits) > _LONG:
            decoded = as_text(_unhex(digits[1:]))
        if decoded is not None:
            yield match.start(), match.end(), decoded


def _unhex(digits: str) -> bytes:
    return bytes.fromhex(digits[: len(digits) & ~1])


def codes(text: str) -> Iterator[Change]:
    """Bytes as a list of numbers, as programs print and send them."""
    for match in _CODES.finditer(text):
        numbers = [int(number[0]) for number in _NUMBERS.finditer(match[0])]
        if (decoded := of_bytes(numbers)) is not None:
            yield match.start(), match.end(), decoded


def of_bytes(numbers: Sequence[int]) -> str | None:
    """The text that a list of bytes encodes; None if it encodes none."""
    return as_text(bytes(numbers)) if max(numbers) <= 0xFF and min(numbers) >= 0 else None  # noqa: PLR2004 - a byte.


def as_text(data: bytes) -> str | None:
    """Bytes as text, compressed or not, with three different characters or two different digits."""
    if data.startswith(_COMPRESSED):
        data = _inflated(data)
    text = _decoded(data)
    if text is None or not _can_be_read(text):
        return None
    least = 1 if text.isdigit() else 2  # "aaaa" says nothing.
    return text if len(set(text)) > least else None


def _can_be_read(text: str) -> bool:
    """Whether it has words: blanks and invisible marks of any kind are allowed, and few controls.

    Pages end in a form feed, files begin with a byte order mark, records have lengths before words.
    """
    if text.translate(_LAYOUT).isprintable():
        return True
    others = {char: count for char, count in Counter(text).items() if not char.isprintable()}
    strange = sum(count for char, count in others.items() if category(char) not in _UNSEEN)
    return strange <= len(text) // _LEAST_BETWEEN_CONTROLS


def _inflated(data: bytes) -> bytes:
    """As much of it as is read of any other; a torn stream is read up to the tear."""
    try:
        return zlib.decompressobj(_BOTH_HEADS).decompress(data, DECODED_MAX)
    except zlib.error:
        return b""


def _decoded(data: bytes) -> str | None:
    noughts = data.count(0)
    if len(data) >= _LEAST_WIDE and 4 * noughts >= len(data):
        for widest, high, plane in (("utf-32-be", 0, 1), ("utf-32-le", 3, 2)):
            # No letter of UTF-16 has two bytes of nought beside each other.
            if not any(data[high::4]) and max(data[plane::4]) <= _LAST_PLANE:
                return data.decode(widest, "ignore").lstrip("\ufeff")
    if len(data) >= _LEAST_WIDE and (3 * noughts >= len(data) or data.startswith(_MARKS_16)):
        wide = "utf-16-be" if data[0] == 0 or data.startswith(b"\xfe\xff") else "utf-16-le"
        return data.decode(wide, "ignore").lstrip("\ufeff")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    # A stretch of a longer text, torn within a letter, or one of Western Europe's older encodings.
    trimmed = data.decode("utf-8", "ignore")
    if len(data) >= _LONG and len(trimmed.encode()) >= len(data) - 2 * (_QUANTUM - 1):
        return trimmed
    plain = sum(code <= _LAST_ASCII for code in data)
    return data.decode("latin-1") if plain >= _LEAST_ASCII * len(data) else None
