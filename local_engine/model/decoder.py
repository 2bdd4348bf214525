"""One decoder for all model families: the `ModelSpec` says what differs between them.

Parameter names are those of Hugging Face checkpoints, so that weights load by name; the same module
is trained (whole texts, plain causal attention) and served (a flat batch of tokens from many
sequences, where an `Attend` knows which keys each token may see).
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import nn
from torch.nn import functional as F

from local_engine.kernels.fast import FastKernels, HeadNorms
from local_engine.kernels.linear import plain_linear
from local_engine.model.moe import GroupedProduct, SparseMlp
from local_engine.model.rope import rotate, rotation_table
from local_engine.model.spec import ModelSpec


Turn = tuple[torch.Tensor, torch.Tensor]
Linear = Callable[[torch.Tensor], torch.Tensor]
# (weight [out, in], bias [out] or None) -> the function that multiplies with it
MakeLinear = Callable[[torch.Tensor, torch.Tensor | None], Linear]
Reduce = Callable[[torch.Tensor], torch.Tensor]


class Attend(Protocol):
    """Knows which keys each token may attend to, and where they are."""

    def __call__(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        """Queries [..., heads, dim], keys and values [..., kv_heads, dim] to [..., heads * dim]."""

    def fused(
        self, layer: int, qkv: torch.Tensor, norms: HeadNorms | None, turn: Turn
    ) -> torch.Tensor | None:
        """The same from one product's rows, with norms and rotation; `None` if it cannot."""


ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": F.silu,
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


def _whole(x: torch.Tensor) -> torch.Tensor:
    """Where a rank sums its part with the others'; a single rank has everything."""
    return x


