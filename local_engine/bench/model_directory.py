"""Writes the measured model as a directory that any server loads: weights, shape, tokenizer.

The weights are random, and so is every answer; the tokenizer is made up as well, but it is a real
byte-level one, so that turning tokens into text costs what it costs elsewhere.
"""

import json
import string
from itertools import islice, product
from pathlib import Path

from safetensors.torch import save_file

from local_engine.bench.subject import SPEC
from local_engine.model.decoder import Decoder


END = "<|end|>"
_LETTERS = string.ascii_letters + string.digits


def write_directory(directory: Path, decoder: Decoder) -> None:
    """Everything a server asks a directory for; no manifest, nothing here was signed by anybody."""
    state = decoder.state_dict()
    # The head is the embedding: a checkpoint of tied weights holds it once.
    tensors = {k: v.contiguous() for k, v in state.items() if k != "lm_head.weight"}
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    for name, content in {
        "config.json": _config(),
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": END,
            "model_max_length": SPEC.context_window,
            "clean_up_tokenization_spaces": False,
            "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
        },
    }.items():
        (directory / name).write_text(json.dumps(content), encoding="utf-8")


def _config() -> dict[str, object]:
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": SPEC.vocab_size,
        "hidden_size": SPEC.hidden_size,
        "intermediate_size": SPEC.intermediate_size,
        "num_hidden_layers": SPEC.num_layers,
        "num_attention_heads": SPEC.num_heads,
        "num_key_value_heads": SPEC.num_kv_heads,
        "head_dim": SPEC.head_dim,
        "max_position_embeddings": SPEC.context_window,
        "rms_norm_eps": SPEC.rms_norm_eps,
        "rope_theta": SPEC.rope_theta,
        "tie_word_embeddings": SPEC.tie_word_embeddings,
        "hidden_act": SPEC.activation,
        "attention_bias": SPEC.attention_bias,
        "eos_token_id": SPEC.vocab_size - 1,
        "torch_dtype": "float32",
    }


def _tokenizer() -> dict[str, object]:
    """Byte-level pairs: every byte, then letters in twos and threes until all places are taken."""
    bytes_as_letters = _byte_letters()
    pairs = list(product(_LETTERS, repeat=2))
    threes = ((a + b, c) for (a, b), c in product(pairs, _LETTERS))
    room = SPEC.vocab_size - len(bytes_as_letters) - len(pairs) - 1
    merges = [*pairs, *islice(threes, room)]
    texts = [*bytes_as_letters, *(a + b for a, b in merges), END]
    layer = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    return {
        "version": "1.0",
        "added_tokens": [
            {
                **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
                "id": SPEC.vocab_size - 1,
                "content": END,
                "special": True,
            }
        ],
        "pre_tokenizer": layer,
        "decoder": layer,
        "model": {
            "type": "BPE",
            "vocab": {text: number for number, text in enumerate(texts)},
            "merges": [list(pair) for pair in merges],
        },
    }


def _byte_letters() -> list[str]:
    """The letter that stands for each byte in byte-level vocabularies (GPT-2's table)."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = (byte for byte in range(256) if byte not in shown)
    letters = {byte: chr(byte) for byte in shown}
    letters |= {byte: chr(256 + number) for number, byte in enumerate(hidden)}
    return [letters[byte] for byte in range(256)]
