"""The digest that binds a record to its content: readers know two, a writer takes the faster.

SHA-256 takes two thirds of BLAKE2b's time where the processor has instructions for it, and half as
long again elsewhere (`benchmarks/README.md`). A record names the one that it has.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gateway.audit.entries import content_digest


_PROCESSORS = Path("/proc/cpuinfo")
_OF_ONE_PROCESSOR = 16 * 1024
_SHA_INSTRUCTIONS = frozenset({"sha_ni", "sha2"})
"""Their names in Linux on x86-64 and on 64-bit ARM."""


class ContentDigest(NamedTuple):
    name: str
    """The field of a `ContentReference` that holds it."""
    of: Callable[[bytes], str]
    """Gives the digest in hex."""


def _sha256(sealed: bytes) -> str:
    return hashlib.sha256(sealed).hexdigest()


SHA256 = ContentDigest("sha256", _sha256)
BLAKE2B = ContentDigest("blake2b", content_digest)


def faster_digest(processors: Path = _PROCESSORS) -> ContentDigest:
    """The faster digest on this processor, as Linux describes it; BLAKE2b without a description."""
    with suppress(OSError), processors.open(encoding="utf-8", errors="replace") as text:
        if not _SHA_INSTRUCTIONS.isdisjoint(text.read(_OF_ONE_PROCESSOR).split()):
            return SHA256
    return BLAKE2B
