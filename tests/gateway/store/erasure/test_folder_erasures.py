"""What one audit folder does of erasures that were agreed to elsewhere, without a worker."""

import asyncio
import errno
import os
import secrets
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import insert

from gateway.audit.content_keys.erasure import matching_keys
from gateway.audit.content_keys.keys import KEYS_NAME, WrappedKey
from gateway.audit.disk import Disk
from gateway.audit.folder_mark import MARK_NAME, folder_mark
from gateway.audit.memory import MemoryAuditLog
from gateway.audit.proving.integrator import TreeDamaged
from gateway.cli.init import prepare
from gateway.clock import DAY_US, HOUR_US, StoppedClock
from gateway.configuration.reading import load_settings
from gateway.secrets.credentials import master_key
from gateway.store.custody.orders import Custody
from gateway.store.engine import Database, open_database
from gateway.store.erasure import folder_erasures
from gateway.store.erasure.cases import ErasureCase, ErasureCases
from gateway.store.erasure.certificates import told_of
from gateway.store.erasure.erased_records import ErasedRecords, FoundRecords
from gateway.store.erasure.folder_erasures import FolderErasures
from gateway.store.erasure.folder_reports import FolderReport, row_of
from gateway.store.erasure.outstanding import Reach
from gateway.store.erasure.reach import ErasureReach
from gateway.store.evidence.integration import Integration
from gateway.store.schema.custody import erasure_cases
from gateway.types import AuditRecord


pytestmark = pytest.mark.anyio


class House:
    """One database, and audit folders by the names of their workers."""

    def __init__(self, database: Database, folder: Path, clock: StoppedClock) -> None:
        self.database, self.folder, self.clock = database, folder, clock
        self.log = MemoryAuditLog()
        self.custody = Custody(database, self.log, clock)
        self.cases = ErasureCases(database, self.custody, clock)
        self.settings = load_settings(folder / "gatewright.toml")
        self.master = master_key(self.settings)

    def erasures(self, worker: str, where: str = "") -> FolderErasures:
        audit = msgspec.structs.replace(
            self.settings.audit, worker=worker, directory=str(self.at(where or worker))
        )
        audit = msgspec.structs.replace(
            audit, checkpoint_directory=str(self.folder / f"{where or worker}-checkpoints")
        )
        settings = msgspec.structs.replace(self.settings, audit=audit)
        self.at(where or worker, worker).mkdir(parents=True, exist_ok=True)
        parts = Integration(settings, self.database, self.clock, self.master)
        return FolderErasures(settings, parts, self.master, self.log, self.clock, worker=worker)

    def at(self, *names: str) -> Path:
        return self.folder.joinpath(*names)

    def key(self, subject: str, *names: str, late_us: int = 0) -> str:
        """A key of somebody's content in a folder, dated by a clock that is ahead by so much."""
        line = WrappedKey(
            key=secrets.token_hex(8),
            organisation="acme",
            day=20_000,
            master=self.master.key_id,
            wrapped=b"",
            created_us=self.clock.utc_us() + late_us,
            subject=subject,
        )
        wrapped = self.master.wrap(secrets.token_bytes(32), line.aad())
        raw = msgspec.json.encode(msgspec.structs.replace(line, wrapped=wrapped))
        self.at(*names).mkdir(parents=True, exist_ok=True)
        with (self.at(*names) / KEYS_NAME).open("ab") as file:
            file.write(b"\n" + raw + b"\n")
        return line.key

    def subjects(self, name: str) -> list[str]:
        return sorted(key.subject for key in matching_keys(self.at(name), "acme", None))

    async def agreed(self, *awaited: str, subject: str = "ann") -> ErasureCase:
        """A case that was carried out in another folder, and waits for these workers."""
        case = await self.cases.open("cora", "acme", subject, "gdpr", "T-1")
        await self.cases.ask("cora", case, {})
        case = await self.cases.found(case.id)
        claimed_us = await self.cases.claim(case)
        report = FolderReport(case.id, "0" * 16, ("zero",), "zero", (), done_us=1)
        said: dict[str, Any] = {"keys_destroyed": [], "all_looked_at": True, "proofs": []}
        said |= {"keys": [], "checkpoint": ""}
        return await self.cases.close(
            case,
            claimed_us,
            row_of(report),
            closed_by="dan",
            keys=0,
            certificate=msgspec.json.encode(said).decode(),
            awaited=msgspec.json.encode(awaited).decode(),
        )

    async def reach(self, case: ErasureCase) -> Reach:
        found = await self.cases.found(case.id)
        return (await ErasureReach(self.database, self.clock).of([found]))[case.id]

    async def told(self, case: ErasureCase) -> dict[str, Any]:
        return told_of(await self.cases.found(case.id), await self.reach(case))


