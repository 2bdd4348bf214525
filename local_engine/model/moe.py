"""Mixture of experts: a router chooses a few feed-forward parts per token."""

from collections.abc import Callable

import torch
from torch import nn

from local_engine.model.spec import ModelSpec, MoeSpec


Linear = Callable[[torch.Tensor], torch.Tensor]
# (rows [rows, in], weights [experts, out, in], expert of each place, places per row)
# -> [places, out]
GroupedProduct = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, int], torch.Tensor]
MakeLinear = Callable[[torch.Tensor, torch.Tensor | None], Linear]


def grouped_reference(
    x: torch.Tensor, weights: torch.Tensor, experts: torch.Tensor, num_chosen: int
) -> torch.Tensor:
    """Place p is row p // num_chosen of `x` times the weights of its expert."""
    rows = x.repeat_interleave(num_chosen, dim=0)
    return torch.bmm(weights[experts], rows[:, :, None])[:, :, 0]


class Expert(nn.Module):
    """One gated feed-forward part."""

    def __init__(
        self, size: int, inner: int, activate: Callable[[torch.Tensor], torch.Tensor]
    ) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(size, inner, bias=False)
        self.up_proj = nn.Linear(size, inner, bias=False)
        self.down_proj = nn.Linear(inner, size, bias=False)
        self._activate = activate
        self._gate_up: Linear | None = None
        self._down: Linear | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self._gate_up is None:
            gate, up = self.gate_proj(x), self.up_proj(x)
        else:
            gate, up = self._gate_up(x).chunk(2, dim=-1)
        return (self._down or self.down_proj)(self._activate(gate) * up)

    def joined(self) -> torch.Tensor:
        """The weights of gate and up, one below the other."""
        return torch.cat([self.gate_proj.weight.data, self.up_proj.weight.data])

    def fuse(self, make: MakeLinear) -> None:
        self._gate_up = make(self.joined(), None)
        self._down = make(self.down_proj.weight.data, None)
        del self.gate_proj, self.up_proj, self.down_proj


class SparseMlp(nn.Module):
    """Sends each token to its `num_chosen` likeliest experts and sums their outputs."""

    def __init__(
        self,
        spec: ModelSpec,
        moe: MoeSpec,
        activate: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        super().__init__()
        self.gate = nn.Linear(spec.hidden_size, moe.num_experts, bias=False)
        self.experts = nn.ModuleList(
            Expert(spec.hidden_size, moe.intermediate_size, activate)
            for _ in range(moe.num_experts)
        )
        self.reduce: Callable[[torch.Tensor], torch.Tensor] = lambda x: x
        self._router: Linear | None = None
        self._activate = activate
        self._grouped: GroupedProduct | None = None
        self._gate_ups = self._downs = torch.empty(0)
        self._num_chosen = moe.num_chosen
        self._is_normalised = moe.is_normalised

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.reshape(-1, x.shape[-1])
        chances = (self._router or self.gate)(flat).float().softmax(dim=-1)
        weights, chosen = chances.topk(self._num_chosen, dim=-1)
        if self._is_normalised:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        weights = weights.to(x.dtype)
        if self._grouped is not None:
            return self.reduce(self._all_at_once(flat, weights, chosen).view_as(x))
        out = torch.zeros_like(flat)
        # By expert, so that each one multiplies once with all tokens sent to it.
        for index in chosen.unique().tolist():
            rows, ranks = (chosen == index).nonzero(as_tuple=True)
            answer = self.experts[index](flat[rows]) * weights[rows, ranks, None]
            out.index_add_(0, rows, answer)
        return self.reduce(out.view_as(x))

    def _all_at_once(
        self, flat: torch.Tensor, weights: torch.Tensor, chosen: torch.Tensor
    ) -> torch.Tensor:
        assert self._grouped is not None, "asked for when the weights were fused"
        places = chosen.flatten()
        gate, up = self._grouped(flat, self._gate_ups, places, self._num_chosen).chunk(2, dim=-1)
        answers = self._grouped(self._activate(gate) * up, self._downs, places, 1)
        found: torch.Tensor = (answers.view(*chosen.shape, -1) * weights[..., None]).sum(dim=1)
        return found

    def fuse(
        self, make: MakeLinear, make_router: MakeLinear, grouped: GroupedProduct | None = None
    ) -> None:
        """With `grouped` all experts multiply at once, without it each with its own rows."""
        self._router = make_router(self.gate.weight.data, None)
        if grouped is not None:
            parts = [expert for expert in self.experts if isinstance(expert, Expert)]
            self._gate_ups = torch.stack([expert.joined() for expert in parts])
            self._downs = torch.stack([expert.down_proj.weight.data for expert in parts])
            self._grouped = grouped
            del self.experts
            return
        for expert in self.experts:
            assert isinstance(expert, Expert), "experts are made above"
            expert.fuse(make)
