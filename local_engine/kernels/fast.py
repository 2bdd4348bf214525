"""The machine's own kernels other than products: compiled C on a CPU, Triton on a GPU."""

from dataclasses import dataclass
from typing import Protocol

import torch

from local_engine.kernels.reach import Reach


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """The scales of a layer's query and key heads, [dim] each."""

    q_weight: torch.Tensor
    k_weight: torch.Tensor
    eps: float


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunks of prompts whose queries lie one after the other."""

    spans: list[tuple[int, int]]
    """The start and end position of each chunk."""
    first_rows: list[int]
    """The first row of each chunk's queries."""
    table: torch.Tensor
    """Each chunk's blocks, [chunks, blocks] int32; beyond the last one, any existing block."""
    ends: torch.Tensor
    """The ends of `spans`, [chunks] int32, on the device of the queries."""
    firsts: torch.Tensor
    """`first_rows`, followed by the number of rows, [chunks + 1] int32."""


class FastKernels(Protocol):
    """Chosen once at start; without any, torch's references are used."""

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """Rows [..., dim], each divided by its root mean square and multiplied by `weight`."""

    def argmax(self, scores: torch.Tensor) -> torch.Tensor:
        """The place of each row's highest score, [rows]."""

    def add_rms_norm(
        self, x: torch.Tensor, more: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The sum of both, and its rows normed as by `rms_norm`."""

    def silu_times(self, gate_up: torch.Tensor) -> torch.Tensor:
        """[..., 2 * inner] as gate and up to silu(gate) * up, [..., inner]."""

    def norm_turn_store(
        self,
        qkv: torch.Tensor,
        norms: HeadNorms | None,
        turn: tuple[torch.Tensor, torch.Tensor],
        places: tuple[torch.Tensor, torch.Tensor],
        pools: tuple[torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        """Queries of a fused product, normed and rotated; keys and values go into their pools.

        `qkv` [rows, (heads + 2 kv_heads) * dim], `turn` cosines and sines [rows, 1, dim], `places`
        blocks and offsets [rows]; returns [rows, heads, dim].
        """

    def paged_decode(
        self,
        q: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        table: torch.Tensor,
        lengths: torch.Tensor,
        reach: Reach,
    ) -> torch.Tensor:
        """[rows, heads, dim] queries to [rows, heads, dim] answers; `table`, `lengths` int32."""

    def paged_prefill(
        self,
        q: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        chunks: Chunks,
        reach: Reach,
    ) -> torch.Tensor:
        """Queries [rows, heads, dim] of all chunks to answers of the same shape."""
