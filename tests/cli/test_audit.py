"""`gatewright audit …`: the evidence is verified offline and exported, damage is named by place."""

import asyncio
import json
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pyarrow import parquet

from gateway.audit.disk import Disk
from gateway.audit.proving import offline
from gateway.audit.segments import LOCK_NAME
from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import StoppedClock
from gateway.configuration.reading import load_settings
from gateway.secrets.credentials import master_key
from gateway.types import AuditRecord, Receipt
from tests.cli.operator import Ended, Operator
from tests.gateway.audit.samples import LIMITS


NO_DETAIL: Mapping[str, str] = {}
SAID = "the words of request "
INTENT = AuditRecord(stage="intent", request_id="", organisation="acme", utc_us=1)


async def _record(
    config_file: Path, count: int, detail: Mapping[str, str] = NO_DETAIL
) -> list[Receipt]:
    settings = load_settings(config_file)
    directory = settings.path(settings.audit.directory)
    log = SegmentedAuditLog(
        directory, "w0", keys=master_key(settings), clock=StoppedClock(), limits=LIMITS
    )
    await log.start()
    receipts = []
    for number in range(count):
        request_id, organisation = f"req_{number}", "acme" if number else "globex"
        intent = replace(INTENT, request_id=request_id, organisation=organisation)
        said = f"{SAID}{number}".encode()
        receipts.append(await log.append(intent, said))
        leaf = receipts[-1].leaf_hash
        outcome = replace(intent, stage="outcome", intent=leaf, status="ok", detail=detail)
        receipts.append(await log.append(outcome))
    await log.close()
    return receipts


@pytest.fixture
def receipts(operator: Operator) -> list[Receipt]:
    """Three requests were recorded: an intent with its content and an outcome each."""
    return asyncio.run(_record(operator.config_file, 3))


def _segment(operator: Operator) -> Path:
    return operator.folder / "var" / "audit" / "w0" / "00000001.log"


def _flip(file: Path, offset: int) -> None:
    raw = bytearray(file.read_bytes())
    raw[offset] ^= 1
    file.write_bytes(raw)


def _lines(ended: Ended) -> list[dict[str, Any]]:
    assert ended.status == 0
    return [json.loads(line) for line in ended.output.splitlines()]


def test_a_whole_log_is_counted_and_said_to_be_whole(
    operator: Operator, receipts: list[Receipt]
) -> None:
    ended = operator.config("audit", "verify")

    assert ended.status == 0
    assert "6 records of 1 worker(s) in 1 segment(s): 3 intents, 3 outcomes" in ended.output
    assert ended.last_line == "the chain is whole"


def test_a_flipped_byte_is_named_by_worker_segment_and_offset(
    operator: Operator, receipts: list[Receipt]
) -> None:
    place = receipts[2].offset_bytes
    _flip(_segment(operator), place + 60)
    ended = operator.config("audit", "verify")

    assert ended.status == 1
    assert f"BAD: worker w0, segment 1, offset {place}: " in ended.output
    assert ended.last_line == "THE CHAIN IS BROKEN"


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.95])
def test_a_flipped_byte_anywhere_breaks_the_chain(
    operator: Operator, receipts: list[Receipt], share: float
) -> None:
    segment = _segment(operator)
    _flip(segment, int(segment.stat().st_size * share))

    assert operator.config("audit", "verify").status == 1


def test_a_receipt_shows_every_record_of_its_request(
    operator: Operator, receipts: list[Receipt]
) -> None:
    ended = operator.config("audit", "verify", "--receipt", str(receipts[3]))
    first, second, verdict = ended.output.splitlines()

    assert ended.status == 0
    assert verdict == "receipt: holds"
    assert [json.loads(line)["stage"] for line in (first, second)] == ["intent", "outcome"]
    assert {json.loads(line)["request_id"] for line in (first, second)} == {"req_1"}


def test_a_receipt_holds_although_a_later_record_is_damaged(
    operator: Operator, receipts: list[Receipt]
) -> None:
    _flip(_segment(operator), receipts[5].offset_bytes + 60)
    earlier = operator.config("audit", "verify", "--receipt", str(receipts[1]))
    later = operator.config("audit", "verify", "--receipt", str(receipts[5]))

    assert earlier.status == 0
    assert earlier.errors.startswith("note: damage after this record: worker w0, segment 1")
    assert later.status == 1
    assert "receipt: DOES NOT HOLD: the chain before it is damaged" in later.output