@pytest.fixture
async def house(database_url: str, tmp_path: Path) -> AsyncIterator[House]:
    await prepare(tmp_path)
    database, clock = open_database(database_url), StoppedClock()
    clock.jump(20_000 * DAY_US / 1e6 - clock.utc_us() / 1e6)
    made = House(database, tmp_path, clock)
    await made.log.start()
    yield made
    await database.close()


async def test_many_old_cases_take_few_transactions_at_the_first_start(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.key("ann", "one", "one")
    old = await house.agreed("one", subject="nobody")
    values = {
        name: getattr(old, name) for name in ErasureCase.__struct_fields__ if name != "copies"
    }
    values |= {"closed_revision": 0, "awaited": ""}
    many = [values | {"id": f"{number:012x}"} for number in range(300)]
    async with house.database.writing() as connection:
        await connection.execute(insert(erasure_cases), many)
    counts = {"reading": 0, "writing": 0}

    def counted(name: str) -> Callable[..., Any]:
        usual = getattr(Database, name)

        @asynccontextmanager
        async def opened(self: Database, *given: Any, **more: Any) -> AsyncIterator[Any]:
            counts[name] += 1
            async with usual(self, *given, **more) as connection:
                yield connection

        return opened

    for name in counts:
        monkeypatch.setattr(Database, name, counted(name))
    await house.erasures("one").catch_up()
    assert sum(counts.values()) < 40, counts
    assert (await house.reach(await house.cases.found(many[7]["id"]))).is_complete


async def test_a_hold_that_is_set_while_records_are_looked_at_binds(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.key("ann", "one", "one")
    case = await house.agreed("one")

    async def rows(*_: object) -> FoundRecords:
        await house.custody.set_hold("eve", "acme", "ann", "a court order")
        return FoundRecords([], 0)

    monkeypatch.setattr(ErasedRecords, "rows", rows)
    await house.erasures("one").tend()
    assert house.subjects("one") == ["ann"]
    assert [each.why for each in (await house.reach(case)).outstanding] == ["held"]


async def test_a_log_that_is_not_sound_holds_up_no_report_and_no_other_case(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    for subject in ("ann", "bob"):
        house.key(subject, "one", "one")
    cases = [await house.agreed("one", subject=each) for each in ("ann", "bob")]

    async def checked(*_: object) -> dict[str, Any]:
        raise TreeDamaged("on purpose")

    monkeypatch.setattr(ErasedRecords, "checked", checked)
    await house.erasures("one").catch_up()
    assert house.subjects("one") == []
    for case in cases:
        said = await house.told(case)
        assert (said["complete"], said["all_looked_at"]) == (True, False)


async def test_keys_that_come_into_a_folder_after_its_report_go_too(house: House) -> None:
    house.key("ann", "one", "one")
    erasures = house.erasures("one")
    case = await house.agreed("one", "two")
    await erasures.tend()
    assert (await house.reach(case)).workers_outstanding == ("two",)
    # What lay on another disk is copied here, as somebody does who takes a machine away.
    house.key("ann", "one", "two")
    house.key("bob", "one", "two")
    assert not (await house.reach(case)).is_complete
    house.clock.advance(5 * 3600)
    house.key("ann", "one", "one")
    await erasures.tend()
    assert house.subjects("one") == ["ann", "bob"], "hers of after the case, and bob's"
    assert (await house.reach(case)).is_complete
    assert (await house.cases.found(case.id)).keys == 2
    assert len((await house.told(case))["keys_destroyed"]) == 2


async def test_segments_that_come_into_an_empty_folder_are_asked_about_older_cases(
    house: House,
) -> None:
    case = await house.agreed("two")
    erasures = house.erasures("one")
    await erasures.tend()
    house.key("ann", "one", "two")
    await erasures.tend()
    assert house.subjects("one") == []
    assert (await house.reach(case)).is_complete


async def test_what_a_backup_brings_back_goes_again_also_without_the_list(house: House) -> None:
    house.key("ann", "one", "one")
    house.key("bob", "one", "one")
    folder_mark(house.at("one"), Disk())
    shutil.copytree(house.at("one"), house.at("backup"))
    await house.agreed("one")
    await house.erasures("one").tend()
    house.clock.advance(5 * 3600)
    shutil.rmtree(house.at("one"))
    shutil.rmtree(house.at("one-checkpoints"))
    shutil.copytree(house.at("backup"), house.at("one"))
    house.key("ann", "one", "one")
    assert house.subjects("one") == ["ann", "ann", "bob"]
    await house.erasures("one").catch_up()
    assert house.subjects("one") == ["ann", "bob"], "what was made since stays"


@pytest.mark.parametrize("is_away", [False, True])
async def test_two_folders_with_one_mark_get_two(house: House, is_away: bool) -> None:
    house.key("ann", "one", "one")
    one = house.erasures("one")
    await one.tend()
    shutil.copytree(house.at("one"), house.at("copy"))
    copy = house.erasures("two", "copy")
    await copy.tend()
    if is_away:
        one = house.erasures("one")
    for _ in range(2):
        await one.tend()
        await copy.tend()
    marks = {folder_mark(house.at(each), Disk()) for each in ("one", "copy")}
    assert len(marks) == 2
    house.key("ann", "copy", "two")
    case = await house.agreed("one", "two")
    await copy.tend()
    assert house.subjects("copy") == []
    assert not (await house.reach(case)).is_complete
    await one.tend()
    assert house.subjects("one") == []
    assert (await house.reach(case)).is_complete


async def test_workers_who_join_a_folder_leave_its_mark(house: House) -> None:
    one, two = house.erasures("one", "both"), house.erasures("two", "both")
    await one.tend()
    mark = folder_mark(house.at("both"), Disk())
    for each in (two, one, two, house.erasures("three", "both"), one, two):
        await each.tend()
    assert folder_mark(house.at("both"), Disk()) == mark


async def test_a_clock_that_is_ahead_keeps_no_key_of_a_worker_that_lives(house: House) -> None:
    house.key("ann", "one", "one", late_us=2 * DAY_US)
    erasures = house.erasures("one")
    await erasures.tend()
    case = await house.agreed("one")
    await erasures.tend()
    assert house.subjects("one") == []
    assert (await house.reach(case)).reports[-1].younger == 0


async def test_keys_of_after_the_case_stay_in_a_folder_that_was_away(house: House) -> None:
    house.key("ann", "one", "one")
    case = await house.agreed("one")
    house.key("ann", "one", "one", late_us=2 * HOUR_US)
    await house.erasures("one").tend()
    assert house.subjects("one") == ["ann"]
    assert (await house.reach(case)).reports[-1].younger == 1


async def test_the_folder_that_fails_says_so_itself(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.key("ann", "one", "one")
    erasures = house.erasures("one")
    await erasures.tend()
    await house.agreed("one")
    house.clock.advance(60)

    def fails(*_: object) -> None:
        raise OSError("broken on purpose")

    monkeypatch.setattr(folder_erasures, "destroy_ids", fails)
    with pytest.raises(OSError, match="on purpose"):
        await erasures.tend()
    assert erasures.outstanding_s() == 60


async def test_damaged_lines_of_every_folder_stand_in_the_certificate(house: House) -> None:
    house.key("ann", "one", "one")
    with (house.at("one", "one") / KEYS_NAME).open("ab") as file:
        file.write(b'\n{"key":"damaged"}\n')
    case = await house.agreed("one")
    await house.erasures("one").tend()
    assert (await house.told(case))["key_lines_damaged"] == 1


@pytest.mark.parametrize("what", ["disk", KEYS_NAME, MARK_NAME])
async def test_what_keeps_a_folder_from_it_stands_in_the_case_until_it_is_done(
    house: House, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    house.key("ann", "one", "one")
    erasures = house.erasures("one")
    await erasures.tend()
    case, others = await house.agreed("one"), await house.agreed("one", subject="nobody")
    unread, away = house.at("one", *(["one"] if what == KEYS_NAME else []), what), house.at("away")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        if what == "disk":
            patched.setattr(folder_erasures, "destroy_ids", full)
        else:
            unread.rename(away)
            unread.mkdir()
        with pytest.raises(OSError):  # noqa: PT011 - which one the case has to say
            await erasures.tend()
    (left,) = (await house.reach(case)).outstanding
    said = "No space left on device" if what == "disk" else "Is a directory"
    assert (left.why, left.failure) == ("failed", said)
    assert f"cannot be carried out: {said}" in left.said
    (told,) = (await house.told(case))["folders_outstanding"]
    assert (told["why"], told["failure"]) == ("failed", said)
    if what != "disk":
        unread.rmdir()
        away.rename(unread)
    await erasures.tend(at_once=True)
    assert house.subjects("one") == []
    assert (await house.told(case))["folders_outstanding"] == []
    assert (await house.reach(others)).is_complete
    deeds = [each for each in await records(house) if each.detail.get("case") == others.id]
    assert deeds == [], "nothing of it lay there, and nothing was begun"


async def records(house: House) -> list[AuditRecord]:
    return [each for each in house.log.records if each.action == "content.erased"]


async def test_a_folder_that_fails_rests_between_its_tries_and_not_before_a_new_case(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.key("ann", "one", "one")
    erasures = house.erasures("one")
    await erasures.tend()
    tries = 0

    def fails(*_: object) -> None:
        nonlocal tries
        tries += 1
        raise OSError("broken on purpose")

    async def tends(over_s: int, every_s: int = 10) -> int:
        """As a worker does whom every change wakes; how often it tried."""
        before = tries
        for _ in range(over_s // every_s):
            with suppress(OSError):
                await erasures.tend()
            house.clock.advance(every_s)
        return tries - before

    await house.agreed("one")
    with monkeypatch.context() as patched:
        patched.setattr(folder_erasures, "destroy_ids", fails)
        assert [await tends(60 * 2**turn) for turn in range(4)] == [1, 1, 1, 1]
        assert len(await records(house)) == 2 * tries
        await house.agreed("one")
        assert await tends(20) == 1
        assert await tends(3 * 3600, every_s=90) <= 12
    await erasures.tend(at_once=True)
    assert house.subjects("one") == []


async def test_who_is_told_to_end_while_keys_go_does_not_say_that_they_stayed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.key("ann", "one", "one")
    case = await house.agreed("one")
    begun, may_end = threading.Event(), threading.Event()

    class SlowDisk(Disk):
        def replace(self, *given: Any) -> None:
            begun.set()
            assert may_end.wait(60)
            super().replace(*given)

    monkeypatch.setattr(folder_erasures, "Disk", SlowDisk)
    tending = asyncio.create_task(house.erasures("one").tend())
    assert await asyncio.to_thread(begun.wait, 60)
    tending.cancel()
    await asyncio.wait([tending], timeout=0.1)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await tending
    assert house.subjects("one") == []
    assert [each.error for each in await records(house)] == [""]
    assert (await house.reach(case)).is_complete
