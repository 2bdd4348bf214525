"""Measures how late this worker's event loop is: whatever delays it delays every request."""

import asyncio
from collections.abc import Iterable

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.durations import Durations, family


LOOK_S = 0.25
BOUNDS_S = (0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 5)


class LoopLag(Collector):
    """Asks to be called four times a second, and measures how much later that happens."""

    def __init__(self) -> None:
        self._lags = Durations(BOUNDS_S)

    async def watch(self) -> None:
        """Never returns; to be cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + LOOK_S
            await asyncio.sleep(LOOK_S)
            self._lags.add(max(0, round((loop.time() - due_s) * 1e6)))

    def collect(self) -> Iterable[Metric]:
        text = "By how much the event loop came later than it was asked to."
        yield family("gatewright_loop_lag_seconds", text, (), [((), self._lags)])
