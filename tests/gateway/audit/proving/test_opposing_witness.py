"""The offline verifier against packs that an opposing expert witness would make."""

import hashlib
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.audit.proving.merkle import consistency_path
from gateway.audit.proving.offline import Wrong, check_consistency, check_pack, leaf_hash, parse_key
from tests.gateway.audit.proving.test_merkle import naive_root
from tests.gateway.audit.proving.test_offline import KEYS, LEAVES, RECORDS, SIGNER, Made, signed


Files = dict[str, bytes]
SEVENTEEN = [hashlib.sha256(bytes([number])).digest() for number in range(17)]


def files_of(folder: Path) -> Files:
    """A pack that holds: all six records."""
    made = Made(folder, 1, 6, (6,))
    made.checked()
    paths = [path for path in made.folder.rglob("*") if path.is_file()]
    return {path.relative_to(made.folder).as_posix(): path.read_bytes() for path in paths}


def zipped(path: Path, files: Files, kind: int = zipfile.ZIP_DEFLATED) -> Path:
    """A zip file of these, with a manifest that names all of them."""
    manifest = json.loads(files["manifest.json"])
    rest = {name: data for name, data in files.items() if name != "manifest.json"}
    manifest["files"] = {name: hashlib.sha256(data).hexdigest() for name, data in rest.items()}
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, data in (rest | {"manifest.json": json.dumps(manifest).encode()}).items():
            archive.writestr(name, data)
    return path


def refused(path: Path, reason: str) -> None:
    with pytest.raises(Wrong, match=reason):
        check_pack(path, KEYS)


def changed_lines(change: Callable[[list[bytes]], object]) -> Callable[[Files], object]:
    """Other records, and all that follows from them as far as it can be made without the key."""

    def changed(files: Files) -> None:
        lines = list(RECORDS)
        change(lines)
        files["records.jsonl"] = b"".join(line + b"\n" for line in lines)
        files["leaves.bin"] = b"".join(map(leaf_hash, lines))

    return changed


def older(files: Files) -> None:
    note = {"note": signed(4), "consistency": []}
    files["checkpoints.jsonl"] = json.dumps(note).encode() + b"\n"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (changed_lines(lambda lines: lines.insert(0, lines.pop(1))), "do not give the signed root"),
        (
            changed_lines(lambda lines: lines.__setitem__(2, lines[0])),
            "do not give the signed root",
        ),
        (
            changed_lines(lambda lines: lines.__setitem__(1, b'{"record": {"stage": "admin"}}')),
            "do not give the signed root",
        ),
        (older, "no checkpoint covers"),
        # All that a pack may hold is proved, or known to be beside the proof.
        (lambda files: files.update({"opinion.txt": b"x"}), "no file of a pack"),
        (lambda files: files.update({"Records.jsonl": b"x"}), "no file of a pack"),
        (lambda files: files.update({"../../profile": b"x"}), "no file of a pack"),
        (lambda files: files.update({"/etc/profile": b"x"}), "no file of a pack"),
        (lambda files: files.update({"policies/note.txt": b"x"}), "no file of a pack"),
        (lambda files: files.update({"empty/": b""}), "no file of a pack"),
        # What is small in a zip file and fills the memory of whoever reads it.
        (lambda files: files.update({"leaves.bin": bytes(1 << 22)}), "not as packs are written"),
        (changed_lines(lambda lines: lines.__setitem__(0, b"1" * (1 << 21))), "record 1: changed"),
    ],
)
def test_what_others_make_of_a_pack_does_not_hold(
    tmp_path: Path, change: Callable[[Files], object], reason: str
) -> None:
    files = files_of(tmp_path)
    assert check_pack(zipped(tmp_path / "good.zip", files), KEYS)["records"] == 6
    change(files)
    refused(zipped(tmp_path / "bad.zip", files), reason)


