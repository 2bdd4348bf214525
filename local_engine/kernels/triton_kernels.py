"""The Triton backend in one object: all kernels that decoder and sampler need from a GPU."""

import torch

from local_engine.kernels import triton_attention, triton_norms
from local_engine.kernels.fast import Chunks, HeadNorms
from local_engine.kernels.reach import Reach


class TritonKernels:
    """As `NativeKernels`, for CUDA tensors of any float type."""

    def __init__(self, *, is_deterministic: bool = False) -> None:
        self._is_deterministic = is_deterministic

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return triton_norms.rms_norm_triton(x, weight, eps)

    def add_rms_norm(
        self, x: torch.Tensor, more: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return triton_norms.add_rms_norm_triton(x, more, weight, eps)

    def argmax(self, scores: torch.Tensor) -> torch.Tensor:
        return scores.argmax(dim=-1)

    def silu_times(self, gate_up: torch.Tensor) -> torch.Tensor:
        return triton_norms.silu_times_triton(gate_up)

    def norm_turn_store(
        self,
        qkv: torch.Tensor,
        norms: HeadNorms | None,
        turn: tuple[torch.Tensor, torch.Tensor],
        places: tuple[torch.Tensor, torch.Tensor],
        pools: tuple[torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        return triton_norms.norm_turn_store_triton(qkv, norms, turn, places, pools)

    def paged_decode(
        self,
        q: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        table: torch.Tensor,
        lengths: torch.Tensor,
        reach: Reach,
    ) -> torch.Tensor:
        rows = 0 if self._is_deterministic else len(q)
        tiling = triton_attention.decode_tiling(q.dtype, q.shape[-1], rows)
        return triton_attention.decode_triton(q, keys, values, table, lengths, reach, tiling)

    def paged_prefill(
        self,
        q: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        chunks: Chunks,
        reach: Reach,
    ) -> torch.Tensor:
        return triton_attention.prefill_triton(q, keys, values, chunks, reach)
