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
    """One line of the list: one thing, or some of its lines."""

    erased_us: int
    file: str = ""
    batch: str = ""
    answer: str = ""
    key: str = ""
    """Of a file that went on without these lines: which of its contents had them."""
    lines: tuple[int, ...] = ()
    """None is all of it."""
    left: str = ""
    """Of a file: what its key is called when they are out; empty on lists of before."""
    marks: tuple[str, ...] = ()
    """Likewise what the lines themselves are called, so that a start finds them wherever they are:
    another machine may have taken others out, which is on its own list."""
    organisation: str = ""
    case: str = ""
    """Of the erasure; empty where it was a command, and of files and answers on lists of before."""
    keeps_places: bool = False
    """Whether the lines behind these stayed at their places in the file. Lists of before, and
    files of results, have lines move up."""


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


def lines_gone(erased: Sequence[Erased], names: Collection[str]) -> frozenset[int]:
    """What one file lost, by places in its content under a key of these names.

    `erased` is what the list has of the file. Each entry counts by what the one before it left,
    under a key that is nowhere any more: a backup from before several has to lose them all. What
    has marks counts under its own key alone, where its places are certain.
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
        # What has the same content behind it was listed, and not taken out.
        if not each.keeps_places and following is not None and following.key != each.key:
            moved = sorted({*moved, *theirs})
    return frozenset(gone)


def _before(places: Sequence[int], moved: Sequence[int]) -> list[int]:
    """Where lines stood before others went from these places; both in order."""
    found, passed = list[int](), 0
    for place in places:
        while passed < len(moved) and moved[passed] <= place + passed:
            passed += 1
        found.append(place + passed)
    return found
