"""Loads a decoder from a model directory: safetensors only, tensors checked by name and shape."""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
from safetensors import SafetensorError, safe_open

from local_engine.model.decoder import Decoder
from local_engine.model.errors import ModelRefused
from local_engine.model.manifest import verify_directory
from local_engine.model.spec import ModelSpec, read_spec


SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
_MAX_INDEX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A decoder ready to run, and the digest of the directory it came from."""

    decoder: Decoder
    digest: str


class _ShardIndex(msgspec.Struct):
    weight_map: dict[str, str]


def load_model(directory: Path, *, dtype: torch.dtype = torch.float32) -> LoadedModel:
    """Verify, then load; raises `ModelRefused` and leaves nothing half used."""
    if not directory.is_dir():
        raise ModelRefused("the model directory does not exist")
    digest = verify_directory(directory)
    spec = read_spec(directory)
    with torch.device("meta"):
        decoder = Decoder(spec)
    tensors = _read_tensors(directory, _expected_names(decoder), dtype)
    _check_shapes(decoder, tensors)
    # Tied heads are one tensor under two names; the checkpoint holds the embedding only.
    if spec.tie_word_embeddings:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    decoder.load_state_dict(tensors, strict=True, assign=True)
    if spec.tie_word_embeddings:
        # Loading wraps each name in a parameter of its own; one that trains on needs just one.
        decoder.lm_head.weight = decoder.model.embed_tokens.weight
    decoder.requires_grad_(requires_grad=False)
    return LoadedModel(decoder.eval(), digest)


def weight_files(directory: Path) -> dict[str, tuple[str, ...] | None]:
    """Weight files with the tensors to take from each; `None` means all of them."""
    if (directory / INDEX_FILE).exists():
        files: dict[str, list[str]] = {}
        for name, file in _read_index(directory / INDEX_FILE).weight_map.items():
            if Path(file).name != file or not file.endswith(".safetensors"):
                raise ModelRefused(f"{INDEX_FILE} names {file!r}, which is no safetensors file")
            files.setdefault(file, []).append(name)
        return {file: tuple(names) for file, names in files.items()}
    if (directory / SINGLE_FILE).exists():
        return {SINGLE_FILE: None}
    raise ModelRefused(f"neither {SINGLE_FILE} nor {INDEX_FILE} exists; no other format is loaded")


def _read_index(path: Path) -> _ShardIndex:
    if path.stat().st_size > _MAX_INDEX_BYTES:
        raise ModelRefused(f"{path.name} is larger than {_MAX_INDEX_BYTES} bytes")
    try:
        return msgspec.json.decode(path.read_bytes(), type=_ShardIndex)
    except msgspec.DecodeError as error:
        raise ModelRefused(f"{path.name} cannot be read: {error}") from error


def _expected_names(decoder: Decoder) -> set[str]:
    names = set(decoder.state_dict())
    return names - {"lm_head.weight"} if decoder.spec.tie_word_embeddings else names


def _read_tensors(
    directory: Path, expected: set[str], dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    for file, wanted in weight_files(directory).items():
        try:
            with safe_open(directory / file, framework="pt") as shard:
                for name in shard.keys() if wanted is None else wanted:
                    tensors[name] = shard.get_tensor(name).to(dtype)
        except (OSError, SafetensorError) as error:
            raise ModelRefused(f"{file} cannot be read as safetensors: {error}") from error
    tensors = {name: tensor for name, tensor in tensors.items() if not _is_derived(name)}
    if "lm_head.weight" not in expected:
        tensors.pop("lm_head.weight", None)
    missing, surplus = expected - tensors.keys(), tensors.keys() - expected
    if missing or surplus:
        raise ModelRefused(f"tensors missing: {sorted(missing)}, not expected: {sorted(surplus)}")
    return tensors


def _is_derived(name: str) -> bool:
    """Old checkpoints store the rotary frequencies, which follow from the configuration."""
    return name.endswith("rotary_emb.inv_freq")


def _check_shapes(decoder: Decoder, tensors: dict[str, torch.Tensor]) -> None:
    state = decoder.state_dict()
    for name, tensor in tensors.items():
        if tensor.shape != state[name].shape:
            raise ModelRefused(
                f"{name} has shape {tuple(tensor.shape)}, expected {tuple(state[name].shape)}"
            )


def describe(spec: ModelSpec) -> dict[str, int]:
    """Sizes worth a log line."""
    return {
        "layers": spec.num_layers,
        "hidden_size": spec.hidden_size,
        "vocab_size": spec.vocab_size,
        "context_window": spec.context_window,
    }
