"""Estimates token counts without a vocabulary: each kind of character has a weight.

Only the upstream knows its vocabulary, and its count is the true one. These figures reserve money,
answer requests for counts, and stand in, flagged, where an upstream reports no count. Weights are
whole thousandths of a token, and none is below zero: so a text weighs the sum of its pieces,
wherever it is cut, and never less than a part of it.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec


MARGIN_TOKENS = 64
"""Templates and role markers that the body's own bytes do not show."""

IMAGE_TOKENS = 1600
"""About what a large image costs at today's managed models, however many bytes it has."""

DOCUMENT_TOKENS = 2000
DOCUMENT_BYTES_PER_TOKEN = 32
"""A PDF page of 2,000 tokens is some 50-100 KB of base64."""

TURN_TOKENS = 4
"""Markers around each turn, block and tool."""

TOOLS_TOKENS: Mapping[str, int] = {"anthropic": 346, "openai": 16}
"""What a vendor writes around the definitions of tools, as soon as there is one: Anthropic's own
figure for its current models (tool use overview, system prompt for `auto`); OpenAI publishes none,
and the namespace that its open models' template puts around them is about this long."""

BYTES_PER_TOKEN = 4
"""Of what nobody has read: the usual figure for English text."""

WHOLE = 1000
"""A token, in the unit of all weights here."""


def _bytes(first: int, last: int) -> bytes:
    return bytes(range(first, last + 1))


_SELDOM = b"jkqxzJKQVXYZ"
"""Seldom in English; words of other languages, names and random letters are full of them."""
_LOWER = bytes(byte for byte in _bytes(97, 122) if byte not in _SELDOM)
_UPPER = bytes(byte for byte in _bytes(65, 90) if byte not in _SELDOM)
_DIGITS = _bytes(48, 57)
_CONTROL = _bytes(0, 31) + b"\x7f"
_MARKS = bytes(byte for byte in _bytes(33, 126) if byte not in _LOWER + _UPPER + _SELDOM + _DIGITS)
_CONTINUED = _bytes(0x80, 0xBF)

_WEIGHTS = (
    (_LOWER, 190, 262, 224, 388),
    (b" ", 169, 95, 224, 388),
    (_MARKS, 384, 304, 216, 750),
    (_UPPER, 704, 875, 808, 1000),
    (_SELDOM, 1000, 1000, 1000, 1000),
    (_DIGITS, 768, 746, 801, 1000),
    (_CONTROL, 1000, 1000, 250, 329),  # breaks and tabs
    (_bytes(0xE4, 0xE9), 814, 1217, 1043, 1839),  # Chinese
    (_bytes(0xD0, 0xD3), 320, 640, 485, 1317),  # Cyrillic
    (b"\xe0", 379, 1503, 941, 2384),  # Indic scripts, Thai
    (b"\xc3", 749, 1836, 1254, 2000),  # marks of Western Europe
    (b"\xc4\xc5", 1033, 2000, 1867, 2000),  # those of Polish, Czech, Turkish
    (b"\xe3", 713, 953, 862, 1317),  # Japanese
    (_bytes(0xD8, 0xDF), 354, 1138, 747, 1527),  # Arabic, Persian
    (_bytes(0xC6, 0xCD), 1530, 1785, 1580, 2000),  # more marks, phonetic signs
    (_bytes(0xC0, 0xC2), 658, 250, 250, 1317),  # signs and quotation marks
    (b"\xe2", 250, 752, 252, 1317),  # dashes, arrows, lines
    (b"\xe1", 250, 2321, 1216, 3000),  # Vietnamese, and scripts of few speakers
    (_bytes(0xEA, 0xED), 695, 1371, 1056, 1901),  # Korean
    (b"\xee\xef", 1928, 250, 772, 2229),  # what makes a sign an emoji, wide forms
    (_bytes(0xCE, 0xCF), 400, 1307, 855, 1709),  # Greek
    (_bytes(0xD4, 0xD7), 444, 1070, 765, 1392),  # Hebrew, Armenian
    (_bytes(0xF0, 0xFF), 1854, 2866, 2444, 4000),  # emoji
)
"""Bytes that begin a character of each kind, the frequent kinds first; what one weighs in a text
for a model of OpenAI's, and of Anthropic's; and in a request's body, typically and at most.

Made by `python -m benchmarks.fit_estimates`: least squares of the relative error to the published
vocabularies (o200k for OpenAI, the one that Anthropic gave out for its older models) over 1,944
texts of 37 kinds: 24 languages, code, Markdown, JSON, tables, base64, hashes, emoji. Of 1,002
others the median error is 6 %, 95 % lie within 19 % for OpenAI and 22 % for Anthropic, and each
kind's together within 17 %. What weighs most was fitted with errors below the larger count weighing
a hundred times as much, and raised until 99.9 % were covered; it covers all of the others, at 1.6
times the count in the median and 2.2 in the 95th percentile. A vocabulary of bytes has no more
tokens than those, so no character weighs more. Newer vocabularies differ; `Calibration` learns by
how much.
"""

