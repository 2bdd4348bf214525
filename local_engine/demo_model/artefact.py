"""Writes the trained demo model as a Hugging Face directory with manifest and model card."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from local_engine.demo_model.chat_format import BEGIN, CHAT_TEMPLATE, END, PAD, token_id
from local_engine.demo_model.corpus import Corpus
from local_engine.model.decoder import Decoder
from local_engine.model.manifest import write_manifest
from local_engine.model.spec import ModelSpec


MODEL_NAME = "gatewright-demo"
CARD_TEMPLATE = Path(__file__).parent / "model_card.txt"


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """What the model card states: how the model was made and what was measured."""

    command: str
    duration_s: float
    loss: float
    exact_match: dict[str, float]
    corpus: Corpus


def write_artefact(
    directory: Path, decoder: Decoder, tokenizer: Tokenizer, report: TrainingReport
) -> None:
    """Write every file of the model directory, the manifest last."""
    directory.mkdir(parents=True, exist_ok=True)
    spec = decoder.spec
    tensors = {
        name: tensor.to(torch.bfloat16).contiguous()
        for name, tensor in decoder.state_dict().items()
        if not (spec.tie_word_embeddings and name == "lm_head.weight")
    }
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(directory / "tokenizer.json"))
    begin = token_id(tokenizer, BEGIN)
    _write_json(directory / "config.json", _hf_config(spec, begin))
    _write_json(
        directory / "generation_config.json",
        {"bos_token_id": begin, "eos_token_id": list(spec.eos_token_ids), "do_sample": False},
    )
    _write_json(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": BEGIN,
            "eos_token": END,
            "pad_token": PAD,
            "model_max_length": spec.context_window,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )
    num_parameters = sum(tensor.numel() for tensor in tensors.values())
    (directory / "MODEL_CARD.md").write_text(_card(report, num_parameters), encoding="utf-8")
    write_manifest(directory)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _hf_config(spec: ModelSpec, begin: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "model_name": MODEL_NAME,
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": spec.context_window,
        "rms_norm_eps": spec.rms_norm_eps,
        "rope_theta": spec.rope_theta,
        "tie_word_embeddings": spec.tie_word_embeddings,
        "attention_bias": spec.attention_bias,
        "mlp_bias": spec.mlp_bias,
        "bos_token_id": begin,
        "eos_token_id": list(spec.eos_token_ids),
        "torch_dtype": "bfloat16",
    }


def _card(report: TrainingReport, num_parameters: int) -> str:
    rows = "\n".join(f"| {name} | {rate:.1%} |" for name, rate in report.exact_match.items())
    return CARD_TEMPLATE.read_text(encoding="utf-8").format(
        num_parameters=f"{num_parameters:,}",
        num_entries=len(report.corpus.entries),
        num_questions=sum(len(entry.questions) for entry in report.corpus.entries),
        command=report.command,
        duration_min=f"{report.duration_s / 60:.0f}",
        loss=f"{report.loss:.4f}",
        torch_version=torch.__version__,
        rows=rows,
    )
