"""Small models for tests: their shapes, random weights, and Hugging Face directories of them."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

import local_engine.demo_model
from local_engine.model.decoder import Decoder
from local_engine.model.spec import ModelSpec, RopeScaling


DEMO_MODEL = Path(local_engine.demo_model.__path__[0]) / "weights"
LLAMA3_SCALING = RopeScaling(
    factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32
)


def tiny_spec(**changes: Any) -> ModelSpec:
    values: dict[str, Any] = {
        "vocab_size": 1536,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
        "context_window": 96,
        "eos_token_ids": (1,),
    }
    return ModelSpec(**{**values, **changes})


def random_decoder(spec: ModelSpec, seed: int = 3) -> Decoder:
    torch.manual_seed(seed)
    decoder = Decoder(spec)
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return decoder.requires_grad_(requires_grad=False).eval()


def hf_config(spec: ModelSpec) -> dict[str, Any]:
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "max_position_embeddings": spec.context_window,
        "rms_norm_eps": spec.rms_norm_eps,
        "rope_theta": spec.rope_theta,
        "tie_word_embeddings": spec.tie_word_embeddings,
        "eos_token_id": list(spec.eos_token_ids),
    }
    return config


def write_model_directory(directory: Path, spec: ModelSpec) -> Decoder:
    """A complete directory without a manifest; tokenizer and template are the demo model's."""
    directory.mkdir()
    decoder = random_decoder(spec)
    save_file(checkpoint(decoder), directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps(hf_config(spec)))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEMO_MODEL / name, directory / name)
    return decoder


def checkpoint(decoder: Decoder) -> dict[str, torch.Tensor]:
    """The tensors that a checkpoint of this decoder holds."""
    is_tied = decoder.spec.tie_word_embeddings
    state = decoder.state_dict()
    return {k: v.contiguous() for k, v in state.items() if not (is_tied and k == "lm_head.weight")}
