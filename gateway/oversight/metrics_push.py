"""Pushes this worker's metrics to a collector named in the settings; requests never wait for it.

Nothing is queued: points are cumulative, so the next push includes what the collector did not take.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from gateway.clock import Clock
from gateway.metrics import Metrics
from gateway.oversight.metric_points import Model, Span, as_metrics, instruments_of
from gateway.oversight.otlp_resource import Source
from gateway.telemetry import Event, logger


WAIT_S_MAX = 900.0
"""No collector keeps a worker silent for longer, whatever it asks for."""


class Collector(Protocol):
    """Where metrics are sent."""

    @property
    def problem(self) -> str:
        """Why the last metrics were not accepted, without an address."""
        ...

    @property
    def retry_after_s(self) -> float | None:
        """The pause that it then asked for."""
        ...

    async def post(self, body: bytes, about: str = "") -> bool:
        """Whether it was accepted."""
        ...


class MetricsPush:
    """Call `perform` every period."""

    def __init__(
        self,
        collector: Collector,
        metrics: Metrics,
        models: Callable[[], Mapping[str, Model]],
        clock: Clock,
        source: Source,
    ) -> None:
        """`models` returns each target's current model; `source` says whose metrics these are."""
        self._collector = collector
        self._metrics = metrics
        self._models = models
        self._clock = clock
        self._start_us = clock.utc_us()
        self._source = source
        self._is_taken = True
        self._silent_until_s = float("-inf")
        self._log = logger()

    async def conclude(self) -> None:
        """Send the last counts; not to a collector that did not accept the previous ones."""
        if self._is_taken:
            await self.perform()

    async def perform(self) -> None:
        """Post all metrics once; log once when they are refused, and once when accepted again."""
        if self._clock.monotonic_s() < self._silent_until_s:
            return
        # Collected on the loop, where the counting happens; encoded off it.
        families = list(self._metrics.registry.collect())
        instruments = instruments_of(self._metrics.requests, self._models())
        # A clock that was set back gives a time before the start, which no collector accepts.
        span = Span(self._start_us, max(self._start_us, self._clock.utc_us()), self._source)
        body = await asyncio.to_thread(as_metrics, families, instruments, span)
        was_taken, self._is_taken = self._is_taken, await self._collector.post(body)
        wait_s = min(self._collector.retry_after_s or 0.0, WAIT_S_MAX)
        self._silent_until_s = self._clock.monotonic_s() + wait_s
        worker = self._source.worker
        if was_taken and not self._is_taken:
            reason = self._collector.problem
            self._log.warning(Event.METRICS_NOT_TAKEN, worker=worker, reason=reason)
        elif self._is_taken and not was_taken:
            self._log.info(Event.METRICS_RECOVERED, worker=worker)
