"""Finds which master keys wrapped the keys in an audit folder: content keys and signing keys."""

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Final

from gateway.audit.content_keys.keys import KEYS_NAME, read_keys
from gateway.audit.lying_here import folder_lies_here, lies_here
from gateway.audit.proving.checkpoints import SIGNERS_NAME, read_signers
from gateway.audit.segments import list_workers


KEYS_OF_CONTENTS: Final = "keys of contents in the audit folder"
KEYS_THAT_SIGN: Final = "keys that sign the log"


def masters_of(directory: Path) -> set[str]:
    """Ids of their master keys, of all workers; raises OSError if the folder cannot be read."""
    return masters_of_signers(directory).keys() | masters_of_contents(directory).keys()


def masters_of_contents(directory: Path) -> Counter[str]:
    """How many content keys each master key wrapped; raises OSError."""
    return Counter(
        line.master for worker in _workers(directory) for line in read_keys(directory / worker)
    )


def masters_of_signers(directory: Path) -> Counter[str]:
    """How many signing keys of the log each master key wrapped; raises OSError."""
    return Counter(
        line.master for worker in _workers(directory) for line in read_signers(directory / worker)
    )


def hanging_in(directory: Path, key_ids: Collection[str]) -> dict[str, Counter[str]]:
    """How many keys of each kind depend on each of these master keys, by id; raises OSError.

    Files that name none of them are not read line by line.
    """
    named = {key_id for key_id in key_ids if _is_named(directory, key_id)}
    found: dict[str, Counter[str]] = {key_id: Counter() for key_id in key_ids}
    if named:
        contents, signers = masters_of_contents(directory), masters_of_signers(directory)
        for key_id in named:
            counts = {KEYS_OF_CONTENTS: contents[key_id], KEYS_THAT_SIGN: signers[key_id]}
            found[key_id].update({name: count for name, count in counts.items() if count})
    return found


def _is_named(directory: Path, key_id: str) -> bool:
    word = key_id.encode()
    for worker in _workers(directory):
        for name in (KEYS_NAME, SIGNERS_NAME):
            path = directory / worker / name
            if lies_here(path) and word in path.read_bytes():
                return True
    return False


def _workers(directory: Path) -> list[str]:
    return list_workers(directory) if folder_lies_here(directory) else []
