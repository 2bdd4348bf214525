"""Which of an upstream's headers are looked at: of all others nothing is kept."""

RATE_LIMIT_HEADERS = frozenset(
    {
        *(
            f"x-ratelimit-{what}-{of}"
            for what in ("limit", "remaining", "reset")
            for of in ("requests", "tokens")
        ),
        *(
            f"anthropic-ratelimit-{of}-{what}"
            for what in ("limit", "remaining", "reset")
            for of in ("requests", "tokens", "input-tokens", "output-tokens")
        ),
    }
)
"""What the two vendors say of how much may still be asked, and from when."""

KEPT_HEADERS = {
    name.encode(): name
    for name in (
        *RATE_LIMIT_HEADERS,
        "content-encoding",
        "content-length",
        "content-type",
        "date",
        "retry-after",
        "retry-after-ms",
        "transfer-encoding",
    )
}
"""By what they are called on the wire."""
