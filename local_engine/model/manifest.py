"""The manifest of a model directory: sha256 of every file, checked before anything is used."""

import hashlib
from pathlib import Path

import msgspec

from local_engine.model.errors import ModelRefused


MANIFEST_NAME = "manifest.json"
_MAX_MANIFEST_BYTES = 1 << 20
_READ_BYTES = 1 << 20
# What the model digest covers where no manifest was shipped: everything that shapes an answer.
_IDENTITY_SUFFIXES = (".safetensors", ".json", ".jinja")


class Manifest(msgspec.Struct, frozen=True):
    """File names with their sha256 in hexadecimal."""

    files: dict[str, str]
    format: str = "gatewright-model-manifest-1"


def digest_directory(directory: Path) -> Manifest:
    """Hash every file that belongs to the model; the manifest itself is left out."""
    names = sorted(
        path.name
        for path in directory.iterdir()
        if path.is_file() and path.name != MANIFEST_NAME and not path.name.startswith(".")
    )
    return Manifest({name: sha256_of(directory / name) for name in names})


def write_manifest(directory: Path) -> Manifest:
    """Hash the directory and store the result beside its files."""
    manifest = digest_directory(directory)
    encoded = msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=2)
    (directory / MANIFEST_NAME).write_bytes(encoded + b"\n")
    return manifest


def verify_directory(directory: Path) -> str:
    """Check every file against the manifest, if there is one; returns the model digest.

    With a manifest, a file that is missing, changed or not listed refuses the whole directory.
    Without one the digest is taken over the files as they are.
    """
    path = directory / MANIFEST_NAME
    found = digest_directory(directory)
    if path.exists():
        _compare(_read_manifest(path), found)
        return model_digest(found)
    identity = {n: d for n, d in found.files.items() if n.endswith(_IDENTITY_SUFFIXES)}
    return model_digest(Manifest(identity))


def model_digest(manifest: Manifest) -> str:
    """One hash over all names and hashes: the identity of weights, tokenizer and template."""
    encoded = msgspec.json.encode(manifest.files, order="sorted")
    return "sha256:" + hashlib.sha256(encoded).hexdigest()


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _read_manifest(path: Path) -> Manifest:
    if path.stat().st_size > _MAX_MANIFEST_BYTES:
        raise ModelRefused(f"{MANIFEST_NAME} is larger than {_MAX_MANIFEST_BYTES} bytes")
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except msgspec.DecodeError as error:
        raise ModelRefused(f"{MANIFEST_NAME} cannot be read: {error}") from error


def _compare(expected: Manifest, found: Manifest) -> None:
    for name in sorted(expected.files.keys() | found.files.keys()):
        if name not in found.files:
            raise ModelRefused(f"{name} is in the manifest but not in the directory")
        if name not in expected.files:
            raise ModelRefused(f"{name} is not in the manifest")
        if expected.files[name] != found.files[name]:
            raise ModelRefused(f"{name} does not match its sha256 in the manifest")
