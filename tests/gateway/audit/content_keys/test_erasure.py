"""Erasure: the words of one end user are gone from everywhere, and every proof still holds."""

import asyncio
import errno
import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.audit.content_keys.erasure import (
    ERASED_NAME,
    apply_list,
    damaged_keys,
    destroy_keys,
    erased_keys,
    matching_keys,
)
from gateway.audit.content_keys.keys import (
    KEY_DAMAGED,
    KEYS_NAME,
    LOCK_NAME,
    named_by,
    read_keys,
)
from gateway.audit.disk import Disk
from gateway.audit.projecting.export import export_records, segment_rows
from gateway.audit.proving.verify import verify_directory
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


class FailingDisk(Disk):
    """Fails at one of its steps, as a crash right before it would, and at all that follow."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def _step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise OSError("crash")

    def lock(self, path: Path, *, wait: bool = False) -> int:
        self._step()
        return super().lock(path, wait=wait)

    def append_durably(self, path: Path, data: bytes) -> None:
        self._step()
        super().append_durably(path, data)

    def replace(self, draft: Path, path: Path) -> None:
        self._step()
        super().replace(draft, path)

    def remove(self, path: Path) -> None:
        self._step()
        super().remove(path)

    def sync_folder(self, path: Path) -> None:
        self._step()
        super().sync_folder(path)


@pytest.mark.parametrize("steps", range(8))
async def test_wherever_an_erasure_is_cut_off_the_next_ones_bring_nothing_back(
    tmp_path: Path, steps: int
) -> None:
    """Nor what a draft held that was never put in its place."""
    directory, listed = tmp_path / "audit", tmp_path / "elsewhere"
    await recorded(directory)
    keys = matching_keys(directory, "acme", "ann")
    with pytest.raises(OSError, match="crash"):
        destroy_keys(directory, listed, keys, NOW_US, FailingDisk(steps))
    path = directory / "w0" / KEYS_NAME
    before = path.read_bytes()
    assert erase(directory, listed, "acme", "bob") == 1
    apply_list(directory, listed, Disk())
    is_listed = keys[0].key in erased_keys(listed)
    assert is_listed == (steps > 1), "the list comes before the first key goes"
    assert await contents(directory) == {
        "req_1": DESTROYED if is_listed else "words of ann",
        "req_2": DESTROYED,
        "req_3": "words of globex",
        "req_4": "words of nobody",
    }
    left = path.read_bytes().split(b"\n")
    assert [line for line in left if line] == [
        line for line in before.split(b"\n") if line and named_by(line) not in erased_keys(listed)
    ]
    assert not path.with_suffix(".draft").exists()


@pytest.mark.parametrize("steps", range(9))
async def test_wherever_an_erasure_is_cut_off_the_next_start_overwrites_what_it_left(
    tmp_path: Path, steps: int
) -> None:
    """Else a disk held keys that were erased, without a name that anybody would find them by."""
    directory, listed = tmp_path / "audit", tmp_path / "elsewhere"
    await recorded(directory)
    keys = matching_keys(directory, "acme", "ann")
    path = directory / "w0" / KEYS_NAME
    with path.open("rb") as old:
        before = old.read()
        with pytest.raises(OSError, match="crash"):
            destroy_keys(directory, listed, keys, NOW_US, FailingDisk(steps))
        drafts = [draft.open("rb") for draft in path.parent.glob("*.draft")]
        # A key file that it had replaced already holds none of them: there a start counts none.
        left = erased_keys(listed).keys() & {each.key for each in read_keys(path.parent)}
        assert apply_list(directory, listed, Disk()) == len(left)
        old.seek(0)
        is_listed = keys[0].key in erased_keys(listed)
        assert old.read() == (bytes(len(before)) if is_listed else before)
    for draft in drafts:
        with draft:
            assert not draft.read().strip(b"\0")
    assert (await contents(directory))["req_2"] == "words of bob"
    assert {each.name for each in path.parent.glob("keys.*")} == {KEYS_NAME, LOCK_NAME}


@pytest.mark.parametrize("name", ["keys.spent", "keys.draft"])
async def test_what_may_be_the_last_of_a_key_file_is_not_overwritten(
    tmp_path: Path, name: str
) -> None:
    directory = tmp_path / "audit"
    await recorded(directory)
    path = directory / "w0" / KEYS_NAME
    before, last = path.read_bytes(), path.rename(path.with_name(name))
    assert apply_list(directory, tmp_path, Disk()) == 0
    assert last.read_bytes() == before


async def test_keys_are_erased_where_a_file_has_one_name_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(reason, "no links here")

    directory = tmp_path / "audit"
    await recorded(directory)
    monkeypatch.setattr(os, "link", refuse)
    reason = errno.EIO
    with pytest.raises(OSError, match="no links here"):
        erase(directory, tmp_path, "acme", "ann")
    reason = errno.EPERM
    assert erase(directory, tmp_path, "acme", "ann") == 1
    assert (await contents(directory))["req_1"] == DESTROYED


async def test_an_erasure_waits_for_who_adds_a_key_at_that_moment(tmp_path: Path) -> None:
    await recorded(tmp_path)
    held = Disk().lock(tmp_path / "w0" / LOCK_NAME)
    erasing = asyncio.create_task(asyncio.to_thread(erase, tmp_path, tmp_path / "l", "acme", "ann"))
    await asyncio.sleep(0.05)
    assert (await contents(tmp_path))["req_1"] == "words of ann"
    Disk().close(held)
    assert await erasing == 1


async def test_the_list_is_where_and_what_it_was_in_earlier_versions(tmp_path: Path) -> None:
    """A line break before each: one that a crash cut off must not swallow the next."""
    directory, listed = tmp_path / "audit", tmp_path / "elsewhere"
    await recorded(directory)
    listed.mkdir()
    (listed / "erased-keys").write_bytes(b'{"key":"0123456789abcdef","era')
    keys = matching_keys(directory, "acme", None)
    erase(directory, listed, "acme", None)
    lines = b"".join(
        b'\n{"key":"%b","erased_us":%d}\n' % (key, NOW_US)
        for key in sorted(each.key.encode() for each in keys)
    )
    assert (listed / "erased-keys").read_bytes() == b'{"key":"0123456789abcdef","era' + lines
    assert set(erased_keys(listed)) == {each.key for each in keys}


async def test_the_old_key_file_is_overwritten_before_it_goes(tmp_path: Path) -> None:
    directory = tmp_path / "audit"
    await recorded(directory)
    path = directory / "w0" / KEYS_NAME
    opened = len(list(Path("/dev/fd").iterdir()))
    with path.open("rb") as old:
        length = len(old.read())
        erase(directory, tmp_path, "acme", "ann")
        old.seek(0)
        assert old.read() == bytes(length)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(list(Path("/dev/fd").iterdir())) == opened


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


async def test_a_writer_sees_two_erasures_between_two_looks_though_they_share_a_file_number(
    tmp_path: Path,
) -> None:
    """The file that the first one removed lends the second its number."""
    directory, clock = tmp_path / "audit", StoppedClock()
    path = directory / "w0" / KEYS_NAME
    async with running(directory, clock=clock) as log:
        await say(log, 1, "ann", b"before")
        await say(log, 2, "bob", b"before")
        clock.advance(1.0)
        await say(log, 4, "bob", b"seen")
        before, number = path.with_name("before"), path.stat().st_ino
        before.hardlink_to(path)
        erase(directory, tmp_path, "acme", "ann")
        before.write_bytes(path.read_bytes())
        before.replace(path)
        assert path.stat().st_ino == number
        clock.advance(1.0)
        await say(log, 5, "ann", b"after")
    told = await contents(directory)
    assert (told["req_1"], told["req_4"], told["req_5"]) == (DESTROYED, "seen", "after")


async def test_a_writer_that_adds_a_key_right_after_an_erasure_takes_new_keys_for_all(
    tmp_path: Path,
) -> None:
    directory, clock = tmp_path / "audit", StoppedClock()
    async with running(directory, clock=clock) as log:
        await say(log, 1, "ann", b"before")
        erase(directory, tmp_path, "acme", "ann")
        await say(log, 2, "bob", b"first")
        await say(log, 4, "ann", b"after")
    told = await contents(directory)
    assert told == {"req_1": DESTROYED, "req_2": "first", "req_4": "after"}


async def test_a_writer_keeps_its_keys_while_nobody_erases(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with running(tmp_path, clock=clock) as log:
        for number in range(6):
            await say(log, 3 * number + 1, "ann" if number % 2 else "bob", b"words")
            clock.advance(1.0)
    assert len(matching_keys(tmp_path, "acme", None)) == 2


async def test_a_damaged_line_of_the_list_stops_no_start_and_hides_no_other(
    tmp_path: Path,
) -> None:
    directory, listed = tmp_path / "audit", tmp_path / "elsewhere"
    await recorded(directory)
    erase(directory, listed, "acme", "ann")
    known = erased_keys(listed)
    (listed / ERASED_NAME).write_bytes(
        b'{"key":"\xff","erased_us":1}\n' + (listed / ERASED_NAME).read_bytes()
    )
    assert erased_keys(listed) == known
    assert apply_list(directory, listed, Disk()) == 0


async def test_what_was_never_written_erases_nothing(tmp_path: Path) -> None:
    assert matching_keys(tmp_path / "later", "acme", None) == []
    assert damaged_keys(tmp_path / "later") == []
    assert apply_list(tmp_path / "later", tmp_path, Disk()) == 0
    assert destroy_keys(tmp_path, tmp_path, [], NOW_US, Disk()) == 0
    assert erased_keys(tmp_path) == {}


def damage(path: Path, old: bytes, new: bytes) -> bytes:
    """Change one line of a key file; its bytes afterwards."""
    raw = path.read_bytes()
    assert raw.count(old) == 1
    path.write_bytes(raw.replace(old, new))
    (line,) = (line for line in path.read_bytes().split(b"\n") if new in line)
    return line


async def test_a_damaged_line_outlives_the_erasure_of_other_keys_and_can_be_mended(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "audit"
    await recorded(directory)
    path = directory / "w0" / KEYS_NAME
    line = damage(path, b'"subject":"bob"', b'"subject"\xff"bob"')
    assert erase(directory, tmp_path, "acme", "ann") == 1
    assert line in path.read_bytes().split(b"\n")
    assert (await contents(directory))["req_2"] == KEY_DAMAGED
    assert (await contents(directory))["req_1"] == DESTROYED
    (found,) = damaged_keys(directory)
    assert (found.worker, found.reason) == ("w0", "it cannot be read")
    assert len(found.key) == 16
    damage(path, b'"subject"\xff"bob"', b'"subject":"bob"')
    assert (await contents(directory))["req_2"] == "words of bob"
    assert damaged_keys(directory, KEYS) == []


@pytest.mark.parametrize("between", [b"\n", b"\n\n"], ids=["close", "apart"])
@pytest.mark.parametrize(
    ("old", "new"),
    [(b"}", b"}"), (b"}", b"]"), (b'"bob"', b'"b\xffb"')],
    ids=["whole", "end", "word"],
)
async def test_what_stands_beside_an_erased_line_stays_as_it_is(
    tmp_path: Path, between: bytes, old: bytes, new: bytes
) -> None:
    """Somebody may have mended the file by hand, and not known of the empty lines in it.

    By these a line whose end was changed is told from one that a crash cut off.
    """
    await recorded(tmp_path)
    path = tmp_path / "w0" / KEYS_NAME
    ann, bob, *others = (each for each in path.read_bytes().split(b"\n") if each)
    kept = [bob.replace(old, new), *others]
    path.write_bytes(b"\n" + between.join([ann, *kept]) + b"\n")
    told = [] if new == old or (new, between) == (b"]", b"\n") else [2 + len(between)]
    assert [each.number for each in damaged_keys(tmp_path, KEYS)] == told
    assert erase(tmp_path, tmp_path / "elsewhere", "acme", "ann") == 1
    assert [each for each in path.read_bytes().split(b"\n") if each] == kept
    assert len(damaged_keys(tmp_path, KEYS)) == len(told)


async def test_no_key_is_called_destroyed_while_a_line_that_names_none_may_be_its_own(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "audit"
    await recorded(directory)
    (key,) = matching_keys(directory, "acme", "bob")
    damage(directory / "w0" / KEYS_NAME, key.key.encode(), key.key[:8].encode())
    assert (await contents(directory))["req_2"] == KEY_DAMAGED
    named = b'{"key":"' + key.key[:8].encode()
    damage(directory / "w0" / KEYS_NAME, named, named + b"\x00")
    (found,) = damaged_keys(directory)
    assert found.key == ""
    assert (await contents(directory))["req_2"] == KEY_DAMAGED


async def test_a_damaged_line_of_an_erased_key_goes_with_it(tmp_path: Path) -> None:
    directory, listed = tmp_path / "audit", tmp_path / "elsewhere"
    await recorded(directory)
    backup = tmp_path / "backup"
    shutil.copytree(directory, backup)
    erase(directory, listed, "acme", "ann")
    shutil.rmtree(directory)
    backup.rename(directory)
    raw = (directory / "w0" / KEYS_NAME).read_bytes()
    ann = b'"organisation":"acme","day":20'
    at = raw.index(ann)
    (directory / "w0" / KEYS_NAME).write_bytes(raw[:at] + b"\xff" + raw[at + 1 :])
    assert apply_list(directory, listed, Disk()) == 1
    assert damaged_keys(directory) == []
    assert (await contents(directory))["req_1"] == DESTROYED


async def test_a_line_that_was_changed_but_can_be_read_is_found_with_the_master_key(
    tmp_path: Path,
) -> None:
    await recorded(tmp_path)
    damage(tmp_path / "w0" / KEYS_NAME, b'"subject":"bob"', b'"subject":"rob"')
    assert damaged_keys(tmp_path) == []
    (found,) = damaged_keys(tmp_path, KEYS)
    assert found.reason == "it was changed: its key does not open"


@pytest.mark.parametrize("erased", ["ann", "bob", None])
async def test_a_line_that_a_crash_cut_off_is_no_damage_before_or_after_a_rewrite(
    tmp_path: Path, erased: str | None
) -> None:
    path = tmp_path / "w0" / KEYS_NAME
    torn = b'\n{"key":"0123456789abcdef","organisation":"ac'
    async with running(tmp_path) as log:
        await say(log, 1, "ann", b"one")
    path.write_bytes(path.read_bytes() + torn)
    assert damaged_keys(tmp_path, KEYS) == []
    async with running(tmp_path) as log:
        await say(log, 2, "bob", b"two")
    path.write_bytes(path.read_bytes() + torn)
    assert damaged_keys(tmp_path, KEYS) == []
    assert erase(tmp_path, tmp_path / "elsewhere", "acme", erased) == (1 if erased else 2)
    assert damaged_keys(tmp_path, KEYS) == []


async def test_nothing_is_overwritten_before_what_replaces_it_is_there_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut between the two would else leave noughts under the name of the key file."""
    steps: list[str] = []

    class NotingDisk(Disk):
        def replace(self, draft: Path, path: Path) -> None:
            steps.append("replaced")
            super().replace(draft, path)

        def sync_folder(self, path: Path) -> None:
            steps.append("synced")
            super().sync_folder(path)

    def noted(descriptor: int, data: bytes, offset: int) -> int:
        steps.append("overwritten")
        return pwrite(descriptor, data, offset)

    await recorded(tmp_path)
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", noted)
    keys = matching_keys(tmp_path, "acme", "ann")
    assert destroy_keys(tmp_path, tmp_path / "elsewhere", keys, NOW_US, NotingDisk()) == 1
    assert steps[steps.index("replaced") :][:3] == ["replaced", "synced", "overwritten"]