@pytest.mark.parametrize(
    ("receipt", "reason"),
    [
        ("nonsense", "this is no receipt"),
        (f"w9.1.0.{'0' * 64}", "there is no such worker here"),
        (f"w0.1.7.{'0' * 64}", "no record begins there"),
        (f"../../etc.1.7.{'0' * 64}", "this is no receipt"),
    ],
)
def test_a_receipt_that_cannot_hold_is_refused_with_the_reason(
    operator: Operator, receipts: list[Receipt], receipt: str, reason: str
) -> None:
    ended = operator.config("audit", "verify", "--receipt", receipt)

    assert ended.status == 1
    assert f"receipt: DOES NOT HOLD: {reason}" in ended.last_line


def test_a_receipt_with_another_hash_does_not_hold(
    operator: Operator, receipts: list[Receipt]
) -> None:
    forged = replace(receipts[0], leaf_hash="0" * 64)
    ended = operator.config("audit", "verify", "--receipt", str(forged))

    assert (ended.status, ended.last_line) == (
        1,
        "receipt: DOES NOT HOLD: the record there is another one",
    )


def test_a_copied_folder_is_verified_without_configuration_database_or_keys(
    operator: Operator, receipts: list[Receipt]
) -> None:
    copied = (operator.folder / "var" / "audit").rename(operator.folder / "handed-over")
    ended = operator.types("audit", "verify", "--directory", copied)

    assert ended.status == 0
    assert ended.last_line == "the chain is whole"


def test_export_numbers_the_records_of_each_organisation_without_content(
    operator: Operator, receipts: list[Receipt]
) -> None:
    ended = operator.config("audit", "export")
    numbers = [(line["organisation"], line["sequence"]) for line in _lines(ended)]

    assert numbers == [("acme", n) for n in (1, 2, 3, 4)] + [("globex", 1), ("globex", 2)]
    assert SAID not in ended.output


def test_export_can_be_narrowed_to_an_organisation_or_a_request(
    operator: Operator, receipts: list[Receipt]
) -> None:
    globex = _lines(operator.config("audit", "export", "--organisation", "globex"))
    one = _lines(operator.config("audit", "export", "--request-id", "req_2"))

    assert {line["organisation"] for line in globex} == {"globex"}
    assert [line["request_id"] for line in one] == ["req_2", "req_2"]


def test_a_folder_that_is_not_there_is_named(operator: Operator) -> None:
    ended = operator.config("audit", "verify")

    assert ended.status == 2
    assert ended.errors == f"gatewright: {operator.folder}/var/audit: there is no audit folder\n"


def test_a_segment_that_cannot_be_read_is_refused(
    operator: Operator, receipts: list[Receipt]
) -> None:
    _segment(operator).with_name("00000002.log").mkdir()
    ended = operator.config("audit", "verify")

    assert (ended.status, ended.errors.rpartition(": ")[2]) == (2, "Is a directory\n")


def test_export_of_a_damaged_log_does_not_pretend_to_be_whole(
    operator: Operator, receipts: list[Receipt]
) -> None:
    place = receipts[4].offset_bytes
    _flip(_segment(operator), place + 60)
    ended = operator.config("audit", "export")

    assert ended.status == 1
    assert "not all records could be read: worker w0 at " in ended.errors
    assert "`gatewright audit fsck` says what is affected" in ended.errors


def test_export_names_a_damaged_record_and_still_gives_all_others(
    operator: Operator, receipts: list[Receipt]
) -> None:
    before = operator.config("audit", "export")
    _flip(_segment(operator), receipts[4].offset_bytes + 60)
    after = operator.config("audit", "export")

    assert (before.status, after.status) == (0, 1)
    whole = _lines(before)
    rest = [json.loads(line) for line in after.output.splitlines()]
    assert len(whole) == len(rest) == 6
    damaged = next(line for line in rest if "record_error" in line)
    assert (damaged["segment"], damaged["offset_bytes"]) == (1, receipts[4].offset_bytes)
    assert [line for line in rest if line != damaged] == [
        line for line in whole if line["offset_bytes"] != damaged["offset_bytes"]
    ]


