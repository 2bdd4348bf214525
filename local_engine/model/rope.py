"""Rotary position embeddings: plain, evenly stretched, and the `llama3` stretching."""

import math

import torch

from local_engine.model.spec import LinearScaling, Rope, RopeScaling


def inverse_frequencies(rope: Rope, head_dim: int) -> torch.Tensor:
    """One float32 angle per position step and pair of channels, shape [head_dim / 2]."""
    exponent = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    plain = 1.0 / rope.theta**exponent
    if isinstance(rope.scaling, LinearScaling):
        return plain / rope.scaling.factor
    return plain if rope.scaling is None else _stretched(plain, rope.scaling)


def _stretched(plain: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    """Long waves slow down by `factor`, short ones stay, those between are blended linearly."""
    waves_in_context = scaling.original_max_position_embeddings * plain / (2 * math.pi)
    share_kept = (waves_in_context - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    share_kept = share_kept.clamp(0.0, 1.0)
    return plain * share_kept + plain / scaling.factor * (1.0 - share_kept)


def rotation_table(
    rope: Rope, head_dim: int, num_positions: int, device: torch.device, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of every position, each [num_positions, head_dim]; made in float32."""
    positions = torch.arange(num_positions, dtype=torch.float32)
    angles = torch.outer(positions, inverse_frequencies(rope, head_dim))
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(device, dtype), angles.sin().to(device, dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn `x` [..., head_dim] by its positions' angles, which broadcast over heads."""
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return torch.addcmul(x * cos, turned, sin)
