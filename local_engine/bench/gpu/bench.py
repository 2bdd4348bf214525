"""Shared parts of the GPU benchmarks: device, sizes, ceilings, one engine in memory at a time."""

import gc
import sys
from collections.abc import Callable
from functools import cached_property

import torch

from local_engine.bench.gpu.ceilings import Ceilings, Spread, measure_ceilings
from local_engine.bench.gpu.loop import Engine, new_engine
from local_engine.bench.gpu.models import Scale, random_weights
from local_engine.kernels.quantised import QUANTISED
from local_engine.model.spec import ModelSpec


class TookTooLong(Exception):
    """A row's time is over."""


def failures() -> tuple[type[Exception], ...]:
    """What a row or a check may die of and leave the others alive; Triton's own, once it is there.

    What the device, its libraries and their versions do: a wrong argument, no memory, no kernel.
    """
    triton = getattr(sys.modules.get("triton.errors"), "TritonError", RuntimeError)
    return (
        ArithmeticError,
        AssertionError,
        AttributeError,
        ImportError,
        LookupError,
        NotImplementedError,
        OSError,
        RuntimeError,
        TypeError,
        ValueError,
        TookTooLong,
        triton,
    )


class Bench:
    """Made once for a run; whatever failed in one row is dropped before the next."""

    def __init__(self, device: torch.device, scale: Scale) -> None:
        self.device = device
        self.scale = scale
        self._engine: Engine | None = None
        self._engine_name = ""

    @cached_property
    def measured_ceilings(self) -> tuple[Ceilings, Spread, Spread]:
        return measure_ceilings(self.device, self.scale)

    @property
    def ceilings(self) -> Ceilings:
        return self.measured_ceilings[0]

    @property
    def large(self) -> Engine:
        """The 8 B shape with room for every workload."""
        return self._only("large", lambda: self._bf16(self.scale.large))

    @property
    def small(self) -> Engine:
        """The 0.6 B shape, likewise."""
        return self._only("small", lambda: self._bf16(self.scale.small))

    @property
    def large_fp8(self) -> Engine:
        """The 8 B shape with fp8 weights, for one sequence."""
        return self._only("large-fp8", self._fp8)

    def drop_engine(self) -> None:
        """Give the device its memory back."""
        self._engine, self._engine_name = None, ""
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _only(self, name: str, make: Callable[[], Engine]) -> Engine:
        if self._engine is None or self._engine_name != name:
            self.drop_engine()
            self._engine, self._engine_name = make(), name
        return self._engine

    def _bf16(self, spec: ModelSpec) -> Engine:
        decoder = random_weights(spec, self.device)
        most = max(*self.scale.batches, self.scale.workload_sequences)
        return new_engine(decoder, self.device, kv_tokens=self.scale.kv_tokens, most_rows=most)

    def _fp8(self) -> Engine:
        decoder = random_weights(self.scale.large, self.device)
        tokens = 4 * self.scale.context
        make = QUANTISED["fp8"]
        return new_engine(decoder, self.device, kv_tokens=tokens, most_rows=1, make_linear=make)
