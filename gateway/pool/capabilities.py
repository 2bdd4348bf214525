"""Features and metric names of each kind of engine: one record each, no code per engine.

Metric names are those of the Gateway API inference extension (docs/proposals/003) and of the
engines' own documents. An engine without a metric for its queue is judged by our own counts alone.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct


class Capability(Struct, frozen=True):
    """One kind of engine.

    Metric names are Prometheus families, one label of them (`family{label="value"}`), or the number
    that is a label's value (`family{label}`).
    """

    waiting_metric: str = ""
    running_metric: str = ""
    cache_use_metric: str = ""
    """Share of the KV cache in use, 0 to 1."""
    blocks_metric: str = ""
    """All blocks of the KV cache."""
    memory_metrics: Mapping[str, str] = {}
    """Fields of `gateway.oversight.workers.EngineMemory`, each with its metric."""
    prefix_query_metric: str = ""
    """Tokens looked up in the prefix cache, counted since the start, like those below."""
    prefix_hit_metric: str = ""
    read_metric: str = ""
    generated_metric: str = ""
    preemptions_metric: str = ""
    metrics_path: str = "/metrics"
    health_path: str = "/health"
    caller_headers: bool = False
    """Reads tenant, data class and service tier from our headers."""
    events: bool = False
    """Publishes the contents of its prefix cache, and reports a conversation's tokens."""
    exact: bool = False
    """Reports its prefix cache on a listener of its own, and a conversation's hashes there."""
    cache_salt: bool = False
    """Isolates prefixes per tenant when the request carries a salt."""
    priority: bool = False
    """Takes a priority with the request."""
    bare_text: bool = False
    """Continues the prompt of a text completion unchanged, without a template around it."""


ENGINES: Final[Mapping[str, Capability]] = {
    "gatewright": Capability(
        waiting_metric="gatewright_engine_num_requests_waiting",
        running_metric="gatewright_engine_num_requests_running",
        cache_use_metric="gatewright_engine_kv_cache_usage_ratio",
        blocks_metric="gatewright_engine_kv_blocks",
        memory_metrics={
            "weight_bytes": "gatewright_engine_weight_bytes",
            "kv_bytes": "gatewright_engine_kv_bytes",
            "kv_used_bytes": "gatewright_engine_kv_used_bytes",
            "kv_block_tokens": "gatewright_engine_kv_block_tokens",
            "kv_token_bytes": "gatewright_engine_kv_token_bytes",
            "kv_tokens": "gatewright_engine_kv_tokens",
            "host_bytes": "gatewright_engine_kv_host_bytes",
            "host_used_bytes": "gatewright_engine_kv_host_used_bytes",
            "longest_context_tokens": "gatewright_engine_longest_context_tokens",
            "device_bytes": "gatewright_engine_device_bytes",
            "device_free_bytes": "gatewright_engine_device_free_bytes",
        },
        prefix_query_metric="gatewright_engine_prefix_cache_query_tokens",
        prefix_hit_metric="gatewright_engine_prefix_cache_hit_tokens",
        read_metric="gatewright_engine_prompt_tokens_total",
        generated_metric="gatewright_engine_generation_tokens_total",
        preemptions_metric="gatewright_engine_preemptions",
        health_path="/health/ready",
        caller_headers=True,
        exact=True,
        cache_salt=True,
        priority=True,
        bare_text=True,
    ),
    "vllm": Capability(
        waiting_metric="vllm:num_requests_waiting",
        running_metric="vllm:num_requests_running",
        cache_use_metric="vllm:kv_cache_usage_perc",
        blocks_metric="vllm:cache_config_info{num_gpu_blocks}",
        memory_metrics={"kv_block_tokens": "vllm:cache_config_info{block_size}"},
        prefix_query_metric="vllm:prefix_cache_queries_total",
        prefix_hit_metric="vllm:prefix_cache_hits_total",
        read_metric="vllm:prompt_tokens_total",
        generated_metric="vllm:generation_tokens_total",
        preemptions_metric="vllm:num_preemptions_total",
        events=True,
        cache_salt=True,
        priority=True,
        bare_text=True,
    ),
    "sglang": Capability(
        waiting_metric="sglang:num_queue_reqs",
        running_metric="sglang:num_running_reqs",
        cache_use_metric="sglang:token_usage",
        memory_metrics={"kv_tokens": "sglang:max_total_num_tokens"},
        read_metric="sglang:prompt_tokens_total",
        generated_metric="sglang:generation_tokens_total",
        cache_salt=True,
        bare_text=True,
    ),
    "tensorrt-llm": Capability(
        waiting_metric="trtllm_num_requests_waiting",
        running_metric="trtllm_num_requests_running",
        cache_use_metric="trtllm_kv_cache_utilization",
        metrics_path="/prometheus/metrics",
    ),
    "triton": Capability(
        waiting_metric='nv_trt_llm_request_metrics{request_type="waiting"}',
        health_path="/v2/health/ready",
    ),
    "lmdeploy": Capability(),
    "ollama": Capability(metrics_path="", health_path="/api/version"),
}
