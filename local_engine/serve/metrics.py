"""Counters of the engine process in Prometheus text form."""

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest


class Metrics:
    """Own registry, so that several engines in one process (tests) do not collide."""

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
        self._waiting = Gauge(
            "gatewright_engine_num_requests_waiting", "Queue length.", registry=self._registry
        )
        self._running = Gauge(
            "gatewright_engine_num_requests_running", "Running now.", registry=self._registry
        )

    def count_sequence(
        self, finish_reason: str, num_prompt_tokens: int, num_output_tokens: int
    ) -> None:
        self._sequences.labels(finish_reason).inc()
        self._prompt_tokens.inc(num_prompt_tokens)
        self._generation_tokens.inc(num_output_tokens)

    def count_refusal(self, code: str) -> None:
        self._refused.labels(code).inc()

    def render(self, num_waiting: int, num_running: int) -> bytes:
        self._waiting.set(num_waiting)
        self._running.set(num_running)
        return generate_latest(self._registry)
