"""Draws tokens for many rows at once, where scores and noise alone decide.

On a GPU that is nearly every request: temperature, top-k, top-p and min-p become a floor under the
scores and noise over them. On a CPU rows with such a cut are handled one by one, and only uncut
ones are drawn here.
"""

import importlib
import importlib.util
import math
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from local_engine.kernels.sampling_noise import draw_reference, row_key
from local_engine.runner.batch import sent
from local_engine.runner.seen import Seen
from local_engine.sampling_params import SamplingParams


# Lower temperatures than this are as good as greedy; it only keeps the division safe.
_COLDEST = 1e-4


class Row(NamedTuple):
    """A row of scores, the request it belongs to, and what its noise is made of."""

    at: int
    params: SamplingParams
    seed: int
    position: int
    seen: Seen | None = None
    """The tokens before, if penalties or bad words need them."""


class Drawing(Protocol):
    """Chosen once for the device."""

    def can_draw(self, params: SamplingParams) -> bool:
        """Whether only scores, earlier tokens and noise decide, in a way supported here."""

    def draw(self, logits: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        """Tokens [rows] from float32 `logits`, on the same device."""


class ReferenceDrawing:
    """By torch's own operators; `min_p` is a floor under the scores."""

    def can_draw(self, params: SamplingParams) -> bool:
        is_whole = params.top_k <= 0 and params.top_p >= 1.0
        return not params.is_narrowed and (params.is_greedy or is_whole)

    def draw(self, logits: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        device = logits.device
        scores = logits[torch.tensor([row.at for row in rows], device=device)]
        keys = torch.tensor([row_key(row.seed, row.position) for row in rows])
        inverse = torch.tensor([_inverse(row.params) for row in rows], device=device)
        depths = torch.tensor([_depth(row.params) for row in rows], device=device)
        return draw_reference(scores, inverse, scores.amax(dim=-1) + depths, keys.to(device))


class TritonDrawing:
    """By one or two kernels; what they need to know of all rows is sent in one piece."""

    def __init__(self) -> None:
        self._kernels: Any = importlib.import_module("local_engine.kernels.triton_sample")

    def can_draw(self, params: SamplingParams) -> bool:
        return not params.is_narrowed

    def draw(self, logits: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        numbers = np.array([_numbers(row.params) for row in rows], np.float32)
        wholes = np.array(
            [(row.at, row.params.top_k, *row_key(row.seed, row.position)) for row in rows],
            np.int64,
        ).astype(np.uint32)
        packed = np.concatenate([numbers.T.view(np.uint32).ravel(), wholes.T[:2].ravel()])
        packed = np.concatenate([packed, wholes[:, 2:].ravel()]).view(np.int32)
        pieces = torch.split(sent(packed, logits.device), [len(rows)] * 5 + [2 * len(rows)])
        inverse, depths, top_ps = (piece.view(torch.float32) for piece in pieces[:3])
        places, top_ks, keys = pieces[3:]
        floors = torch.full_like(inverse, -math.inf)
        if any(_is_cut(row.params) for row in rows):
            floors = self._kernels.floors_triton(logits, places, inverse, depths, top_ks, top_ps)
        found: torch.Tensor = self._kernels.draw_triton(logits, places, inverse, floors, keys)
        return found


def choose_drawing(device: torch.device) -> Drawing:
    """Triton's kernels if they run on this device, otherwise the reference."""
    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return ReferenceDrawing()
    return TritonDrawing()


def _is_cut(params: SamplingParams) -> bool:
    return not params.is_greedy and (params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0)


def _numbers(params: SamplingParams) -> tuple[float, float, float]:
    if params.is_greedy:
        return 0.0, -math.inf, 1.0
    return _inverse(params), _depth(params), params.top_p


def _inverse(params: SamplingParams) -> float:
    return 0.0 if params.is_greedy else 1.0 / max(params.temperature, _COLDEST)


def _depth(params: SamplingParams) -> float:
    """A probability of `min_p` times the highest is this far below it, in scores."""
    if params.min_p <= 0.0 or params.is_greedy:
        return -math.inf
    return max(params.temperature, _COLDEST) * math.log(params.min_p)
