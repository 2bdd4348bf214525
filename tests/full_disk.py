"""Simulates a full disk: for a while no file of this process may grow beyond some bytes."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def room_for(count_bytes: int) -> Iterator[None]:
    """Writing more to one file fails as the kernel reports it, also when a buffer is flushed."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
