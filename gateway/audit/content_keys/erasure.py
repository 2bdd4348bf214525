"""Erasure: content keys destroyed for good, so that what they sealed can never be read again.

Records and proofs stay: they cover ciphertext. A destroyed key is also written to a list outside
the audit folder; a start applies it again, because a restored backup brings the key files back.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from gateway.audit.content_keys.keys import (
    KEYS_NAME,
    LOCK_NAME,
    DamagedLine,
    KeyWrapper,
    WrappedKey,
    damaged_lines,
    named_by,
    raw_lines,
    read_keys,
)
from gateway.audit.content_keys.overwriting import left_over, overwrite_left_over, put_in_place
from gateway.audit.disk import Disk
from gateway.audit.lying_here import folder_lies_here
from gateway.audit.segments import list_workers


ERASED_NAME = "erased-keys"


class ErasedKey(Struct, frozen=True):
    """One line of the list: the key's id tells whose content is gone without naming anybody."""

    key: str
    erased_us: int


def matching_keys(directory: Path, organisation: str, subject: str | None) -> list[WrappedKey]:
    """All content keys of a subject, or of a whole organisation, of all workers."""
    if not folder_lies_here(directory):
        return []
    return [
        line
        for worker in list_workers(directory)
        for line in read_keys(directory / worker)
        if line.organisation == organisation and subject in (None, line.subject)
    ]


class OlderKeys(Struct, frozen=True):
    """Content keys of a subject, or of an organisation, separated by when they were made."""

    found: tuple[WrappedKey, ...]
    younger: int
    """How many were made later; these stay."""


class KeysByAge:
    """The keys of several key files, read once and asked for many subjects.

    A key file only grows: whatever its date, a line before a key of some time is no younger.
    """

    def __init__(self, files: Iterable[Sequence[WrappedKey]]) -> None:
        self._youngest_us: list[list[int]] = []
        """For each file, the earliest date from each line on; it never falls from line to line."""
        self._lines: dict[str, list[_Placed]] = {}
        self._of_subject: dict[tuple[str, str], list[_Placed]] = {}
        for file, lines in enumerate(files):
            dates = [line.created_us for line in reversed(lines)]
            self._youngest_us.append([*accumulate(dates, min)][::-1])
            for at, line in enumerate(lines):
                placed = _Placed(line, file, at)
                self._lines.setdefault(line.organisation, []).append(placed)
                subject = (line.organisation, line.subject)
                self._of_subject.setdefault(subject, []).append(placed)

    def older(self, organisation: str, subject: str | None, until_us: int) -> OlderKeys:
        """Those made until then; `subject` None means the entire organisation."""
        if subject is None:
            lines = self._lines.get(organisation, [])
        else:
            lines = self._of_subject.get((organisation, subject), [])
        old = [each.line for each in lines if self._youngest_us[each.file][each.at] <= until_us]
        return OlderKeys(tuple(old), len(lines) - len(old))


class _Placed(NamedTuple):
    line: WrappedKey
    file: int
    at: int


def damaged_keys(directory: Path, wrapper: KeyWrapper | None = None) -> list[DamagedLine]:
    """The changed lines of all workers' key files; it is not known whose content they open."""
    if not folder_lies_here(directory):
        return []
    workers = list_workers(directory)
    return [line for each in workers for line in damaged_lines(directory / each, wrapper)]


def destroy_keys(
    directory: Path, list_folder: Path, keys: Iterable[WrappedKey], now_us: int, disk: Disk
) -> int:
    """Destroy these keys in every worker's file; returns how many lines were removed.

    They are listed before the first one is removed, so that the next start completes what a crash
    interrupted.

    Raises:
        OSError: not all of it could be done; doing it again is harmless.
    """
    return destroy_ids(directory, list_folder, (line.key for line in keys), now_us, disk)


def destroy_ids(
    directory: Path, list_folder: Path, keys: Iterable[str], now_us: int, disk: Disk
) -> int:
    """The same for keys known only by id, some of which may be gone."""
    ids = set(keys)
    disk.make_folder(list_folder)
    lines = b"".join(
        b"\n" + msgspec.json.encode(ErasedKey(key, now_us)) + b"\n" for key in sorted(ids)
    )
    if lines:
        disk.append_durably(list_folder / ERASED_NAME, lines)
    return _remove(directory, ids, disk)


def erased_keys(list_folder: Path) -> dict[str, int]:
    """When each key on the list was erased; raises OSError when the list cannot be read."""
    try:
        raw = (list_folder / ERASED_NAME).read_bytes()
    except FileNotFoundError:
        return {}
    found = {}
    for line in raw.splitlines():
        try:
            erased = msgspec.json.decode(line, type=ErasedKey)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        found[erased.key] = erased.erased_us
    return found


def listed_here(directory: Path, list_folder: Path) -> list[WrappedKey]:
    """Listed keys that are nevertheless still here, of all workers."""
    if not folder_lies_here(directory) or not (erased := erased_keys(list_folder)):
        return []
    return [
        line
        for worker in list_workers(directory)
        for line in read_keys(directory / worker)
        if line.key in erased
    ]


def apply_list(directory: Path, list_folder: Path, disk: Disk, spared: Collection[str] = ()) -> int:
    """Destroy listed keys again; returns how many a restored backup had brought back.

    Also overwrites what an interrupted erasure has not. `spared` are ids that stay.
    """
    if not folder_lies_here(directory):
        return 0
    return _remove(directory, set(erased_keys(list_folder)).difference(spared), disk)


def finish_broken_off(directory: Path, disk: Disk) -> None:
    """Overwrite what an interrupted destruction left: its keys are in no file any more.

    Raises:
        OSError: not all of it could be done.
    """
    _remove(directory, set(), disk)


def _remove(directory: Path, ids: set[str], disk: Disk) -> int:
    removed = 0
    for worker in list_workers(directory):
        folder = directory / worker
        has_them = bool(ids) and not ids.isdisjoint(map(named_by, raw_lines(folder)))
        if not has_them and not left_over(folder / KEYS_NAME):
            continue
        lock = disk.lock(folder / LOCK_NAME, wait=True)
        try:
            overwrite_left_over(folder / KEYS_NAME, disk)
            removed += _rewrite(folder, ids, disk) if has_them else 0
        finally:
            disk.close(lock)
    return removed


def _rewrite(folder: Path, ids: set[str], disk: Disk) -> int:
    """Replace a key file by one without these keys, and overwrite the old one's bytes.

    Every other line stays byte for byte, also a damaged one: it may be the only copy of a key.
    """
    lines = raw_lines(folder)
    kept: list[bytes] = []
    removed, is_after = 0, False
    for line in lines:
        is_erased = named_by(line) in ids
        removed += is_erased
        # With the empty line after it; otherwise a line that a crash cut off would seem complete.
        if not is_erased and not (is_after and not line):
            kept.append(line)
        is_after = is_erased
    put_in_place(folder / KEYS_NAME, b"\n".join(kept), disk)
    return removed
