"""What failed after it was listed as erased stays at each start where a hold was set since."""

import errno
import shutil
from typing import Any

import msgspec
import pytest

from gateway.audit.content_keys.erasure import destroy_ids, erased_keys, matching_keys
from gateway.audit.disk import Disk
from gateway.audit.memory import MemoryAuditLog
from gateway.batches import Line
from gateway.errors import NotReady
from gateway.store.custody.orders import Custody
from gateway.store.erasure.cases import ErasureCases
from gateway.store.erasure.kept_content import KeptContent
from gateway.store.evidence.integration import Integration
from gateway.store.evidence.second_rows import SecondContents, SecondRecord, insert_second
from tests.gateway.store.erasure.kept_archive import Archive, body, line
from tests.gateway.store.erasure.test_folder_erasures import House, house


pytestmark = [pytest.mark.anyio, pytest.mark.either]
__all__ = ["house"]


def started(house: House) -> Integration:
    """What a worker of the folder `one` does first at its start."""
    places = {"worker": "one", "directory": str(house.at("one"))}
    places["checkpoint_directory"] = str(house.folder / "one-checkpoints")
    audit = msgspec.structs.replace(house.settings.audit, **places)
    settings = msgspec.structs.replace(house.settings, audit=audit)
    return Integration(settings, house.database, house.clock, house.master)


async def released(custody: Custody, hold_id: str) -> None:
    for person in ("cora", "dan"):
        await custody.release_hold(person, hold_id)


