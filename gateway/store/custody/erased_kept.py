"""The list of what was erased beside the log: a start applies it again to a restored backup.

It lies with the list of erased keys, where no backup of the database brings back an older state.
It names files, batches and answers by their ids, and lines by their numbers; never a person.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from gateway.audit.disk import Disk
from gateway.secrets.content_keys import ContentKey


NAME: Final = "erased-kept"
_KEY_CHARS: Final = 32


class Erased(Struct, frozen=True, omit_defaults=True):
    """One line of the list: one thing, or some of its lines."""

    erased_us: int
    file: str = ""
    batch: str = ""
    answer: str = ""
    key: str = ""
    """Of a file that went on without these lines: which of its contents had them."""
    lines: tuple[int, ...] = ()
    """None is all of it."""
    organisation: str = ""
    case: str = ""
    """Of the erasure; empty where it was a command."""


def names_of_key(wrapped: bytes, key: ContentKey | None) -> tuple[str, ...]:
    """What a key may be called on the list; under none of these it opens anything.

    The first is what new lines call it: whichever master key wraps it, that stays. Lines of before
    schema 0067, and those of a key that did not open, have a digest of the wrapped key.
    """
    as_wrapped = hashlib.sha256(wrapped).hexdigest()[:_KEY_CHARS]
    return (key.name, as_wrapped) if key is not None else (as_wrapped,)


def add(folder: Path, erased: Sequence[Erased], disk: Disk) -> None:
    """Durable when this returns; before anything is destroyed. Raises OSError."""
    disk.make_folder(folder)
    lines = b"".join(b"\n" + msgspec.json.encode(each) + b"\n" for each in erased)
    if lines:
        disk.append_durably(folder / NAME, lines)


def listed(folder: Path) -> list[Erased]:
    """All of the list; a line that a crash has torn names nothing. Raises OSError."""
    try:
        raw = (folder / NAME).read_bytes()
    except FileNotFoundError:
        return []
    found = []
    for line in raw.splitlines():
        try:
            found.append(msgspec.json.decode(line, type=Erased))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
    return found
