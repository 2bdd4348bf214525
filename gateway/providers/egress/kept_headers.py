"""The response headers of upstreams that are kept; all others are dropped."""

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
"""The two vendors' headers on how many requests are left, and when limits reset."""

REQUEST_IDS = "request-id"
"""The name under which all of those below are kept, joined."""

REQUEST_ID_HEADERS = (
    "request-id",  # Anthropic, also at Google's cloud
    "x-request-id",  # OpenAI, Azure, most servers that are compatible, Gatewright
    "apim-request-id",  # Azure's own logs
    "x-amzn-requestid",  # Bedrock
    "x-litellm-call-id",  # LiteLLM
)
"""Headers with an upstream's own id of a request."""

KEPT_HEADERS = dict.fromkeys(map(str.encode, REQUEST_ID_HEADERS), REQUEST_IDS) | {
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
"""By their names on the wire."""
