"""The engine process's counters, in Prometheus text form."""

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from local_engine.serve.wire import Stats


_GAUGES = {
    "num_requests_waiting": "Queue length.",
    "num_requests_running": "Running now.",
    "kv_cache_usage_ratio": "Blocks in use, as a share of all.",
    "kv_blocks": "Blocks of keys and values in all.",
    "preemptions": "How often a sequence had to start over, since the worker started.",
    "steps": "Steps since the worker started.",
    "prefix_cache_query_tokens": "Prompt tokens looked up, since the worker started.",
    "prefix_cache_hit_tokens": "Prompt tokens found there, since the worker started.",
    "draft_tokens": "Tokens guessed by speculation, since the worker started.",
    "accepted_draft_tokens": "Guesses that were right, since the worker started.",
    "weight_bytes": "Weights as they were loaded, before any are kept in fewer bits.",
    "kv_block_tokens": "Tokens in a block of keys and values.",
    "kv_bytes": "The pool of keys and values.",
    "kv_used_bytes": "Of it, in blocks that sequences hold.",
    "kv_token_bytes": "Keys and values of one token.",
    "kv_tokens": "Tokens that fit into the pool.",
    "kv_host_bytes": "Space on the host for blocks that were put out of the pool.",
    "kv_host_used_bytes": "Of it, taken.",
    "longest_context_tokens": "The longest sequence that the pool can hold.",
    "device_bytes": "Memory of the device in all; on a CPU, what the worker may hold.",
    "device_free_bytes": "Of it, free; on a CPU, what the worker does not hold yet.",
}


# Seconds: from a short prompt on an idle GPU to a queue that nobody should wait in.
_FIRST_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_EACH_S = (0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0)


class Counts:
    """What is counted of requests for as long as the process lives, whichever worker answers them.

    Own registries, here and below, so that several engines in one process (tests) do not collide.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._sequences = Counter(
            "gatewright_engine_requests",
            "Sequences that ended, by finish reason.",
            ["finish_reason"],
            registry=self._registry,
        )
        self._refused = Counter(
            "gatewright_engine_requests_refused",
            "Requests refused before they were queued, by error code.",
            ["code"],
            registry=self._registry,
        )
        self._prompt_tokens = Counter(
            "gatewright_engine_prompt_tokens", "Prompt tokens read.", registry=self._registry
        )
        self._generation_tokens = Counter(
            "gatewright_engine_generation_tokens", "Tokens written.", registry=self._registry
        )
        self._first_token = Histogram(
            "gatewright_engine_time_to_first_token_seconds",
            "From a sequence's hand-over to its first token.",
            registry=self._registry,
            buckets=_FIRST_S,
        )
        self._each_token = Histogram(
            "gatewright_engine_time_per_output_token_seconds",
            "Between tokens behind the first: the mean of each sequence.",
            registry=self._registry,
            buckets=_EACH_S,
        )

    def count_sequence(
        self, finish_reason: str, num_prompt_tokens: int, num_output_tokens: int
    ) -> None:
        self._sequences.labels(finish_reason).inc()
        self._prompt_tokens.inc(num_prompt_tokens)
        self._generation_tokens.inc(num_output_tokens)

    def time_first_token(self, seconds: float) -> None:
        self._first_token.observe(seconds)

    def time_each_token(self, seconds: float) -> None:
        """Once for a sequence, its mean: a step of hundreds of tokens has no time for each."""
        self._each_token.observe(seconds)

    def count_refusal(self, code: str) -> None:
        self._refused.labels(code).inc()

    def render(self) -> bytes:
        return generate_latest(self._registry)


class Metrics:
    """Where a worker stands, and what was counted."""

    def __init__(self, memory: Mapping[str, int], counts: Counts | None = None) -> None:
        """`memory` is the arithmetic of the start, by the fields of `KvBudget`."""
        self.counts = counts or Counts()
        self._memory = memory
        self._registry = CollectorRegistry()
        self._gauges = {
            name: Gauge(f"gatewright_engine_{name}", text, registry=self._registry)
            for name, text in _GAUGES.items()
        }

    def render(self, stats: Stats) -> bytes:
        used = stats.num_blocks - stats.num_free_blocks
        values = {
            "num_requests_waiting": stats.num_waiting,
            "num_requests_running": stats.num_running,
            "kv_cache_usage_ratio": used / stats.num_blocks if stats.num_blocks else 0.0,
            "kv_blocks": stats.num_blocks,
            "preemptions": stats.num_preemptions,
            "steps": stats.num_steps,
            "prefix_cache_query_tokens": stats.prompt_tokens,
            "prefix_cache_hit_tokens": stats.cached_tokens,
            "draft_tokens": stats.draft_tokens,
            "accepted_draft_tokens": stats.accepted_tokens,
            **self._bytes(stats, used),
        }
        for name, value in values.items():
            self._gauges[name].set(value)
        return generate_latest(self._registry) + self.counts.render()

    def _bytes(self, stats: Stats, num_used: int) -> dict[str, float]:
        """Where memory is: by the arithmetic of the start, and by what is taken now."""
        planned = self._memory
        token_bytes, block_tokens = planned["kv_bytes_per_token"], planned["block_size"]
        block_bytes = token_bytes * block_tokens
        return {
            "weight_bytes": planned["weight_bytes"],
            "kv_block_tokens": block_tokens,
            "kv_bytes": planned["num_blocks"] * block_bytes,
            "kv_used_bytes": num_used * block_bytes,
            "kv_token_bytes": token_bytes,
            "kv_tokens": planned["num_blocks"] * block_tokens,
            "kv_host_bytes": planned["num_host_blocks"] * block_bytes,
            "kv_host_used_bytes": stats.num_host_blocks_used * block_bytes,
            "longest_context_tokens": planned["longest_context_tokens"],
            "device_bytes": stats.device_bytes,
            "device_free_bytes": stats.device_free_bytes,
        }


class ConnectionMetrics:
    """What is counted of the listener's connections, whether or not a worker is there."""

    def __init__(self, number: Callable[[], int], most: int) -> None:
        self._registry = CollectorRegistry()
        Gauge(
            "gatewright_engine_connections", "Connections now.", registry=self._registry
        ).set_function(number)
        Gauge(
            "gatewright_engine_connections_max", "Connections at once.", registry=self._registry
        ).set(most)
        self._ended = Counter(
            "gatewright_engine_connections_ended",
            "Connections that were ended for being too slow, or for others to have room.",
            ["reason"],
            registry=self._registry,
        )

    def count_end(self, reason: str) -> None:
        self._ended.labels(reason).inc()

    def render(self) -> bytes:
        return generate_latest(self._registry)


class CertificateMetrics:
    """What is counted of the listener's certificate, whether or not a worker is there."""

    def __init__(self, left_s: Callable[[], float]) -> None:
        self._registry = CollectorRegistry()
        Gauge(
            "gatewright_engine_certificate_seconds_left",
            "Until the certificate that the listener shows ends, below 0 when it has.",
            registry=self._registry,
        ).set_function(left_s)

    def render(self) -> bytes:
        return generate_latest(self._registry)
