"""Computes a step at once, or in the background while the next one is planned.

A GPU takes launched steps from its own queue. On a CPU a thread takes one step after another, so
whatever a step writes is there for the next one. The tokens of a step that is still running are
placeholders in the plan of the next; the runner fills them in. The tokens are the same with and
without planning ahead.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Never, Protocol

from local_engine.runner.choosing import Result
from local_engine.runner.model_runner import ModelRunner, Prepared


@dataclass(frozen=True, slots=True)
class Computed:
    """A step's results, and how long the device worked on them."""

    results: dict[str, Result]
    took_s: float


class Lane(Protocol):
    """Takes prepared steps in order; `is_ahead` says whether planning goes on meanwhile."""

    is_ahead: bool

    def start(self, prepared: Prepared) -> Callable[[], Computed]:
        """Returns a function that gives the results; it raises what computing raised."""

    def close(self) -> None: ...


def choose_lane(runner: ModelRunner, *, is_ahead: bool) -> Lane:
    """A GPU works asynchronously by itself; a CPU needs a thread for that."""
    if is_ahead and runner.timeline.works_on:
        return DeviceLane(runner)
    return HostLane(partial(_compute, runner), runner.clock_s, is_ahead=is_ahead)


class DeviceLane:
    """Steps wait in a GPU's own queue: each begins when the previous one has ended."""

    is_ahead = True

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner

    def start(self, prepared: Prepared) -> Callable[[], Computed]:
        try:
            launched = self._runner.launch(prepared)
        except Exception as error:  # noqa: BLE001 - told to whoever asks for the results
            return partial(_raise, error)
        return lambda: Computed(self._runner.collect(launched), launched.took_s)

    def close(self) -> None:
        # There is nothing to wait for on a device that is lost.
        with suppress(RuntimeError):
            self._runner.timeline.catch_up()


class HostLane:
    """Steps are computed when their results are asked for, or by a thread of their own."""

    def __init__(
        self,
        compute: Callable[[Prepared], dict[str, Result]],
        clock_s: Callable[[], float],
        *,
        is_ahead: bool,
    ) -> None:
        self.is_ahead = is_ahead
        self._clock_s = clock_s
        self._compute = compute
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="steps") if is_ahead else None

    def start(self, prepared: Prepared) -> Callable[[], Computed]:
        work = partial(self._timed, prepared)
        return work if self._thread is None else self._thread.submit(work).result

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def _timed(self, prepared: Prepared) -> Computed:
        started = self._clock_s()
        results = self._compute(prepared)
        return Computed(results, self._clock_s() - started)


def _compute(runner: ModelRunner, prepared: Prepared) -> dict[str, Result]:
    return runner.compute(prepared)


def _raise(error: Exception) -> Never:
    raise error
