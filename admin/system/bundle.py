"""A diagnostics bundle as a file: parts as JSON in a compressed archive, bounded, and scrubbed.

Nothing secret is gathered for it. What is written is scanned all the same: whatever this process
knows to be a secret, and whatever looks like a key of ours, is taken out.
"""

import io
import re
import tarfile
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import msgspec
from msgspec import Struct


PART_BYTES_MAX: Final = 4 * 1024 * 1024
SECRET_LENGTH_MIN: Final = 6
"""What is shorter stands in ordinary words, too."""
REMOVED: Final = "[removed]"
_KEYS: Final = re.compile(r"gw_[a-z]+_[0-9A-Za-z]{8,}_[0-9A-Za-z_-]+|\b[Bb]earer\s+[\w.~+/=-]{8,}")
_FOLDER: Final = "gatewright-diagnostics"


class Part(Struct, frozen=True):
    """One file of a bundle; of one that could not be gathered, only why."""

    name: str
    title: str
    value: object = None
    problem: str = ""


class Scrubber:
    """Takes secrets out of texts."""

    def __init__(self, secrets: Collection[str]) -> None:
        """`secrets` are values that this process knows; as JSON writes them they are found, too."""
        found = {each.strip() for each in secrets if len(each.strip()) >= SECRET_LENGTH_MIN}
        found |= {msgspec.json.encode(each).decode()[1:-1] for each in found}
        longest_first = sorted(found, key=lambda each: (-len(each), each))
        words = "|".join(re.escape(each) for each in longest_first)
        self._known = re.compile(words) if words else None

    def clean(self, text: str) -> str:
        """The text without them."""
        if self._known is not None:
            text = self._known.sub(REMOVED, text)
        return _KEYS.sub(REMOVED, text)


def written(part: Part, scrubber: Scrubber) -> bytes:
    """A part as its file: indented JSON; one that is too long says so in its place."""
    value = {"problem": part.problem} if part.problem else part.value
    text = msgspec.json.format(msgspec.json.encode(value, order="sorted")).decode()
    raw = scrubber.clean(text).encode()
    if len(raw) > PART_BYTES_MAX:
        said = {"problem": f"left out: {len(raw)} bytes, at most {PART_BYTES_MAX} are taken"}
        return msgspec.json.encode(said)
    return raw


def archived(parts: Sequence[Part], scrubber: Scrubber, made_us: int) -> Iterator[bytes]:
    """The archive piece by piece: one part is in memory at a time."""
    buffer = io.BytesIO()
    with tarfile.open(mode="w|gz", fileobj=buffer) as archive:
        for part in parts:
            raw = written(part, scrubber)
            entry = tarfile.TarInfo(f"{_FOLDER}/{part.name}.json")
            entry.size, entry.mtime, entry.mode = len(raw), made_us // 1_000_000, 0o600
            archive.addfile(entry, io.BytesIO(raw))
            yield _taken(buffer)
    yield _taken(buffer)


def _taken(buffer: io.BytesIO) -> bytes:
    """What was written since the last time."""
    raw = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return raw
