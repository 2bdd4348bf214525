"""Decodes bytes in bases other than 16 and 64: base32, base85, Ascii85, uuencode, and bits.

If the bytes are text, the first character of each group cannot have every value. A run in which it
has another one, or whose beginning is not text, is dropped before the rest is decoded.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from classifiers.pii.views.decoded import Change
from classifiers.pii.views.encodings import BREAK, DECODED_MAX, as_text


_GROUP_32: Final = 8
_PADDING_32: Final = {0: 0, 2: 6, 4: 4, 5: 3, 7: 1}
"""Padding by the length of the last group; a group of another length is shortened."""
BASE32: Final = (
    r"(?:^|[^A-Za-z0-9])(?:[E-PYZ2-7][A-Z2-7]{7}[E-Z2-7][A-Z2-7]{7}"
    r"|[e-pyz2-7][a-z2-7]{7}[e-z2-7][a-z2-7]{7})"
)
_BASE32 = re.compile(
    rf"(?<![A-Za-z0-9])(?:[E-PYZ2-7][A-Z2-7]{{15,65536}}(?:{BREAK}[A-Z2-7]{{2,}})*"
    rf"|[e-pyz2-7][a-z2-7]{{15,65536}}(?:{BREAK}[a-z2-7]{{2,}})*)={{0,6}}(?![A-Za-z0-9])"
)
_NOT_32 = re.compile(rf"(?:{BREAK})|=+\Z")

_ALPHABET_85: Final = r"0-9A-Za-z!#$%&()*+\-;<=>?@^_`{|}~"
_FIRST_ASCII: Final = "$+-I"
BASE85: Final = (
    rf"(?:^|[^{_ALPHABET_85}]|=)(?:[2-9A-Za-e][{_ALPHABET_85}]{{4}}){{3}}"
    rf"|(?:[{_ALPHABET_85}]{{4}}){{2}}[!#$%&;<>?@^`{{|}}~](?:[{_ALPHABET_85}]{{4}}){{2}}"
    rf"|(?:^|[\s\"'=:(~\[])(?:[{_FIRST_ASCII}][!-u]{{4}}){{3}}|<~(?:[!-u]{{4}}){{3}}"
)
_TOKEN = re.compile(r"\S{15,65536}")
_OPENED = re.compile(r"[\"'`(\[{<~]+|[\w.\-]{1,32}[\"']?[=:][\"'`]?")
_CLOSING: Final = "\"'`)]}>~,.;"
_RUN_85 = re.compile(rf"[{_ALPHABET_85}]{{15,}}")
_RUN_ASCII = re.compile(rf"(?:[{_FIRST_ASCII}][!-u]{{4}}){{3,}}+[!-u]{{0,4}}")
_TRIED_LENGTH: Final = 10
_LETTER_MAX: Final = 3
"""How many bytes of a cut-off letter there may be."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_FRAMED = re.compile(r"<~([!-uz\s]{10,65536})~>")

UUENCODED: Final = r"\bbegin [0-7]{3,4} "
_UUENCODED = re.compile(
    r"\bbegin [0-7]{3,4} [^\n]{1,128}\n((?:[ -`]{1,62}\r?(?:\n|\Z))+)(?:end\b)?"
)

BITS: Final = r"(?:[01]{8}[ ,]{0,2}){8}"
_BITS = re.compile(r"(?<![0-9])[01]{8}(?:[ ,\n]{0,2}[01]{8}){7,8191}(?![0-9])")
_NO_BITS = re.compile("[^01]")


def in_base32(text: str) -> Iterator[Change]:
    left = DECODED_MAX
    for match in _BASE32.finditer(text):
        left -= len(match[0])
        if left < 0:
            return
        run = _NOT_32.sub("", match[0]).upper()
        while len(run) % _GROUP_32 not in _PADDING_32:
            run = run[:-1]
        decoded = as_text(base64.b32decode(run + "=" * _PADDING_32[len(run) % _GROUP_32]))
        if decoded is not None:
            yield *match.span(), decoded


def in_base85(text: str) -> Iterator[Change]:
    """Runs of RFC 1924's alphabet and of Ascii85's; framed Ascii85 may span lines."""
    left = DECODED_MAX
    reached = 0
    for match in _FRAMED.finditer(text):
        left -= len(match[0])
        if left < 0:
            return
        decoded = _unless_noise("".join(match[1].split()), base64.a85decode)
        if decoded is not None:
            yield *match.span(), decoded
            reached = match.end()
    for match in _TOKEN.finditer(text, reached):
        left -= len(match[0])
        if left < 0:
            return
        yield from _of_token(match[0], match.start())


def _of_token(token: str, at: int) -> Iterator[Change]:
    """The text between blanks, or what remains of it without names, brackets and quotes."""
    opened = _OPENED.match(token)
    closed = len(token.rstrip(_CLOSING))
    for start in (0, opened.end()) if opened is not None else (0,):
        for end in (len(token), closed) if closed < len(token) else (closed,):
            decoded = _of_run(token[start:end])
            if decoded is not None:
                yield at + start, at + end, decoded
                return


def _of_run(run: str) -> str | None:
    for alphabet, decode in ((_RUN_85, base64.b85decode), (_RUN_ASCII, base64.a85decode)):
        if not alphabet.fullmatch(run):
            continue
        if (decoded := _unless_noise(run, decode)) is not None:
            return decoded
    return None


def _unless_noise(run: str, decode: Callable[[str], bytes]) -> str | None:
    with suppress(ValueError):
        if _is_said(decode(run[:_TRIED_LENGTH]), torn=True) and _is_said(data := decode(run)):
            return as_text(data)
    return None


def _is_said(data: bytes, *, torn: bool = False) -> bool:
    """Whether it is nothing but text: with so many runs, some decode to nearly text by chance."""
    said = data.decode("utf-8", "ignore")
    missing = len(data) - len(said.encode())
    return missing <= (_LETTER_MAX if torn else 0) and _CONTROL.search(said) is None


def uuencoded(text: str) -> Iterator[Change]:
    """Complete lines after the line that begins them, up to the first line of another kind."""
    left = DECODED_MAX
    for match in _UUENCODED.finditer(text):
        data = b""
        for line in match[1].splitlines():
            left -= len(line)
            if left < 0:
                return
            if line in {"`", " ", "end"}:
                break
            try:
                data += binascii.a2b_uu(line)
            except (binascii.Error, ValueError):
                break
        decoded = as_text(data)
        if decoded is not None:
            yield match.start(1), match.end(), decoded + "\n"


def in_bits(text: str) -> Iterator[Change]:
    for match in _BITS.finditer(text):
        bits = _NO_BITS.sub("", match[0])
        decoded = as_text(int(bits, 2).to_bytes(len(bits) // 8, "big"))
        if decoded is not None:
            yield *match.span(), decoded
