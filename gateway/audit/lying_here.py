"""Checks whether a file or folder exists here; raises an error where that cannot be read.

From Python 3.14 on, `Path.exists` and `Path.is_dir` answer "no" in both cases: an erasure would
conclude that a disk that does not answer holds no keys.
"""

from errno import ELOOP, ENOENT, ENOTDIR
from os import stat_result
from pathlib import Path
from stat import S_ISDIR


_AWAY = frozenset({ENOENT, ENOTDIR, ELOOP})
"""As in older Pythons: links in a circle lead to nothing, either."""


def lies_here(path: Path) -> bool:
    """Whether something with that name exists; raises OSError if that cannot be told."""
    return _state(path) is not None


def folder_lies_here(path: Path) -> bool:
    """Whether a folder with that name exists; raises OSError if that cannot be told."""
    found = _state(path)
    return found is not None and S_ISDIR(found.st_mode)


def _state(path: Path) -> stat_result | None:
    try:
        return path.stat()
    except OSError as error:
        if error.errno in _AWAY:
            return None
        raise
