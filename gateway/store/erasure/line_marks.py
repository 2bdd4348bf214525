"""Names a line of a file on the list of what was erased, by a keyed digest of the line.

The digest stays the same on every machine and whichever lines before it were removed; a line number
does not.
"""

import hashlib
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from typing import Final

from gateway.batches import KeptFile
from gateway.configuration.settings import Settings
from gateway.identity import Peppers
from gateway.secrets.content_keys import ContentDamaged, KeyClosed
from gateway.secrets.credentials import all_peppers
from gateway.store.batching.files import FileStore
from gateway.store.batching.kept_names import cut_lines


_MARK_CHARS: Final = 32


class LineMarks:
    """Reads lines of files of one database."""

    def __init__(self, settings: Settings, files: FileStore) -> None:
        self._settings, self._files = settings, files
        self._length_max = settings.limits.batch_line_bytes_max

    async def of(self, file: KeptFile, numbers: Collection[int]) -> tuple[str, ...]:
        """The marks of these lines; what cannot be read has none.

        Raises:
            NotReady: the file has changed since it was found.
        """
        marks: dict[str, None] = {}
        with suppress(KeyClosed, ContentDamaged):  # Nobody reads what is behind it either.
            async for number, mark in self._marked(file):
                if number in numbers:
                    marks[mark] = None
        return tuple(marks)

    async def found(self, file: KeptFile, marks: Collection[str]) -> tuple[frozenset[int], bool]:
        """The lines of a file with these marks, and whether all of it could be read.

        Raises:
            NotReady: the file has changed since it was found.
        """
        found, is_whole = set[int](), False
        with suppress(KeyClosed, ContentDamaged):
            async for number, mark in self._marked(file):
                if mark in marks:
                    found.add(number)
            is_whole = True
        return frozenset(found), is_whole

    async def _marked(self, file: KeptFile) -> AsyncIterator[tuple[int, str]]:
        peppers = Peppers(all_peppers(self._settings), self._settings.secrets.pepper_version)
        lines = cut_lines(self._files.content(file), self._length_max)
        async for number, raw, is_whole in lines:
            if is_whole and (line := raw.strip()):
                told = hashlib.sha256(line).hexdigest()
                mark = peppers.keyed(f"line of {file.file_id}: {told}").hex()
                yield number, mark[:_MARK_CHARS]