KINDS = tuple([row[0] for row in _WEIGHTS])
FAMILIES: Mapping[str, tuple[int, ...]] = {
    "openai": tuple([row[1] for row in _WEIGHTS]),
    "anthropic": tuple([row[2] for row in _WEIGHTS]),
}
"""By vendor of the model."""
TYPICAL = tuple([row[3] for row in _WEIGHTS])
UPPER = tuple([row[4] for row in _WEIGHTS])

Scale = tuple[tuple[bytes, int], ...]
"""What a character of each kind weighs."""

_SCALES: Mapping[str, Scale] = {
    vendor: tuple(zip(KINDS, weights, strict=True)) for vendor, weights in FAMILIES.items()
}
_EITHER: Scale = tuple(
    [(row[0], (row[1] + row[2]) // 2) for row in _WEIGHTS],
)
"""For families nobody measured: between those that somebody did."""

_UPPER_BITS = 48
_BODY: Scale = (
    (_LOWER + b" ", TYPICAL[0] | UPPER[0] << _UPPER_BITS),
    *[(row[0], row[3] | row[4] << _UPPER_BITS) for row in _WEIGHTS[2:]],
)
"""Both figures of a body in one, and its letters with its spaces, which weigh the same: a look at
all of a text costs as much as those at what is left of it."""


def _weighed(text: bytes, scale: Scale) -> int:
    """Every pass leaves less for the next; prose in ASCII has little but its first kinds."""
    left = text if text.isascii() else text.translate(None, _CONTINUED)
    length, total = len(left), 0
    for kind, each in scale:
        left = left.translate(None, kind)
        rest = len(left)
        total += (length - rest) * each
        if not rest:
            break
        length = rest
    return total


def weight(text: bytes, vendor: str) -> int:
    """What a text in UTF-8 weighs at the models of a vendor, in thousandths of a token."""
    return _weighed(text, _SCALES.get(vendor, _EITHER))


def whole_tokens(weighed: int) -> int:
    """As many tokens as so much weighs; a part of one is one."""
    return -(-weighed // WHOLE)


def estimate_text_tokens(text: bytes, vendor: str) -> int:
    """Tokens of a text in UTF-8 for the models of a vendor: none for nothing, else at least one."""
    return whole_tokens(weight(text, vendor))


def estimate_written_tokens(texts: Iterable[str | None], vendor: str = "") -> int:
    """Tokens of an answer that nobody counted: at least one, so never free."""
    return max(estimate_text_tokens("".join(filter(None, texts)).encode(), vendor), 1)


def without_escapes(body: bytes) -> bytes:
    """A body of JSON with its letters as they are.

    Some clients write all but ASCII in six characters, which weigh four times as much and which no
    model reads. What cannot be written otherwise stays as it is.
    """
    if b"\\u" not in body:
        return body
    try:
        return msgspec.json.encode(msgspec.json.decode(body))
    except (msgspec.DecodeError, RecursionError):
        return body


def estimate_input_tokens(
    body: bytes, images: int, documents: int, attached_bytes: int
) -> tuple[int, int]:
    """Tokens of a request body: about, and at most, whoever's model reads it.

    Of the body `attached_bytes` are inline images and documents. The bound holds for nearly every
    text; money is reserved by it.
    """
    attached = MARGIN_TOKENS
    if images:
        attached += images * IMAGE_TOKENS
    if documents:
        attached += documents * DOCUMENT_TOKENS + attached_bytes // DOCUMENT_BYTES_PER_TOKEN
    if attached_bytes:
        # No pass over megabytes: text beside attachments has at most as many tokens as bytes.
        length_bytes = len(body) - attached_bytes
        return length_bytes // BYTES_PER_TOKEN + attached, length_bytes + attached
    both = _weighed(without_escapes(body) if b"\\" in body else body, _BODY)
    most = both >> _UPPER_BITS
    about = both - (most << _UPPER_BITS)
    return whole_tokens(about) + attached, whole_tokens(most) + attached


def estimate_longest_tokens(texts: str | Sequence[str]) -> int:
    """About how many tokens the longest of several texts has; 0 for one, which is all there is."""
    if isinstance(texts, str) or len(texts) == 1:
        return 0
    return estimate_input_tokens(max(texts, key=len).encode(), 0, 0, 0)[0]