def test_a_receipt_is_proved_and_the_proof_holds_offline(
    operator: Operator, receipts: list[Receipt], tmp_path: Path
) -> None:
    proved = operator.config("audit", "prove", "--receipt", str(receipts[3]))
    assert (proved.status, proved.errors) == (0, "")
    proof = tmp_path / "proof.json"
    proof.write_text(proved.output)
    key = operator.config("audit", "key").output.strip()
    command = [sys.executable, "-I", "-S", str(offline.__file__), "--key", key, "--proof"]
    done = subprocess.run([*command, str(proof)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"leaf_hash: {receipts[3].leaf_hash}" in done.stdout

    proof.write_text(proved.output.replace("req_1", "req_7"))
    done = subprocess.run([*command, str(proof)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "DOES NOT HOLD" in done.stdout


def test_a_record_that_has_its_number_is_proved_without_reading_the_log(
    operator: Operator, receipts: list[Receipt]
) -> None:
    """The whole chain was read for it: a minute for a receipt of a million records."""
    proved = operator.config("audit", "prove", "--receipt", str(receipts[3]))
    _flip(_segment(operator), receipts[0].offset_bytes + 60)
    again = operator.config("audit", "prove", "--receipt", str(receipts[3]))
    assert (again.status, again.output) == (0, proved.output)
    damaged = operator.config("audit", "prove", "--receipt", str(receipts[0]))
    assert (damaged.status, "does not hold" in damaged.errors) == (2, True)


def test_what_is_no_receipt_of_this_log_is_not_proved(
    operator: Operator, receipts: list[Receipt]
) -> None:
    right = str(receipts[0])
    for text in ("nonsense", right.replace("w0", "w9"), right[:-4] + "0000"):
        refused = operator.config("audit", "prove", "--receipt", text)
        assert refused.status == 2
        assert "receipt" in refused.errors or "worker" in refused.errors


@pytest.mark.usefixtures("receipts")
def test_the_full_check_counts_each_log_and_a_pack_of_it_holds(
    operator: Operator, tmp_path: Path
) -> None:
    pack = tmp_path / "pack.zip"
    packed = operator.config("audit", "pack", "--organisation", "acme", pack)
    assert (packed.status, packed.errors) == (0, "")
    assert "4 records (1 to 4)" in packed.output
    assert stat.S_IMODE(pack.stat().st_mode) == 0o600, "what it holds is nobody else's"
    key = operator.config("audit", "key").output.strip()
    assert offline.check_pack(pack, [key])["records"] == 4
    checked = operator.config("audit", "fsck")
    assert checked.status == 0
    assert "acme: 4 records, 1 checkpoints, 1 outside of the database" in checked.output
    assert "globex: 2 records, 0 checkpoints, 0 outside of the database" in checked.output
    assert checked.last_line == "the log is whole"
    again = operator.config("audit", "pack", "--organisation", "acme", pack)
    assert again.status == 2
    assert "File exists" in again.errors
    later = operator.config(
        "audit", "pack", "--organisation", "acme", "--since", "2999-01-01", tmp_path / "later.zip"
    )
    assert "there are no such records" in later.errors
    earlier = operator.config(
        "audit", "pack", "--organisation", "acme", "--until", "1970-01-01", tmp_path / "earlier.zip"
    )
    assert "there are no such records" in earlier.errors
    mistyped = operator.config("audit", "pack", "--organisation", "acmee", tmp_path / "other.zip")
    assert (mistyped.status, mistyped.errors) == (2, "gatewright: there is no organisation acmee\n")


@pytest.mark.usefixtures("receipts")
def test_the_full_check_says_what_has_no_number_yet(operator: Operator) -> None:
    before = operator.config("audit", "fsck")
    assert (before.status, before.last_line) == (0, "the log is whole")
    assert "note: 6 records of worker w0 have no number yet" in before.output
    operator.config("audit", "export")
    assert "note:" not in operator.config("audit", "fsck").output


@pytest.mark.usefixtures("receipts")
def test_the_full_check_names_a_record_that_only_the_database_lost(operator: Operator) -> None:
    operator.config("audit", "export")
    with closing(sqlite3.connect(operator.folder / "var" / "gatewright.db")) as database, database:
        database.execute("DELETE FROM audit_records WHERE organisation = 'acme' AND sequence = 2")
    assert operator.config("audit", "verify").status == 0
    checked = operator.config("audit", "fsck")
    assert (checked.status, checked.last_line) == (1, "THE LOG IS NOT WHOLE")
    assert "BAD: acme, record 2" in checked.output


@pytest.mark.usefixtures("receipts")
def test_a_reveal_is_open_for_as_long_as_was_asked_for(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    _as(monkeypatch, "ann")
    ask = ("audit", "reveal", "ask", "--organisation", "acme", "--reason", "r", "--ticket", "T-1")
    asked = operator.config(*ask, "--minutes", "7")
    _as(monkeypatch, "bob")
    approved = operator.config("audit", "reveal", "approve", asked.last_line)
    assert approved.last_line == "open for 7 minutes"
    (told,) = map(json.loads, operator.config("audit", "reveal", "report").output.splitlines())
    assert (told["id"], told["minutes"]) == (asked.last_line, 7)


@pytest.mark.usefixtures("receipts")
def test_what_is_shown_holds_up_no_other_command(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads it in a pager may take as long as they like."""
    lock, disk = operator.folder / "var" / "audit" / "w0-operators" / LOCK_NAME, Disk()
    printed: list[str] = []

    def echo(line: str) -> None:
        disk.close(disk.lock(lock))
        printed.append(line)

    reveal = _reveal(operator, monkeypatch, "req_1")
    operator.config("audit", "hold", "set", "--organisation", "acme", "--reason", "lawsuit")
    monkeypatch.setattr("gateway.cli.audit.custody.click.echo", echo)
    for command in (("reveal", "show", reveal), ("reveal", "report"), ("hold", "list")):
        printed.clear()
        assert operator.config("audit", *command).status == 0
        assert printed, command


def test_the_full_check_names_the_damaged_record(
    operator: Operator, receipts: list[Receipt]
) -> None:
    operator.config("audit", "export")
    _flip(_segment(operator), receipts[4].offset_bytes + 60)
    checked = operator.config("audit", "fsck")
    assert checked.status == 1
    assert "BAD: acme, record 3: the record is damaged" in checked.output
    assert checked.last_line == "THE LOG IS NOT WHOLE"


def test_the_full_check_looks_at_contents_too(operator: Operator, receipts: list[Receipt]) -> None:
    operator.config("audit", "export")
    _flip(_segment(operator), receipts[4].offset_bytes - 10)
    checked = operator.config("audit", "fsck")

    assert checked.status == 1
    assert "BAD: worker w0, segment 1, offset" in checked.output
    assert checked.last_line == "THE LOG IS NOT WHOLE"


def test_the_full_check_names_what_cost_more_than_anybody_can_tell(operator: Operator) -> None:
    detail = {"batch": "batch_1", "cost": "unknown", "line": "1"}
    asyncio.run(_record(operator.config_file, 3, detail))
    operator.config("audit", "export")
    checked = operator.config("audit", "fsck")
    said = "note: answered at a cost that nobody can tell, and recorded at none: records"
    assert f"{said} 2, 4\n" in checked.output
    assert f"{said} 2\n" in checked.output
    assert checked.status == 0


def _as(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for module in ("custody", "erasing"):
        monkeypatch.setattr(f"gateway.cli.audit.{module}.actor", lambda: f"os:{name}")


def _reveal(operator: Operator, monkeypatch: pytest.MonkeyPatch, request_id: str) -> str:
    """A reveal that ann asked for and bob approved."""
    _as(monkeypatch, "ann")
    asked = operator.config(
        *("audit", "reveal", "ask", "--organisation", "acme", "--request-id", request_id),
        *("--reason", "a complaint", "--ticket", "T-1"),
    )
    assert (asked.status, asked.errors) == (0, "")
    _as(monkeypatch, "bob")
    approved = operator.config("audit", "reveal", "approve", asked.last_line)
    assert approved.last_line == "open for 30 minutes"
    _as(monkeypatch, "ann")
    return asked.last_line


@pytest.mark.usefixtures("receipts")
def test_export_never_holds_what_was_said(operator: Operator) -> None:
    exported = operator.config("audit", "export")
    assert exported.status == 0
    assert SAID not in exported.output
    assert not [line for line in _lines(exported) if "content" in line]


@pytest.mark.usefixtures("receipts")
def test_content_is_shown_once_a_second_person_agreed_and_every_step_is_recorded(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    _as(monkeypatch, "ann")
    words = ("--reason", "why", "--ticket", "T-1")
    asked = operator.config("audit", "reveal", "ask", "--organisation", "acme", *words)
    for command, reason in (("show", "not approved"), ("approve", "a second person")):
        refused = operator.config("audit", "reveal", command, asked.last_line)
        assert (refused.status, refused.output) == (2, "")
        assert reason in refused.errors
    reveal = _reveal(operator, monkeypatch, "req_1")
    lines = _lines(operator.config("audit", "reveal", "show", reveal))
    assert [line.get("content") for line in lines] == [f"{SAID}1", None]
    report = _lines(operator.config("audit", "reveal", "report"))
    assert [(line["asked_by"], line["used"]) for line in report] == [("os:ann", 0), ("os:ann", 1)]
    assert "4 admin actions" in operator.config("audit", "verify").output


@pytest.mark.usefixtures("receipts")
def test_nothing_is_revealed_with_another_master_key_which_is_no_use_of_the_reveal(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    reveal = _reveal(operator, monkeypatch, "req_1")
    key_file = operator.folder / "var" / "master.key"
    own = key_file.read_text()
    key_file.write_text(operator.folder.joinpath("var", "pepper.key").read_text())
    refused = operator.config("audit", "reveal", "show", reveal)
    assert (refused.status, refused.output) == (2, "")
    assert f"secrets.master_key: {key_file} is key " in refused.errors
    key_file.write_text(own)
    (told,) = _lines(operator.config("audit", "reveal", "report"))
    assert told["used"] == 0


def test_erasure_waits_for_holds_and_then_leaves_proofs_but_no_words(
    operator: Operator, receipts: list[Receipt], monkeypatch: pytest.MonkeyPatch
) -> None:
    _as(monkeypatch, "ann")
    erase = ("audit", "erase", "--organisation", "acme", "--ticket", "T-2")
    held = operator.config("audit", "hold", "set", "--organisation", "acme", "--reason", "lawsuit")
    assert held.last_line in operator.config("audit", "hold", "list").output
    refused = operator.config(*erase, "--yes")
    assert (refused.status, refused.output) == (2, "")
    assert "lawsuit" in refused.errors
    asked = operator.config("audit", "hold", "release", held.last_line)
    assert asked.last_line == "a second person must release it too"
    _as(monkeypatch, "bob")
    agreed = operator.config("audit", "hold", "release", held.last_line, "--asked-by", "os:ann")
    assert agreed.last_line == "released"

    assert "nothing was done" in operator.config(*erase).output
    case = operator.config(*erase, "--yes").last_line
    agree = ("audit", "erasure", "approve", case, "--comment", "the lawsuit is over")
    alone = operator.config(*agree)
    assert (alone.status, "somebody else than who asked" in alone.errors) == (2, True)
    _as(monkeypatch, "ann")
    assert operator.config(*agree).last_line == "1 keys destroyed"
    (listed,) = _lines(operator.config("audit", "erasure", "list", "--organisation", "acme"))
    assert listed["certificate"] == "", "it is long, and the browser's to show"
    assert (listed["asked_by"], listed["closed_by"]) == ("os:bob", "os:ann")
    reveal = _reveal(operator, monkeypatch, "req_1")
    lines = _lines(operator.config("audit", "reveal", "show", reveal))
    assert lines[0]["content_error"] == "the content's key was destroyed"
    assert operator.config("audit", "verify").status == 0
    assert operator.config("audit", "verify", "--receipt", str(receipts[2])).status == 0
    assert operator.config("audit", "fsck").status == 0


def test_erasure_counts_records_of_which_nobody_can_tell_whose_words_they_have(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    today = replace(INTENT, utc_us=StoppedClock().utc_us())
    monkeypatch.setattr("tests.cli.test_audit.INTENT", today)
    receipts = asyncio.run(_record(operator.config_file, 3))
    operator.config("audit", "export")
    _flip(_segment(operator), receipts[4].offset_bytes + 60)
    _as(monkeypatch, "ann")
    asked = operator.config(
        *("audit", "erase", "--organisation", "acme", "--ticket", "T-2", "--yes")
    )
    _as(monkeypatch, "bob")
    agree = ("audit", "erasure", "approve", asked.last_line, "--comment", "agreed")
    for each in (asked, operator.config(*agree)):
        assert "\n1 records of these days are damaged or gone: whether" in each.output


@pytest.mark.usefixtures("receipts")
def test_erasure_says_whose_keys_lie_in_other_audit_folders(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    operator.config("audit", "export")
    folder = _segment(operator).parent
    folder.rename(tmp_path / f"{folder.name}-elsewhere")
    _as(monkeypatch, "ann")
    asked = operator.config(
        *("audit", "erase", "--organisation", "acme", "--ticket", "T-2", "--yes")
    )
    _as(monkeypatch, "bob")
    agree = ("audit", "erasure", "approve", asked.last_line, "--comment", "agreed")
    assert f"\nnot counted: what {folder.name} recorded" in asked.output
    agreed = operator.config(*agree).output
    assert f"outstanding: No audit folder with the keys of worker {folder.name} has" in agreed


@pytest.mark.usefixtures("receipts")
def test_erasing_one_user_leaves_the_words_of_others(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    _as(monkeypatch, "ann")
    erase = ("audit", "erase", "--organisation", "acme", "--ticket", "T-2", "--yes")
    case = operator.config(*erase, "--user", "ann@example.com").last_line
    _as(monkeypatch, "bob")
    done = operator.config("audit", "erasure", "approve", case, "--comment", "agreed")
    assert done.last_line == "0 keys destroyed"


@pytest.mark.usefixtures("receipts")
def test_what_a_second_person_declines_stays_and_can_be_asked_for_again(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    _as(monkeypatch, "ann")
    erase = ("audit", "erase", "--organisation", "acme", "--ticket", "T-2", "--yes")
    case = operator.config(*erase).last_line
    _as(monkeypatch, "bob")
    decline = ("audit", "erasure", "decline", case, "--comment", "the ticket names somebody else")
    assert operator.config(*decline).last_line == "declined; the case stays open"
    agree = ("audit", "erasure", "approve", case, "--comment", "after all")
    assert "nobody asks for this erasure" in operator.config(*agree).errors
    (listed,) = _lines(operator.config("audit", "erasure", "list", "--organisation", "acme"))
    assert (listed["state"], listed["declined_by"], listed["asked_by"]) == ("open", "os:bob", "")
    lines = _lines(
        operator.config("audit", "reveal", "show", _reveal(operator, monkeypatch, "req_1"))
    )
    assert lines[0]["content"] == f"{SAID}1"


def test_parquet_holds_what_the_json_lines_hold_and_nothing_that_was_said(
    operator: Operator, receipts: list[Receipt]
) -> None:
    path = operator.folder / "records.parquet"
    lines = _lines(operator.config("audit", "export"))
    ended = operator.config("audit", "export", "--format", "parquet", "--output", path)
    rows = parquet.read_table(path).to_pylist()
    again = operator.config("audit", "export", "--format", "parquet", "--output", path)
    nowhere = operator.config("audit", "export", "--format", "parquet")

    assert (ended.status, ended.output) == (0, "")
    names = ("organisation", "sequence", "request_id", "stage", "leaf_hash")
    assert [[row[n] for n in names] for row in rows] == [[ln[n] for n in names] for ln in lines]
    assert SAID.encode() not in path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    assert again.status != 0
    assert "File exists" in again.errors
    assert "--output" in nowhere.errors


def test_an_export_into_a_file_is_what_is_printed(
    operator: Operator, receipts: list[Receipt]
) -> None:
    path = operator.folder / "records.jsonl"
    operator.config("audit", "export", "--output", path)

    assert path.read_text() == operator.config("audit", "export").output