@pytest.mark.parametrize("whose", ["ann", ""])
async def test_keys_that_a_disk_kept_stay_under_a_hold_that_was_set_since(
    house: House, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    for subject in ("ann", "bob"):
        house.key(subject, "one", "one")
    await house.erasures("one").tend()
    await house.agreed("one")

    def refuses(*_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as changed:
        changed.setattr(Disk, "replace", refuses)
        with pytest.raises(OSError, match="Read-only"):
            await house.erasures("one").tend()
    assert len(erased_keys(house.folder / "one-checkpoints")) == 1
    hold = await house.custody.set_hold("cora", "acme", whose, "a lawsuit")
    for _ in range(2):
        await started(house).erase_again()
        await house.erasures("one").tend()
        assert house.subjects("one") == ["ann", "bob"]
    await released(house.custody, hold.id)
    await started(house).erase_again()
    assert house.subjects("one") == ["bob"]


async def test_keys_that_retention_was_about_to_destroy_stay_under_a_hold(house: House) -> None:
    """Of those no case says anything."""
    lost, folder = house.key("ann", "one", "one"), house.folder / "one-checkpoints"
    others = house.key("bob", "one", "one")
    backup = house.folder / "backup"
    shutil.copytree(house.at("one"), backup)
    destroy_ids(house.at("one"), folder, [lost, others], house.clock.utc_us(), Disk())
    shutil.rmtree(house.at("one"))
    backup.rename(house.at("one"))
    await house.custody.set_hold("cora", "acme", "ann", "a lawsuit")
    await started(house).erase_again()
    assert house.subjects("one") == ["ann"]


async def test_keys_of_an_erasure_that_is_done_go_again_whatever_is_held(house: House) -> None:
    house.key("ann", "one", "one")
    backup = house.folder / "backup"
    shutil.copytree(house.at("one"), backup)
    await house.agreed("one")
    await house.erasures("one").tend()
    shutil.rmtree(house.at("one"))
    backup.rename(house.at("one"))
    await house.custody.set_hold("cora", "acme", "", "a lawsuit")
    assert house.subjects("one") == ["ann"]
    await started(house).erase_again()
    assert not house.subjects("one")


async def test_keys_in_the_database_stay_under_a_hold_likewise(house: House) -> None:
    ids = [house.key(subject, "one", "one") for subject in ("ann", "bob")]
    keys = matching_keys(house.at("one"), "acme", None)
    record = SecondRecord("one_db", 0, 0, "req_1", "intent", ids[0], b"sealed")
    async with house.database.writing() as connection:
        await insert_second(connection, [record], keys)
    shutil.rmtree(house.at("one", "one"))
    house.at("one", "one").mkdir()
    destroy_ids(house.at("one"), house.folder / "one-checkpoints", ids, 1, Disk())
    hold = await house.custody.set_hold("cora", "acme", "ann", "a lawsuit")
    await started(house).erase_again()
    second = SecondContents(house.database)
    assert [key.subject for key in await second.matching_keys("acme", None)] == ["ann"]
    await released(house.custody, hold.id)
    await started(house).erase_again()
    assert await second.matching_keys("acme", None) == []


async def test_keys_go_again_under_a_hold_that_was_released_before_they_were_listed(
    house: House,
) -> None:
    """A database that was put back has it in force again, and no case that says what is gone."""
    lost = house.key("ann", "one", "one")
    keys = matching_keys(house.at("one"), "acme", None)
    backup = house.folder / "backup"
    shutil.copytree(house.at("one"), backup)
    await house.custody.set_hold("cora", "acme", "ann", "a lawsuit")
    house.clock.advance(7_200)
    destroy_ids(
        house.at("one"), house.folder / "one-checkpoints", [lost], house.clock.utc_us(), Disk()
    )
    shutil.rmtree(house.at("one"))
    backup.rename(house.at("one"))
    record = SecondRecord("one_db", 0, 0, "req_1", "intent", lost, b"sealed")
    async with house.database.writing() as connection:
        await insert_second(connection, [record], keys)
    assert house.subjects("one") == ["ann"]
    await started(house).erase_again()
    assert not house.subjects("one")
    assert await SecondContents(house.database).matching_keys("acme", None) == []


async def test_what_is_kept_goes_again_under_a_hold_that_was_released_before_it_was_listed(
    archive: Archive,
) -> None:
    """Likewise: there the case is open again, and waits for the release."""
    log = MemoryAuditLog()
    await log.start()
    custody = Custody(archive.database, log, archive.clock)
    cases, ann = ErasureCases(archive.database, custody, archive.clock), archive.subject("ann")
    await custody.set_hold("cora", "acme", ann, "a lawsuit")
    case = await cases.open("cora", "acme", ann, "gdpr", "T-1")
    archive.clock.advance(7_200)
    batch = await archive.batch("ann", "bob")
    key = await archive.batches.content_key(batch)
    assert key is not None
    await archive.answer("resp_1", "ann")
    found = await archive.kept.find("acme", ann, bytes_max=None)
    await archive.kept.destroy(found, "acme", case.id)
    await archive.move(batch, state="validating")
    await archive.lines.add(batch.batch_id, key, [Line(1, "n1", body("ann"))])
    await archive.answer("resp_1", "ann")
    assert await archive.kept.destroy_again() == 2
    assert await archive.numbers() == [(batch.batch_id, 2)]
    assert (await archive.kept.find("acme", ann)).numbers.answers == 0


async def test_files_and_lines_that_the_database_kept_stay_under_a_hold(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = MemoryAuditLog()
    await log.start()
    custody = Custody(archive.database, log, archive.clock)
    cases, ann = ErasureCases(archive.database, custody, archive.clock), archive.subject("ann")
    case = await cases.open("cora", "acme", ann, "gdpr", "T-1")
    content = line("ann") + line("bob")
    await archive.file(content)
    batch = await archive.batch("ann", "bob")
    await archive.answer("resp_1", "ann")
    await archive.move(batch, state="in_progress")
    found = await archive.kept.find("acme", ann, bytes_max=None)

    async def fails(*_: Any, **__: Any) -> None:
        raise NotReady("the database does not answer")

    with monkeypatch.context() as changed:
        changed.setattr(KeptContent, "_take_from", fails)
        with pytest.raises(NotReady):
            await archive.kept.destroy(found, "acme", case.id)
    hold = await custody.set_hold("cora", "acme", ann, "a lawsuit")
    assert await archive.kept.destroy_again() == 0
    assert await archive.numbers() == [(batch.batch_id, 1), (batch.batch_id, 2)]
    assert await archive.content() == [content]
    await released(custody, hold.id)
    assert await archive.kept.destroy_again() == 3
    assert await archive.numbers() == [(batch.batch_id, 2)]
    assert await archive.content() == [b"\n" + line("bob")]
    assert (await archive.kept.find("acme", ann)).numbers.answers == 0