def test_a_manifest_without_an_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    files = files_of(tmp_path)
    with zipfile.ZipFile(tmp_path / "bad.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, bytes(0) if name != "manifest.json" else b" " * (1 << 24) + data)
    with pytest.raises(Wrong, match="Expecting value"):
        check_pack(tmp_path / "bad.zip", KEYS)


def test_a_zip_file_holds_nothing_that_this_verifier_does_not_see(tmp_path: Path) -> None:
    """Another program reads it from its beginning, and shows what lies there."""
    files = files_of(tmp_path)
    whole = zipped(tmp_path / "whole.zip", files).read_bytes()
    other = zipped(tmp_path / "other.zip", files | {"records.jsonl": b"{}\n"}).read_bytes()
    hidden = zipped(tmp_path / "hidden.zip", files)
    with zipfile.ZipFile(hidden, "a") as archive:
        archive.writestr("records-2.jsonl", b"{}\n")
        archive.filelist.pop()
    assert b"records-2.jsonl" in hidden.read_bytes()
    commented = zipped(tmp_path / "commented.zip", files)
    with zipfile.ZipFile(commented, "a") as archive:
        archive.comment = b"this is not the whole truth"
    pieces = {"before": b"#!/bin/sh\n" + whole, "after": whole + b"more", "two": other + whole}
    for name, data in pieces.items():
        (tmp_path / name).write_bytes(data)
    for path in (hidden, commented, *(tmp_path / name for name in pieces)):
        refused(path, "not as packs are written")
    stored = zipped(tmp_path / "stored.zip", files, zipfile.ZIP_STORED)
    assert check_pack(stored, KEYS)["records"] == 6
    for kind in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        refused(zipped(tmp_path / "odd.zip", files, kind), "not as packs are written")


def test_a_folder_holds_files_and_no_ways_out_of_it(tmp_path: Path) -> None:
    files_of(tmp_path)
    folder = tmp_path / "pack"
    records, elsewhere = folder / "records.jsonl", tmp_path / "elsewhere"
    (folder / "more").symlink_to("/")
    refused(folder, "neither a file nor a folder")
    (folder / "more").unlink()
    os.mkfifo(folder / "more")
    refused(folder, "neither a file nor a folder")
    (folder / "more").unlink()
    assert check_pack(folder, KEYS)["records"] == 6
    records.rename(elsewhere)
    records.symlink_to(elsewhere)
    refused(folder, "neither a file nor a folder")


def test_a_tree_is_shown_to_begin_with_an_older_one_and_with_no_other() -> None:
    """Of every two sizes: another root on either side, a hash more, less or changed."""

    def tile(_: tuple[int, int]) -> list[bytes]:
        return SEVENTEEN

    other = bytes(32)
    for new in range(1, len(SEVENTEEN) + 1):
        assert consistency_path(0, new, tile) == []
        for old in range(1, new + 1):
            before, after = naive_root(SEVENTEEN[:old]), naive_root(SEVENTEEN[:new])
            path = consistency_path(old, new, tile)
            check_consistency(old, new, before, after, path)
            wrong = [(other, after, path), (before, other, path)]
            wrong += [(before, after, [*path, other]), (before, after, [other, *path])]
            wrong += [(before, after, path[:-1]), (before, after, path[1:])] if path else []
            for at in range(len(path)):
                wrong.append((before, after, [*path[:at], other, *path[at + 1 :]]))
            for first, second, proof in wrong:
                with pytest.raises(Wrong):
                    check_consistency(old, new, first, second, proof)


def test_two_signed_roots_of_one_size_are_a_fork(tmp_path: Path) -> None:
    """The key's holder signed both: one log for the regulator, and another for the rest."""
    made = Made(tmp_path, 1, 6, (6, 6))
    assert made.checked()["checkpoints"] == 2
    LEAVES.reverse()
    try:
        made.lines[0]["note"] = signed(6)
    finally:
        LEAVES.reverse()
    with pytest.raises(Wrong, match="two checkpoints of one size differ"):
        made.checked()


def test_a_key_whose_name_was_changed_is_none() -> None:
    name, stated, encoded = SIGNER.verifier_key.split("+", 2)
    for text in (f"{name}x+{stated}+{encoded}", f"{name}+{'0' * 8}+{encoded}"):
        with pytest.raises(Wrong, match="key"):
            parse_key(text)
