"""The protocol version and the beta features that a caller requests by header.

Only the features listed here are passed on: a beta feature may hold state at the vendor, reach
other hosts or run code, and none of that is inspected.
"""

from collections.abc import Iterable

from msgspec import Struct


VERSIONS = frozenset({"2023-06-01", "2026-10-21"})

PASSED_ON = frozenset(
    {
        "advanced-tool-use-2025-11-20",
        "claude-code-20250219",
        "context-1m-2025-08-07",
        "context-management-2025-06-27",
        "effort-2025-11-24",
        "extended-cache-ttl-2025-04-11",
        "interleaved-thinking-2025-05-14",
        "fine-grained-tool-streaming-2025-05-14",
        "mid-conversation-system-2026-04-07",
        "mid-conversation-system-clear-at-2026-08-21",
        "model-context-window-exceeded-2025-08-26",
        "output-128k-2025-02-19",
        "output-300k-2026-03-24",
        "pdfs-2024-09-25",
        "prompt-caching-2024-07-31",
        "redact-thinking-2026-02-12",
        "structured-outputs-2025-11-13",
        "structured-outputs-2025-12-15",
        "task-budgets-2026-03-13",
        "thinking-binding-controls-2026-08-01",
        "thinking-token-count-2026-05-13",
        "token-counting-2024-11-01",
        "token-efficient-tools-2025-02-19",
        "tool-search-tool-2025-10-19",
    }
)
"""Features that only change how a model reads and writes, within one request.

Not among them: prefixes cached beyond an organisation, summaries and advice that are billed beside
a message's own usage, other models to fall back to.
"""

ASKED_BY_FIELDS = frozenset(
    {
        *("effort-2025-11-24", "structured-outputs-2025-11-13", "structured-outputs-2025-12-15"),
        "thinking-binding-controls-2026-08-01",
    }
)
"""Of these what only lets a field be said, which crosses or is reported by its own name."""

KEPT_HERE = ("fallbacks", "fallback_credit_token", "diagnostics")
"""Fields of features that never go on: an upstream without the feature refuses them."""


class Asked(Struct, frozen=True):
    """What of the headers goes on, and what stays here."""

    version: str = ""
    betas: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


_NOTHING = Asked()


def read_headers(headers: Iterable[tuple[bytes, bytes]]) -> Asked:
    """Version and betas of a request; unknown ones are left out and reported."""
    version = ""
    betas: list[str] = []
    for name, value in headers:
        if name == b"anthropic-version":
            version = value.decode("latin-1").strip()
        elif name == b"anthropic-beta":
            betas += (word.strip() for word in value.decode("latin-1").split(","))
    if not version and not betas:
        return _NOTHING
    passed = tuple(dict.fromkeys(word for word in betas if word in PASSED_ON))
    is_left_out = any(word and word not in PASSED_ON for word in betas)
    return Asked(
        version if version in VERSIONS else "",
        passed,
        ("anthropic-beta",) if is_left_out else (),
    )
