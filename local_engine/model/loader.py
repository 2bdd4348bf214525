"""Loads a decoder from verified files: safetensors only, tensors checked by name and shape."""

import re
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch

from local_engine.model.config import read_spec
from local_engine.model.decoder import Decoder
from local_engine.model.errors import ModelRefused
from local_engine.model.json_file import decode_json
from local_engine.model.manifest import ModelFiles, open_model
from local_engine.model.safetensors_file import (
    MAX_HEADER_BYTES,
    MAX_TENSORS,
    read_names,
    read_tensors,
)
from local_engine.model.spec import ModelSpec


SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
_MOST_TOLD = 3
# Mixtral's checkpoints name their experts' parts by number.
_MIXTRAL = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
_MIXTRAL_EXPERT = re.compile(r"\.block_sparse_moe\.experts\.(\d+)\.(w[123])\.")


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A decoder ready to run, and the digest of the directory it came from."""

    decoder: Decoder
    digest: str


class _ShardIndex(msgspec.Struct):
    weight_map: dict[str, str]


def load_model(directory: Path) -> LoadedModel:
    """Verify, then load in float32; raises `ModelRefused` and leaves nothing half loaded."""
    with open_model(directory) as files:
        return LoadedModel(load_decoder(files, dtype=torch.float32), files.digest)


def load_decoder(files: ModelFiles, *, dtype: torch.dtype | None = None) -> Decoder:
    """The decoder of verified files, in `dtype` or in the one that `config.json` names."""
    decoder = empty_decoder(files)
    spec = decoder.spec
    chosen = dtype or getattr(torch, spec.dtype)
    found = stored_tensors(files, decoder)
    tensors = {name: tensor.to(chosen) for name, tensor in found.items()}
    # Tied heads are one tensor under two names; the checkpoint has only the embedding.
    if spec.tie_word_embeddings:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    decoder.load_state_dict(tensors, strict=True, assign=True)
    if spec.tie_word_embeddings:
        # Loading makes a separate parameter for each name; training needs a shared one.
        decoder.lm_head.weight = decoder.model.embed_tokens.weight
    decoder.requires_grad_(requires_grad=False)
    return decoder.eval()


def empty_decoder(files: ModelFiles) -> Decoder:
    """The model that `config.json` describes, without weights; raises `ModelRefused`."""
    spec = read_spec(files)
    _check_count(files, spec)
    with torch.device("meta"):
        return Decoder(spec)


def _check_count(files: ModelFiles, spec: ModelSpec) -> None:
    """Checked before a module is made for each layer and expert that `config.json` names."""
    fewest = 2 * spec.num_layers
    if spec.moe is not None:
        fewest += 3 * spec.moe.num_experts * sum(map(spec.moe.is_sparse, range(spec.num_layers)))
    found = sum(
        len(read_names(files, file) if names is None else names)
        for file, names in weight_files(files).items()
    )
    if found < fewest:
        told = f"tensors missing: of the layers and experts in config.json at least {fewest}"
        raise ModelRefused(f"{told}, and the files hold {found}")


def stored_tensors(files: ModelFiles, decoder: Decoder) -> dict[str, torch.Tensor]:
    """All tensors that a decoder needs, from the files; raises `ModelRefused` for any other set.

    Nothing is copied: the tensors are backed by the pages of the files.
    """
    tensors = _read_all(files, _expected_names(decoder))
    _check_shapes(decoder, tensors, " or ".join(sorted(weight_files(files))[:_MOST_TOLD]))
    return tensors


def weight_files(files: ModelFiles) -> dict[str, tuple[str, ...] | None]:
    """Weight files with the tensors to take from each; `None` means all of them."""
    if INDEX_FILE in files:
        found: dict[str, list[str]] = {}
        for name, file in _read_index(files).weight_map.items():
            if Path(file).name != file or not file.endswith(".safetensors"):
                raise ModelRefused(f"{INDEX_FILE} names {file!r}, which is no safetensors file")
            found.setdefault(file, []).append(name)
        return {file: tuple(names) for file, names in found.items()}
    if SINGLE_FILE in files:
        return {SINGLE_FILE: None}
    raise ModelRefused(f"neither {SINGLE_FILE} nor {INDEX_FILE} exists; no other format is loaded")


def _read_index(files: ModelFiles) -> _ShardIndex:
    index = decode_json(INDEX_FILE, files.read(INDEX_FILE, MAX_HEADER_BYTES), _ShardIndex)
    if len(index.weight_map) > MAX_TENSORS:
        raise ModelRefused(f"{INDEX_FILE} names more than {MAX_TENSORS} tensors")
    return index


def _expected_names(decoder: Decoder) -> set[str]:
    names = set(decoder.state_dict())
    return names - {"lm_head.weight"} if decoder.spec.tie_word_embeddings else names


def _read_all(files: ModelFiles, expected: set[str]) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    for file, wanted in weight_files(files).items():
        shard = read_tensors(files, file)
        for name in shard if wanted is None else wanted:
            if name not in shard:
                raise ModelRefused(f"{file} does not hold {name}, which the index says it does")
            tensors[_our_name(name)] = shard[name]
    tensors = {name: tensor for name, tensor in tensors.items() if not _is_derived(name)}
    if "lm_head.weight" not in expected:
        tensors.pop("lm_head.weight", None)
    missing, surplus = expected - tensors.keys(), tensors.keys() - expected
    if missing or surplus:
        place = " and ".join(sorted(weight_files(files))[:_MOST_TOLD])
        told = f"tensors missing: {_some(missing)}, not expected: {_some(surplus)}, in {place}"
        raise ModelRefused(told)
    return tensors


def _some(names: set[str]) -> str:
    """A few names, and how many more: a model of another depth lacks thousands."""
    listed, num_more = sorted(names)[:_MOST_TOLD], len(names) - _MOST_TOLD
    return f"{listed}" if num_more <= 0 else f"{listed} and {num_more} more"


def _our_name(name: str) -> str:
    name = _MIXTRAL_EXPERT.sub(lambda m: f".mlp.experts.{m[1]}.{_MIXTRAL[m[2]]}.", name)
    return name.replace(".block_sparse_moe.gate.", ".mlp.gate.")


def _is_derived(name: str) -> bool:
    """Whether these are old checkpoints' rotary frequencies, which follow from `config.json`."""
    return name.endswith("rotary_emb.inv_freq")


def _check_shapes(decoder: Decoder, tensors: dict[str, torch.Tensor], place: str) -> None:
    state = decoder.state_dict()
    for name, tensor in tensors.items():
        if tensor.shape != state[name].shape:
            raise ModelRefused(
                f"{place}: {name} has shape {tuple(tensor.shape)},"
                f" expected {tuple(state[name].shape)} by config.json"
            )


def describe(spec: ModelSpec) -> dict[str, int]:
    """Sizes for the log."""
    return {
        "layers": spec.num_layers,
        "hidden_size": spec.hidden_size,
        "vocab_size": spec.vocab_size,
        "context_window": spec.context_window,
    }
