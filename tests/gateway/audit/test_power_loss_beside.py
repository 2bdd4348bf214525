"""The power goes: what lies beside the segments. Keys, marks of erasure, checkpoints, open intents.

Files are modelled by what was synced of them, and folders by the names that were synced in them: a
rename or a new file whose folder was not synced may be undone, or not.
"""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import pytest

from gateway.audit.content_keys.erasure import apply_list, destroy_keys, erased_keys, matching_keys
from gateway.audit.content_keys.keys import DataKeys, read_keys
from gateway.audit.disk import Disk
from gateway.audit.open_intents import OpenMark, keep_mark, read_mark
from gateway.audit.proving.checkpoints import open_signer, read_signers
from gateway.audit.proving.exported import CheckpointFiles, SignedCheckpoint
from gateway.clock import SystemClock
from gateway.providers.outlets.sinks import FileSink
from tests.gateway.audit.samples import KEYS


RUNS: Final = 30
STEPS_MAX: Final = 60


class PowerLost(OSError):
    """Nothing is done any more."""


class Platter(Disk):
    """A disk below one folder whose power goes at some call."""

    def __init__(self, root: Path, draw: random.Random, steps: int) -> None:
        self._root = root
        self._draw = draw
        self._left = steps
        self._handles: dict[int, int] = {}
        """By inode: held open, so that no number is given out twice."""
        self._synced: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int | None]] = {}
        """Of each folder what is synced in it; None is a folder."""

    def open_to_add(self, path: Path) -> int:
        self._step()
        descriptor = super().open_to_add(path)
        inode = os.fstat(descriptor).st_ino
        if inode not in self._handles:
            self._handles[inode] = os.open(path, os.O_RDONLY)
        return descriptor

    def write(self, descriptor: int, data: bytes) -> None:
        try:
            self._step()
        except PowerLost:
            super().write(descriptor, data[: self._draw.randint(0, len(data))])
            raise
        super().write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        self._step()
        super().sync(descriptor)
        inode = os.fstat(descriptor).st_ino
        self._synced[inode] = self._content(inode)

    def sync_folder(self, path: Path) -> None:
        self._step()
        super().sync_folder(path)
        self._names[path] = self._present(path)

    def replace(self, draft: Path, path: Path) -> None:
        self._step()
        super().replace(draft, path)

    def lose(self) -> None:
        """What a start finds: of each folder what was synced, or what was there by luck."""
        kept = self._kept(self._root)
        shutil.rmtree(self._root)
        self._root.mkdir()
        for path, content in kept.items():
            if content is None:
                path.mkdir(parents=True, exist_ok=True)
            else:
                path.write_bytes(content)
        for handle in self._handles.values():
            os.close(handle)

    def _kept(self, folder: Path) -> dict[Path, bytes | None]:
        is_lucky = self._draw.random() < 0.3
        names = self._present(folder) if is_lucky else self._names.get(folder, {})
        found: dict[Path, bytes | None] = {folder: None}
        for name, inode in names.items():
            path = folder / name
            if inode is None:
                found |= self._kept(path) if path.is_dir() else {path: None}
            elif inode in self._handles:
                found[path] = self._survives(inode)
        return found

    def _survives(self, inode: int) -> bytes:
        synced, content = self._synced.get(inode, b""), self._content(inode)
        if not content.startswith(synced):
            return content if self._draw.random() < 0.5 else synced  # It was overwritten in place.
        return content[: self._draw.randint(len(synced), len(content))]

    def _content(self, inode: int) -> bytes:
        handle = self._handles[inode]
        return os.pread(handle, os.fstat(handle).st_size, 0)

    def _present(self, folder: Path) -> dict[str, int | None]:
        found = {each.name: each for each in os.scandir(folder)}
        return {name: None if each.is_dir() else each.inode() for name, each in found.items()}

    def _step(self) -> None:
        self._left -= 1
        if self._left <= 0:
            raise PowerLost("the power is gone")


