"""Evidence packs: whole for a stranger, and the offline verifier finds every change in them."""

import asyncio
import base64
import hashlib
import itertools
import json
import random
import re
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.audit.proving import offline, pack
from gateway.audit.proving.checkpoints import Checkpoint, Signer
from gateway.audit.proving.offline import (
    Wrong,
    check_pack,
    ed25519_holds,
    leaf_hash,
    open_checkpoint,
    parse_key,
)
from gateway.audit.proving.pack import PackRefused
from tests.full_disk import room_for
from tests.gateway.audit.samples import record, running
from tests.gateway.store.ledgered import POLICY, Ledgered, ledgered


pytestmark = pytest.mark.anyio
TAMPERINGS = 200
PARTS = 4


@pytest.fixture
async def log(tmp_path: Path, sqlite_url: str) -> AsyncIterator[Ledgered]:
    async with ledgered(tmp_path, sqlite_url) as made:
        yield made


async def made_pack(log: Ledgered, folder: Path, first: int = 31, last: int = 350) -> Path:
    """A pack of part of a log of 400 records with four checkpoints, as a folder."""
    for start in range(0, 300, 75):
        await log.write(start, 75)
        await log.sign()
    path = folder / "pack.zip"
    await log.pack(path, first, last)
    unpacked = folder / "pack"
    with zipfile.ZipFile(path) as archive:
        archive.extractall(unpacked)
    return unpacked


