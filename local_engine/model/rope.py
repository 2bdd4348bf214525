"""Rotary position embeddings, plain and with the `llama3` stretching of low frequencies."""

import math

import torch

from local_engine.model.spec import ModelSpec, RopeScaling


def inverse_frequencies(spec: ModelSpec) -> torch.Tensor:
    """One float32 angle per position step and pair of channels, shape [head_dim / 2]."""
    exponent = torch.arange(0, spec.head_dim, 2, dtype=torch.float32) / spec.head_dim
    plain = 1.0 / spec.rope_theta**exponent
    return plain if spec.rope_scaling is None else _stretched(plain, spec.rope_scaling)


def _stretched(plain: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    """Long waves slow down by `factor`, short ones stay, those between are blended linearly."""
    waves_in_context = scaling.original_max_position_embeddings * plain / (2 * math.pi)
    share_kept = (waves_in_context - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    share_kept = share_kept.clamp(0.0, 1.0)
    return plain * share_kept + plain / scaling.factor * (1.0 - share_kept)


def rotation_table(
    spec: ModelSpec, num_positions: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of every position, each [num_positions, head_dim] in float32."""
    positions = torch.arange(num_positions, dtype=torch.float32)
    angles = torch.outer(positions, inverse_frequencies(spec))
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().to(device), angles.sin().to(device)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn `x` [..., tokens, head_dim] by its positions' angles ([tokens, head_dim])."""
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return x * cos.to(x.dtype) + turned * sin.to(x.dtype)
