"""The specification of a decoder: one frozen object for all families, checked before its use."""

import math
from typing import Final, TypeAlias

import msgspec

from local_engine.model.errors import ModelRefused


MAX_SIZE: Final = 1 << 24
MAX_LAYERS: Final = 4_096
MAX_EXPERTS_OF_ALL_LAYERS: Final = 1 << 17
"""Far beyond any existing model: a mistaken size is refused before anything is made of it."""


class RopeScaling(msgspec.Struct, frozen=True):
    """The `llama3` stretching of rotary frequencies (Llama 3.1 and later)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


class LinearScaling(msgspec.Struct, frozen=True):
    """All rotary frequencies slowed down by `factor` (Gemma 3's global layers)."""

    factor: float


class YarnScaling(msgspec.Struct, frozen=True):
    """The `yarn` stretching: long waves slow down by `factor`, and scores grow sharper."""

    factor: float
    original_max_position_embeddings: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None

    @property
    def sharpness(self) -> float:
        """The factor for cosines and sines."""
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return self._grown(self.mscale) / self._grown(self.mscale_all_dim)
        return self._grown(1.0)

    def _grown(self, scale: float) -> float:
        return 1.0 if self.factor <= 1.0 else 0.1 * scale * math.log(self.factor) + 1.0


Scaling: TypeAlias = RopeScaling | LinearScaling | YarnScaling


class Rope(msgspec.Struct, frozen=True):
    """One way of turning positions into angles."""

    theta: float = 10000.0
    scaling: Scaling | None = None


class MoeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The experts, and how a token chooses among them."""

    num_experts: int
    num_chosen: int
    intermediate_size: int
    is_normalised: bool = True
    dense_layers: tuple[int, ...] = ()

    def is_sparse(self, layer: int) -> bool:
        return layer not in self.dense_layers


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Shape and arithmetic of a decoder; sizes in elements."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_window: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: Scaling | None = None
    local_rope_theta: float | None = None
    """Layers with a window rotate by this base (Gemma 3)."""
    windows: tuple[int, ...] = ()
    """How many tokens each layer looks back, 0 for all; empty: all layers see everything."""
    activation: str = "silu"
    has_qk_norm: bool = False
    has_post_norms: bool = False
    norm_is_offset: bool = False
    embedding_scale: float = 1.0
    query_scale: float | None = None
    """Scores are divided by the square root of this; by default, of the head dimension."""
    logit_softcap: float = 0.0
    moe: MoeSpec | None = None
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    dtype: str = "float32"
    eos_token_ids: tuple[int, ...] = ()

    @property
    def attention_scale(self) -> float:
        return 1.0 / math.sqrt(self.query_scale or self.head_dim)

    @property
    def ropes(self) -> tuple[Rope, ...]:
        """The ways to rotate positions; `rope_of` says which one a layer uses."""
        first = Rope(self.rope_theta, self.rope_scaling)
        return (first,) if self.local_rope_theta is None else (first, Rope(self.local_rope_theta))

    def rope_of(self, layer: int) -> int:
        return int(self.local_rope_theta is not None and self.window_of(layer) > 0)

    def window_of(self, layer: int) -> int:
        return self.windows[layer] if self.windows else 0

    def kv_bytes_per_token(self, bytes_per_element: int) -> int:
        """Size of the keys and values of all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * bytes_per_element


def check_spec(spec: ModelSpec) -> None:
    """Raise `ModelRefused` for sizes that do not fit together."""
    _check_sizes(spec)
    if spec.num_heads % spec.num_kv_heads:
        raise ModelRefused("num_attention_heads must be a multiple of num_key_value_heads")
    if spec.head_dim % 2:
        raise ModelRefused("head_dim must be even for rotary embeddings")
    if any(not 0 <= token < spec.vocab_size for token in spec.eos_token_ids):
        raise ModelRefused("eos_token_id lies outside the vocabulary")
    if spec.windows and (len(spec.windows) != spec.num_layers or min(spec.windows) < 0):
        raise ModelRefused("layer_types must name every layer once")
    if spec.moe is not None and not 1 <= spec.moe.num_chosen <= spec.moe.num_experts:
        raise ModelRefused("num_experts_per_tok must be between 1 and the number of experts")
    if spec.query_scale is not None and not 0.0 < spec.query_scale < math.inf:
        raise ModelRefused("query_pre_attn_scalar must be positive")
    if not 0.0 <= spec.logit_softcap < math.inf:
        raise ModelRefused("final_logit_softcapping must be 0 or more")
    if not 0.0 <= spec.rms_norm_eps < 1.0:
        raise ModelRefused("rms_norm_eps must be 0 or more, and less than 1")
    for rope in spec.ropes:
        _check_rope(rope)


def _check_sizes(spec: ModelSpec) -> None:
    sizes = {
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "max_position_embeddings": spec.context_window,
    }
    if spec.moe is not None:
        sizes["num_experts"] = spec.moe.num_experts
        sizes["moe_intermediate_size"] = spec.moe.intermediate_size
    if spec.context_window == 1:
        raise ModelRefused("max_position_embeddings: there is no room for a prompt and a token")
    for key, size in sizes.items():
        if not 1 <= size <= MAX_SIZE:
            raise ModelRefused(f"{key} must be between 1 and {MAX_SIZE}")
    num_experts = 0 if spec.moe is None else spec.moe.num_experts * spec.num_layers
    if num_experts > MAX_EXPERTS_OF_ALL_LAYERS:
        raise ModelRefused("num_experts: there are more than any model has")


def _check_rope(rope: Rope) -> None:
    """Angles that are not numbers would make every answer noise, without saying why."""
    if not 1.0 < rope.theta < math.inf:
        raise ModelRefused("rope_theta must be greater than 1")
    scaling = rope.scaling
    if scaling is None:
        return
    if not 1.0 <= scaling.factor < math.inf:
        raise ModelRefused("rope_scaling: factor must be 1 or more")
    if isinstance(scaling, LinearScaling):
        return
    if not 1 <= scaling.original_max_position_embeddings <= MAX_SIZE:
        problem = f"original_max_position_embeddings must be between 1 and {MAX_SIZE}"
        raise ModelRefused(f"rope_scaling: {problem}")
    if isinstance(scaling, RopeScaling):
        if not 0.0 < scaling.low_freq_factor < scaling.high_freq_factor < math.inf:
            raise ModelRefused("rope_scaling: low_freq_factor must be below high_freq_factor")
    elif not (0.0 < scaling.beta_slow < scaling.beta_fast <= MAX_SIZE):
        raise ModelRefused("rope_scaling: beta_slow must be below beta_fast")
    elif not 0.0 < scaling.sharpness < math.inf:
        raise ModelRefused("rope_scaling: attention_factor must be positive")
