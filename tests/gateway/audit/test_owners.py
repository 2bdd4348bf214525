"""Whose the files of an audit folder are, where root types commands beside another's worker."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.audit.content_keys.overwriting import put_in_place
from gateway.audit.disk import Disk
from gateway.audit.folder_mark import folder_mark


IS_ROOT = os.geteuid() == 0
WORKER = 65_534 if IS_ROOT else os.geteuid()
"""Another user than who makes the files, where there may be one."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if IS_ROOT:
        os.chown(tmp_path, WORKER, WORKER)
    return tmp_path


def test_whatever_is_made_in_a_folder_belongs_to_whose_folder_it_is(folder: Path) -> None:
    disk, audit = Disk(), folder / "var" / "audit"
    disk.make_folder(audit)
    folder_mark(audit, disk)
    for opened in (disk.lock(audit / "lock"), disk.create(audit / "segment")):
        disk.close(opened)
    disk.append_durably(audit / "keys.jsonl", b"a key and another")
    put_in_place(audit / "keys.jsonl", b"another", disk)
    made = sorted(folder.rglob("*"))
    assert [each.name for each in made if each.is_file()] == [
        *("folder-mark", "folder-mark.lock", "keys.jsonl", "lock", "segment")
    ]
    assert {each.stat().st_uid for each in made} == {WORKER}


def test_what_was_there_stays_whose_it_is(folder: Path) -> None:
    """A name in somebody's folder may lead to any file: nothing that was there is given away."""
    elsewhere = folder.parent / "elsewhere"
    elsewhere.write_bytes(b"")
    (folder / "lock").symlink_to(elsewhere)
    (folder / "list").hardlink_to(elsewhere)
    disk = Disk()
    disk.close(disk.lock(folder / "lock"))
    disk.append_durably(folder / "list", b"line")
    assert elsewhere.stat().st_uid == os.geteuid()
    with pytest.raises(FileExistsError):
        disk.create(folder / "lock")


@pytest.mark.parametrize("make", [Disk.create, Disk.lock, Disk.open_to_add, Disk.make_folder])
def test_what_is_made_elsewhere_is_not_given_to_whoever_led_root_there(
    folder: Path, make: Callable[[Disk, Path], int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who owns the folder above may lead its name to any other, and back before root looks."""
    mine, theirs, name = folder / "mine", folder.parent / f"{folder.name} of root", folder / "audit"
    for each in (mine, theirs):
        each.mkdir()
    os.chown(mine, WORKER, WORKER)
    name.symlink_to(theirs)

    def then_back(real: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **named: Any) -> Any:
            try:
                return real(*given, **named)
            finally:
                if (theirs / "made").exists():
                    name.unlink()
                    name.symlink_to(mine)

        return called

    for call in ("open", "mkdir"):
        monkeypatch.setattr(os, call, then_back(getattr(os, call)))
    descriptor = make(Disk(), name / "made")
    monkeypatch.undo()
    if descriptor is not None:
        os.close(descriptor)
    assert (theirs / "made").stat().st_uid == os.geteuid()


@pytest.mark.parametrize("code", [errno.EPERM, errno.EINVAL, errno.ENOTSUP])
def test_what_root_may_not_give_away_is_made_all_the_same(
    folder: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that does not know the owner's number, or on a share without any."""

    def refused(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fchown", refused)
    disk = Disk()
    disk.make_folder(folder / "audit")
    disk.close(disk.create(folder / "audit" / "segment"))
    assert (folder / "audit" / "segment").stat().st_uid == os.geteuid()
    with pytest.raises(OSError, match="exists") as caught:
        disk.create(folder / "audit" / "segment")
    assert Path(caught.value.filename) == folder / "audit" / "segment"


def test_a_folder_that_somebody_else_makes_meanwhile_is_his(folder: Path) -> None:
    audit = folder / "audit"
    audit.mkdir()
    Disk().make_folder(audit)
    assert audit.stat().st_uid == os.geteuid()
    (folder / "file").write_bytes(b"")
    with pytest.raises(OSError, match=r"exists|Not a directory"):
        Disk().make_folder(folder / "file")
