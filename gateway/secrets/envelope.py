"""Envelope encryption: the master key (KEK) wraps data keys (DEK), each bound to its purpose."""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from gateway.errors import ConfigurationInvalid
from gateway.secrets.secret import Secret


KEY_BYTES = 32
FINGERPRINT_LENGTH = 8
_DIFFERENT_MIN = 12
"""32 random bytes almost certainly have so many different values; zeros and examples do not."""
_NONCE_BYTES = 12
_VERSION = b"\x01"


class UnwrapFailed(ValueError):
    """The bytes are damaged, belong elsewhere, or were wrapped by another key."""


class MasterKey:
    """An AES-256-GCM key-encryption key; it never leaves this object.

    It may have others beside it, which it replaced or which will replace it: they open what they
    sealed, and seal nothing.
    """

    __slots__ = ("_cipher", "_deriving_key", "_marking_key", "key_id", "others")

    def __init__(self, key: Secret[bytes], others: Sequence["MasterKey"] = ()) -> None:
        """Raises ValueError unless the key has 32 bytes."""
        raw = key.reveal()
        self.others = tuple(others)
        if len(raw) != KEY_BYTES:
            raise ValueError(f"a master key has {KEY_BYTES} bytes")
        self._cipher = AESGCM(raw)
        self.key_id = hmac.new(raw, b"gatewright master key id", hashlib.sha256).hexdigest()[:16]
        self._marking_key = hmac.new(raw, b"gatewright fingerprints", hashlib.sha256).digest()
        self._deriving_key = hmac.new(raw, b"gatewright derived secrets", hashlib.sha256).digest()

    def __repr__(self) -> str:
        return f"MasterKey({self.key_id})"

    @property
    def key_ids(self) -> frozenset[str]:
        """Ids of all keys that can open something here: its own and those of the others."""
        return frozenset({self.key_id, *(other.key_id for other in self.others)})

    def fingerprint(self, value: Secret[str]) -> str:
        """Lets people tell two secrets apart; without this key it reveals nothing about either."""
        text = value.reveal().encode()
        return hmac.new(self._marking_key, text, hashlib.sha256).hexdigest()[:FINGERPRINT_LENGTH]

    def derived(self, purpose: bytes) -> bytes:
        """A secret of 32 bytes for one purpose, the same for ever (HKDF, RFC 5869)."""
        return HKDF(SHA256(), KEY_BYTES, salt=None, info=purpose).derive(self._deriving_key)

    def wrap(self, key: bytes, aad: bytes) -> bytes:
        """Version, nonce, ciphertext, tag; `aad` states the key's purpose."""
        nonce = os.urandom(_NONCE_BYTES)
        return _VERSION + nonce + self._cipher.encrypt(nonce, key, aad)

    def unwrap(self, wrapped: bytes, aad: bytes) -> bytes:
        """A key that this key, or one of the others, wrapped for this `aad`.

        Raises:
            UnwrapFailed: none of them did. It is a ValueError.
        """
        start = len(_VERSION)
        if wrapped[:start] != _VERSION or len(wrapped) < start + _NONCE_BYTES:
            raise UnwrapFailed("the wrapped key has an unknown format")
        nonce, sealed = wrapped[start : start + _NONCE_BYTES], wrapped[start + _NONCE_BYTES :]
        try:
            return self._cipher.decrypt(nonce, sealed, aad)
        except InvalidTag:
            pass
        for other in self.others:
            with suppress(UnwrapFailed):
                return other.unwrap(wrapped, aad)
        raise UnwrapFailed("the wrapped key was changed, moved, or wrapped by another master key")

    def opened_by(self, wrapped: bytes, aad: bytes) -> str:
        """The id of the key that wrapped these bytes for this `aad`; empty if none of these did."""
        for other in self.others:
            if found := other.opened_by(wrapped, aad):
                return found
        try:
            self.unwrap(wrapped, aad)
        except UnwrapFailed:
            return ""
        return self.key_id


def key_bytes(text: str, source: str, key: str) -> bytes:
    """32 bytes from base64, not guessable; `source` is the file or variable it is from.

    Raises:
        ConfigurationInvalid: it is not such a key, or is one that is used in examples.
    """
    text = text.strip().replace("-", "+").replace("_", "/")
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != KEY_BYTES:
        raise ConfigurationInvalid(source, key, f"must be {KEY_BYTES} bytes in base64")
    if len(set(raw)) < _DIFFERENT_MIN:
        reason = "is an example, not a random key: make one with `gatewright init`"
        raise ConfigurationInvalid(source, key, reason)
    return raw


def create_key_file(path: Path) -> None:
    """Write a new key to a new file with mode 0600: completely or not at all, never over another.

    Raises:
        ConfigurationInvalid: the file exists or cannot be written, or the path names none.
    """
    if not path.name:
        raise ConfigurationInvalid(str(path), "", "names no file")
    text = base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n"
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        try:
            _write_durably(draft, text)
            os.link(draft, path)  # unlike a rename, a link refuses to replace a file
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(path.parent)
    except FileExistsError as error:
        raise ConfigurationInvalid(str(path), "", "exists already; it is not replaced") from error
    except OSError as error:
        raise ConfigurationInvalid(
            str(path), "", f"cannot be written ({error.strerror})"
        ) from error


def _write_durably(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are durable; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
