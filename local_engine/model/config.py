"""Reads `config.json` and `generation_config.json` of a Hugging Face directory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from local_engine.model.errors import ModelRefused
from local_engine.model.json_file import decode_json
from local_engine.model.manifest import ModelFiles
from local_engine.model.spec import (
    MAX_LAYERS,
    MAX_SIZE,
    LinearScaling,
    ModelSpec,
    MoeSpec,
    RopeScaling,
    Scaling,
    YarnScaling,
    check_spec,
)
from local_engine.sampling_params import InvalidParameter, SamplingParams


DTYPES = ("float32", "bfloat16", "float16")
_MAX_CONFIG_BYTES = 1 << 20
_MAX_NAME_CHARS = 200
_PARTIAL = "partial_rotary_factor"
_Config = TypeVar("_Config")
_Extras = dict[str, Any]


class HfConfig(msgspec.Struct):
    """The fields of a `config.json` that change the computation, in both generations of names."""

    architectures: list[str]
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str | None = None
    hidden_activation: str | None = None
    rms_norm_eps: float = 1e-6
    rope_theta: float | None = None
    rope_local_base_freq: float | None = None
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None
    partial_rotary_factor: float | None = None
    tie_word_embeddings: bool | None = None
    attention_bias: bool = False
    mlp_bias: bool = False
    quantization_config: dict[str, Any] | None = None
    eos_token_id: int | list[int] | None = None
    dtype: str | None = None
    torch_dtype: str | None = None
    sliding_window: int | None = None
    use_sliding_window: bool | None = None
    max_window_layers: int | None = None
    layer_types: list[str] | None = None
    sliding_window_pattern: int | None = None
    query_pre_attn_scalar: float | None = None
    is_causal: bool | None = None
    use_bidirectional_attention: bool | str | None = None
    attn_logit_softcapping: float | None = None
    final_logit_softcapping: float | None = None
    num_experts: int | None = None
    num_local_experts: int | None = None
    num_experts_per_tok: int | None = None
    moe_intermediate_size: int | None = None
    norm_topk_prob: bool = False
    decoder_sparse_step: int = 1
    mlp_only_layers: list[int] | None = None


class _NamedConfig(msgspec.Struct):
    model_name: str | None = None


class _GenerationConfig(msgspec.Struct):
    eos_token_id: int | list[int] | None = None
    do_sample: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None


class SamplingDefaults(msgspec.Struct, frozen=True):
    """The sampling of a request that does not specify any."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0


def read_spec(files: ModelFiles) -> ModelSpec:
    """The specification of a model; raises `ModelRefused` for anything we cannot compute."""
    config = _decode(files, "config.json", HfConfig)
    generation = _generation_config(files)
    with _naming("config.json"):
        spec = _spec_of(config, _as_ids(config.eos_token_id))
        check_spec(spec)
    if generation.eos_token_id is None:
        return spec
    with _naming("generation_config.json"):
        ends = _as_ids(generation.eos_token_id)
        spec = msgspec.structs.replace(spec, eos_token_ids=ends)
        check_spec(spec)
    return spec


@contextmanager
def _naming(file: str) -> Iterator[None]:
    """Name the file in a refusal of its content."""
    try:
        yield
    except ModelRefused as error:
        raise ModelRefused(f"{file}: {error}") from error


def read_model_name(files: ModelFiles, otherwise: str) -> str:
    """The name the model is served under: `model_name` in its configuration, or `otherwise`."""
    name = _decode(files, "config.json", _NamedConfig).model_name or otherwise
    if len(name) > _MAX_NAME_CHARS or not name.isprintable():
        problem = f"model_name needs 1 to {_MAX_NAME_CHARS} characters that can be shown"
        raise ModelRefused(f"config.json: {problem}")
    return name


def read_sampling_defaults(files: ModelFiles) -> SamplingDefaults:
    """The model author's defaults in `generation_config.json`: `do_sample: false` means greedy."""
    config = _generation_config(files)
    if config.do_sample is False:
        return SamplingDefaults(temperature=0.0)
    given = {"temperature": config.temperature, "top_p": config.top_p, "top_k": config.top_k}
    wished = {name: value for name, value in given.items() if value is not None}
    wish = msgspec.convert(wished, SamplingDefaults)
    try:
        SamplingParams(temperature=wish.temperature, top_p=wish.top_p, top_k=wish.top_k)
    except InvalidParameter as error:
        raise ModelRefused(f"generation_config.json: {error}") from error
    return wish


