"""Turns top-k, top-p and min-p into a floor: scores from it on stay, ties included.

Of several tokens with the score at the edge none is better than the others, so all of them stay;
half-precision models often give equal scores.
"""

import torch


def floors_reference(
    scores: torch.Tensor,
    inverse_temperatures: torch.Tensor,
    depths: torch.Tensor,
    top_ks: torch.Tensor,
    top_ps: torch.Tensor,
) -> torch.Tensor:
    """The lowest score that stays in each row of float32 `scores` [rows, vocabulary].

    `top_ks` 0 and `top_ps` 1 keep all; top-p applies to what top-k kept. `depths` is how far below
    the highest score a row may go, minus infinity for any depth.
    """
    found = []
    for row, inverse, depth, top_k, top_p in zip(
        scores,
        inverse_temperatures.tolist(),
        depths.tolist(),
        top_ks.tolist(),
        top_ps.tolist(),
        strict=True,
    ):
        ordered = row.sort(descending=True).values
        floor = ordered[top_k - 1] if 0 < top_k < len(row) else ordered[-1]
        if top_p < 1.0:
            kept = ordered[ordered >= floor]
            mass = ((kept - kept[0]) * inverse).exp().cumsum(dim=0)
            floor = kept[int((mass < top_p * mass[-1]).sum().clamp(max=len(kept) - 1))]
        found.append(torch.maximum(floor, ordered[0] + depth))
    return torch.stack(found)
