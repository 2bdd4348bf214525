"""Rough token counts for admission and for answers that came without usage; never for prices."""

BYTES_PER_TOKEN = 4
"""The usual figure for English text; scripts with longer UTF-8 have fewer characters per token."""

MARGIN_TOKENS = 64
"""Templates and role markers that the body's own bytes do not show."""

IMAGE_TOKENS = 1600
"""About what a large image costs at today's managed models, however many bytes it has."""

DOCUMENT_TOKENS = 2000
DOCUMENT_BYTES_PER_TOKEN = 32
"""A PDF page of 2,000 tokens is some 50-100 KB of base64."""


def estimate_input_tokens(
    length_bytes: int, images: int, documents: int, attached_bytes: int
) -> int:
    """Tokens of a request body, of which `attached_bytes` are inline images and documents."""
    tokens = (length_bytes - attached_bytes) // BYTES_PER_TOKEN + MARGIN_TOKENS
    if images:
        tokens += images * IMAGE_TOKENS
    if documents:
        tokens += documents * DOCUMENT_TOKENS + attached_bytes // DOCUMENT_BYTES_PER_TOKEN
    return tokens


def estimate_output_tokens(length_bytes: int) -> int:
    """Tokens of an answer whose upstream sent no usage: at least one, so never free."""
    return max(-(-length_bytes // BYTES_PER_TOKEN), 1)