class RmsNorm(nn.Module):
    """Root-mean-square norm with a learned scale, which Gemma stores as its difference from one."""

    def __init__(self, size: int, spec: ModelSpec) -> None:
        super().__init__()
        self.is_offset = spec.norm_is_offset
        self.weight = nn.Parameter(torch.zeros(size) if self.is_offset else torch.ones(size))
        self.eps = spec.rms_norm_eps
        self.native: FastKernels | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.native is not None:
            return self.native.rms_norm(x, self.weight, self.eps)
        if self.is_offset:
            scale = 1.0 + self.weight.float()
            return F.rms_norm(x.float(), self.weight.shape, scale, self.eps).type_as(x)
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)

    def of_sum(
        self, x: torch.Tensor, more: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`x + more` and its norm, in one pass if a kernel does both."""
        if more is None:
            return x, self(x)
        if self.native is not None:
            return self.native.add_rms_norm(x, more, self.weight, self.eps)
        x = x + more
        return x, self(x)


class Attention(nn.Module):
    """Self-attention in which several query heads share one key/value head."""

    def __init__(self, spec: ModelSpec, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = spec.head_dim
        size, bias = spec.hidden_size, spec.attention_bias
        q_size, kv_size = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        self.q_proj = nn.Linear(size, q_size, bias=bias)
        self.k_proj = nn.Linear(size, kv_size, bias=bias)
        self.v_proj = nn.Linear(size, kv_size, bias=bias)
        self.o_proj = nn.Linear(q_size, size, bias=spec.output_bias)
        self.q_norm = RmsNorm(spec.head_dim, spec) if spec.has_qk_norm else None
        self.k_norm = RmsNorm(spec.head_dim, spec) if spec.has_qk_norm else None
        self.reduce: Reduce = _whole
        self._qkv: Linear | None = None
        self._sizes: list[int] = []
        self._norms: HeadNorms | None = None
        self._out: Linear | None = None

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, attend: Attend
    ) -> torch.Tensor:
        if self._qkv is not None:
            qkv = self._qkv(x)
            out = attend.fused(self.layer, qkv, self._norms, (cos, sin))
            if out is not None:
                return self.reduce((self._out or self.o_proj)(out))
            parts = torch.split(qkv, self._sizes, dim=-1)
        else:
            parts = (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        q, k, v = (part.view(*part.shape[:-1], -1, self.head_dim) for part in parts)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        out = attend(self.layer, rotate(q, cos, sin), rotate(k, cos, sin), v)
        return self.reduce((self._out or self.o_proj)(out))

    def fuse(self, make: MakeLinear) -> None:
        """Make one product for queries, keys and values; drops the separate weights."""
        self._sizes = [part.out_features for part in (self.q_proj, self.k_proj, self.v_proj)]
        self._qkv = make(*_joined(self.q_proj, self.k_proj, self.v_proj))
        self._out = make(*_joined(self.o_proj))
        if self.q_norm is not None and self.k_norm is not None:
            q_weight, k_weight = self.q_norm.weight.data, self.k_norm.weight.data
            self._norms = HeadNorms(q_weight, k_weight, self.q_norm.eps)
        del self.q_proj, self.k_proj, self.v_proj, self.o_proj


class Mlp(nn.Module):
    """The gated feed-forward part."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        size, inner, bias = spec.hidden_size, spec.intermediate_size, spec.mlp_bias
        self.gate_proj = nn.Linear(size, inner, bias=bias)
        self.up_proj = nn.Linear(size, inner, bias=bias)
        self.down_proj = nn.Linear(inner, size, bias=bias)
        self.reduce: Reduce = _whole
        self._activate = ACTIVATIONS[spec.activation]
        self._is_silu = spec.activation == "silu"
        self.native: FastKernels | None = None
        self._gate_up: Linear | None = None
        self._down: Linear | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self._gate_up is None:
            gate, up = self.gate_proj(x), self.up_proj(x)
        elif self.native is not None and self._is_silu:
            inner = self.native.silu_times(self._gate_up(x))
            return self.reduce((self._down or self.down_proj)(inner))
        else:
            gate, up = self._gate_up(x).chunk(2, dim=-1)
        return self.reduce((self._down or self.down_proj)(self._activate(gate) * up))

    def fuse(self, make: MakeLinear) -> None:
        self._gate_up = make(*_joined(self.gate_proj, self.up_proj))
        self._down = make(*_joined(self.down_proj))
        del self.gate_proj, self.up_proj, self.down_proj


class Block(nn.Module):
    """One layer: attention and feed-forward, each normed before (Gemma: also after) and added."""

    def __init__(self, spec: ModelSpec, layer: int) -> None:
        super().__init__()
        is_sparse = spec.moe is not None and spec.moe.is_sparse(layer)
        self.rope = spec.rope_of(layer)
        self.input_layernorm = RmsNorm(spec.hidden_size, spec)
        self.self_attn = Attention(spec, layer)
        self.post_attention_layernorm = RmsNorm(spec.hidden_size, spec)
        if spec.moe is not None and is_sparse:
            self.mlp: SparseMlp | Mlp = SparseMlp(spec, spec.moe, ACTIVATIONS[spec.activation])
        else:
            self.mlp = Mlp(spec)
        self.has_post_norms = spec.has_post_norms
        if spec.has_post_norms:
            self.pre_feedforward_layernorm = RmsNorm(spec.hidden_size, spec)
            self.post_feedforward_layernorm = RmsNorm(spec.hidden_size, spec)

    def forward(
        self,
        x: torch.Tensor,
        more: torch.Tensor | None,
        turn: Turn,
        attend: Attend,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The input is `x + more`, and so is the output, to be added by the next norm."""
        x, normed = self.input_layernorm.of_sum(x, more)
        attended: torch.Tensor = self.self_attn(normed, *turn, attend)
        if self.has_post_norms:
            attended = self.post_attention_layernorm(attended)
            x, normed = self.pre_feedforward_layernorm.of_sum(x, attended)
            return x, self.post_feedforward_layernorm(self.mlp(normed))
        x, normed = self.post_attention_layernorm.of_sum(x, attended)
        return x, self.mlp(normed)


class Trunk(nn.Module):
    """Embedding, blocks and final norm (`model.*` in checkpoints)."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        # Weights that are loaded need no random values: on the meta device these import torch's
        # compiler.
        blank = torch.empty(spec.vocab_size, spec.hidden_size)
        self.embed_tokens = nn.Embedding(
            spec.vocab_size, spec.hidden_size, _weight=blank if blank.is_meta else None
        )
        self.layers = nn.ModuleList(Block(spec, layer) for layer in range(spec.num_layers))
        self.norm = RmsNorm(spec.hidden_size, spec)


class Decoder(nn.Module):
    """Tokens in, hidden states out; `logits` projects the positions that are needed."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        self.model = Trunk(spec)
        self.lm_head = nn.Linear(spec.hidden_size, spec.vocab_size, bias=False)
        if spec.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight
        self._head: Linear | None = None
        self._rotations: list[tuple[torch.Tensor, torch.Tensor]] = []

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor | None = None,
        attend: Attend | None = None,
    ) -> torch.Tensor:
        """Hidden states [..., hidden] of `token_ids` [...].

        Without `attend` each row is a text of its own that starts at position 0.
        """
        if positions is None:
            positions = torch.arange(token_ids.shape[-1], device=token_ids.device)
        if attend is None:
            attend = CausalAttention(self.spec)
        turns = [
            (cos[positions].unsqueeze(-2), sin[positions].unsqueeze(-2))
            for cos, sin in self._rotation_tables(token_ids.device)
        ]
        x: torch.Tensor = self.model.embed_tokens(token_ids)
        if self.spec.embedding_scale != 1.0:
            x = x * torch.tensor(self.spec.embedding_scale, dtype=x.dtype)
        more: torch.Tensor | None = None
        for layer in self.model.layers:
            assert isinstance(layer, Block), "blocks are made above"
            x, more = layer(x, more, turns[layer.rope], attend)
        _, out = self.model.norm.of_sum(x, more)
        return out

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Float32 scores over the vocabulary for hidden states [..., hidden]."""
        scores = (self._head or self.lm_head)(hidden).float()
        cap = self.spec.logit_softcap
        return torch.tanh(scores / cap) * cap if cap else scores

    def fuse(
        self,
        make: MakeLinear,
        native: FastKernels | None = None,
        make_router: MakeLinear = plain_linear,
        grouped: GroupedProduct | None = None,
    ) -> None:
        """Turn the weights into what serving multiplies with; training is impossible after this."""
        for module in self.modules():
            if isinstance(module, Mlp) or (isinstance(module, RmsNorm) and not module.is_offset):
                module.native = native
        for layer in self.model.layers:
            assert isinstance(layer, Block), "blocks are made above"
            layer.self_attn.fuse(make)
            if isinstance(layer.mlp, SparseMlp):
                layer.mlp.fuse(make, make_router, grouped)
            else:
                layer.mlp.fuse(make)
        self._head = make(self.lm_head.weight.data, None)
        del self.lm_head

    def _rotation_tables(self, device: torch.device) -> list[tuple[torch.Tensor, torch.Tensor]]:
        if not self._rotations or self._rotations[0][0].device != device:
            dtype = self.model.norm.weight.dtype
            self._rotations = [
                rotation_table(rope, self.spec.head_dim, self.spec.context_window, device, dtype)
                for rope in self.spec.ropes
            ]
        return self._rotations


class CausalAttention:
    """Complete texts from their first token on: [rows, tokens], without a cache."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec

    def fused(
        self, layer: int, qkv: torch.Tensor, norms: HeadNorms | None, turn: Turn
    ) -> torch.Tensor | None:
        """Not supported: nothing to gain here."""

    def __call__(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        window = self._spec.window_of(layer)
        mask = None
        if window:
            at = torch.arange(q.shape[-3], device=q.device)
            distance = at[:, None] - at[None, :]
            mask = (distance >= 0) & (distance < window)
        out = F.scaled_dot_product_attention(
            q.transpose(-3, -2),
            k.transpose(-3, -2),
            v.transpose(-3, -2),
            attn_mask=mask,
            is_causal=mask is None,
            scale=self._spec.attention_scale,
            enable_gqa=self._spec.num_heads != self._spec.num_kv_heads,
        )
        return out.transpose(-3, -2).flatten(-2)


def _joined(*parts: nn.Linear) -> tuple[torch.Tensor, torch.Tensor | None]:
    weight = torch.cat([part.weight.data for part in parts])
    # torch declares a bias as always present; a layer without one has None.
    found: list[torch.Tensor | None] = [part.bias for part in parts]
    biases = [bias.data for bias in found if bias is not None]
    return weight, torch.cat(biases) if biases else None