def _generation_config(files: ModelFiles) -> _GenerationConfig:
    name = "generation_config.json"
    return _decode(files, name, _GenerationConfig) if name in files else _GenerationConfig()


def _decode(files: ModelFiles, name: str, kind: type[_Config]) -> _Config:
    return decode_json(name, files.read(name, _MAX_CONFIG_BYTES), kind)


def _as_ids(value: int | list[int] | None) -> tuple[int, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)


def _spec_of(config: HfConfig, eos_token_ids: tuple[int, ...]) -> ModelSpec:
    family = next((FAMILIES[name] for name in config.architectures if name in FAMILIES), None)
    if family is None:
        known = ", ".join(FAMILIES)
        raise ModelRefused(f"architecture {config.architectures} is none of {known}")
    activation = config.hidden_activation or config.hidden_act or "silu"
    if activation not in {"silu", "gelu_pytorch_tanh"}:
        raise ModelRefused(f"activation {activation!r} is not supported")
    if config.quantization_config is not None:
        raise ModelRefused("checkpoints with quantised weights are not supported")
    if config.is_causal is False or config.use_bidirectional_attention:
        raise ModelRefused("attention that looks ahead, as of embedding models, is not supported")
    if config.num_attention_heads < 1:
        raise ModelRefused("num_attention_heads must be positive")
    if not 1 <= config.num_hidden_layers <= MAX_LAYERS:
        # Before anything is made for each of them.
        raise ModelRefused(f"num_hidden_layers must be between 1 and {MAX_LAYERS}")
    dtype = config.dtype or config.torch_dtype or "float32"
    if dtype not in DTYPES:
        raise ModelRefused(f"dtype {dtype!r} is none of {', '.join(DTYPES)}")
    fields: dict[str, Any] = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_layers": config.num_hidden_layers,
        "num_heads": config.num_attention_heads,
        "num_kv_heads": _said(config.num_key_value_heads, config.num_attention_heads),
        "head_dim": _said(config.head_dim, config.hidden_size // config.num_attention_heads),
        "context_window": config.max_position_embeddings,
        "rms_norm_eps": config.rms_norm_eps,
        "tie_word_embeddings": bool(config.tie_word_embeddings),
        "attention_bias": config.attention_bias,
        "output_bias": config.attention_bias,
        "mlp_bias": config.mlp_bias,
        "activation": activation,
        "dtype": dtype,
        "eos_token_ids": eos_token_ids,
        **_rope(config),
    }
    return ModelSpec(**{**fields, **family(config)})


def _said(value: int | None, otherwise: int) -> int:
    """A size from a file, even an impossible one; `otherwise` if it is not given."""
    return otherwise if value is None else value


def _rope(config: HfConfig) -> _Extras:
    full, local = _rope_given(config, "full_attention"), _rope_given(config, "sliding_attention")
    turned = (config.partial_rotary_factor, *(each.get(_PARTIAL) for each in (full, local)))
    if any(part not in (None, 1) for part in turned):
        raise ModelRefused(f"{_PARTIAL}: heads that are turned in part are not supported")
    theta = config.rope_theta if config.rope_theta is not None else _theta_in(full)
    local_theta = _theta_in(local) if local is not full else None
    if local_theta is None:
        local_theta = config.rope_local_base_freq
    return {
        "rope_theta": 10000.0 if theta is None else theta,
        "rope_scaling": _rope_scaling(full, config.max_position_embeddings),
        "local_rope_theta": local_theta,
    }


def _rope_given(config: HfConfig, kind: str) -> dict[str, Any]:
    """What is given for layers of a kind, or for all of them alike."""
    given = config.rope_parameters or config.rope_scaling or {}
    found = given.get(kind, given)
    if not isinstance(found, dict):
        raise ModelRefused(f"rope_parameters: {kind} must be an object")
    return found


def _theta_in(rope: dict[str, Any]) -> float | None:
    theta = rope.get("rope_theta")
    if theta is None:
        return None
    if isinstance(theta, bool) or not isinstance(theta, int | float):
        raise ModelRefused("rope_theta must be a number")
    return float(theta)


def _rope_scaling(rope: dict[str, Any], context_window: int) -> Scaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    kinds: dict[str, type[Scaling]] = {
        "llama3": RopeScaling,
        "linear": LinearScaling,
        "yarn": YarnScaling,
    }
    if not isinstance(kind, str) or kind not in kinds:
        raise ModelRefused(f"rope type {kind!r} is none of default, {', '.join(kinds)}")
    given = {name: value for name, value in rope.items() if value is not None}
    if kind == "yarn":
        given = {"original_max_position_embeddings": context_window, **given}
    try:
        return msgspec.convert(given, kinds[kind], strict=False)
    except msgspec.ValidationError as error:
        raise ModelRefused(f"rope_scaling: {error}") from error


