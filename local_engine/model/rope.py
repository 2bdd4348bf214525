"""Rotary position embeddings: plain, evenly stretched, `llama3` and `yarn`."""

import math

import torch

from local_engine.model.spec import LinearScaling, Rope, RopeScaling, YarnScaling


def inverse_frequencies(rope: Rope, head_dim: int) -> torch.Tensor:
    """One float32 angle per position step and pair of channels, shape [head_dim / 2]."""
    exponent = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    plain = 1.0 / rope.theta**exponent
    if isinstance(rope.scaling, LinearScaling):
        return plain / rope.scaling.factor
    if isinstance(rope.scaling, YarnScaling):
        return _sloped(plain, rope.theta, rope.scaling)
    return plain if rope.scaling is None else _stretched(plain, rope.scaling)


def _stretched(plain: torch.Tensor, scaling: RopeScaling) -> torch.Tensor:
    """Long waves slow down by `factor`, short ones stay, those in between are blended linearly."""
    waves_in_context = scaling.original_max_position_embeddings * plain / (2 * math.pi)
    share_kept = (waves_in_context - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    share_kept = share_kept.clamp(0.0, 1.0)
    return plain * share_kept + plain / scaling.factor * (1.0 - share_kept)


def _sloped(plain: torch.Tensor, theta: float, scaling: YarnScaling) -> torch.Tensor:
    """Channels that turn often in the original context stay, slow ones stretch; a slope between."""
    num_pairs = plain.shape[0]

    def channel(num_turns: float) -> float:
        """The pair of channels that turns this often in the original context."""
        length = scaling.original_max_position_embeddings / (num_turns * 2 * math.pi)
        return num_pairs * math.log(length) / math.log(theta)

    first, last = channel(scaling.beta_fast), channel(scaling.beta_slow)
    if scaling.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * num_pairs - 1)
    width = last - first or 0.001
    share_stretched = ((torch.arange(num_pairs) - first) / width).clamp(0.0, 1.0)
    return plain / scaling.factor * share_stretched + plain * (1.0 - share_stretched)


def rotation_table(
    rope: Rope, head_dim: int, num_positions: int, device: torch.device, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of every position, each [num_positions, head_dim]; made in float32."""
    positions = torch.arange(num_positions, dtype=torch.float32)
    angles = torch.outer(positions, inverse_frequencies(rope, head_dim))
    angles = torch.cat((angles, angles), dim=-1)
    sharp = rope.scaling.sharpness if isinstance(rope.scaling, YarnScaling) else 1.0
    return (angles.cos() * sharp).to(device, dtype), (angles.sin() * sharp).to(device, dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turn `x` [..., head_dim] by its positions' angles, which broadcast over heads."""
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return torch.addcmul(x * cos, turned, sin)
