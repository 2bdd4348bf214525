"""Pushes this worker's metrics to a collector of the settings; requests never wait for it.

Nothing is queued: points are cumulative, so what was not taken is in the next ones.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from gateway.clock import Clock
from gateway.metrics import Metrics
from gateway.oversight.metric_points import Model, Span, as_metrics, instruments_of
from gateway.telemetry import Event, logger


class Collector(Protocol):
    """Where metrics go."""

    async def post(self, body: bytes, about: str = "") -> bool:
        """Whether it was taken."""
        ...


class MetricsPush:
    """Call `perform` every period."""

    def __init__(
        self,
        collector: Collector,
        metrics: Metrics,
        models: Callable[[], Mapping[str, Model]],
        clock: Clock,
        worker: str,
    ) -> None:
        """`models` says what each target stands for now."""
        self._collector = collector
        self._metrics = metrics
        self._models = models
        self._clock = clock
        self._start_us = clock.utc_us()
        self._worker = worker
        self._is_taken = True
        self._log = logger()

    async def perform(self) -> None:
        """Post all once; who does not take it is named once, and once when it does again."""
        # Collected on the loop, where it is counted; written beside it.
        families = list(self._metrics.registry.collect())
        instruments = instruments_of(self._metrics.requests, self._models())
        span = Span(self._start_us, self._clock.utc_us(), self._worker)
        body = await asyncio.to_thread(as_metrics, families, instruments, span)
        was_taken, self._is_taken = self._is_taken, await self._collector.post(body)
        if was_taken and not self._is_taken:
            self._log.warning(Event.METRICS_NOT_TAKEN, worker=self._worker)
        elif self._is_taken and not was_taken:
            self._log.info(Event.METRICS_RECOVERED, worker=self._worker)
