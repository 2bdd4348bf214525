"""What a start has looked at by the list of what was erased the next does not read again."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import delete

from gateway.audit.disk import Disk
from gateway.batches import KeptFile
from gateway.secrets.credentials import master_key
from gateway.store.batching.files import FileStore, kept_file_parts
from gateway.store.erasure.kept_content import KeptContent
from gateway.store.erasure.looked_again import LOOKED_NAME
from tests.gateway.store.erasure.kept_archive import Archive, line
from tests.gateway.store.erasure.test_kept_again import destroyed


pytestmark = pytest.mark.anyio


class Readings:
    """Two machines with lists of their own, and which files are read."""

    def __init__(self, archive: Archive, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.archive, self.read, content = archive, list[str](), FileStore.content
        audit = replace(archive.settings.audit, checkpoint_directory=str(folder))
        self.elsewhere = self.other(audit=audit)

        def reads(store: FileStore, file: KeptFile) -> AsyncIterator[bytes]:
            self.read.append(file.file_id)
            return content(store, file)

        patch.setattr(FileStore, "content", reads)

    def other(self, **changed: Any) -> KeptContent:
        archive = self.archive
        settings = replace(archive.settings, **changed)
        return KeptContent(settings, archive.database, master_key(settings), archive.clock)

    async def again(self, kept: KeptContent) -> tuple[int, bool]:
        """How many things went at a start, and whether it read any file."""
        self.read.clear()
        return await kept.destroy_again(), bool(self.read)


@pytest.fixture
def readings(archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Readings:
    return Readings(archive, tmp_path / "elsewhere", monkeypatch)


async def test_what_a_start_has_looked_at_the_next_does_not_read(
    archive: Archive, readings: Readings
) -> None:
    """Another machine took lines out, or this one did after a backup: no list says how it is."""
    file_id = await archive.file(line("ann") + line("bob") + line("cleo") + line("dan"))
    backups = [await archive.backup(file_id)]
    await destroyed(archive, archive.kept, "ann")
    backups.append(await archive.backup(file_id))
    await destroyed(archive, readings.elsewhere, "bob")
    backups.append(await archive.backup(file_id))
    assert await readings.again(archive.kept) == (0, True)
    assert await readings.again(archive.kept) == (0, False)
    assert await readings.again(readings.elsewhere) == (0, False)
    folder = archive.settings.path(archive.settings.audit.checkpoint_directory)
    (folder / f"{LOOKED_NAME}.draft").write_bytes(b"a crash left it")
    for backup, is_theirs in zip(backups, [True, False, False], strict=True):
        await archive.restore(file_id, backup)
        assert (await readings.again(archive.kept))[0] == is_theirs
        assert await readings.again(archive.kept) == (0, False)
    await archive.restore(file_id, backups[0])
    assert await readings.again(archive.kept) == (1, True)
    # More was erased since: of what was looked at before nobody knows whether it has that.
    await archive.restore(file_id, backups[2])
    await destroyed(archive, archive.kept, "cleo")
    await archive.restore(file_id, backups[2])
    assert await readings.again(archive.kept) == (1, True)
    assert await archive.content() == [b"\n\n\n" + line("dan")]


async def test_what_was_read_otherwise_or_not_to_its_end_is_read_again(
    archive: Archive, readings: Readings, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = replace(archive.settings.limits, batch_line_bytes_max=10_000)
    file_id = await archive.file(line("ann") + line("bob") + line("cleo"))
    whole = await archive.backup(file_id)
    await destroyed(archive, archive.kept, "ann")
    await destroyed(archive, readings.elsewhere, "bob")
    for kept in (archive.kept, readings.other(limits=limits)):
        assert await readings.again(kept) == (0, True)
    assert await readings.again(archive.kept) == (0, True)
    assert await readings.again(archive.kept) == (0, False)
    with monkeypatch.context() as changed:
        changed.setenv("GATEWRIGHT_TEST_PEPPER", secrets.token_hex(32))
        assert await readings.again(archive.kept) == (0, True)
    async with archive.database.writing() as connection:
        await connection.execute(delete(kept_file_parts))
    folder = archive.settings.path(archive.settings.audit.checkpoint_directory)
    for lies_there in (b"[]", b"torn"):
        (folder / LOOKED_NAME).write_bytes(lies_there)
        assert await readings.again(archive.kept) == (0, True)
    await archive.restore(file_id, whole)
    with monkeypatch.context() as changed:
        changed.setattr(Disk, "replace", full)
        for is_again in (True, False):
            assert await readings.again(archive.kept) == (is_again, True)
    assert (folder / LOOKED_NAME).read_bytes() == b"torn"


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")
