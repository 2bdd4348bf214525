"""Which master keys wrapped what lies in an audit folder: keys of contents, and keys that sign."""

from collections import Counter
from pathlib import Path

from gateway.audit.checkpoints import read_signers
from gateway.audit.keys import read_keys
from gateway.audit.segments import list_workers


def masters_of(directory: Path) -> set[str]:
    """Their ids, of all workers; raises OSError where the folder cannot be read."""
    signers = {
        line.master for worker in _workers(directory) for line in read_signers(directory / worker)
    }
    return signers | masters_of_contents(directory).keys()


def masters_of_contents(directory: Path) -> Counter[str]:
    """How many keys of contents each of them wrapped; raises OSError."""
    return Counter(
        line.master for worker in _workers(directory) for line in read_keys(directory / worker)
    )


def _workers(directory: Path) -> list[str]:
    return list_workers(directory) if directory.is_dir() else []