class Life:
    """A worker beside its segments, and what was acknowledged before the power went."""

    def __init__(self, root: Path, seed: int) -> None:
        draw = random.Random(seed)
        self.root = root
        root.mkdir()
        self.disk = Platter(root, draw, draw.randint(2, STEPS_MAX))
        self.worker = root / "audit" / "w0"
        self.outside = root / "outside" / "checkpoints"
        self.keys: set[str] = set()
        self.erased: set[str] = set()
        self.signers: set[str] = set()
        self.exported: list[SignedCheckpoint] = []
        self.marks: list[OpenMark] = []
        self.delivered: list[str] = []
        self.sink = FileSink(root / "exports" / "audit.jsonl", self.disk)
        self.done = 0
        """How much was acknowledged."""

    def until_the_power_goes(self) -> None:
        try:
            self.disk.make_folder(self.worker)
            while True:
                for step in self._steps():
                    step()
                    self.done += 1
        except PowerLost:
            self.disk.lose()

    def _steps(self) -> tuple[Callable[[], None], ...]:
        evidence = (self._seal, self._sign, self._export, self._seal, self._mark, self._erase)
        return (*evidence, self._deliver)

    def _seal(self) -> None:
        keys = DataKeys(self.worker, KEYS, SystemClock(), self.disk)
        key, _ = keys.seal("acme", f"subject-{self.done}", b"", b"words")
        self.keys.add(key)

    def _sign(self) -> None:
        name = f"test/{self.done}"
        open_signer(self.worker, name, KEYS, SystemClock(), self.disk)
        self.signers.add(name)

    def _export(self) -> None:
        checkpoint = SignedCheckpoint("acme", self.done + 1, self.done, bytes(32), "note")
        CheckpointFiles(self.outside, self.disk).append(checkpoint)
        self.exported.append(checkpoint)

    def _mark(self) -> None:
        mark = OpenMark(1, self.done, {})
        keep_mark(self.worker, mark, self.disk)
        self.marks.append(mark)

    def _deliver(self) -> None:
        """As after a failure that it says: the next round delivers the same again."""
        line = f"line-{self.done}"
        if not self.sink._append([{"line": line}]):
            raise PowerLost
        self.delivered.append(line)

    def _erase(self) -> None:
        audit = self.worker.parent
        found = matching_keys(audit, "acme", f"subject-{self.done - 5}")
        # What is half erased need not be there any more, and may be.
        self.keys -= {line.key for line in found}
        destroy_keys(audit, self.outside, found, 1, self.disk)
        self.erased |= {line.key for line in found}


@pytest.mark.parametrize("seed", range(RUNS))
def test_nothing_that_was_acknowledged_is_lost_and_nothing_erased_comes_back(
    tmp_path: Path, seed: int
) -> None:
    life = Life(tmp_path / "root", seed)
    life.until_the_power_goes()
    audit = life.worker.parent
    assert life.erased <= erased_keys(life.outside).keys()
    apply_list(audit, life.outside, Disk())
    here = {line.key for line in read_keys(life.worker)} if life.worker.is_dir() else set()
    assert life.keys <= here
    assert not life.erased & here
    assert life.signers <= {line.name for line in read_signers(life.worker)}
    files = CheckpointFiles(life.outside, Disk())
    assert [each for each in files.every("acme") if each][: len(life.exported)] == life.exported
    if life.marks:
        found = read_mark(life.worker)
        assert found is not None
        assert found.offset_bytes >= life.marks[-1].offset_bytes
    exported = tmp_path / "root" / "exports" / "audit.jsonl"
    lines = exported.read_bytes().splitlines() if exported.exists() else []
    whole = [msgspec.json.decode(line)["line"] for line in lines[: len(life.delivered)]]
    assert whole == life.delivered
    # The next start goes on, where it left off.
    Disk().make_folder(life.worker)
    key, _ = DataKeys(life.worker, KEYS, SystemClock(), Disk()).seal("acme", "new", b"", b"")
    assert key in {line.key for line in read_keys(life.worker)}


def test_a_name_whose_folder_could_not_be_synced_is_synced_by_the_next(tmp_path: Path) -> None:
    """The first failed after it had made the file; the second finds the file and adds to it."""

    class FailsOnce(Platter):
        failures = 1

        def sync_folder(self, path: Path) -> None:
            if path.name == "keys" and self.failures:
                self.failures -= 1
                raise OSError("the disk failed once")
            super().sync_folder(path)

    root = tmp_path / "root"
    root.mkdir()
    disk = FailsOnce(root, random.Random(3), 10**6)
    disk.make_folder(root / "keys")
    with pytest.raises(OSError, match="failed once"):
        disk.append_durably(root / "keys" / "file", b"first\n")
    disk.append_durably(root / "keys" / "file", b"second\n")
    disk.lose()
    assert (root / "keys" / "file").read_bytes() == b"first\nsecond\n"
