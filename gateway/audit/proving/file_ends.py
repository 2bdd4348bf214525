"""Reads the lines of a growing file backwards from its end, as many as are needed."""

import os
from collections.abc import Iterator
from pathlib import Path


def lines_from_end(path: Path, first_bytes: int, then_bytes: int) -> Iterator[list[bytes]]:
    """Complete lines, without empty ones, in the order of the file: in pieces, the last one first.

    The first piece has about `first_bytes`, each further one `then_bytes`: no more is in memory.
    Blocks; raises OSError.
    """
    step, rest = first_bytes, b""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - step)
            file.seek(start)
            piece = file.read(end - start) + rest
            rest = b""
            if start:  # A line that began earlier belongs to the previous piece.
                rest, _, piece = piece.partition(b"\n")
            yield [*filter(None, piece.splitlines())]
            end, step = start, then_bytes