async def test_leaves_go_into_a_pack_in_pieces_between_which_others_have_their_turn(
    log: Ledgered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million of them at once stopped the listener for the second that compressing takes."""
    turns, given = itertools.count(), dict[str, int]()
    write = pack._Writer.add_pieces

    async def noting(writer: pack._Writer, name: str, pieces: AsyncIterator[bytes]) -> None:
        before = next(turns)
        await write(writer, name, pieces)
        given[name] = next(turns) - before

    async def ticking() -> None:
        for _ in turns:
            await asyncio.sleep(0)

    monkeypatch.setattr(pack._Writer, "add_pieces", noting)
    monkeypatch.setattr(pack, "_PIECE_BYTES", 1000)
    ticks = asyncio.create_task(ticking())
    folder = await made_pack(log, tmp_path)
    ticks.cancel()
    assert given["leaves.bin"] > 320 * 32 / 1000
    lines = (folder / "records.jsonl").read_bytes().splitlines()
    assert (folder / "leaves.bin").read_bytes() == b"".join(map(leaf_hash, lines))


async def test_a_pack_holds_as_zip_and_as_folder_with_nothing_but_the_standard_library(
    log: Ledgered, tmp_path: Path
) -> None:
    folder = await made_pack(log, tmp_path)
    for made in (folder, tmp_path / "pack.zip"):
        found = check_pack(made, [log.signer.verifier_key])
        assert (found["records"], found["tree_size"], found["checkpoints"]) == (320, 400, 4)
        assert found["origin"] == "gatewright-test/acme"
    command = [sys.executable, "-I", "-S", str(folder / "verify.py"), str(tmp_path / "pack.zip")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "it holds, if the key in it is the log's own" in done.stdout
    other = Signer("somebody/else", bytes(range(32))).verifier_key
    done = subprocess.run([*command, "--key", other], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "DOES NOT HOLD: a checkpoint was not signed by the log's key" in done.stdout


@pytest.mark.parametrize(("first", "last"), [(1, 400), (1, 1), (400, 400), (256, 257), (100, 399)])
async def test_any_part_of_a_log_can_be_packed(
    log: Ledgered, tmp_path: Path, first: int, last: int
) -> None:
    folder = await made_pack(log, tmp_path, first, last)
    assert check_pack(folder, [log.signer.verifier_key])["records"] == last - first + 1


@pytest.mark.parametrize("room_bytes", [0, 4_000])
async def test_a_pack_that_finds_no_room_leaves_no_file(
    log: Ledgered, tmp_path: Path, room_bytes: int
) -> None:
    await log.write(0, 30)
    await log.sign()
    path = tmp_path / "pack.zip"
    with room_for(room_bytes), pytest.raises(OSError, match="File too large"):
        await log.pack(path, 1, 30)
    assert not path.exists()


async def test_a_name_in_a_pack_cannot_write_the_verdict_over(
    log: Ledgered, tmp_path: Path
) -> None:
    folder = await made_pack(log, tmp_path)
    name = "\x1b[2K\rit holds\nit h\u00f6lds"
    (folder / name).write_text("anything")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = "0" * 64
    (folder / "manifest.json").write_text(json.dumps(manifest))

    command = [sys.executable, "-I", "-S", str(folder / "verify.py"), str(folder)]
    environment = {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("DOES NOT HOLD: \\x1b[2K\\rit holds\\nit h\\xf6lds: not the file")
    assert done.stdout.count("\n") == 1


async def ended_twice(log: Ledgered, path: Path) -> Path:
    """A log in which two requests have two outcomes; as a folder, all but the first outcome."""
    line = msgspec.structs.replace(record(1, "outcome"), detail={"batch": "b", "line": "1"})
    async with running(log.directory, clock=log.clock) as device:
        for each in (line, record(2, "outcome"), line, record(4, "outcome"), record(2, "outcome")):
            await device.append(each)
    await log.project()
    await log.sign()
    await log.pack(path / "pack.zip", 2, 5)
    with zipfile.ZipFile(path / "pack.zip") as archive:
        archive.extractall(path / "pack")
    return path / "pack"


async def test_a_pack_says_which_outcomes_count(log: Ledgered, tmp_path: Path) -> None:
    """Of record 3 the first lies before the pack; record 5 is seen to be a second one."""
    folder = await ended_twice(log, tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["ended_again"] == [3]
    assert check_pack(folder, [log.signer.verifier_key])["ended_again"] == [3, 5]
    command = [sys.executable, "-I", "-S", str(folder / "verify.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "ended_again: [3, 5]\n" in done.stdout
    assert "the one of the lowest number counts" in (folder / "README.txt").read_text()


@pytest.mark.parametrize("stated", [[1], [6], [3, 7], [3, "2"], "3", None, [[3]]])
async def test_a_pack_that_names_other_second_outcomes_does_not_hold(
    log: Ledgered, tmp_path: Path, stated: object
) -> None:
    folder = await ended_twice(log, tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["ended_again"] = stated
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises((Wrong, TypeError)):
        check_pack(folder, [log.signer.verifier_key])


async def test_a_pack_of_before_they_were_marked_holds_and_they_are_found(
    log: Ledgered, tmp_path: Path
) -> None:
    folder = await ended_twice(log, tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["ended_again"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert check_pack(folder, [log.signer.verifier_key])["ended_again"] == [5]


async def test_what_no_checkpoint_covers_or_is_damaged_is_not_packed(
    log: Ledgered, tmp_path: Path
) -> None:
    await log.write(0, 30)
    with pytest.raises(PackRefused, match="no checkpoint covers record 3"):
        await log.pack(tmp_path / "pack.zip", 1, 3)
    await log.sign()
    segment = log.directory / "w0" / "00000001.log"
    raw = bytearray(segment.read_bytes())
    raw[raw.index(b'"acme"') + 1] ^= 1
    segment.write_bytes(raw)
    with pytest.raises(PackRefused, match="record 1 is damaged"):
        await log.pack(tmp_path / "pack.zip", 1, 3)
    assert not (tmp_path / "pack.zip").exists()


@pytest.mark.parametrize("part", range(PARTS))
async def test_two_hundred_tamperings_are_all_found_and_the_first_bad_record_is_named(
    log: Ledgered, tmp_path: Path, capsys: pytest.CaptureFixture[str], part: int
) -> None:
    folder = await made_pack(log, tmp_path)
    originals = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    key, draw = [log.signer.verifier_key], random.Random(part)
    changes: list[Callable[[Tampering], int]] = [
        Tampering.flip,
        Tampering.delete,
        Tampering.swap,
        Tampering.insert,
        Tampering.truncate,
        Tampering.replay_a_record,
        Tampering.sign_again,
        Tampering.replay_a_checkpoint,
        Tampering.rewrite_leaf_too,
        Tampering.change_any_file,
    ]
    found = named = 0
    for number in range(TAMPERINGS // PARTS):
        expected = changes[number % len(changes)](Tampering(folder, draw))
        with pytest.raises((Wrong, ValueError)) as wrong:
            check_pack(folder, key)
        found += 1
        if expected:
            match = re.search(r"record (\d+)", str(wrong.value))
            assert match, wrong.value
            assert int(match[1]) == expected
            named += 1
        for path, raw in originals.items():
            path.write_bytes(raw)
    assert check_pack(folder, key)["records"] == 320
    with capsys.disabled():
        total = TAMPERINGS // PARTS
        sys.stdout.write(f"\ntamperings found: {found}/{total}, record named: {named}\n")
    assert (found, named) == (TAMPERINGS // PARTS, TAMPERINGS // PARTS * 6 // 10)


async def test_a_forged_policy_is_found_although_the_manifest_fits(
    log: Ledgered, tmp_path: Path
) -> None:
    """Records are in the signed tree and name a digest: a document is the one it is of, or none."""
    folder = await made_pack(log, tmp_path)
    (policy,) = (folder / "policies").iterdir()
    policy.write_text(POLICY.replace("a policy", "another"))
    Tampering(folder, random.Random(1))._restate()
    with pytest.raises(Wrong, match="not the policy of this digest"):
        check_pack(folder, [log.signer.verifier_key])


async def test_a_file_that_is_there_twice_is_found(log: Ledgered, tmp_path: Path) -> None:
    """The verifier reads the last of them; another program might show the first."""
    await made_pack(log, tmp_path)
    pack = tmp_path / "pack.zip"
    with zipfile.ZipFile(pack) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    forged = tmp_path / "forged.zip"
    with zipfile.ZipFile(forged, "w") as twice:
        twice.writestr("records.jsonl", b'{"record":{}}\n')
        for name, data in contents.items():
            if name != "records.jsonl":
                twice.writestr(name, data)
        with pytest.warns(UserWarning, match="Duplicate"):
            twice.writestr("records.jsonl", contents["records.jsonl"])
    with zipfile.ZipFile(forged) as archive:
        assert archive.read("records.jsonl") == contents["records.jsonl"]
    with pytest.raises(Wrong, match="two files of the pack have one name"):
        check_pack(forged, [log.signer.verifier_key])


async def test_files_that_are_too_many_or_missing_are_named(log: Ledgered, tmp_path: Path) -> None:
    """Such as the pack itself, saved into the folder that it was unpacked into."""
    folder = await made_pack(log, tmp_path)
    (folder / "pack.zip").write_bytes(b"")
    (folder / "README.txt").unlink()
    with pytest.raises(Wrong, match=r"lacks .* 'README\.txt'; the pack holds .* 'pack\.zip'$"):
        check_pack(folder, [log.signer.verifier_key])


async def test_whatever_happened_to_a_zip_file_the_verdict_is_in_words(
    log: Ledgered,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Bits flip, bytes go, others come: it holds with the same contents, or it says it does not."""
    await made_pack(log, tmp_path)
    pack, damaged, draw = tmp_path / "pack.zip", tmp_path / "damaged.zip", random.Random(3)
    whole, verdicts = pack.read_bytes(), Counter[str]()
    with zipfile.ZipFile(pack) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    key = log.signer.verifier_key
    monkeypatch.setattr(sys, "argv", ["verify.py", str(damaged), "--key", key])
    for number in range(TAMPERINGS):
        raw, end = bytearray(whole), len(whole)
        if number % 4 == 0:
            raw = raw[: draw.randrange(end)]
        elif number % 4 == 1:
            at = draw.randrange(end)
            raw[at : at + 40] = draw.randbytes(draw.randrange(80))
        else:
            # Half of them in the directory at the end, where zip files say what they are.
            raw[draw.randrange(0 if number % 4 == 2 else end - 1200, end)] ^= 1 << draw.randrange(8)
        damaged.write_bytes(raw)
        status, said = offline.main(), capsys.readouterr().out
        verdicts[said.split(":")[0] if status else "it holds"] += 1
        if status == 0:
            with zipfile.ZipFile(damaged) as archive:
                assert {name: archive.read(name) for name in archive.namelist()} == contents
    assert set(verdicts) == {"DOES NOT HOLD", "it holds"}
    assert verdicts["DOES NOT HOLD"] > TAMPERINGS * 3 // 4


@pytest.mark.parametrize(
    "manifest",
    ["[]", "null", "{", '{"format": "gatewright-evidence/1"}', "[" * 100_000, "7"],
)
async def test_a_manifest_that_is_none_is_said_to_be_none(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    manifest: str,
) -> None:
    (tmp_path / "manifest.json").write_text(manifest)
    monkeypatch.setattr(sys, "argv", ["verify.py", str(tmp_path)])
    assert offline.main() == 1
    assert capsys.readouterr().out.startswith("DOES NOT HOLD: ")


class Tampering:
    """One change to an unpacked pack; each returns the first bad sequence, or 0 where none is."""

    def __init__(self, folder: Path, draw: random.Random, first: int = 31) -> None:
        self.folder, self.draw, self.first = folder, draw, first
        self.records = (folder / "records.jsonl").read_bytes().splitlines(keepends=True)
        self.at = draw.randrange(1, len(self.records) - 1)

    def flip(self) -> int:
        line = bytearray(self.records[self.at])
        line[self.draw.randrange(len(line) - 1)] ^= 1 << self.draw.randrange(7)
        self.records[self.at] = bytes(line)
        return self._write()

    def delete(self) -> int:
        del self.records[self.at]
        return self._write()

    def swap(self) -> int:
        one, two = self.records[self.at], self.records[self.at + 1]
        self.records[self.at], self.records[self.at + 1] = two, one
        return self._write()

    def insert(self) -> int:
        self.records.insert(self.at, b'{"record":{}}\n')
        return self._write()

    def truncate(self) -> int:
        del self.records[self.at :]
        return self._write()

    def replay_a_record(self) -> int:
        self.records[self.at] = self.records[self.at - 1]
        return self._write()

    def rewrite_leaf_too(self) -> int:
        """A forger who hashes again: the root gives him away, not the place."""
        self.records[self.at] = self.records[self.at].replace(b"utc_us", b"utc_uz")
        self._write()
        leaves = (leaf_hash(line[:-1]) for line in self.records)
        (self.folder / "leaves.bin").write_bytes(b"".join(leaves))
        self._restate()
        return 0

    def sign_again(self) -> int:
        lines = self._checkpoints()
        forger = Signer("gatewright-test/w0", self.draw.randbytes(32))
        forged = Checkpoint("gatewright-test/acme", 400, self.draw.randbytes(32), 2**60)
        lines[-1]["note"] = forger.sign(forged)
        return self._write_checkpoints(lines)

    def replay_a_checkpoint(self) -> int:
        lines = self._checkpoints()
        lines.append({"note": lines[self.draw.randrange(3)]["note"], "consistency": []})
        return self._write_checkpoints(lines)

    def change_any_file(self) -> int:
        names = ("verify.py", "README.txt", "keys.txt", "checkpoints.jsonl", "leaves.bin")
        path = self.folder / self.draw.choice(names)
        raw = bytearray(path.read_bytes())
        raw[self.draw.randrange(len(raw))] ^= 1 << self.draw.randrange(7)
        path.write_bytes(raw)
        return 0

    def _write(self) -> int:
        (self.folder / "records.jsonl").write_bytes(b"".join(self.records))
        return self.first + self.at

    def _checkpoints(self) -> list[dict[str, object]]:
        text = (self.folder / "checkpoints.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def _write_checkpoints(self, lines: list[dict[str, object]]) -> int:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (self.folder / "checkpoints.jsonl").write_text(text)
        self._restate()
        return 0

    def _restate(self) -> None:
        """Make the manifest fit, as a forger would."""
        path = self.folder / "manifest.json"
        manifest = json.loads(path.read_text())
        manifest["files"] = {
            name: hashlib.sha256((self.folder / name).read_bytes()).hexdigest()
            for name in manifest["files"]
        }
        path.write_text(json.dumps(manifest))


def test_the_verifiers_ed25519_agrees_with_the_library_and_refuses_every_change() -> None:
    draw = random.Random(5)
    for size in (0, 1, 32, 1000):
        key = Ed25519PrivateKey.from_private_bytes(draw.randbytes(32))
        public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        message = draw.randbytes(size)
        signature = key.sign(message)
        assert ed25519_holds(public, signature, message)
        assert not ed25519_holds(public, signature, message + b"x")
        assert not ed25519_holds(public, signature[:-1], message)
        for at in range(0, 64, 5):
            changed = bytearray(signature)
            changed[at] ^= 1
            assert not ed25519_holds(public, bytes(changed), message)
        # The same signature with its scalar beyond the group's order (RFC 8032 §5.1.7 refuses it).
        order = 2**252 + 27742317777372353535851937790883648493
        scalar = int.from_bytes(signature[32:], "little") + order
        if scalar < 2**256:
            malleable = signature[:32] + scalar.to_bytes(32, "little")
            assert not ed25519_holds(public, malleable, message)


def test_notes_and_keys_that_are_not_what_they_should_be_are_refused() -> None:
    signer = Signer("log/w0", bytes(range(32)))
    note = signer.sign(Checkpoint("log/acme", 5, bytes(32), 7))
    keys = [parse_key(signer.verifier_key)]
    assert open_checkpoint(note, keys) == ("log/acme", 5, bytes(32), 7)
    text, _, signature = note.partition("\n\n")
    for wrong in (
        text,
        note.replace("\n5\n", "\n6\n"),
        note.replace("log/acme", "log/evil"),
        note.replace("\u2014", "-"),
        f"{text}\n\n{signature.replace('log/w0', 'log/w1')}",
        f"{text}\n\n\u2014 log/w0 ####\n",
    ):
        with pytest.raises(Wrong):
            open_checkpoint(wrong, keys)
    name, _, rest = signer.verifier_key.partition("+")
    for key in (f"other+{rest}", f"{name}+00000000+{rest.partition('+')[2]}", name, f"{name}+a+b"):
        with pytest.raises(Wrong):
            parse_key(key)
    assert base64.b64decode(rest.partition("+")[2])[:1] == b"\x01"
