"""Whether a file or a folder lies here; what cannot be looked at is an error, and not away.

From Python 3.14 on `Path.exists` and `Path.is_dir` say of both that nothing is there: of a disk
that does not answer an erasure would say that it holds no keys.
"""

from pathlib import Path
from stat import S_ISDIR


_AWAY = (FileNotFoundError, NotADirectoryError)


def lies_here(path: Path) -> bool:
    """Whether anything of that name does; raises OSError where that cannot be told."""
    try:
        path.stat()
    except _AWAY:
        return False
    return True


def folder_lies_here(path: Path) -> bool:
    """Whether a folder of that name does; raises OSError where that cannot be told."""
    try:
        return S_ISDIR(path.stat().st_mode)
    except _AWAY:
        return False
