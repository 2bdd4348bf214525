"""Reasons why a parked line got no answer from its vendor's batch API."""

from typing import Final

from gateway.errors import ClientGone, UpstreamFailed, UpstreamTimeout


LOST: Final = UpstreamTimeout("The vendor's batch ended without an answer to this line.")
UNENDED: Final = UpstreamTimeout("The vendor never ended its batch, and may charge for this line.")
UNREAD: Final = UpstreamTimeout(
    "The vendor's batch cannot be read, and it may charge for this line."
)
MAY_COST: Final = (UNENDED, UNREAD)
"""The vendor took such a line, and nobody knows what it did, so it may have cost something."""
UNWANTED: Final = ClientGone("The batch ended before the vendor came to this line.")
UNKNOWN: Final = UpstreamFailed("The vendor's batch API is not there any more.")
TWICE: Final = UpstreamFailed("The vendor was sent this line once more, and may charge for it.")
UNTAKEN: Final = UpstreamFailed("The vendor's batch API failed whenever it was handed this line.")
