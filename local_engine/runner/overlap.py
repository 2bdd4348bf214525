"""Where steps are computed: at once, or on a thread of their own while the next one is planned.

The thread takes one step after another, so whatever a step writes is there for the next one. The
tokens of a step that is still computed are placeholders in the plan of the next; the runner fills
them in. With or without the thread the same tokens come out.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from local_engine.runner.model_runner import Prepared, Result


@dataclass(frozen=True, slots=True)
class Computed:
    """A step's results, and how long the device worked on them."""

    results: dict[str, Result]
    took_s: float


class Lane:
    """Takes prepared steps in order; `is_ahead` says whether planning goes on meanwhile."""

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
        """What returned is called for the results; it raises what computing raised."""
        work = partial(self._timed, prepared)
        return work if self._thread is None else self._thread.submit(work).result

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def _timed(self, prepared: Prepared) -> Computed:
        started = self._clock_s()
        results = self._compute(prepared)
        return Computed(results, self._clock_s() - started)
