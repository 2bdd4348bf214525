"""Audit commands on input that is damaged, missing or mistaken: one line that says so, and no 0."""

import asyncio
import base64
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import structs

from gateway.audit.content_keys.keys import KEYS_NAME
from gateway.store.custody.orders import Reveal
from gateway.types import Receipt
from tests.cli.operator import Ended, Operator
from tests.cli.test_audit import SAID, _record, _reveal, receipts


__all__ = ["receipts"]


def _worker(operator: Operator) -> Path:
    return operator.folder / "var" / "audit" / "w0"


def _segment(operator: Operator) -> Path:
    return _worker(operator) / "00000001.log"


def _refused(ended: Ended, reason: str) -> None:
    assert (ended.status, ended.output) == (2, "")
    assert reason in ended.errors
    assert ended.errors.count("\n") == 1


@pytest.mark.usefixtures("receipts")
def test_a_folder_without_segments_does_not_pass_for_a_whole_log(
    operator: Operator, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for mistaken in (empty, _worker(operator)):
        ended = operator.types("audit", "verify", "--directory", mistaken)
        _refused(ended, f"{mistaken}: there are no audit segments")


@pytest.mark.usefixtures("receipts")
def test_a_worker_whose_segments_are_all_gone_is_told_of(operator: Operator) -> None:
    other = _worker(operator).with_name("w1")
    other.mkdir()
    ended = operator.config("audit", "verify")
    assert (ended.status, "note: worker w1 has no segments" in ended.output) == (0, True)
    # A command signs by the worker's name where no worker ever ran.
    (other / "signers.jsonl").touch()
    assert operator.config("audit", "verify").status == 0
    (other / "keys.jsonl").touch()
    ended = operator.config("audit", "verify")
    assert (ended.status, ended.last_line) == (1, "THE CHAIN IS BROKEN")
    assert "BAD: worker w1, segment 1, offset 0: all its segments are gone" in ended.output
    (other / "keys.jsonl").unlink()
    _segment(operator).unlink()
    ended = operator.config("audit", "verify")
    assert (ended.status, "w0, segment 1, offset 0: all its segments" in ended.output) == (1, True)


def _half(segment: Path) -> None:
    segment.write_bytes(segment.read_bytes()[: segment.stat().st_size // 2])


def _emptied(segment: Path) -> None:
    segment.write_bytes(b"")


def _gone(segment: Path) -> None:
    segment.unlink()


def _unreadable(segment: Path) -> None:
    """As for a user who may not read it; tests may run as one who may read everything."""
    segment.unlink()
    segment.mkdir()


def _in_its_head(segment: Path) -> None:
    raw = bytearray(segment.read_bytes())
    raw[2] ^= 1
    segment.write_bytes(raw)


@pytest.mark.usefixtures("receipts")
def test_a_damaged_tree_is_named_by_the_full_check_which_goes_on(operator: Operator) -> None:
    operator.config("audit", "export")
    damaged = "UPDATE audit_sequences SET open_tiles = x'00' WHERE organisation = 'acme'"
    with closing(sqlite3.connect(operator.folder / "var" / "gatewright.db")) as database, database:
        database.execute(damaged)
    ended = operator.config("audit", "fsck")
    assert (ended.status, ended.last_line) == (1, "THE LOG IS NOT WHOLE")
    (bad,) = [line for line in ended.output.splitlines() if line.startswith("BAD")]
    assert "the open tiles of the tree of acme are not those of its size" in bad


@pytest.mark.parametrize("damage", [_half, _emptied, _gone, _unreadable, _in_its_head])
def test_whatever_a_segment_suffered_no_command_crashes_or_says_that_all_is_well(
    operator: Operator, receipts: list[Receipt], tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    packed = ("audit", "pack", "--organisation", "acme")
    assert operator.config(*packed, tmp_path / "before.zip").status == 0
    damage(_segment(operator))
    commands: list[tuple[str | Path, ...]] = [
        ("audit", "verify"),
        ("audit", "fsck"),
        ("audit", "export"),
        ("audit", "prove", "--receipt", str(receipts[5])),
        (*packed, tmp_path / "after.zip"),
        ("audit", "search", "--organisation", "acme", "--user", "ann"),
    ]
    for command in commands:
        ended = operator.config(*command)
        assert ended.status in (1, 2), command
        assert "whole\n" not in ended.output.replace("NOT WHOLE", ""), command
        if ended.status == 2:
            _refused(ended, "gatewright: ")
    assert not (tmp_path / "after.zip").exists()


@pytest.mark.usefixtures("receipts")
@pytest.mark.parametrize("damage", [_in_its_head, _unreadable])
def test_what_needs_the_whole_log_refuses_a_damaged_one_in_a_line(
    operator: Operator, damage: Callable[[Path], None]
) -> None:
    damage(_segment(operator))
    for command in (
        ("audit", "gone", "end", "w0", "--reason", "its disk is lost"),
        (
            *("cascade", "check", "--organisation", "acme"),
            *("--now", "3", "--then", "4", "--alpha", "0.1"),
        ),
    ):
        _refused(operator.config(*command), "`gatewright audit fsck` says what is affected")


def test_a_reveal_that_cannot_show_everything_says_so(
    operator: Operator, receipts: list[Receipt], monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.config("audit", "export")
    reveal = _reveal(operator, monkeypatch, "")
    segment = bytearray(_segment(operator).read_bytes())
    segment[receipts[4].offset_bytes + 60] ^= 1
    _segment(operator).write_bytes(segment)

    shown = operator.config("audit", "reveal", "show", reveal)

    assert shown.status == 1
    assert sum("record_error" in json.loads(line) for line in shown.output.splitlines()) == 1
    assert "not all records could be read" in shown.errors


def test_a_record_before_the_damage_is_proved_all_the_same(
    operator: Operator, receipts: list[Receipt]
) -> None:
    prove = ("audit", "prove", "--receipt", str(receipts[0]))
    before = operator.config(*prove)
    _half(_segment(operator))
    assert before.status == 0
    assert operator.config(*prove) == before


def test_without_the_logs_key_nothing_is_handed_out_that_would_not_hold(
    operator: Operator, receipts: list[Receipt], tmp_path: Path
) -> None:
    prove = ("audit", "prove", "--receipt", str(receipts[0]))
    pack = ("audit", "pack", "--organisation", "acme", tmp_path / "pack.zip")
    assert operator.config(*prove).status == 0
    assert operator.config(*pack[:-1], tmp_path / "before.zip").status == 0
    signers = _worker(operator) / "signers.jsonl"
    whole = signers.read_bytes()
    signers.write_bytes(whole.replace(b'"public":"', b'"public":"AAAA'))
    _refused(operator.config(*prove), "would not hold: a key is not an Ed25519 key")
    _refused(operator.config(*pack), "would not hold: a key is not an Ed25519 key")
    signers.unlink()
    _refused(
        operator.config(*prove), "would not hold: a checkpoint was not signed by the log's key"
    )
    _refused(operator.config(*pack), "would not hold: a checkpoint was not signed by the log's key")
    _refused(operator.config("audit", "key"), "has a signing key")
    assert not (tmp_path / "pack.zip").exists()


@pytest.mark.usefixtures("receipts")
def test_a_name_that_is_no_organisations_is_refused_and_leaves_no_hold(operator: Operator) -> None:
    """A hold of a mistyped name would protect nothing, and nobody would know."""
    for command in (
        ("hold", "set", "--reason", "a lawsuit"),
        ("reveal", "ask", "--reason", "why", "--ticket", "T-1"),
        ("search", "--user", "ann"),
        ("erase", "--ticket", "T-1"),
        ("export",),
    ):
        ended = operator.config("audit", *command, "--organisation", "acne")
        _refused(ended, "there is no organisation acne")
    assert operator.config("audit", "hold", "list").output == ""
    held = operator.config("audit", "hold", "set", "--organisation", "acme", "--reason", "why")
    assert held.status == 0
    assert operator.config("audit", "export", "--organisation", "-operators").status == 0


@pytest.mark.usefixtures("receipts")
def test_a_long_reveal_ends_with_its_time(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is over between the second and the third record."""
    reveal = _reveal(operator, monkeypatch, "")
    looks, is_open = [], Reveal.is_open

    def expires(self: Reveal, now_us: int) -> bool:
        looks.append(now_us)
        late = structs.replace(self, approved_us=self.approved_us - 3_600_000_000)
        return is_open(self if len(looks) < 3 else late, now_us)

    monkeypatch.setattr("gateway.cli.audit.custody.SHOWN_AT_ONCE", 2)
    monkeypatch.setattr(Reveal, "is_open", expires)
    ended = operator.config("audit", "reveal", "show", reveal)
    assert (ended.status, len(looks)) == (2, 3)
    assert ended.errors == "gatewright: the reveal has expired\n"
    assert ended.output.count("\n") == 3
    assert SAID in ended.output


def _forked(line: bytes) -> bytes:
    """What was signed for another root: the log was another one then."""
    told = json.loads(line)
    return json.dumps(told | {"root": base64.b64encode(bytes(32)).decode()}).encode()


@pytest.mark.usefixtures("receipts")
def test_the_full_check_reads_every_checkpoint_that_was_exported(
    operator: Operator, tmp_path: Path
) -> None:
    """Not the newest alone: an operator who rewrote the log has to contradict some old one."""
    for number in range(3):
        packed = operator.config(
            "audit", "pack", "--organisation", "globex", tmp_path / f"{number}.zip"
        )
        assert packed.status == 0
        asyncio.run(_record(operator.config_file, 1))
    file = operator.folder / "var" / "checkpoints" / "globex.jsonl"
    whole = file.read_bytes()
    lines = [line for line in whole.splitlines() if line]
    checked = operator.config("audit", "fsck")
    assert checked.status == 0
    assert "globex: 6 records, 3 checkpoints, 3 outside of the database" in checked.output

    file.write_bytes(b"\n".join([_forked(lines[0]), *lines[1:]]) + b"\n")
    checked = operator.config("audit", "fsck")
    assert (checked.status, checked.last_line) == (1, "THE LOG IS NOT WHOLE")
    assert "BAD: globex: the checkpoint of " in checked.output

    file.write_bytes(b"\n" + lines[0][:40] + b"\n" + whole)
    checked = operator.config("audit", "fsck")
    assert (checked.status, checked.last_line) == (0, "the log is whole")
    assert "note: 1 lines of the file with its checkpoints cannot be read" in checked.output


@pytest.mark.usefixtures("receipts")
def test_a_damaged_line_of_the_key_file_is_named_and_the_log_is_not_whole(
    operator: Operator,
) -> None:
    path = _worker(operator) / KEYS_NAME
    whole = path.read_bytes()
    assert operator.config("audit", "fsck").status == 0
    for changed, reason in (
        (whole.replace(b'"wrapped":"', b'"wrapped";"', 1), "it cannot be read"),
        (whole.replace(b'"day":', b'"day":1', 1), "it was changed: its key does not open"),
    ):
        path.write_bytes(changed)
        ended = operator.config("audit", "fsck")
        assert (ended.status, "THE LOG IS NOT WHOLE" in ended.output) == (1, True)
        assert ended.output.startswith("BAD: worker w0, line 2 of keys.jsonl")
        assert ended.output.split("\n")[0].endswith(reason)
    path.write_bytes(whole + b'\n{"key":"01')
    assert operator.config("audit", "fsck").status == 0, "cut off by a crash, and never used"


@pytest.mark.usefixtures("receipts")
def test_verify_names_the_lines_of_key_files_that_it_can_tell_without_the_master_key(
    operator: Operator, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(_worker(operator).parent, copy)
    path = copy / "w0" / KEYS_NAME
    whole = path.read_bytes()
    verify = ("audit", "verify", "--directory", copy)
    for kept in (whole + b'\n{"key":"01', whole.replace(b'"day":', b'"day":1', 1)):
        path.write_bytes(kept)
        ended = operator.types(*verify)
        assert (ended.status, ended.last_line) == (0, "the chain is whole")
    path.write_bytes(whole.replace(b'"wrapped":"', b'"wrapped";"', 1))

    ended = operator.types(*verify)
    assert ended.status == 1
    assert "BAD: worker w0, line 2 of keys.jsonl" in ended.output
    assert ended.last_line.startswith("the chain is whole, BUT 1 damaged line(s) of key files")
    _in_its_head(copy / "w0" / "00000001.log")
    ended = operator.types(*verify)
    assert (ended.status, ended.last_line) == (1, "THE CHAIN IS BROKEN")
    assert "of keys.jsonl" in ended.output
