"""Whose model it is and whether it is whole: signatures, links, swapped files, crooked headers."""

import base64
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from safetensors.torch import load_file, save_file

from local_engine.model.errors import ModelRefused
from local_engine.model.loader import load_decoder, load_model
from local_engine.model.manifest import open_model, verify_directory, write_manifest
from local_engine.model.safetensors_file import MAX_HEADER_BYTES
from tests.local_engine.served import served


def signed(directory: Path) -> bytes:
    """Signs the directory with a new key and returns what checks it."""
    write_manifest(directory)
    key = Ed25519PrivateKey.generate()
    signature = base64.b64encode(key.sign((directory / "manifest.json").read_bytes()))
    (directory / "manifest.sig").write_bytes(signature)
    return key.public_key().public_bytes_raw()


def test_a_signed_model_loads_with_its_key_and_with_no_other(tiny_model: Path) -> None:
    key = signed(tiny_model)
    assert verify_directory(tiny_model, key) == verify_directory(tiny_model)
    stranger = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    with pytest.raises(ModelRefused, match=r"manifest\.sig is not this key's signature"):
        verify_directory(tiny_model, stranger)


def test_where_a_key_is_configured_an_unsigned_model_is_refused_by_name(tiny_model: Path) -> None:
    key = signed(tiny_model)
    (tiny_model / "manifest.sig").unlink()
    with pytest.raises(ModelRefused, match=r"manifest\.sig is missing"):
        verify_directory(tiny_model, key)
    (tiny_model / "manifest.json").unlink()
    with pytest.raises(ModelRefused, match=r"manifest\.sig is missing"):
        verify_directory(tiny_model, key)


def test_a_signature_covers_the_manifest_and_the_manifest_every_file(tiny_model: Path) -> None:
    key = signed(tiny_model)
    (tiny_model / "config.json").write_text((tiny_model / "config.json").read_text() + " ")
    with pytest.raises(ModelRefused, match=r"config\.json does not match its sha256"):
        verify_directory(tiny_model, key)
    write_manifest(tiny_model)
    with pytest.raises(ModelRefused, match=r"manifest\.sig is not this key's signature"):
        verify_directory(tiny_model, key)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "manifest.json"])
def test_a_link_is_refused_wherever_it_points(tiny_model: Path, name: str) -> None:
    write_manifest(tiny_model)
    elsewhere = tiny_model.parent / "elsewhere"
    (tiny_model / name).rename(elsewhere)
    (tiny_model / name).symlink_to(elsewhere)
    with pytest.raises(ModelRefused, match=re.escape(f"{name} is a link")):
        open_model(tiny_model)


def test_a_pipe_is_no_model_file(tiny_model: Path) -> None:
    os.mkfifo(tiny_model / "extra.json")
    with pytest.raises(ModelRefused, match=r"extra\.json is not a regular file"):
        open_model(tiny_model)


def test_what_was_verified_is_what_is_read(tiny_model: Path) -> None:
    write_manifest(tiny_model)
    expected = load_model(tiny_model).decoder.state_dict()
    with open_model(tiny_model) as files:
        for name in ("model.safetensors", "config.json"):
            (tiny_model / name).unlink()
            (tiny_model / name).write_bytes(b"exchanged after the check")
        found = load_decoder(files).state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def crooked(directory: Path, change: Any) -> None:
    """Writes the weights again with a header that `change` has touched."""
    path = directory / "model.safetensors"
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    change(header)
    encoded = json.dumps(header).encode()
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + content[8 + length :])


def overlapping(header: dict[str, Any]) -> None:
    header["model.norm.weight"]["data_offsets"] = [0, 128]


def outside(header: dict[str, Any]) -> None:
    begin, _ = header["model.norm.weight"]["data_offsets"]
    header["model.norm.weight"]["data_offsets"] = [begin, begin + (1 << 40)]


def negative(header: dict[str, Any]) -> None:
    header["model.norm.weight"]["shape"] = [-32]


def with_a_gap(header: dict[str, Any]) -> None:
    last = max(header.values(), key=lambda each: each.get("data_offsets", [0, 0]))
    last["data_offsets"] = [offset + 4 for offset in last["data_offsets"]]


def of_whole_numbers(header: dict[str, Any]) -> None:
    header["model.norm.weight"]["dtype"] = "I32"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (overlapping, "offsets do not fit"),
        (outside, "offsets do not fit"),
        (negative, "offsets do not fit"),
        (with_a_gap, "offsets do not fit"),
        (of_whole_numbers, "holds I32 tensors"),
    ],
)
def test_a_header_that_lies_about_its_tensors_is_refused_by_file(
    tiny_model: Path, change: Any, reason: str
) -> None:
    crooked(tiny_model, change)
    with pytest.raises(ModelRefused, match=reason) as refusal:
        load_model(tiny_model)
    assert "model.safetensors" in str(refusal.value)


@pytest.mark.parametrize("length", [MAX_HEADER_BYTES + 1, 1 << 63, 10_000_000])
def test_a_header_longer_than_allowed_or_than_the_file_is_refused(
    tiny_model: Path, length: int
) -> None:
    path = tiny_model / "model.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + path.read_bytes()[8:])
    with pytest.raises(ModelRefused, match=r"model\.safetensors .* header is too long"):
        load_model(tiny_model)


@pytest.mark.anyio
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
async def test_the_dtype_of_the_configuration_is_the_dtype_served(
    tiny_model: Path, dtype: str
) -> None:
    path = tiny_model / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "torch_dtype": dtype}))
    tensors = load_file(tiny_model / "model.safetensors")
    kept = {name: tensor.to(getattr(torch, dtype)) for name, tensor in tensors.items()}
    save_file(kept, tiny_model / "model.safetensors")
    async with served(tiny_model) as place:
        assert place.engine.ready.dtype == dtype
        assert place.runner.dtype == getattr(torch, dtype)
        assert place.runner.pool.keys[0].dtype == getattr(torch, dtype)
