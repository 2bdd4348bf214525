"""What a model directory's `config.json` says about its decoder, checked once and frozen."""

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from local_engine.model.errors import ModelRefused


SUPPORTED_ARCHITECTURE = "LlamaForCausalLM"
_MAX_CONFIG_BYTES = 1 << 20
_Config = TypeVar("_Config")


class RopeScaling(msgspec.Struct, frozen=True):
    """The `llama3` stretching of rotary frequencies (Llama 3.1 and later)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Shape of a Llama-family decoder."""

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
    rope_scaling: RopeScaling | None = None
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    eos_token_ids: tuple[int, ...] = ()


class _HfConfig(msgspec.Struct):
    """The fields of a Hugging Face `config.json` that change the computation."""

    architectures: list[str]
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    rms_norm_eps: float = 1e-6
    rope_theta: float | None = None
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    pretraining_tp: int = 1
    quantization_config: dict[str, Any] | None = None
    eos_token_id: int | list[int] | None = None


class _NamedConfig(msgspec.Struct):
    model_name: str | None = None


class _GenerationConfig(msgspec.Struct):
    eos_token_id: int | list[int] | None = None
    do_sample: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None


class SamplingDefaults(msgspec.Struct, frozen=True):
    """What a request gets that says nothing about sampling."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0


def read_spec(directory: Path) -> ModelSpec:
    """The specification in `directory`; raises `ModelRefused` for anything we cannot compute."""
    config = _decode(directory / "config.json", _HfConfig)
    generation = _generation_config(directory)
    eos = generation.eos_token_id if generation.eos_token_id is not None else config.eos_token_id
    spec = _spec_of(config, _as_ids(eos))
    _check_shape(spec)
    return spec


def read_model_name(directory: Path) -> str:
    """The name the model is served under: `model_name` in its configuration, or the directory's."""
    named = _decode(directory / "config.json", _NamedConfig)
    return named.model_name or directory.resolve().name


def read_sampling_defaults(directory: Path) -> SamplingDefaults:
    """The model author's wish in `generation_config.json`: `do_sample: false` means greedy."""
    config = _generation_config(directory)
    if config.do_sample is False:
        return SamplingDefaults(temperature=0.0)
    given = {"temperature": config.temperature, "top_p": config.top_p, "top_k": config.top_k}
    return msgspec.convert({k: v for k, v in given.items() if v is not None}, SamplingDefaults)


def _generation_config(directory: Path) -> _GenerationConfig:
    path = directory / "generation_config.json"
    return _decode(path, _GenerationConfig) if path.exists() else _GenerationConfig()


def _decode(path: Path, kind: type[_Config]) -> _Config:
    try:
        if path.stat().st_size > _MAX_CONFIG_BYTES:
            raise ModelRefused(f"{path.name} is larger than {_MAX_CONFIG_BYTES} bytes")
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError as error:
        raise ModelRefused(f"{path.name} is missing") from error
    except msgspec.DecodeError as error:
        raise ModelRefused(f"{path.name} cannot be read: {error}") from error


def _as_ids(value: int | list[int] | None) -> tuple[int, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)


def _spec_of(config: _HfConfig, eos_token_ids: tuple[int, ...]) -> ModelSpec:
    if SUPPORTED_ARCHITECTURE not in config.architectures:
        raise ModelRefused(f"architecture {config.architectures} is not {SUPPORTED_ARCHITECTURE}")
    if config.hidden_act != "silu":
        raise ModelRefused(f"activation {config.hidden_act!r} is not 'silu'")
    if config.quantization_config is not None:
        raise ModelRefused("quantised weights are not supported")
    if config.num_attention_heads < 1:
        raise ModelRefused("num_attention_heads must be positive")
    rope = config.rope_parameters or config.rope_scaling or {}
    theta = config.rope_theta if config.rope_theta is not None else rope.get("rope_theta", 10000.0)
    return ModelSpec(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads or config.num_attention_heads,
        head_dim=config.head_dim or config.hidden_size // config.num_attention_heads,
        context_window=config.max_position_embeddings,
        rms_norm_eps=config.rms_norm_eps,
        rope_theta=float(theta),
        rope_scaling=_rope_scaling(rope),
        tie_word_embeddings=config.tie_word_embeddings,
        attention_bias=config.attention_bias,
        mlp_bias=config.mlp_bias,
        eos_token_ids=eos_token_ids,
    )


def _rope_scaling(rope: dict[str, Any]) -> RopeScaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise ModelRefused(f"rope type {kind!r} is neither 'default' nor 'llama3'")
    try:
        return msgspec.convert(rope, RopeScaling, strict=False)
    except msgspec.ValidationError as error:
        raise ModelRefused(f"rope_scaling: {error}") from error


def _check_shape(spec: ModelSpec) -> None:
    sizes = (
        spec.vocab_size,
        spec.hidden_size,
        spec.intermediate_size,
        spec.num_layers,
        spec.num_heads,
        spec.num_kv_heads,
        spec.head_dim,
        spec.context_window,
    )
    if min(sizes) < 1:
        raise ModelRefused("every size in config.json must be positive")
    if spec.num_heads % spec.num_kv_heads:
        raise ModelRefused("num_attention_heads must be a multiple of num_key_value_heads")
    if spec.head_dim % 2:
        raise ModelRefused("head_dim must be even for rotary embeddings")
    if any(not 0 <= token < spec.vocab_size for token in spec.eos_token_ids):
        raise ModelRefused("eos_token_id lies outside the vocabulary")
