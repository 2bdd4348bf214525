"""Logits and greedy texts are those of transformers, on random weights, for every family."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from local_engine.model.loader import load_model
from tests.local_engine.engine_loop import greedy_tokens


SHAPE: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0}
YARN_OF_QWEN = {**YARN, "original_max_position_embeddings": 48, "attention_factor": 0.9}
MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
WINDOW = {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 2}
GEMMA = {"head_dim": 32, "sliding_window": 24, "query_pre_attn_scalar": 48}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama, scaled rope": ("Llama", {"rope_parameters": LLAMA3, "attention_bias": True}),
    "llama, yarn": ("Llama", {"rope_parameters": YARN}),
    "qwen2, yarn": ("Qwen2", {"rope_parameters": {**YARN_OF_QWEN, "truncate": False}}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2, windows of later layers": ("Qwen2", WINDOW),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "mistral, window": ("Mistral", {"sliding_window": 24}),
    "gemma3": ("Gemma3Text", {**GEMMA, "num_hidden_layers": 7}),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3 moe": ("Qwen3Moe", {**MOE, "head_dim": 32, "decoder_sparse_step": 2}),
    "qwen3 moe, window": ("Qwen3Moe", {**MOE, **WINDOW, "head_dim": 32}),
}


def reference_of(family: str, changes: dict[str, Any], directory: Path) -> Any:
    """A random model of transformers, saved where ours can load it."""
    config = getattr(transformers, f"{family}Config")(**{**SHAPE, **changes})
    torch.manual_seed(7)
    name = "Gemma3ForCausalLM" if family == "Gemma3Text" else f"{family}ForCausalLM"
    model = getattr(transformers, name)(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.15)
    model.save_pretrained(directory)
    return model


@pytest.mark.parametrize("family", FAMILIES, ids=list(FAMILIES))
def test_logits_and_greedy_texts_equal_those_of_transformers(family: str, tmp_path: Path) -> None:
    reference = reference_of(*FAMILIES[family], tmp_path)
    decoder = load_model(tmp_path).decoder
    prompt = torch.randint(3, 160, (1, 60), generator=torch.Generator().manual_seed(5))
    with torch.inference_mode():
        expected = reference(prompt).logits
        found = decoder.logits(decoder(prompt))
        text = reference.generate(prompt, max_new_tokens=32, min_new_tokens=32, do_sample=False)[
            0, 60:
        ]
    error = (found - expected).norm() / expected.norm()
    assert float(error) <= 1e-5
    assert greedy_tokens(decoder, prompt[0].tolist(), 32) == text.tolist()
