"""Erasure: the words of one end user are gone from everywhere, and every proof still holds."""

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.audit.disk import Disk
from gateway.audit.erasure import apply_list, destroy_keys, erased_keys, matching_keys
from gateway.audit.export import export_records, segment_rows
from gateway.audit.keys import KEYS_NAME
from gateway.audit.verify import verify_directory
from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import StoppedClock
from gateway.types import Receipt
from tests.gateway.audit.samples import KEYS, record, running


pytestmark = pytest.mark.anyio
NOW_US = 1_800_000_000_000_000


async def say(log: SegmentedAuditLog, number: int, subject: str, words: bytes) -> Receipt:
    return await log.append(replace(record(number), subject=subject), words)


async def contents(directory: Path) -> dict[object, object]:
    """What can be read of each request's content, or why it cannot."""
    rows = export_records(segment_rows(directory), directory=directory, keys=KEYS)
    return {
        line["request_id"]: line.get("content", line.get("content_error")) async for line in rows
    }


async def recorded(directory: Path) -> list[Receipt]:
    """Two end users, a request without one, and a namesake in another organisation."""
    async with running(directory) as log:
        return [
            await say(log, 1, "ann", b"words of ann"),
            await say(log, 2, "bob", b"words of bob"),
            await say(log, 4, "", b"words of nobody"),
            await say(log, 3, "ann", b"words of globex"),
        ]


def erase(directory: Path, listed: Path, organisation: str, subject: str | None) -> int:
    keys = matching_keys(directory, organisation, subject)
    return destroy_keys(directory, listed, keys, NOW_US, Disk())


async def test_only_the_words_of_the_subject_are_gone_and_proofs_hold(tmp_path: Path) -> None:
    directory, listed = tmp_path / "audit", tmp_path / "elsewhere"
    receipts = await recorded(directory)
    before = (directory / "w0" / "00000001.log").read_bytes()
    assert erase(directory, listed, "acme", "ann") == 1
    destroyed = "the content's key was destroyed"
    assert await contents(directory) == {
        "req_1": destroyed,
        "req_2": "words of bob",
        "req_4": "words of nobody",
        "req_3": "words of globex",
    }
    assert (directory / "w0" / "00000001.log").read_bytes() == before
    assert verify_directory(directory, receipts).ok
    assert b"words of ann" not in b"".join(
        path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    )


async def test_an_organisation_can_be_erased_whole(tmp_path: Path) -> None:
    directory = tmp_path / "audit"
    await recorded(directory)
    assert erase(directory, tmp_path, "acme", None) == 3
    readable = {name for name, text in (await contents(directory)).items() if text != DESTROYED}
    assert readable == {"req_3"}


DESTROYED = "the content's key was destroyed"


async def test_a_restored_backup_does_not_bring_the_words_back(tmp_path: Path) -> None:
    directory, listed = tmp_path / "audit", tmp_path / "elsewhere"
    await recorded(directory)
    backup = tmp_path / "backup"
    shutil.copytree(directory, backup)
    erase(directory, listed, "acme", "ann")
    shutil.rmtree(directory)
    backup.rename(directory)
    assert (await contents(directory))["req_1"] == "words of ann"
    assert apply_list(directory, listed, Disk()) == 1
    assert apply_list(directory, listed, Disk()) == 0
    assert (await contents(directory))["req_1"] == DESTROYED
    assert set(erased_keys(listed).values()) == {NOW_US}


async def test_a_crash_before_the_keys_went_is_made_good_by_the_list(tmp_path: Path) -> None:
    directory, listed = tmp_path / "audit", tmp_path / "elsewhere"
    await recorded(directory)

    class CrashingDisk(Disk):
        def lock(self, path: Path, *, wait: bool = False) -> int:
            raise OSError("crash")

    keys = matching_keys(directory, "acme", "ann")
    with pytest.raises(OSError, match="crash"):
        destroy_keys(directory, listed, keys, NOW_US, CrashingDisk())
    assert (await contents(directory))["req_1"] == "words of ann"
    assert apply_list(directory, listed, Disk()) == 1
    assert (await contents(directory))["req_1"] == DESTROYED


async def test_the_old_key_file_is_overwritten_before_it_goes(tmp_path: Path) -> None:
    directory = tmp_path / "audit"
    await recorded(directory)
    path = directory / "w0" / KEYS_NAME
    with path.open("rb") as old:
        length = len(old.read())
        erase(directory, tmp_path, "acme", "ann")
        old.seek(0)
        assert old.read() == bytes(length)
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_running_writer_takes_a_new_key_after_an_erasure(tmp_path: Path) -> None:
    directory, clock = tmp_path / "audit", StoppedClock()
    async with running(directory, clock=clock) as log:
        await say(log, 1, "ann", b"before")
        erase(directory, tmp_path, "acme", "ann")
        clock.advance(1.0)
        await say(log, 2, "ann", b"after")
    assert await contents(directory) == {"req_1": DESTROYED, "req_2": "after"}
    (line,) = matching_keys(directory, "acme", "ann")
    assert line.subject == "ann"


async def test_what_was_never_written_erases_nothing(tmp_path: Path) -> None:
    assert matching_keys(tmp_path / "later", "acme", None) == []
    assert apply_list(tmp_path / "later", tmp_path, Disk()) == 0
    assert destroy_keys(tmp_path, tmp_path, [], NOW_US, Disk()) == 0
    assert erased_keys(tmp_path) == {}