def _windows(config: HfConfig, *, is_used: bool) -> _Extras:
    """Each layer's window: named in newer configurations, by family convention in older ones."""
    num_layers, window = config.num_hidden_layers, config.sliding_window
    if not is_used or not window:
        return {}
    if not 0 < window <= MAX_SIZE:
        raise ModelRefused(f"sliding_window must be between 0 and {MAX_SIZE}")
    if config.layer_types is not None:
        is_local = [kind == "sliding_attention" for kind in config.layer_types]
    elif config.sliding_window_pattern:
        is_local = [bool((i + 1) % config.sliding_window_pattern) for i in range(num_layers)]
    else:
        first = config.max_window_layers if config.use_sliding_window else 0
        is_local = [layer >= (first or 0) for layer in range(num_layers)]
    return {"windows": tuple(window if local else 0 for local in is_local)}


def _llama(config: HfConfig) -> _Extras:  # noqa: ARG001 - it is the family the others differ from
    return {}


def _qwen2(config: HfConfig) -> _Extras:
    biases = {"attention_bias": True, "output_bias": False}
    return {**biases, **_windows(config, is_used=bool(config.use_sliding_window))}


def _qwen3(config: HfConfig) -> _Extras:
    return {"has_qk_norm": True, **_windows(config, is_used=bool(config.use_sliding_window))}


def _mistral(config: HfConfig) -> _Extras:
    return _windows(config, is_used=True)


def _gemma3(config: HfConfig) -> _Extras:
    if config.attn_logit_softcapping:
        raise ModelRefused("attn_logit_softcapping is not supported")
    habit = config.sliding_window_pattern or (None if config.layer_types else 6)
    config = msgspec.structs.replace(config, sliding_window_pattern=habit)
    rope = _rope(config)
    return {
        "has_qk_norm": True,
        "has_post_norms": True,
        "norm_is_offset": True,
        "embedding_scale": config.hidden_size**0.5,
        "query_scale": config.query_pre_attn_scalar or 256.0,
        "logit_softcap": config.final_logit_softcapping or 0.0,
        "activation": config.hidden_activation or "gelu_pytorch_tanh",
        "tie_word_embeddings": config.tie_word_embeddings is not False,
        "rope_theta": rope["rope_theta"] if _names_theta(config) else 1_000_000.0,
        "local_rope_theta": rope["local_rope_theta"] or 10_000.0,
        **_windows(config, is_used=True),
    }


def _names_theta(config: HfConfig) -> bool:
    given = config.rope_parameters or {}
    return config.rope_theta is not None or "rope_theta" in given.get("full_attention", given)


def _mixtral(config: HfConfig) -> _Extras:
    moe = MoeSpec(
        num_experts=_said(config.num_local_experts, 8),
        num_chosen=_said(config.num_experts_per_tok, 2),
        intermediate_size=config.intermediate_size,
    )
    return {"moe": moe, **_windows(config, is_used=True)}


def _qwen3_moe(config: HfConfig) -> _Extras:
    dense = set(config.mlp_only_layers or ())
    step = max(1, config.decoder_sparse_step)
    layers = range(config.num_hidden_layers)
    moe = MoeSpec(
        num_experts=_said(config.num_experts, _said(config.num_local_experts, 128)),
        num_chosen=_said(config.num_experts_per_tok, 8),
        intermediate_size=_said(config.moe_intermediate_size, 768),
        is_normalised=config.norm_topk_prob,
        dense_layers=tuple(i for i in layers if i in dense or (i + 1) % step),
    )
    # Unlike in its dense siblings, either all layers have the window or none.
    alike = msgspec.structs.replace(config, max_window_layers=0, layer_types=None)
    return {"moe": moe, **_qwen3(alike)}


FAMILIES: dict[str, Callable[[HfConfig], _Extras]] = {
    "LlamaForCausalLM": _llama,
    "Qwen2ForCausalLM": _qwen2,
    "Qwen3ForCausalLM": _qwen3,
    "MistralForCausalLM": _mistral,
    "Gemma3ForCausalLM": _gemma3,
    "MixtralForCausalLM": _mixtral,
    "Qwen3MoeForCausalLM": _qwen3_moe,
}
