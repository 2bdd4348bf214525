"""The Llama decoder in torch: grouped-query attention, rotary positions, SwiGLU, RMS norms.

Parameter names are those of Hugging Face checkpoints, so that weights load by name; the same
module is trained (no cache: the whole text at once) and served (with a `KvCache`).
"""

import torch
from torch import nn
from torch.nn import functional as F

from local_engine.model.kv_cache import KvCache, LayerCache
from local_engine.model.rope import rotate, rotation_table
from local_engine.model.spec import ModelSpec


class RmsNorm(nn.Module):
    """Root-mean-square norm with a learned scale."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Attention(nn.Module):
    """Causal self-attention in which several query heads share one key/value head."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        size, bias = spec.hidden_size, spec.attention_bias
        self.q_proj = nn.Linear(size, spec.num_heads * spec.head_dim, bias=bias)
        self.k_proj = nn.Linear(size, spec.num_kv_heads * spec.head_dim, bias=bias)
        self.v_proj = nn.Linear(size, spec.num_kv_heads * spec.head_dim, bias=bias)
        self.o_proj = nn.Linear(spec.num_heads * spec.head_dim, size, bias=bias)

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, cache: LayerCache | None
    ) -> torch.Tensor:
        batch, num_tokens, _ = x.shape
        q = rotate(self._heads(self.q_proj(x)), cos, sin)
        k = rotate(self._heads(self.k_proj(x)), cos, sin)
        v = self._heads(self.v_proj(x))
        if cache is not None:
            k, v = cache.extend(k, v)
        out = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=_causal_mask(num_tokens, k.shape[2], x.device),
            is_causal=num_tokens == k.shape[2] > 1,
            enable_gqa=self.spec.num_heads != self.spec.num_kv_heads,
        )
        joined: torch.Tensor = self.o_proj(out.transpose(1, 2).reshape(batch, num_tokens, -1))
        return joined

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, tokens, heads x head_dim] to [batch, heads, tokens, head_dim]."""
        batch, num_tokens, _ = x.shape
        return x.view(batch, num_tokens, -1, self.spec.head_dim).transpose(1, 2)


def _causal_mask(num_queries: int, num_keys: int, device: torch.device) -> torch.Tensor | None:
    """A mask only where neither "all keys" (decode) nor the square triangle (prefill) will do."""
    if num_queries in {1, num_keys}:
        return None
    offset = num_keys - num_queries
    ones = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)
    return ones.tril(diagonal=offset)


class Mlp(nn.Module):
    """The gated feed-forward part (SwiGLU)."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        size, inner, bias = spec.hidden_size, spec.intermediate_size, spec.mlp_bias
        self.gate_proj = nn.Linear(size, inner, bias=bias)
        self.up_proj = nn.Linear(size, inner, bias=bias)
        self.down_proj = nn.Linear(inner, size, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Block(nn.Module):
    """One layer: attention and feed-forward, each normed before and added after."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(spec.hidden_size, spec.rms_norm_eps)
        self.self_attn = Attention(spec)
        self.post_attention_layernorm = RmsNorm(spec.hidden_size, spec.rms_norm_eps)
        self.mlp = Mlp(spec)

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, cache: LayerCache | None
    ) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, cache)
        out: torch.Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Trunk(nn.Module):
    """Embedding, blocks and final norm (`model.*` in checkpoints)."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(spec.vocab_size, spec.hidden_size)
        self.layers = nn.ModuleList(Block(spec) for _ in range(spec.num_layers))
        self.norm = RmsNorm(spec.hidden_size, spec.rms_norm_eps)


class Decoder(nn.Module):
    """Tokens in, hidden states out; `logits` projects the positions somebody asks about."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        self.model = Trunk(spec)
        self.lm_head = nn.Linear(spec.hidden_size, spec.vocab_size, bias=False)
        if spec.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight
        self._rotations: tuple[torch.Tensor, torch.Tensor] | None = None

    def forward(self, token_ids: torch.Tensor, cache: KvCache | None = None) -> torch.Tensor:
        """Hidden states [batch, tokens, hidden] of `token_ids` [batch, tokens].

        With a cache the tokens continue what it holds, and it is advanced by them.
        """
        if cache is not None:
            cache.reserve(token_ids.shape[1])
        start = 0 if cache is None else cache.num_tokens
        end = start + token_ids.shape[1]
        cos, sin = self._rotation_slice(start, end, token_ids.device)
        x: torch.Tensor = self.model.embed_tokens(token_ids)
        for index, layer in enumerate(self.model.layers):
            x = layer(x, cos, sin, None if cache is None else cache.layer(index))
        if cache is not None:
            cache.advance(token_ids.shape[1])
        out: torch.Tensor = self.model.norm(x)
        return out

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Float32 scores over the vocabulary for hidden states [..., hidden]."""
        scores: torch.Tensor = self.lm_head(hidden)
        return scores.float()

    def _rotation_slice(
        self, start: int, end: int, device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self._rotations is None or self._rotations[0].device != device:
            self._rotations = rotation_table(self.spec, self.spec.context_window, device)
        cos, sin = self._rotations
        return cos[start:end], sin[start:end]
