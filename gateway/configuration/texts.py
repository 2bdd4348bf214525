"""Texts that operators write into files: bounded, and read as their editors write them."""

import errno
import os
from pathlib import Path
from typing import Final


TEXT_BYTES_MAX: Final = 16 * 1024 * 1024
"""No text of a person is as long; what is longer is another file, or none that ends."""
TEXT_ENCODING: Final = "utf-8-sig"
"""With the byte order mark that editors on Windows put in front, or without."""


def text_of(file: Path) -> str:
    """What a file says.

    Raises:
        OSError: it cannot be read, or is longer than `TEXT_BYTES_MAX`.
        UnicodeDecodeError: it is not UTF-8.
    """
    with file.open("rb") as opened:
        raw = opened.read(TEXT_BYTES_MAX + 1)
    if len(raw) > TEXT_BYTES_MAX:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(file))
    return raw.decode(TEXT_ENCODING)
