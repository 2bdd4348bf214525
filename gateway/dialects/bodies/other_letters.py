"""Refuses field names in other letter cases, which some readers take for the field itself.

One such reader is Go's `encoding/json`, in which many compatible servers and proxies are written:
of `model` and `Model` it takes whichever comes last, and it takes `N` for `n`. A field by which the
gateway decides must not mean something else to an upstream.
"""

from collections.abc import Collection
from typing import Final

from gateway.dialects.bodies.reserved import NAMES
from gateway.errors import RequestInvalid


WORDS: Final = frozenset(
    {
        *("model", "models", "provider", "messages", "input", "prompt", "suffix", "system"),
        *("instructions", "previous_response_id", "conversation", "store", "background"),
        *("stream", "stream_options", "n", "best_of", "echo", "truncation", "include"),
        *("max_tokens", "max_completion_tokens", "max_output_tokens", "max_tokens_to_sample"),
        *("max_tool_calls", "tools", "tool_choice", "parallel_tool_calls", "functions"),
        *("function_call", "web_search_options", "mcp_servers", "container", "data_sources"),
        *("kv_transfer_params", "context_management", "service_tier", "speed", "thinking"),
        *("reasoning", "reasoning_effort", "output_config", "output_format"),
        *(
            "response_format",
            "text",
            "modalities",
            "audio",
            "prediction",
            "user",
            "safety_identifier",
            "metadata",
        ),
        *("prompt_cache_key", "dimensions", "encoding_format"),
        *NAMES,
    }
)
"""Fields by which a request is judged, routed, reserved or recorded, in any dialect."""


def check_letters(names: Collection[str]) -> None:
    """Refuse a body with one of its own fields in such a spelling.

    Raises:
        RequestInvalid: with the name in its correct spelling.
    """
    together = "".join(names)
    if together.islower() and together.isascii():
        return
    for name in names:
        if not (name.islower() and name.isascii()):
            # U+017F is a small letter too, and another form of the S.
            word = name.casefold()
            if word in WORDS and word != name:
                reason = "Some readers take a name in other letters for this field; write it so"
                raise RequestInvalid(f"{word}: {reason}.", parameter=word)
