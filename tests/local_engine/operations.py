"""Counts what torch is asked to do: on a GPU each of them is a launch, and some of them a wait."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class _Seen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.counts[func.__name__.partition(".")[0]] += 1
        return func(*args, **(kwargs or {}))


def operations_of(work: Callable[[], object]) -> Counter[str]:
    """Torch's operators by name, and how often `work` asked for each."""
    seen = _Seen()
    with seen:
        work()
    return seen.counts
