"""Reads files that operators write: bounded, and with or without a byte order mark."""

import errno
import os
import select
from pathlib import Path
from typing import Final


TEXT_BYTES_MAX: Final = 16 * 1024 * 1024
"""No text by a person is this long; a longer one is another file, or endless."""
TEXT_ENCODING: Final = "utf-8-sig"
"""With or without the byte order mark that editors on Windows put in front."""


PIPE_PATIENCE_S = 10.0
"""How long a pipe may say nothing: one without a writer would be waited for endlessly."""


def text_of(file: Path) -> str:
    """The text of a file or a pipe.

    Raises:
        OSError: it cannot be read, is longer than `TEXT_BYTES_MAX`, or is a pipe into which nobody
            writes.
        UnicodeDecodeError: it is not UTF-8.
    """
    # Neither opening nor reading waits for anybody.
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        raw = _all_of(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from error
    finally:
        os.close(descriptor)
    return raw.decode(TEXT_ENCODING)


def _all_of(descriptor: int) -> bytes:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    raw = bytearray()
    while len(raw) <= TEXT_BYTES_MAX:
        if not poll.poll(PIPE_PATIENCE_S * 1000):
            raise OSError(errno.ETIMEDOUT, f"nothing came from it for {PIPE_PATIENCE_S:g} s")
        piece = os.read(descriptor, TEXT_BYTES_MAX + 1 - len(raw))
        if not piece:
            return bytes(raw)
        raw += piece
    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
