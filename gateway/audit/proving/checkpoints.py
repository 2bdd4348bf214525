"""Checkpoints: the signed state of one organisation's log at one moment.

The text is C2SP's tlog-checkpoint (origin, size, root), the signature C2SP's signed note with
Ed25519. One extension line gives the time: a checkpoint of an idle log proves that nothing
happened.
"""

import base64
import hashlib
import secrets
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct

from gateway.audit.content_keys.keys import LOCK_NAME, KeyWrapper
from gateway.audit.disk import Disk
from gateway.audit.lying_here import folder_lies_here
from gateway.audit.proving.offline import ED25519
from gateway.audit.segments import list_workers
from gateway.clock import Clock


SIGNERS_NAME = "signers.jsonl"
OTHERS_NAME = "other-machines.keys"
_SEED_BYTES = 32


class Checkpoint(Struct, frozen=True):
    """A log's size and root at one moment."""

    origin: str
    size: int
    root: bytes
    utc_us: int

    def text(self) -> str:
        """The text that is signed."""
        root = base64.b64encode(self.root).decode()
        return f"{self.origin}\n{self.size}\n{root}\nutc_us: {self.utc_us}\n"


class WrappedSigner(Struct, frozen=True):
    """One line of `signers.jsonl`: a wrapped signing key; a master key's last one is in use."""

    name: str
    public: bytes
    master: str
    wrapped: bytes
    created_us: int

    def aad(self) -> bytes:
        """Binds the wrapped key to its line."""
        return msgspec.json.encode(["audit-signer", self.name, self.public])

    @property
    def verifier_key(self) -> str:
        return verifier_key(self.name, self.public)


class Signer:
    """Signs checkpoints; holds the private key."""

    def __init__(self, name: str, seed: bytes) -> None:
        self.name = name
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw()

    def __repr__(self) -> str:
        return f"Signer({self.verifier_key})"

    @property
    def verifier_key(self) -> str:
        """The key that verifies its signatures, in the form of C2SP's signed note."""
        return verifier_key(self.name, self.public)

    def sign(self, checkpoint: Checkpoint) -> str:
        """The signed note."""
        text = checkpoint.text()
        raw = _short_hash(self.name, self.public) + self._key.sign(text.encode())
        return f"{text}\n\u2014 {self.name} {base64.b64encode(raw).decode()}\n"


def origin_of(log_name: str, organisation: str) -> str:
    """The origin line of an organisation's log."""
    return f"{log_name}/{organisation}"


def verifier_key(name: str, public: bytes) -> str:
    encoded = base64.b64encode(ED25519 + public).decode()
    return f"{name}+{_short_hash(name, public).hex()}+{encoded}"


def open_signer(folder: Path, name: str, keys: KeyWrapper, clock: Clock, disk: Disk) -> Signer:
    """The signing key in a worker's folder, made and written there at first use.

    Raises:
        OSError: the folder cannot be read or written.
        ValueError: the key was wrapped by another master key, or its line was changed.
    """
    known = [line for line in read_signers(folder) if line.name == name]
    if not known:
        return _new_signer(folder, name, keys, clock, disk)
    # After the loss of a master key, the new one has its own signing key, see `renew_signers`.
    line = _newest(known, {keys.key_id}) or _newest(known, keys.key_ids) or known[-1]
    signer = Signer(name, keys.unwrap(line.wrapped, line.aad()))
    if signer.public != line.public:
        raise ValueError("the signing key of the audit log does not fit its public key")
    return signer


def _newest(lines: Sequence[WrappedSigner], masters: Collection[str]) -> WrappedSigner | None:
    return next((line for line in reversed(lines) if line.master in masters), None)


def renew_signers(directory: Path, keys: KeyWrapper, clock: Clock, disk: Disk) -> None:
    """Give each worker of a folder a signing key under the master key that replaced a lost one.

    The former public keys stay, so that what they signed can be verified. Raises OSError.
    """
    for worker in list_workers(directory) if folder_lies_here(directory) else []:
        known = read_signers(directory / worker)
        own = {line.name for line in known if line.master == keys.key_id}
        for name in sorted({line.name for line in known} - own):
            _new_signer(directory / worker, name, keys, clock, disk)


def sign_anew(directory: Path, keys: KeyWrapper, clock: Clock, disk: Disk) -> int:
    """Give each worker of a folder new signing keys, for its next start; returns how many.

    Whoever has the former ones, and their place, can sign forgeries. Raises OSError.
    """
    made = 0
    for worker in list_workers(directory) if folder_lies_here(directory) else []:
        for name in sorted({line.name for line in read_signers(directory / worker)}):
            _new_signer(directory / worker, name, keys, clock, disk)
            made += 1
    return made


def _new_signer(folder: Path, name: str, keys: KeyWrapper, clock: Clock, disk: Disk) -> Signer:
    seed = secrets.token_bytes(_SEED_BYTES)
    signer = Signer(name, seed)
    draft = WrappedSigner(name, signer.public, keys.key_id, b"", clock.utc_us())
    line = msgspec.structs.replace(draft, wrapped=keys.wrap(seed, draft.aad()))
    disk.make_folder(folder)
    lock = disk.lock(folder / LOCK_NAME, wait=True)
    try:
        disk.append_durably(folder / SIGNERS_NAME, b"\n" + msgspec.json.encode(line) + b"\n")
    finally:
        disk.close(lock)
    return signer


def read_signers(folder: Path) -> list[WrappedSigner]:
    """All complete lines; one that a crash cut off was never used."""
    try:
        raw = (folder / SIGNERS_NAME).read_bytes()
    except FileNotFoundError:
        return []
    found = (whole_signer(line) for line in raw.splitlines())
    return [line for line in found if line is not None]


def whole_signer(line: bytes) -> WrappedSigner | None:
    """The key of a line; None if it cannot be read."""
    try:
        return msgspec.json.decode(line, type=WrappedSigner)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def verifier_keys(directory: Path) -> list[str]:
    """The keys that verify what any worker with segments in this directory ever signed.

    Also those of `OTHERS_NAME` there: keys of workers on other machines, one a line, from an
    operator.
    """
    workers = list_workers(directory) if folder_lies_here(directory) else []
    own = [line.verifier_key for worker in workers for line in read_signers(directory / worker)]
    try:
        others = (directory / OTHERS_NAME).read_text("utf-8", "replace").split()
    except FileNotFoundError:
        others = []
    return [*own, *(key for key in others if key not in own)]


def _short_hash(name: str, public: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + ED25519 + public).digest()[:4]
