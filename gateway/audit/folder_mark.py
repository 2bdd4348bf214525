"""The mark of an audit folder, by which a database tells one folder from another, wherever it is.

It identifies the folder and not the machine: workers that share a folder have the same mark, a disk
that moves takes it along, and a copy of one worker's segments in another folder does not have it.
"""

import re
import secrets
from pathlib import Path
from typing import Final

from gateway.audit.disk import Disk


MARK_NAME: Final = "folder-mark"
_MARK: Final = re.compile(r"[0-9a-f]{16}")


def folder_mark(directory: Path, disk: Disk, *, other_than: str = "") -> str:
    """The mark of a folder, made at first use.

    If it is `other_than`, which another folder has as well, it is replaced by a new one.

    Raises:
        OSError: it cannot be read, or not be made durable.
    """
    path = directory / MARK_NAME
    if (found := _read(path)) not in ("", other_than):
        return found
    disk.make_folder(directory)
    lock = disk.lock(path.with_suffix(".lock"), wait=True)
    try:
        if (found := _read(path)) not in ("", other_than):
            return found
        draft, made = path.with_suffix(".draft"), secrets.token_hex(8)
        disk.remove(draft)
        disk.append_durably(draft, made.encode())
        disk.replace(draft, path)
        disk.sync_folder(directory)
    finally:
        disk.close(lock)
    return made


def _read(path: Path) -> str:
    """Empty if there is none, or what is there is no mark."""
    try:
        said = path.read_text("ascii", "replace").strip()
    except FileNotFoundError:
        return ""
    return said if _MARK.fullmatch(said) else ""
