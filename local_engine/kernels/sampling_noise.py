"""Sampling noise from seed, position and token alone, so it is the same on every machine.

Adding Gumbel noise to the scores and taking the highest is one draw from their softmax (Gumbel
1954, the "Gumbel-max trick"). The hash is Ettinger's `lowbias32`, twice, keyed with 64 bits of the
request.
"""

import hashlib

import torch


_MASK = 0xFFFFFFFF


def row_key(seed: int, position: int) -> tuple[int, int]:
    """Two 32-bit words for the token at `position` of a request."""
    named = (seed & ((1 << 64) - 1)).to_bytes(8, "big") + position.to_bytes(8, "big")
    digest = hashlib.blake2b(named, digest_size=8).digest()
    return int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:], "big")


def gumbel(token_ids: torch.Tensor, key: tuple[int, int]) -> torch.Tensor:
    """Noise for these tokens, float32 of the same shape."""
    mixed = _mixed(_mixed(token_ids ^ key[0]) + key[1] & _MASK)
    share = ((mixed.float() + 0.5) * 2.0**-32).clamp(max=1.0 - 2.0**-24)
    # Close to zero, where the highest noise comes from, 1 - share would lose its digits.
    waiting = torch.where(share < 1e-3, share + 0.5 * share * share, -torch.log(1.0 - share))
    return -torch.log(waiting)


def draw_reference(
    scores: torch.Tensor,
    inverse_temperatures: torch.Tensor,
    floors: torch.Tensor,
    keys: torch.Tensor,
) -> torch.Tensor:
    """One token per row of float32 `scores` [rows, vocabulary].

    Scores below the row's floor are never drawn; a row whose inverse temperature is 0 is greedy;
    `keys` [rows, 2] are those of `row_key`, int64.
    """
    tokens = torch.arange(scores.shape[1], device=scores.device)
    drawn = []
    for row, inverse, floor, key in zip(
        scores, inverse_temperatures.tolist(), floors.tolist(), keys.tolist(), strict=True
    ):
        noisy = row * inverse + gumbel(tokens, (key[0], key[1])) if inverse else row
        drawn.append(noisy.masked_fill(row < floor, -torch.inf).argmax())
    return torch.stack(drawn)


def _mixed(h: torch.Tensor) -> torch.Tensor:
    """32-bit words in int64, so that products are cut and not rounded."""
    h = (h ^ (h >> 16)) * 0x7FEB352D & _MASK
    h = (h ^ (h >> 15)) * 0x846CA68B & _MASK
    return h ^ (h >> 16)
