"""Body fields that give orders to an upstream, which callers may not set.

Upstream servers accept far more than the vendors' own fields, and most pass on what they do not
know. A field that would make them connect, load or run something, ask another model, or continue
from somebody else's state is refused in every dialect, whichever target the request would reach.
"""

from collections.abc import Mapping
from typing import Final

from gateway.dialects.loss import unsupported
from gateway.errors import FeatureUnsupported


_PLACE: Final = "A request cannot name a place for an upstream to connect to, nor a credential"
_OTHERS: Final = "A request cannot name who answers in a model's place: policy says which may"
_BESIDE: Final = "A request cannot have an upstream search or read beside the model"
_CODE: Final = "A request brings no template and no code for an upstream to run"
_UNREAD: Final = "Send text; numbers in the place of text cannot be inspected"
_HELD: Final = "A request cannot name what an upstream holds; it might be somebody else's"

_REASONS: Final[Mapping[str, str]] = {
    "data_sources": "A request cannot name a place for an upstream to search",
    "kv_transfer_params": "A request cannot name a place for an upstream to read its cache from",
    "mcp_servers": "A request cannot name servers for an upstream to call",
    # LiteLLM's, and fields that SGLang's replicas send each other.
    **dict.fromkeys(("api_base", "base_url", "api_key", "user_config"), _PLACE),
    **dict.fromkeys(("litellm_params", "extra_body", "extra_headers"), _PLACE),
    **dict.fromkeys(("bootstrap_host", "bootstrap_port", "bootstrap_room"), _PLACE),
    **dict.fromkeys(("data_parallel_rank", "routed_dp_rank", "disagg_prefill_dp_rank"), _PLACE),
    # OpenRouter's and LiteLLM's; adapters of SGLang, LoRAX and llama.cpp also count as models.
    **dict.fromkeys(("models", "fallbacks", "provider", "route", "preset"), _OTHERS),
    **dict.fromkeys(("model_list", "custom_llm_provider", "context_window_fallbacks"), _OTHERS),
    **dict.fromkeys(("lora_path", "lora", "adapter_id", "adapter_source"), _OTHERS),
    # Run at a third party, at a price that no answer states: OpenRouter's, xAI's, Alibaba's.
    **dict.fromkeys(("plugins", "search_parameters", "enable_search"), _BESIDE),
    # A template rewrites inspected text; processors are given by name, or as code.
    **dict.fromkeys(("chat_template", "custom_logit_processor", "logits_processors"), _CODE),
    # SGLang takes these instead of the messages beside them.
    **dict.fromkeys(("input_ids", "input_embeds", "prompt_token_ids", "prompt_embeds"), _UNREAD),
    **dict.fromkeys(("session_params", "rid", "ngram_corpus_id", "cached_content"), _HELD),
}

_OF_TEMPLATES: Final = frozenset(
    {
        *("chat_template", "conversation", "messages", "tokenize", "tokenizer_kwargs"),
        *("return_dict", "return_tensors"),
    }
)
"""Variables of the renderer itself; all others are a template's own."""

_WITHIN: Final[Mapping[str, frozenset[str]]] = {
    "chat_template_kwargs": _OF_TEMPLATES,
    "chat_template_args": _OF_TEMPLATES,
    "vllm_xargs": frozenset({"kv_transfer_params", "ec_transfer_params"}),
}
"""Objects that are passed on as arguments, and the names in them that would give such orders."""

NAMES: Final = frozenset({*_REASONS, *_WITHIN})
_OF_PARTS: Final = ("uuid", "content_hash")


def check_not_reserved(tree: Mapping[str, object], *, but: frozenset[str] = frozenset()) -> None:
    """Refuse a body with such a field; `but` are those that its own dialect handles.

    Raises:
        FeatureUnsupported: with the field's name.
    """
    if NAMES.isdisjoint(tree):
        return
    for name, value in tree.items():
        if value is None or value is False or name in but:
            continue
        if name in _REASONS:
            raise _refusal(name, _REASONS[name])
        if name in _WITHIN and isinstance(value, dict):
            _check_within(name, value)


def _check_within(name: str, arguments: Mapping[str, object]) -> None:
    reason = _CODE if _WITHIN[name] is _OF_TEMPLATES else _PLACE
    for inner, value in arguments.items():
        if inner in _WITHIN[name] and value is not None:
            raise _refusal(f"{name}.{inner}", reason)


def check_part(part: Mapping[str, object], place: str) -> None:
    """Refuse a part that names itself for an upstream's storage (vLLM, SGLang).

    If somebody else used that name before, the upstream would take their part.

    Raises:
        FeatureUnsupported: with the place in the part.
    """
    for name, value in part.items():
        if name in _OF_PARTS and value is not None:
            raise _refusal(f"{place}.{name}", _HELD)
        if isinstance(value, dict):
            check_part(value, f"{place}.{name}")


def _refusal(place: str, reason: str) -> FeatureUnsupported:
    return unsupported(place, reason, 56)
