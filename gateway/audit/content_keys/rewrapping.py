"""Rewraps the keys in an audit folder with the present master key: content and signing keys.

Records and contents stay as they are, since the keys that cover them do not change. A file is
replaced as a whole, while a worker may be adding to it, and what another master key had wrapped is
overwritten. Damaged lines stay byte for byte.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import structs

from gateway.audit.content_keys.keys import KEYS_NAME, LOCK_NAME, KeyWrapper, WrappedKey, whole_line
from gateway.audit.content_keys.overwriting import left_over, overwrite_left_over, put_in_place
from gateway.audit.disk import Disk
from gateway.audit.proving.checkpoints import SIGNERS_NAME, WrappedSigner, whole_signer


_Line = TypeVar("_Line", WrappedKey, WrappedSigner)
_Anew = Callable[[bytes], bytes]


def rewrap_contents(folder: Path, keys: KeyWrapper, disk: Disk) -> int:
    """Rewrap keys of a worker's contents; returns how many lines changed. Raises OSError."""
    return _rewrite(folder, KEYS_NAME, partial(_anew, whole_line, keys), disk)


def rewrap_signers(folder: Path, keys: KeyWrapper, disk: Disk) -> int:
    """Rewrap keys that sign a worker's log; returns how many lines changed. Raises OSError."""
    return _rewrite(folder, SIGNERS_NAME, partial(_anew, whole_signer, keys), disk)


def _rewrite(folder: Path, name: str, anew: _Anew, disk: Disk) -> int:
    path = folder / name
    # Most of the work is done before taking the lock, for which a worker may wait to make a key.
    prepared = {line: anew(line) for line in _lines(path)}
    is_changed = any(line != new for line, new in prepared.items())
    if not is_changed and not left_over(path):
        return 0
    lock = disk.lock(folder / LOCK_NAME, wait=True)
    try:
        overwrite_left_over(path, disk)
        lines = _lines(path)
        renewed = [prepared[line] if line in prepared else anew(line) for line in lines]
        changed = sum(old != new for old, new in zip(lines, renewed, strict=True))
        if changed:
            put_in_place(path, b"\n".join(renewed), disk)
    finally:
        disk.close(lock)
    return changed


def _anew(read: Callable[[bytes], _Line | None], keys: KeyWrapper, line: bytes) -> bytes:
    """A line under the present master key; unchanged if that is impossible or unnecessary."""
    found = read(line)
    if found is None or found.master == keys.key_id:
        return line
    if keys.opened_by(found.wrapped, found.aad()) != found.master:
        return line
    wrapped = keys.wrap(keys.unwrap(found.wrapped, found.aad()), found.aad())
    return msgspec.json.encode(structs.replace(found, master=keys.key_id, wrapped=wrapped))


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
