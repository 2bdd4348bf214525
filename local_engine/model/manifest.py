"""The files of a model directory: opened once, hashed, compared with the manifest, then read.

The bytes used are the bytes hashed: every later read goes through the descriptor that was hashed,
so a file exchanged in between is not looked at. Links are refused, because they can be redirected
at any time.
"""

import base64
import hashlib
import mmap
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from local_engine.model.errors import ModelRefused
from local_engine.model.json_file import decode_json


MANIFEST_NAME = "manifest.json"
SIGNATURE_NAME = "manifest.sig"
_MAX_MANIFEST_BYTES = 1 << 20
_MAX_SIGNATURE_BYTES = 4096
_MAX_READ_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 20
# Without waiting: a pipe in the directory must not block the start until somebody writes to it.
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
# What the model digest covers if no manifest was shipped: everything that affects an answer.
_IDENTITY_SUFFIXES = (".safetensors", ".json", ".jinja")


class Manifest(msgspec.Struct, frozen=True):
    """File names with their sha256 in hexadecimal."""

    files: dict[str, str]
    format: str = "gatewright-model-manifest-1"


class ModelFiles:
    """A verified model directory: its digest, and its files as they were when they were hashed."""

    def __init__(self, descriptors: dict[str, int], digest: str) -> None:
        self._descriptors = descriptors
        self.digest = digest

    def __contains__(self, name: str) -> bool:
        return name in self._descriptors

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._descriptors))

    def read(self, name: str, max_bytes: int = _MAX_READ_BYTES) -> bytes:
        """A small file's content; raises `ModelRefused` if it is missing or too large."""
        descriptor = self._descriptor(name)
        size = os.fstat(descriptor).st_size
        if size > max_bytes:
            raise ModelRefused(f"{name} is larger than {max_bytes} bytes")
        return b"".join(_chunks(descriptor))

    def map(self, name: str) -> mmap.mmap:
        """A large file as private memory: writing to it changes no file."""
        descriptor = self._descriptor(name)
        if os.fstat(descriptor).st_size == 0:
            raise ModelRefused(f"{name} is empty")
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _descriptor(self, name: str) -> int:
        if name not in self._descriptors:
            raise ModelRefused(f"{name} is missing")
        return self._descriptors[name]


def public_key_of(text: str) -> bytes | None:
    """An Ed25519 key from 64 hexadecimal digits, None from an empty text; raises `ModelRefused`."""
    if not text:
        return None
    if not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise ModelRefused("a public key is 32 bytes in hexadecimal: 64 digits")
    return bytes.fromhex(text)


def open_model(directory: Path, public_key: bytes | None = None) -> ModelFiles:
    """Open, hash and compare every file; raises `ModelRefused` and names the file at fault.

    With a manifest, the directory is refused if any file is missing, changed or not listed; without
    one the digest is computed over the files as they are. With `public_key` (32 raw Ed25519 bytes)
    the manifest must exist and be signed by it.
    """
    files = ModelFiles(_opened(directory), "")
    try:
        manifest = _read_manifest(files)
        if public_key is not None:
            _check_signature(files, public_key)
        # Without a manifest a directory's other files may be long, and are not needed.
        found = Manifest(
            {
                name: _sha256(files._descriptors[name])  # noqa: SLF001 - made here, not yet handed out
                for name in files.names()
                if name not in {MANIFEST_NAME, SIGNATURE_NAME}
                and (manifest is not None or name.endswith(_IDENTITY_SUFFIXES))
            }
        )
        if manifest is not None:
            _compare(manifest, found)
        files.digest = model_digest(found)
    except BaseException:
        files.close()
        raise
    return files


def verify_directory(directory: Path, public_key: bytes | None = None) -> str:
    """The digest of a directory that matches its manifest; raises `ModelRefused`."""
    with open_model(directory, public_key) as files:
        return files.digest


def write_manifest(directory: Path) -> Manifest:
    """Hash the directory and store the result beside its files."""
    descriptors = _opened(directory)
    manifest = Manifest(
        {
            name: _sha256(descriptor)
            for name, descriptor in sorted(descriptors.items())
            if name not in {MANIFEST_NAME, SIGNATURE_NAME}
        }
    )
    for descriptor in descriptors.values():
        os.close(descriptor)
    encoded = msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=2)
    (directory / MANIFEST_NAME).write_bytes(encoded + b"\n")
    return manifest


def model_digest(manifest: Manifest) -> str:
    """One hash over all names and hashes: the identity of weights, tokenizer and template."""
    encoded = msgspec.json.encode(manifest.files, order="sorted")
    return "sha256:" + hashlib.sha256(encoded).hexdigest()


def _opened(directory: Path) -> dict[str, int]:
    descriptors: dict[str, int] = {}
    for entry in _entries(directory):
        if entry.name.startswith(".") or entry.is_dir(follow_symlinks=False):
            continue
        try:
            descriptor = os.open(entry.path, _OPEN_FLAGS)
        except OSError as error:
            raise ModelRefused(f"{entry.name} is a link or cannot be opened") from error
        descriptors[entry.name] = descriptor
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ModelRefused(f"{entry.name} is not a regular file")
    return descriptors


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda each: each.name)
    except FileNotFoundError:
        problem = "does not exist"
    except NotADirectoryError:
        problem = "is no folder"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    raise ModelRefused(f"the model directory {directory} {problem}")


def _chunks(descriptor: int) -> Iterator[bytes]:
    offset = 0
    while chunk := os.pread(descriptor, _CHUNK_BYTES, offset):
        offset += len(chunk)
        yield chunk


def _sha256(descriptor: int) -> str:
    digest = hashlib.sha256()
    for chunk in _chunks(descriptor):
        digest.update(chunk)
    return digest.hexdigest()


def _read_manifest(files: ModelFiles) -> Manifest | None:
    if MANIFEST_NAME not in files:
        return None
    return decode_json(MANIFEST_NAME, files.read(MANIFEST_NAME, _MAX_MANIFEST_BYTES), Manifest)


def _check_signature(files: ModelFiles, public_key: bytes) -> None:
    if MANIFEST_NAME not in files or SIGNATURE_NAME not in files:
        raise ModelRefused(f"a key is configured, but {SIGNATURE_NAME} is missing")
    try:
        signature = base64.b64decode(files.read(SIGNATURE_NAME, _MAX_SIGNATURE_BYTES))
        key = Ed25519PublicKey.from_public_bytes(public_key)
        key.verify(signature, files.read(MANIFEST_NAME, _MAX_MANIFEST_BYTES))
    except (InvalidSignature, ValueError) as error:
        raise ModelRefused(f"{SIGNATURE_NAME} is not this key's signature") from error


def _compare(expected: Manifest, found: Manifest) -> None:
    for name in sorted(expected.files.keys() | found.files.keys()):
        if name not in found.files:
            raise ModelRefused(f"{name} is in the manifest but not in the directory")
        if name not in expected.files:
            raise ModelRefused(f"{name} is not in the manifest")
        if expected.files[name] != found.files[name]:
            raise ModelRefused(f"{name} does not match its sha256 in the manifest")
