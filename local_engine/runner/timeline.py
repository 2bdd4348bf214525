"""Step times and chosen tokens: what a runner needs of a device besides arithmetic.

A CPU has finished when the call returns. A GPU works on by itself: time marks are of its own clock,
and tokens arrive later. A test can replace it with its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch


class Mark(Protocol):
    """A moment in a device's own time."""

    def seconds_to(self, later: "Mark") -> float:
        """How long the device worked in between; waits until it has reached `later`."""


class Timeline(Protocol):
    """Chosen once for the device."""

    works_on: bool
    """Whether a call returns before the device has done the work."""

    def mark(self) -> Mark | None:
        """The present moment on the device's clock; None if it works on the caller's."""

    def sending(self, parts: list[torch.Tensor]) -> Callable[[], list[torch.Tensor]]:
        """Start copying what was chosen to the host; the returned function waits for it."""

    def catch_up(self) -> None:
        """Wait until everything is done; raises RuntimeError if the device is lost."""


class HostTimeline:
    """For a device whose work is done when a call returns."""

    works_on = False

    def mark(self) -> Mark | None:
        return None

    def sending(self, parts: list[torch.Tensor]) -> Callable[[], list[torch.Tensor]]:
        return lambda: parts

    def catch_up(self) -> None:
        """There is nothing to wait for."""


@dataclass(frozen=True, slots=True)
class CudaMark:
    """An event in a GPU's queue."""

    event: torch.cuda.Event

    def seconds_to(self, later: Mark) -> float:
        assert isinstance(later, CudaMark), "both are of one device"
        later.event.synchronize()
        took_ms: float = self.event.elapsed_time(later.event)
        return took_ms / 1000


class CudaTimeline:
    """For a GPU: one queue, in order."""

    works_on = True

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def mark(self) -> Mark | None:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return CudaMark(event)

    def sending(self, parts: list[torch.Tensor]) -> Callable[[], list[torch.Tensor]]:
        arrived = [torch.empty(part.shape, dtype=part.dtype, pin_memory=True) for part in parts]
        for place, part in zip(arrived, parts, strict=True):
            place.copy_(part, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()

        def here() -> list[torch.Tensor]:
            event.synchronize()
            return arrived

        return here

    def catch_up(self) -> None:
        torch.cuda.synchronize(self._device)


def choose_timeline(device: torch.device) -> Timeline:
    """A GPU's own timeline, or the host's."""
    return CudaTimeline(device) if device.type == "cuda" else HostTimeline()
