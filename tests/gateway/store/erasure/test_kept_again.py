"""What was erased beside the log is on a list, and goes again when a backup brings it back."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from sqlalchemy import delete

from gateway.batches import KeptFile
from gateway.errors import NotReady
from gateway.secrets.credentials import master_key
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from gateway.store.batching.file_rewriting import FileRewriter
from gateway.store.batching.files import PART_BYTES, FileStore, kept_file_parts, kept_files
from gateway.store.erasure.erased_kept import NAME
from gateway.store.erasure.kept_content import KeptContent
from gateway.store.sealing.resealing import Resealing
from gateway.store.sealing.sealed_kinds import KINDS
from tests.gateway.store.erasure.kept_archive import Archive, line, result


pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("ending", [b"", b'\xff"}\n'])
async def test_a_torn_or_damaged_line_of_the_list_names_nothing(
    archive: Archive, ending: bytes
) -> None:
    batch = await archive.batch("ann", "bob")
    await archive.kept.destroy(await archive.kept.find("acme", archive.subject("ann")), "acme")
    folder = archive.settings.path(archive.settings.audit.checkpoint_directory)
    with (folder / NAME).open("ab") as written:
        written.write(b'\n{"erased_us":1,"batch":"' + batch.batch_id.encode() + ending)
    assert await archive.kept.destroy_again() == 0
    assert await archive.numbers() == [(batch.batch_id, 2)]


async def test_the_list_is_where_and_what_it_was_in_earlier_versions(archive: Archive) -> None:
    """Under other names a start would read nothing of it, and a backup would bring all back."""
    batch = await archive.batch("ann", "bob")
    await archive.answer("resp_1", "ann")
    whole, part = await archive.file(line("ann")), await archive.file(line("bob") + line("ann"))
    file = archive.settings.path(archive.settings.audit.checkpoint_directory) / "erased-kept"
    file.parent.mkdir(parents=True)
    file.write_bytes(b'{"erased_us":1,"ans')
    found = await archive.kept.find("acme", archive.subject("ann"))
    await archive.kept.destroy(found, "acme", "case1")
    torn, *lines = file.read_bytes().split(b"\n")
    told = [msgspec.json.decode(each) for each in lines if each]
    keys = [each.pop(name) for each in told if "file" in each for name in ("key", "left")]
    marks = [each.pop("marks") for each in told if "file" in each]
    now = {"erased_us": archive.clock.utc_us(), "organisation": "acme", "case": "case1"}
    assert torn == b'{"erased_us":1,"ans'
    assert [*map(len, {*keys, *(mark for (mark,) in marks)})] == [32] * 6
    assert sorted(told, key=str) == sorted(
        (
            now | {"batch": batch.batch_id, "lines": [1]},
            now | {"file": part, "lines": [2], "keeps_places": True},
            now | {"file": whole, "lines": [1], "keeps_places": True},
            now | {"answer": "resp_1"},
        ),
        key=str,
    )


async def test_a_backup_from_before_the_master_key_was_replaced_loses_what_was_erased_since(
    archive: Archive,
) -> None:
    """What the list calls a file's content is no word of the master key that wrapped its key."""
    file_id = await archive.file(line("ann") + line("bob"))
    backup = await archive.backup(file_id)
    present = MasterKey(Secret(secrets.token_bytes(32)), [master_key(archive.settings)])
    (kind,) = (each for each in KINDS if each.table is kept_files)
    assert (await Resealing(archive.database, present, archive.clock).of(kind)).resealed == 1
    kept = KeptContent(archive.settings, archive.database, present, archive.clock)
    await kept.destroy(await kept.find("acme", archive.subject("ann")), "acme")
    assert await kept.destroy_again() == 0
    await archive.restore(file_id, backup)
    assert await kept.destroy_again() == 1
    assert (await kept.find("acme", archive.subject("ann"))).numbers.file_lines == 0
    assert (await kept.find("acme", archive.subject("bob"))).numbers.file_lines == 1


@pytest.mark.parametrize("purpose", ["batch", "batch_output"])
async def test_a_backup_loses_what_several_erasures_took_out_of_one_file(
    archive: Archive, purpose: Any
) -> None:
    """Each but the first found the file under the key that the one before it gave it."""
    names = ("ann", "bob", "cleo", "dan", "eve")
    lines = [line(name, f"n{number}") for number, name in enumerate(names, 1)]
    asked = await archive.file(b"".join(lines))
    batch = await archive.batch(kind="file", input_file_id=asked)
    answered = b"".join(result(batch, number) for number, _ in enumerate(names, 1))
    output = await archive.file(answered, "batch_output")
    await archive.move(batch, state="completed", output_file_id=output)
    file_id = asked if purpose == "batch" else output
    backups = []
    for name in ("bob", "ann", "dan"):
        backups.append(await archive.backup(file_id))
        await archive.kept.destroy(await archive.kept.find("acme", archive.subject(name)), "acme")
    left = sorted(await archive.content())
    assert await archive.kept.destroy_again() == 0
    for backup in backups:
        await archive.restore(file_id, backup)
        assert await archive.kept.destroy_again() == 1
        assert sorted(await archive.content()) == left
    assert left == sorted(
        [b"\n\n" + lines[2] + b"\n" + lines[4], result(batch, 3) + result(batch, 5)]
    )


