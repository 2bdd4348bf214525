"""The list of what was erased, beside the log: each start applies it again to a restored backup.

It lies with the list of erased keys, where no backup of the database brings back an older state. It
names files, batches and answers by their ids, and lines by their numbers and by a keyed digest;
never a person.
"""

import hashlib
from collections.abc import Collection, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from gateway.audit.disk import Disk
from gateway.secrets.content_keys import ContentKey


NAME: Final = "erased-kept"
_KEY_CHARS: Final = 32


class Erased(Struct, frozen=True, omit_defaults=True):
    """One line of the list: a thing, or some of its lines."""

    erased_us: int
    file: str = ""
    batch: str = ""
    answer: str = ""
    key: str = ""
    """For a file that went on without these lines: the key of the content that had them."""
    lines: tuple[int, ...] = ()
    """Empty for all of it."""
    left: str = ""
    """For a file: what its key is called without these lines; empty on older lists."""
    marks: tuple[str, ...] = ()
    """What the lines themselves are called, so that a start finds them wherever they are: another
    machine may have removed other lines, which is on its own list."""
    organisation: str = ""
    case: str = ""
    """The erasure; empty for a command, and for files and answers on older lists."""
    keeps_places: bool = False
    """Whether the following lines kept their places in the file. On older lists, and in files of
    results, lines move up."""


def names_of_key(wrapped: bytes, key: ContentKey | None) -> tuple[str, ...]:
    """Names a key may have on the list; under none of these does the key open anything.

    New lines use the first name: it stays the same whichever master key wraps the key. Lines from
    before schema 0067, and those of a key that did not open, have a digest of the wrapped key.
    """
    as_wrapped = hashlib.sha256(wrapped).hexdigest()[:_KEY_CHARS]
    return (key.name, as_wrapped) if key is not None else (as_wrapped,)


def add(folder: Path, erased: Sequence[Erased], disk: Disk) -> None:
    """Append durably, before anything is destroyed. Raises OSError."""
    disk.make_folder(folder)
    lines = b"".join(b"\n" + msgspec.json.encode(each) + b"\n" for each in erased)
    if lines:
        disk.append_durably(folder / NAME, lines)


def listed(folder: Path) -> list[Erased]:
    """The complete list; a line torn by a crash is skipped. Raises OSError."""
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


def lines_gone(erased: Sequence[Erased], names: Collection[str]) -> frozenset[int]:
    """The lines that one file lost, by their places in its content under a key of these names.

    `erased` is what the list has of the file. Each entry counts in the content that the previous
    one left, under a key that no longer exists: a backup from before several entries has to lose
    them all. An entry with marks counts only under its own key, where its places are certain.
    """
    named = [each for each in erased if each.key]
    first = next((at for at, each in enumerate(named) if each.key in names), len(named))
    gone, moved = set[int](), list[int]()
    for each, following in zip_longest(named[first:], named[first + 1 :]):
        theirs = _before(sorted(each.lines), moved)
        if each.key in names:
            gone.update(each.lines)
        elif not each.marks:
            gone.update(theirs)
        # If the next entry has the same content, this one was listed but not carried out.
        if not each.keeps_places and following is not None and following.key != each.key:
            moved = sorted({*moved, *theirs})
    return frozenset(gone)


def _before(places: Sequence[int], moved: Sequence[int]) -> list[int]:
    """Places of lines before others were removed from `moved`; both are in order."""
    found, passed = list[int](), 0
    for place in places:
        while passed < len(moved) and moved[passed] <= place + passed:
            passed += 1
        found.append(place + passed)
    return found
