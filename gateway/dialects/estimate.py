"""Token counts without a vocabulary, by the kinds of characters of a text; never for prices.

Where a text goes to is known to its upstream alone, and its count is the truth. These figures
reserve money, answer requests for counts, and stand in, flagged, where an upstream counts nothing.
"""

import math
from collections.abc import Mapping
from operator import mul


BYTES_PER_TOKEN = 4
"""The usual figure for English text; scripts with longer UTF-8 have fewer characters per token."""

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

_CAPITALS = bytes(range(65, 91))
_LETTERS = _CAPITALS + bytes(range(97, 123))
_DIGITS = b"0123456789"
_BREAKS = b"\n\t\r"
_MARKS = bytes(b for b in range(33, 127) if b not in _LETTERS + _DIGITS)
KINDS = (
    _LETTERS,
    _DIGITS,
    b" ",
    _BREAKS,
    _MARKS,
    bytes(range(0xC2, 0xCE)),  # Latin letters with marks
    bytes(range(0xCE, 0xE0)),  # Greek, Cyrillic, Hebrew, Arabic
    b"\xe0",  # Indic scripts, Thai
    bytes(range(0xE1, 0xF0)),  # Chinese, Japanese, Korean, and most other scripts
    bytes(range(0xF0, 0xF8)),  # emoji
    _CAPITALS,
)
"""Bytes that begin a character of each kind; capitals count once more, on top of letters."""

FAMILIES: Mapping[str, tuple[float, ...]] = {
    "openai": (0.176, 0.754, 0.363, 0, 0.629, 1.32, 0.263, 0.303, 0.943, 2.5, 0.0786),
    "anthropic": (0.249, 0.463, 0.188, 0, 0.563, 2.6, 0.585, 1.3, 1.27, 2.8, 0.214),
}
"""Tokens per character of each kind, by vendor of the model.

Made by `python -m benchmarks.fit_estimates`: least squares of the relative error to the published
vocabularies (o200k for OpenAI, the one that Anthropic gave out for its older models) over 1,290
texts: English, Chinese, Hindi, German, Spanish, Dutch, Polish, Russian, code, JSON, Markdown. On
598 other texts the median error is 9 % for both, 95 % lie within 31 % (OpenAI) and 30 %
(Anthropic); four bytes per token: 21 % and 24 %, 97 % and 47 %. Newer vocabularies differ;
`Calibration` learns by how much.
"""

TYPICAL = (0.186, 0.459, 1.53, 0.361, 0.844, 2.64)
"""Tokens per byte or character of each sort of `shape`, whoever's model reads it: fitted likewise
to the mean of both vocabularies. Median error 11 %, 95 % within 30 %."""

UPPER = (0.335, 0.775, 3.32, 0.723, 1.72, 4)
"""As many as a text has at most in either vocabulary: fitted with errors below the count weighing a
hundred times as much, then raised until 99.9 % of the texts are covered. Of the other texts it
covers 99.7 %, with 1.5 times the true count in the median and 2.0 times in the 95th percentile.
Four bytes per token cover 12 %. The weights of emoji are their mean over 1,800 of Unicode's, for
the texts hold too few; the bound is one token for each of their bytes, and no emoji has more."""

_DEAR = UPPER[1]

_DEFAULT = "anthropic"
"""For families nobody measured: of the two the one that counts more."""


_PLAIN = _LETTERS + b" "
_ASCII = bytes(range(128))
_CONTINUED = bytes(range(128, 192))
_NOT_MARKED = bytes(set(range(256)) - set(range(0xC2, 0xCE)))
_NOT_PAIRS = bytes(set(range(256)) - set(range(0xCE, 0xE0)))
_NOT_QUADS = bytes(set(range(256)) - set(range(0xF0, 0xF8)))


def shape(body: bytes) -> tuple[int, ...]:
    """How many of each sort there are.

    Letters and spaces, other ASCII, Latin letters with marks, other characters of two bytes, those
    of three, those of four.
    One pass for bodies in ASCII, which is most of them; for the others one, and five more over what
    begins a character.
    """
    if body.isascii():
        others = len(body.translate(None, _PLAIN))
        return len(body) - others, others, 0, 0, 0, 0
    leads = body.translate(None, _CONTINUED)
    beyond = leads.translate(None, _ASCII)
    plain = len(leads) - len(leads.translate(None, _PLAIN))
    marked = len(beyond.translate(None, _NOT_MARKED))
    pairs = len(beyond.translate(None, _NOT_PAIRS))
    quads = len(beyond.translate(None, _NOT_QUADS))
    triples = len(beyond) - marked - pairs - quads
    return plain, len(leads) - len(beyond) - plain, marked, pairs, triples, quads


def estimate_text_tokens(text: bytes, family: str) -> int:
    """Tokens of a text in UTF-8 for the models of a vendor."""
    weights = FAMILIES.get(family) or FAMILIES[_DEFAULT]
    length = len(text)
    counts = (length - len(text.translate(None, kind)) for kind in KINDS)
    total: float = sum(map(mul, counts, weights))
    return round(total)


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
        # No pass over megabytes: text beside attachments counts as of the dearer sort of ASCII.
        length_bytes = len(body) - attached_bytes
        return length_bytes // BYTES_PER_TOKEN + attached, math.ceil(
            length_bytes * _DEAR
        ) + attached
    if body.isascii():
        others = len(body.translate(None, _PLAIN))
        plain = len(body) - others
        about = plain * TYPICAL[0] + others * TYPICAL[1]
        most = plain * UPPER[0] + others * UPPER[1]
        return math.ceil(about) + attached, math.ceil(most) + attached
    counts = shape(body)
    about, most = sum(map(mul, counts, TYPICAL)), sum(map(mul, counts, UPPER))
    return math.ceil(about) + attached, math.ceil(most) + attached


def estimate_output_tokens(length_bytes: int) -> int:
    """Tokens of an answer whose upstream sent no usage: at least one, so never free."""
    return max(-(-length_bytes // BYTES_PER_TOKEN), 1)
