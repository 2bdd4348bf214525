"""The Triton backend in one object: everything a decoder and its sampler ask of a GPU."""

import torch

from local_engine.kernels import triton_attention, triton_norms
from local_engine.kernels.fast import HeadNorms
from local_engine.kernels.reach import Reach


class TritonKernels:
    """As `NativeKernels`, for CUDA tensors of any float type."""

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return triton_norms.rms_norm_triton(x, weight, eps)

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
        return triton_attention.decode_triton(q, keys, values, table, lengths, reach)

    def paged_prefill(
        self,
        q: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        blocks: torch.Tensor,
        start: int,
        reach: Reach,
    ) -> torch.Tensor:
        return triton_attention.prefill_triton(q, keys, values, blocks, start, reach)
