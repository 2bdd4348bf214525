"""Sampling in Triton: adds noise decided by the seed alone, and takes a row's likeliest token.

Adding Gumbel noise to scores and taking the highest is drawing from their softmax. The noise of a
token is a hash of the row's key and the token, so a row draws the same in any batch and on any
machine; without noise the row is greedy. Tokens that top-k, top-p and min-p exclude lie below a
floor on the row's scores, which is searched three bits at a time: no sorting, and nothing waits.
References: `sampling_noise.draw_reference`, `sampling_floors.floors_reference`.
"""

import torch
import triton
import triton.language as tl


_TILE = 4096
_WARPS = 8
# The alignment of these changes from step to step; nothing is recompiled for that.
_PER_ROW = ["places", "inverse_temperatures", "depths", "top_ks", "top_ps", "floors", "keys"]


@triton.jit
def _mixed(h):
    # Ettinger's lowbias32: every input bit moves every output bit.
    h = (h ^ (h >> 16)) * 0x7FEB352D
    h = (h ^ (h >> 15)) * 0x846CA68B
    return h ^ (h >> 16)


@triton.jit(do_not_specialize_on_alignment=_PER_ROW)
def _draw(
    scores, places, inverse_temperatures, floors, keys, out, vocabulary,
    SIZE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    scores += tl.load(places + row).to(tl.int64) * vocabulary
    inverse, floor = tl.load(inverse_temperatures + row), tl.load(floors + row)
    first_key = tl.load(keys + 2 * row).to(tl.uint32)
    second_key = tl.load(keys + 2 * row + 1).to(tl.uint32)
    best, best_at = tl.full((), -float("inf"), tl.float32), tl.full((), 0, tl.int32)
    start = 0
    while start < vocabulary:
        token = start + tl.arange(0, SIZE)
        known = token < vocabulary
        score = tl.load(scores + token, mask=known, other=-float("inf"))
        if inverse > 0:
            h = _mixed(_mixed(token.to(tl.uint32) ^ first_key) + second_key)
            share = tl.minimum((h.to(tl.float32) + 0.5) * 2.3283064365386963e-10, 0.99999994)
            waiting = tl.where(share < 1e-3, share + 0.5 * share * share, -tl.log(1.0 - share))
            noisy = score * inverse - tl.log(waiting)
        else:
            noisy = score
        noisy = tl.where(known & (score >= floor), noisy, -float("inf"))
        # A NaN is chosen, as by torch's argmax: its score then reveals it.
        noisy = tl.where(score < float("inf"), noisy, float("inf"))
        highest = tl.max(noisy, axis=0)
        if highest > best:
            best = highest
            best_at = start + tl.argmax(noisy, axis=0)
        start += SIZE
    tl.store(out + row, best_at.to(tl.int64))


def draw_triton(
    scores: torch.Tensor,
    places: torch.Tensor,
    inverse_temperatures: torch.Tensor,
    floors: torch.Tensor,
    keys: torch.Tensor,
) -> torch.Tensor:
    """As `sampling_noise.draw_reference` for the rows `places` of `scores`."""
    rows, vocabulary = len(places), scores.shape[1]
    out = torch.empty(rows, device=scores.device, dtype=torch.int64)
    size = min(_TILE, triton.next_power_of_2(vocabulary))
    _draw[(rows,)](
        scores, places, inverse_temperatures, floors, keys, out, vocabulary,
        SIZE=size, num_warps=_WARPS,
    )  # fmt: skip
    return out


@triton.jit
def _in_order(score):
    """The bits of float32 numbers as integers in the same order."""
    bits = score.to(tl.uint32, bitcast=True)
    return tl.where(bits >> 31 != 0, bits ^ 0xFFFFFFFF, bits | 0x80000000)


@triton.jit
def _reach(
    scores, vocabulary, highest, inverse, lowest, share, IS_COUNT: tl.constexpr, SIZE: tl.constexpr
):  # fmt: skip
    """The highest place in order, from `lowest` on, above which there is enough weight.

    Enough is `share` tokens, or that part of the probability above `lowest`.
    """
    digits = tl.arange(0, 8)
    found, shift = lowest, tl.full((), 29, tl.int32)
    target = tl.full((), 0.0, tl.float32) + share
    while shift >= 0:
        weights = tl.zeros((8,), tl.float32)
        start = 0
        while start < vocabulary:
            token = start + tl.arange(0, SIZE)
            known = token < vocabulary
            score = tl.load(scores + token, mask=known, other=-float("inf"))
            place = _in_order(score)
            known &= place >= found
            weight = tl.where(known, 1.0, 0.0)
            if not IS_COUNT:
                weight *= tl.exp((score - highest) * inverse)
            digit = tl.minimum((place - found) >> shift.to(tl.uint32), 7).to(tl.int32)
            is_digit = (digit[None, :] == digits[:, None]) & known[None, :]
            weights += tl.sum(tl.where(is_digit, weight[None, :], 0.0), axis=1)
            start += SIZE
        if not IS_COUNT:
            # The first round sees everything.
            target = tl.where(shift == 29, share * tl.sum(weights, axis=0), target)
        above = tl.sum(tl.where(digits[None, :] >= digits[:, None], weights[None, :], 0.0), axis=1)
        best = tl.max(tl.where(above >= target, digits, 0), axis=0)
        found += best.to(tl.uint32) << shift.to(tl.uint32)
        shift = tl.where(shift == 2, 0, shift - 3)
    return found


@triton.jit(do_not_specialize_on_alignment=_PER_ROW)
def _floor(
    scores, places, inverse_temperatures, depths, top_ks, top_ps, out, vocabulary,
    SIZE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    scores += tl.load(places + row).to(tl.int64) * vocabulary
    inverse, depth = tl.load(inverse_temperatures + row), tl.load(depths + row)
    top_k, top_p = tl.load(top_ks + row), tl.load(top_ps + row)
    highest, start = tl.full((), -float("inf"), tl.float32), 0
    while start < vocabulary:
        token = start + tl.arange(0, SIZE)
        score = tl.load(scores + token, mask=token < vocabulary, other=-float("inf"))
        highest = tl.maximum(highest, tl.max(score, axis=0))
        start += SIZE
    found = tl.full((), 0, tl.uint32)
    if (top_k > 0) & (top_k < vocabulary):
        share = top_k.to(tl.float32)
        found = _reach(scores, vocabulary, highest, inverse, found, share, IS_COUNT=True, SIZE=SIZE)
    if top_p < 1.0:
        # In single precision the smallest values are 0, which no token would reach.
        share = tl.maximum(top_p, 1e-30)
        found = _reach(
            scores, vocabulary, highest, inverse, found, share, IS_COUNT=False, SIZE=SIZE
        )
    bits = tl.where(found >> 31 != 0, found ^ 0x80000000, found ^ 0xFFFFFFFF)
    lowest = tl.where(found == 0, -float("inf"), bits.to(tl.float32, bitcast=True))
    tl.store(out + row, tl.maximum(lowest, highest + depth))


def floors_triton(
    scores: torch.Tensor,
    places: torch.Tensor,
    inverse_temperatures: torch.Tensor,
    depths: torch.Tensor,
    top_ks: torch.Tensor,
    top_ps: torch.Tensor,
) -> torch.Tensor:
    """As `sampling_floors.floors_reference` for the rows `places` of `scores`."""
    rows, vocabulary = len(places), scores.shape[1]
    out = torch.empty(rows, device=scores.device, dtype=torch.float32)
    size = min(_TILE, triton.next_power_of_2(vocabulary))
    _floor[(rows,)](
        scores, places, inverse_temperatures, depths, top_ks, top_ps, out, vocabulary,
        SIZE=size, num_warps=2 * _WARPS,
    )  # fmt: skip
    return out