@pytest.mark.parametrize("fails", [2, 3])
async def test_a_file_that_gets_another_master_key_meanwhile_is_tried_again(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    await archive.file(line("ann") + line("bob"))
    without, left = FileRewriter.without, [False] * fails

    async def late(*given: Any) -> bool:
        return left.pop() if left else await without(*given)

    monkeypatch.setattr(FileRewriter, "without", late)
    found = await archive.kept.find("acme", archive.subject("ann"))
    if fails == 3:
        with pytest.raises(NotReady, match="try again"):
            await archive.kept.destroy(found, "acme")
    await archive.kept.destroy(found, "acme")
    assert await archive.content() == [b"\n" + line("bob")]
    left.append(False)
    await archive.kept.destroy(await archive.kept.find("acme", None), "acme")
    await archive.kept.destroy(found, "acme")  # It is gone by now.


async def test_what_was_found_before_another_erasure_is_not_listed_by_places_of_then(
    archive: Archive,
) -> None:
    """Two cases of one organisation, agreed to at the same moment."""
    batch = await archive.batch(kind="file", input_file_id="file-gone")
    said = [msgspec.json.decode(result(batch, number)) for number in (1, 2, 3)]
    for each, user in zip(said, ("ann", "bob", "cleo"), strict=True):
        each["response"]["body"]["user"] = user
    raw = [msgspec.json.encode(each) + b"\n" for each in said]
    await archive.file(b"".join(raw), "batch_output")
    ann, bob = [await archive.kept.find("acme", archive.subject(user)) for user in ("ann", "bob")]
    await archive.kept.destroy(ann, "acme")
    with pytest.raises(NotReady):
        await archive.kept.destroy(bob, "acme")
    assert await archive.kept.destroy_again() == 0
    assert await archive.content() == [raw[1] + raw[2]]
    await archive.kept.destroy(await archive.kept.find("acme", archive.subject("bob")), "acme")
    assert await archive.content() == [raw[2]]


async def destroyed(archive: Archive, kept: KeptContent, user: str) -> None:
    await kept.destroy(await kept.find("acme", archive.subject(user)), "acme")


@pytest.mark.parametrize("purpose", ["batch", "batch_output"])
@pytest.mark.parametrize("first", [0, 1])
async def test_a_backup_loses_what_machines_with_lists_of_their_own_took_out_of_one_file(
    archive: Archive, tmp_path: Path, purpose: Any, first: int
) -> None:
    """Each list lacks what the others took out: neither its keys nor its places are a backup's."""
    names = ("ann", "bob", "cleo", "dan", "bob", "eve")
    lines = [line(name, f"n{number}") for number, name in enumerate(names, 1)]
    asked = await archive.file(b"".join(lines))
    batch = await archive.batch(kind="file", input_file_id=asked)
    answered = b"".join(result(batch, number) for number, _ in enumerate(names, 1))
    output = await archive.file(answered, "batch_output")
    await archive.move(batch, state="completed", output_file_id=output)
    file_id = asked if purpose == "batch" else output
    elsewhere = replace(archive.settings.audit, checkpoint_directory=str(tmp_path / "elsewhere"))
    settings = replace(archive.settings, audit=elsewhere)
    parts = archive.database, master_key(settings), archive.clock
    machines = [archive.kept, KeptContent(settings, *parts)]
    backups = []
    for number, name in enumerate(("bob", "ann", "dan")):
        backups.append(await archive.backup(file_id))
        await destroyed(archive, machines[number % 2], name)
    left = sorted(await archive.content())
    assert left == sorted(
        [b"\n\n" + lines[2] + b"\n\n" + lines[5], result(batch, 3) + result(batch, 6)]
    )
    for backup in backups:
        await archive.restore(file_id, backup)
        for which in (first, 1 - first, first, 1 - first):
            await machines[which].destroy_again()
        assert sorted(await archive.content()) == left


async def test_who_listed_lines_and_came_too_late_leaves_no_places_that_are_another_persons(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both found the file as it was; only one took lines out, and the other looked again."""
    batch = await archive.batch(kind="file", input_file_id="file-gone")
    said = [msgspec.json.decode(result(batch, number)) for number in range(1, 7)]
    for each, user in zip(said, ("ann", "bob", "cleo", "bob", "dan", "eve"), strict=True):
        each["response"]["body"]["user"] = user
    raw = [msgspec.json.encode(each) + b"\n" for each in said]
    file_id = await archive.file(b"".join(raw), "batch_output")
    backup = await archive.backup(file_id)
    ann, bob = [await archive.kept.find("acme", archive.subject(user)) for user in ("ann", "bob")]
    without = FileRewriter.without

    async def late(*given: Any) -> bool:
        monkeypatch.setattr(FileRewriter, "without", without)
        with monkeypatch.context() as changed:
            changed.setattr(FileRewriter, "without", lost)
            with pytest.raises(NotReady):
                await archive.kept.destroy(bob, "acme")
        return await without(*given)

    async def lost(*_: Any) -> bool:
        raise NotReady("changed")

    monkeypatch.setattr(FileRewriter, "without", late)
    await archive.kept.destroy(ann, "acme")
    await destroyed(archive, archive.kept, "bob")
    await archive.restore(file_id, backup)
    assert await archive.kept.destroy_again() == 1
    assert await archive.content() == [raw[2] + raw[4] + raw[5]]


async def test_a_file_that_is_damaged_behind_their_line_holds_nobodys_erasure_up(
    archive: Archive,
) -> None:
    """Nor a start on a backup of it."""
    file_id = await archive.file(line("ann") + line("bob") + line("cleo", pad=2 * PART_BYTES))
    await archive.answer("resp_1", "ann")
    later = (kept_file_parts.c.file_id == file_id) & (kept_file_parts.c.number > 0)
    async with archive.database.writing() as connection:
        await connection.execute(delete(kept_file_parts).where(later))
    backup = await archive.backup(file_id)
    await destroyed(archive, archive.kept, "ann")
    for _ in range(2):
        found = (await archive.kept.find("acme", archive.subject("ann"))).numbers
        assert (found.things, found.is_whole) == (0, False)
        found = (await archive.kept.find("acme", archive.subject("bob"))).numbers
        assert (found.file_lines, found.is_whole) == (1, False)
        await archive.restore(file_id, backup)
        assert await archive.kept.destroy_again() == 1


async def test_a_start_reads_no_file_that_is_as_the_last_erasure_left_it(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files may be many and long, and a start waits for it."""
    file_id = await archive.file(line("ann") + line("bob") + line("cleo"))
    backup = await archive.backup(file_id)
    for user in ("ann", "bob"):
        await destroyed(archive, archive.kept, user)
    read = list[str]()
    content = FileStore.content

    def reads(store: FileStore, file: KeptFile) -> AsyncIterator[bytes]:
        read.append(file.file_id)
        return content(store, file)

    monkeypatch.setattr(FileStore, "content", reads)
    assert (await archive.kept.destroy_again(), read) == (0, [])
    await archive.restore(file_id, backup)
    assert await archive.kept.destroy_again() == 1
    assert set(read) == {file_id}


async def test_of_two_starts_at_once_on_a_backup_neither_fails(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_id = await archive.file(line("ann") + line("bob"))
    backup = await archive.backup(file_id)
    await destroyed(archive, archive.kept, "ann")
    await archive.restore(file_id, backup)
    without, others = FileRewriter.without, list[int]()

    async def late(*given: Any) -> bool:
        monkeypatch.setattr(FileRewriter, "without", without)
        others.append(await archive.kept.destroy_again())
        return await without(*given)

    monkeypatch.setattr(FileRewriter, "without", late)
    assert (await archive.kept.destroy_again(), others) == (0, [1])
    assert await archive.content() == [b"\n" + line("bob")]


async def test_what_another_process_wrote_meanwhile_loses_no_line_of_anybody_else(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker and a listener start on a backup: of results the others move up."""
    batch = await archive.batch(kind="file", input_file_id="file-gone")
    said = [msgspec.json.decode(result(batch, number)) for number in (1, 2)]
    for each, user in zip(said, ("ann", "bob"), strict=True):
        each["response"]["body"]["user"] = user
    raw = [msgspec.json.encode(each) + b"\n" for each in said]
    file_id = await archive.file(b"".join(raw), "batch_output")
    backup = await archive.backup(file_id)
    await destroyed(archive, archive.kept, "ann")
    await archive.restore(file_id, backup)
    parts = archive.database, master_key(archive.settings), archive.clock
    find, others = KeptContent._file, list[int]()

    async def late(kept: KeptContent, name: str) -> KeptFile | None:
        if not others:
            others.append(0)
            others.append(await KeptContent(archive.settings, *parts).destroy_again())
        return await find(kept, name)

    monkeypatch.setattr(KeptContent, "_file", late)
    assert (await archive.kept.destroy_again(), others) == (0, [0, 1])
    assert await archive.content() == [raw[1]]
    await archive.restore(file_id, backup)
    assert await archive.kept.destroy_again() == 1
    assert await archive.content() == [raw[1]]
