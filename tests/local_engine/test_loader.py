"""Model directories: what loads, and what is refused before anything of it is used."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from local_engine.model import config
from local_engine.model.config import SamplingDefaults
from local_engine.model.errors import ModelRefused
from local_engine.model.loader import load_model
from local_engine.model.manifest import open_model, verify_directory, write_manifest
from local_engine.model.spec import ModelSpec
from local_engine.text.tokenizer import load_chat_tokenizer
from tests.local_engine.models import LLAMA3_SCALING, tiny_spec, write_model_directory


TOKENS = torch.tensor([[1, 2, 3]])


def read_spec(directory: Path) -> ModelSpec:
    with open_model(directory) as files:
        return config.read_spec(files)


def read_sampling_defaults(directory: Path) -> SamplingDefaults:
    with open_model(directory) as files:
        return config.read_sampling_defaults(files)


def read_model_name(directory: Path) -> str:
    with open_model(directory) as files:
        return config.read_model_name(files, directory.name)


def load_everything(directory: Path) -> None:
    load_model(directory)
    with open_model(directory) as files:
        load_chat_tokenizer(files)


def rewrite_config(directory: Path, **changes: Any) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def write_shards(directory: Path) -> None:
    tensors = load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    weight_map: dict[str, str] = {}
    for index, name in enumerate(sorted(tensors)):
        weight_map[name] = f"model-{index % 3}.safetensors"
    for file in set(weight_map.values()):
        save_file({n: t for n, t in tensors.items() if weight_map[n] == file}, directory / file)
    index_file = directory / "model.safetensors.index.json"
    index_file.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def test_a_loaded_model_computes_what_the_saved_one_computed(tmp_path: Path) -> None:
    saved = write_model_directory(tmp_path / "m", tiny_spec())
    loaded = load_model(tmp_path / "m").decoder
    assert torch.equal(loaded(TOKENS), saved(TOKENS))


def test_a_sharded_checkpoint_loads_like_a_whole_one(tiny_model: Path) -> None:
    whole = load_model(tiny_model).decoder(TOKENS)
    write_shards(tiny_model)
    assert torch.equal(load_model(tiny_model).decoder(TOKENS), whole)


def test_a_tied_model_needs_no_head_of_its_own(tmp_path: Path) -> None:
    saved = write_model_directory(tmp_path / "m", tiny_spec(tie_word_embeddings=True))
    loaded = load_model(tmp_path / "m").decoder
    assert torch.equal(loaded.logits(loaded(TOKENS)), saved.logits(saved(TOKENS)))
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight


def test_both_spellings_of_rope_scaling_are_read(tiny_model: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    rewrite_config(tiny_model, rope_scaling=scaling)
    assert read_spec(tiny_model).rope_scaling == LLAMA3_SCALING
    rewrite_config(
        tiny_model,
        rope_scaling=None,
        rope_theta=None,
        rope_parameters={**scaling, "rope_theta": 5e5},
    )
    assert read_spec(tiny_model).rope_scaling == LLAMA3_SCALING
    assert read_spec(tiny_model).rope_theta == 5e5


def test_a_model_is_called_as_its_configuration_or_its_directory_says(tiny_model: Path) -> None:
    assert read_model_name(tiny_model) == "tiny"
    rewrite_config(tiny_model, model_name="other")
    assert read_model_name(tiny_model) == "other"


def test_the_generation_config_decides_end_tokens_and_default_sampling(tiny_model: Path) -> None:
    path = tiny_model / "generation_config.json"
    path.write_text(json.dumps({"eos_token_id": [4, 5], "temperature": 0.6, "top_p": 0.9}))
    assert read_spec(tiny_model).eos_token_ids == (4, 5)
    assert read_sampling_defaults(tiny_model).temperature == 0.6
    path.write_text(json.dumps({"do_sample": False, "temperature": 0.6}))
    assert read_sampling_defaults(tiny_model).temperature == 0.0
    path.unlink()
    assert read_sampling_defaults(tiny_model).temperature == 1.0


LLAMA3 = {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "architecture"),
        ({"torch_dtype": "float8"}, "dtype"),
        ({"hidden_act": "gelu"}, "activation"),
        ({"quantization_config": {"bits": 4}}, "quantised"),
        ({"is_causal": False}, "looks ahead"),
        ({"use_bidirectional_attention": "all"}, "looks ahead"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}, "rope type"),
        ({"rope_scaling": {"rope_type": 5}}, "rope type"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "factor"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4, "beta_fast": 1}}, "beta_fast"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": "nan"}}, "factor"),
        ({"rope_parameters": {"full_attention": 5}}, "full_attention"),
        ({"rope_theta": None, "rope_parameters": {"rope_theta": "x"}}, "rope_theta"),
        ({"rope_theta": 0}, "rope_theta"),
        ({"rms_norm_eps": -1}, "rms_norm_eps"),
        ({"num_hidden_layers": 1 << 31}, "config.json: num_hidden_layers"),
        ({"hidden_size": 10**30}, "config.json: hidden_size"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope_scaling"),
        ({"num_key_value_heads": 3}, "multiple"),
        ({"num_key_value_heads": 0}, "num_key_value_heads must be between 1"),
        ({"head_dim": 0}, "head_dim must be between 1"),
        ({"max_position_embeddings": 1}, "max_position_embeddings: there is no room"),
        ({"architectures": ["MixtralForCausalLM"], "num_local_experts": 0}, "num_experts must"),
        ({"architectures": ["MixtralForCausalLM"], "num_experts_per_tok": 0}, "num_experts_per"),
        ({"num_attention_heads": 0}, "config.json: num_attention_heads"),
        ({"head_dim": 7}, "even"),
        ({"vocab_size": 0}, "config.json: vocab_size"),
        ({"vocab_size": "many"}, "config.json"),
        ({"eos_token_id": 99999}, "eos_token_id"),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": -1}, "sliding_window"),
        ({"architectures": ["Gemma3ForCausalLM"], "query_pre_attn_scalar": -1}, "query_pre_attn"),
        ({"architectures": ["Gemma3ForCausalLM"], "final_logit_softcapping": -1}, "softcapping"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2, "beta_fast": 1e308}}, "beta_fast"),
        ({"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 1 << 70}}, "original_max"),
    ],
)
def test_a_configuration_we_cannot_compute_is_refused(
    tiny_model: Path, changes: dict[str, Any], reason: str
) -> None:
    rewrite_config(tiny_model, **changes)
    with pytest.raises(ModelRefused, match=reason):
        read_spec(tiny_model)


@pytest.mark.parametrize("wish", [{"temperature": -1}, {"top_p": 0}, {"top_k": -7}])
def test_a_wish_for_sampling_that_no_request_could_have_is_refused(
    tiny_model: Path, wish: dict[str, Any]
) -> None:
    (tiny_model / "generation_config.json").write_text(json.dumps(wish))
    with pytest.raises(ModelRefused, match=rf"generation_config\.json: {next(iter(wish))}"):
        read_sampling_defaults(tiny_model)


def truncate_weights(directory: Path) -> None:
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def pickle_instead(directory: Path) -> None:
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")


def pickle_in_disguise(directory: Path) -> None:
    (directory / "model.safetensors").write_bytes(b"\x80\x04\x95" + b"0" * 200)


def drop_tensor(directory: Path) -> None:
    tensors = load_file(directory / "model.safetensors")
    tensors.pop("model.norm.weight")
    save_file(tensors, directory / "model.safetensors")


def add_tensor(directory: Path) -> None:
    tensors = load_file(directory / "model.safetensors")
    save_file({**tensors, "extra": torch.zeros(1)}, directory / "model.safetensors")


def wrong_shape(directory: Path) -> None:
    tensors = load_file(directory / "model.safetensors")
    save_file({**tensors, "model.norm.weight": torch.ones(3)}, directory / "model.safetensors")


def index_outside(directory: Path) -> None:
    index = {"weight_map": {"model.norm.weight": "../tiny/model.safetensors"}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def index_of_pickles(directory: Path) -> None:
    index = {"weight_map": {"model.norm.weight": "pytorch_model.bin"}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def torn_tokenizer(directory: Path) -> None:
    path = directory / "tokenizer.json"
    path.write_bytes(path.read_bytes()[:-100])


def templates_without_names(directory: Path) -> None:
    path = directory / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": [5]}))


def no_config(directory: Path) -> None:
    (directory / "config.json").unlink()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (truncate_weights, "cannot be read as safetensors"),
        (pickle_instead, "no other format is loaded"),
        (pickle_in_disguise, "cannot be read as safetensors"),
        (drop_tensor, "missing: ['model.norm.weight']"),
        (add_tensor, "not expected: ['extra']"),
        (wrong_shape, "has shape (3,)"),
        (index_outside, "which is no safetensors file"),
        (index_of_pickles, "which is no safetensors file"),
        (no_config, "config.json is missing"),
        (torn_tokenizer, "tokenizer.json cannot be read"),
        (templates_without_names, "neither chat_template.jinja nor"),
    ],
)
def test_a_damaged_directory_is_refused(
    tiny_model: Path, damage: Callable[[Path], None], reason: str
) -> None:
    damage(tiny_model)
    with pytest.raises(ModelRefused, match=re.escape(reason)):
        load_everything(tiny_model)


def test_a_directory_that_matches_its_manifest_has_its_digest(tiny_model: Path) -> None:
    write_manifest(tiny_model)
    first = verify_directory(tiny_model)
    assert first.startswith("sha256:")
    assert load_model(tiny_model).digest == first


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "tokenizer_config.json"])
def test_one_changed_bit_in_any_file_refuses_the_model(tiny_model: Path, name: str) -> None:
    write_manifest(tiny_model)
    content = bytearray((tiny_model / name).read_bytes())
    content[-2] ^= 1
    (tiny_model / name).write_bytes(bytes(content))
    with pytest.raises(ModelRefused, match=f"{name} does not match its sha256"):
        load_model(tiny_model)


def test_a_file_too_many_or_too_few_refuses_the_model(tiny_model: Path) -> None:
    write_manifest(tiny_model)
    (tiny_model / "chat_template.jinja").write_text("{{ 1 }}")
    with pytest.raises(ModelRefused, match=r"chat_template.jinja is not in the manifest"):
        load_model(tiny_model)
    (tiny_model / "chat_template.jinja").unlink()
    (tiny_model / "tokenizer_config.json").unlink()
    with pytest.raises(ModelRefused, match="but not in the directory"):
        load_model(tiny_model)


def test_the_digest_changes_with_the_template(tiny_model: Path) -> None:
    before = load_model(tiny_model).digest
    (tiny_model / "chat_template.jinja").write_text("{{ 1 }}")
    assert load_model(tiny_model).digest != before


def test_an_unreadable_manifest_refuses_the_model(tiny_model: Path) -> None:
    (tiny_model / "manifest.json").write_text("{")
    with pytest.raises(ModelRefused, match="manifest"):
        load_model(tiny_model)
