"""Sampling in Triton: the likeliest token of a row after noise that only its seed decides.

Adding Gumbel noise to scores and taking the highest is drawing from their softmax. The noise of a
token is a hash of the row's key and the token, so a row draws the same in any batch and on any
machine; without noise the row is greedy. Reference: `sampling_noise.draw_reference`.
"""

import torch
import triton
import triton.language as tl


_TILE = 1024


@triton.jit
def _mixed(h):
    # Ettinger's lowbias32: every input bit moves every output bit.
    h = (h ^ (h >> 16)) * 0x7FEB352D
    h = (h ^ (h >> 15)) * 0x846CA68B
    return h ^ (h >> 16)


@triton.jit
def _draw(
    scores, inverse_temperatures, floors, keys, out, vocabulary,
    SIZE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    inverse, floor = tl.load(inverse_temperatures + row), tl.load(floors + row)
    first_key = tl.load(keys + 2 * row).to(tl.uint32)
    second_key = tl.load(keys + 2 * row + 1).to(tl.uint32)
    best, best_at = tl.full((), -float("inf"), tl.float32), tl.full((), 0, tl.int32)
    start = 0
    while start < vocabulary:
        token = start + tl.arange(0, SIZE)
        known = token < vocabulary
        score = tl.load(scores + row * vocabulary + token, mask=known, other=-float("inf"))
        if inverse > 0:
            h = _mixed(_mixed(token.to(tl.uint32) ^ first_key) + second_key)
            share = tl.minimum((h.to(tl.float32) + 0.5) * 2.3283064365386963e-10, 0.99999994)
            waiting = tl.where(share < 1e-3, share + 0.5 * share * share, -tl.log(1.0 - share))
            noisy = score * inverse - tl.log(waiting)
        else:
            noisy = score
        noisy = tl.where(known & (score >= floor), noisy, -float("inf"))
        highest = tl.max(noisy, axis=0)
        if highest > best:
            best = highest
            best_at = start + tl.argmax(noisy, axis=0)
        start += SIZE
    tl.store(out + row, best_at.to(tl.int64))


def draw_triton(
    scores: torch.Tensor,
    inverse_temperatures: torch.Tensor,
    floors: torch.Tensor,
    keys: torch.Tensor,
) -> torch.Tensor:
    """As `sampling_noise.draw_reference`."""
    rows, vocabulary = scores.shape
    out = torch.empty(rows, device=scores.device, dtype=torch.int64)
    size = min(_TILE, triton.next_power_of_2(vocabulary))
    _draw[(rows,)](
        scores.contiguous(), inverse_temperatures, floors, keys, out, vocabulary, SIZE=size
    )
    return out
