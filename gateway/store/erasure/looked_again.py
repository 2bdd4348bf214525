"""Remembers which files were checked against the list of erased content; restarts skip them.

Content gets a new key each time it is written, so a file that was checked under one key has not
changed since. No clock is used. This note about the list lies beside it; if it is missing, or
belongs to another list, files are read again.
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from gateway.audit.disk import Disk
from gateway.configuration.settings import Settings
from gateway.identity import Peppers
from gateway.secrets.credentials import all_peppers
from gateway.store.erasure.erased_kept import Erased


LOOKED_NAME: Final = "erased-looked"
_WORD_CHARS: Final = 32


class LookedAgain:
    """The notes of one pass over the list, and of the previous one."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = settings
        self._length_max = settings.limits.batch_line_bytes_max
        self._path = folder / LOOKED_NAME
        self._before: Mapping[str, str] = {}
        self._now: dict[str, str] = {}

    async def begin(self) -> None:
        """Read the notes of the previous pass; none if they cannot be read."""
        self._before = await asyncio.to_thread(self._read)
        self._now = {}

    def is_known(self, erased: Sequence[Erased], names: Sequence[str]) -> bool:
        """Whether a file was read in its present state: these entries, a key of these names."""
        file_id, word = erased[0].file, self._word(erased, names[0])
        if is_known := self._before.get(file_id) == word:
            self._now[file_id] = word
        return is_known

    def note(self, erased: Sequence[Erased], names: Sequence[str]) -> None:
        """Note that a file was read to its end, and has nothing of these entries under this key.

        This is not noted for a file whose key does not open: the digest of the wrapped key is its
        only name.
        """
        if len(names) > 1:
            self._now[erased[0].file] = self._word(erased, names[0])

    async def end(self) -> None:
        """Save the notes for the next pass; if the disk is full, files are read again."""
        if self._now != self._before:
            with suppress(OSError):
                await asyncio.to_thread(self._write)

    def _word(self, erased: Sequence[Erased], key_name: str) -> str:
        """A digest that also covers the pepper of the search and the way lines are split."""
        listed = hashlib.sha256(msgspec.json.encode(erased)).hexdigest()
        said = f"looked at {erased[0].file} {key_name} {self._length_max}: {listed}"
        settings = self._settings
        peppers = Peppers(all_peppers(settings), settings.secrets.pepper_version)
        return peppers.keyed(said).hex()[:_WORD_CHARS]

    def _read(self) -> Mapping[str, str]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, str])
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return {}

    def _write(self) -> None:
        disk, draft = Disk(), self._path.with_suffix(".draft")
        lock = disk.lock(self._path.with_suffix(".lock"), wait=True)
        try:
            disk.remove(draft)
            disk.append_durably(draft, msgspec.json.encode(self._now, order="sorted"))
            disk.replace(draft, self._path)
        finally:
            disk.close(lock)
