"""Retention in one audit folder by itself: once a day, and only where nothing is in doubt."""

import asyncio
import errno
import os
import secrets
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import delete, insert

from gateway.audit.content_keys.erasure import matching_keys
from gateway.audit.content_keys.keys import KEYS_NAME, WrappedKey
from gateway.audit.disk import Disk
from gateway.audit.memory import MemoryAuditLog
from gateway.audit.projecting.projection import RETIRED
from gateway.audit.proving.exported import CheckpointFiles, SignedCheckpoint
from gateway.cli.init import prepare
from gateway.clock import DAY_US, StoppedClock, SystemClock
from gateway.configuration.reading import load_settings
from gateway.errors import AuditUnavailable, NotReady
from gateway.oversight.deeds import Deeds
from gateway.secrets.credentials import master_key
from gateway.store.custody.orders import Custody
from gateway.store.engine import Database, open_database
from gateway.store.evidence import second_rows
from gateway.store.evidence.awaited import AwaitedTable
from gateway.store.retention import keeping, retaining
from gateway.store.retention.folder_retention import FolderRetention
from gateway.store.retention.reports import FolderRetentionStanding, RetentionReports
from gateway.store.retention.words import RetentionDoubted
from gateway.store.schema.audit import (
    audit_checkpoints,
    audit_positions,
    audit_second_keys,
    audit_sequences,
)
from gateway.store.schema.custody import audit_folders


pytestmark = pytest.mark.anyio
TODAY = 20_100
WRITTEN = '[retention]\nrun = "daily"\n'
"""What `gatewright init` writes."""
CLASSES = """
[retention]
run = "{run}"
default = "brief"
classes = {{ brief = {days}, long = 300, ever = 0 }}
organisations = {{ globex = "long", initech = "ever" }}
"""


class House:
    """One database, and audit folders by the names of their workers."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database, self.folder = database, folder
        self.clock = StoppedClock(TODAY * DAY_US + 1)
        self.log = MemoryAuditLog()
        self.custody = Custody(database, self.log, self.clock)
        self.file = folder / "gatewright.toml"
        self.plain = self.file.read_text().replace(WRITTEN, "")
        self.says("daily")
        self.master = master_key(load_settings(self.file))

    def says(self, run: str, days: int = 30) -> None:
        """What stands in the settings' file."""
        self.file.write_text(self.plain + CLASSES.format(run=run, days=days))

    def retention(
        self, worker: str, where: str = "", clock: StoppedClock | None = None
    ) -> FolderRetention:
        settings = load_settings(self.file)
        folder = str(self.folder / (where or worker))
        audit = msgspec.structs.replace(
            settings.audit, worker=worker, directory=folder, checkpoint_directory=folder + "-lists"
        )
        settings = msgspec.structs.replace(settings, audit=audit)
        (self.folder / (where or worker) / worker).mkdir(parents=True, exist_ok=True)
        clock = clock or self.clock
        return FolderRetention(settings, self.database, self.log, clock, worker=worker)

    def line(self, organisation: str, subject: str, days_ago: int) -> WrappedKey:
        day = TODAY - days_ago
        line = WrappedKey(
            key=secrets.token_hex(8),
            organisation=organisation,
            day=day,
            master=self.master.key_id,
            wrapped=b"",
            created_us=day * DAY_US,
            subject=subject,
        )
        wrapped = self.master.wrap(secrets.token_bytes(32), line.aad())
        return msgspec.structs.replace(line, wrapped=wrapped)

    def keys(self, worker: str, *keys: tuple[str, str, int], where: str = "") -> None:
        """Keys in a folder: whose content they seal, and how many days ago."""
        folder = self.folder / (where or worker) / worker
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / KEYS_NAME).open("ab") as file:
            for key in keys:
                file.write(b"\n" + msgspec.json.encode(self.line(*key)) + b"\n")

    def left(self, where: str, organisation: str = "acme") -> list[str]:
        found = matching_keys(self.folder / where, organisation, None)
        return [f"{key.subject} {TODAY - key.day}" for key in found]

    async def signed(self, organisation: str, *days_ago: int) -> None:
        """Its log is there, and was signed so many days ago."""
        row = {"organisation": organisation, "size": 1, "root": b"", "note": ""}
        rows = [row | {"signed_us": (TODAY - each) * DAY_US} for each in days_ago]
        tree = {"organisation": organisation, "next_sequence": 1, "open_tiles": b""}
        async with self.database.writing() as connection:
            await connection.execute(insert(audit_sequences).values(tree))
            if rows:
                await connection.execute(insert(audit_checkpoints), rows)

    async def retired(self) -> list[dict[str, str]]:
        records = [each for each in self.log.records if each.action == "content.retired"]
        assert {each.actor for each in records} <= {"gateway"}
        return [dict(each.detail) | {"error": each.error} for each in records]

    async def stands(self, organisation: str = "acme") -> list[FolderRetentionStanding]:
        _, days = keeping.retention_of(load_settings(self.file), organisation)
        return list(await RetentionReports(self.database).of(organisation, days))


@pytest.fixture
async def house(database_url: str, tmp_path: Path) -> AsyncIterator[House]:
    await prepare(tmp_path)
    database = open_database(database_url)
    made = House(database, tmp_path)
    await made.log.start()
    yield made
    await database.close()


async def test_once_a_day_each_organisation_loses_what_is_past_its_own_class(house: House) -> None:
    for name in ("acme", "globex", "initech"):
        await house.signed(name, 0, 1, 2, 3)
    for days_ago in (301, 31, 30):
        house.keys("one", *((name, "ann", days_ago) for name in ("acme", "globex", "initech")))
    await house.signed("umbra", 0, 1, 2, 3)
    retention = house.retention("one")
    assert retention.overdue_s() == 0, "nobody has looked yet"
    await retention.tend()
    assert [house.left("one", name) for name in ("acme", "globex", "initech")] == [
        ["ann 30"],
        ["ann 31", "ann 30"],
        ["ann 301", "ann 31", "ann 30"],
    ]
    told = await house.retired()
    assert [(each["organisation"], each["class"], each["keys"]) for each in told] == [
        *(("acme", "brief", "2"), ("globex", "long", "1")),
    ]
    (standing,) = await house.stands()
    report = standing.report
    assert (standing.workers, report.gone, report.due, report.over_day) == (
        ("one",),
        2,
        0,
        TODAY + 1,
    )
    assert retention.overdue_s() == 0

    house.keys("one", ("acme", "bob", 31))
    await retention.tend()
    assert house.left("one") == ["ann 30", "bob 31"], "it was looked at today"
    house.clock.advance(86_400)
    await retention.tend()
    assert house.left("one") == [], "their day is over as well"
    (standing,) = await house.stands()
    assert (standing.report.gone, standing.report.over_day) == (2, 0)
    house.clock.advance(86_400)
    await retention.tend()
    (standing,) = await house.stands()
    assert standing.report.gone == 2, "when some last went is still told"
    assert standing.report.gone_us == (TODAY + 1) * DAY_US + 1
    assert len(await house.retired()) == 3


async def test_where_it_is_typed_nothing_goes_and_everybody_hears_what_is_late(
    house: House,
) -> None:
    house.says("typed")
    await house.signed("acme", 0, 1, 2, 3)
    house.keys("one", ("acme", "ann", 33), ("acme", "ann", 1))
    house.keys("two", ("acme", "ann", 5))
    one, two = house.retention("one"), house.retention("two")
    await one.tend()
    await two.tend()
    assert house.left("one") == ["ann 33", "ann 1"]
    assert await house.retired() == []
    late, in_time = await house.stands()
    assert (late.workers, late.report.due, late.report.over_day) == (("one",), 1, TODAY - 2)
    assert (in_time.report.due, in_time.report.over_day) == (0, TODAY + 26)
    assert [round(each.overdue_s()) for each in (one, two)] == [2 * 86_400] * 2


async def test_a_folder_whose_worker_is_down_is_late_once_its_keys_are_old(house: House) -> None:
    await house.signed("acme", 0, 1, 2, 3)
    house.keys("one", ("acme", "ann", 28))
    one, two = house.retention("one"), house.retention("two")
    await one.tend()
    await two.tend()
    assert two.overdue_s() == 0
    house.clock.advance(5 * 86_400)
    await two.tend()
    assert round(two.overdue_s()) == 2 * 86_400
    async with house.database.writing() as connection:
        row = {"worker": "one", "segment": RETIRED[0], "offset_bytes": RETIRED[1]}
        await connection.execute(insert(audit_positions).values(row))
    await two.tend()
    assert two.overdue_s() == 0, "its name is retired: nobody waits for its disk"
    (standing,) = await house.stands()
    assert standing.is_lost


async def test_a_mark_that_no_folder_has_any_more_is_not_late(house: House) -> None:
    house.says("typed")
    await house.signed("acme", 0, 1, 2, 3)
    house.keys("one", ("acme", "ann", 40))
    one = house.retention("one")
    await one.tend()
    assert one.overdue_s() > 0
    async with house.database.writing() as connection:
        await connection.execute(delete(audit_folders))
    await one.tend()
    assert (one.overdue_s(), await house.stands()) == (0, [])


@pytest.mark.parametrize("run", ["daily", "typed"])
async def test_without_a_limit_it_does_nothing_at_all(
    house: House, monkeypatch: pytest.MonkeyPatch, run: str
) -> None:
    house.file.write_text(house.plain + f'[retention]\nrun = "{run}"\n')
    monkeypatch.setattr(FolderRetention, "_tend_today", None)
    monkeypatch.setattr(RetentionReports, "over_day", None)
    await house.retention("one").tend()


@pytest.mark.parametrize("doubt", ["another class", "typed again", "no file", "no toml"])
async def test_settings_that_changed_since_the_start_destroy_nothing(
    house: House, doubt: str
) -> None:
    await house.signed("acme", 0, 1, 2, 3)
    house.keys("one", ("acme", "ann", 40))
    retention = house.retention("one")
    match doubt:
        case "another class":
            house.says("daily", 365)
        case "typed again":
            house.says("typed")
        case "no file":
            house.file.unlink()
        case _:
            house.file.write_text("[retention")
    for _ in range(2):
        with pytest.raises(RetentionDoubted, match="so nothing is destroyed"):
            await retention.tend()
    assert house.left("one") == ["ann 40"]
    house.says("daily")
    await retention.tend()
    assert house.left("one") == [], "it asks again within the day"


async def test_a_clock_ahead_of_the_databases_destroys_nothing_however_the_log_was_signed(
    house: House,
) -> None:
    ahead = StoppedClock(SystemClock().utc_us() + 90 * 60 * 1_000_000)
    days_ahead = ahead.utc_us() // DAY_US - TODAY
    await house.signed("acme", *(-days_ahead + each for each in range(4)))
    house.keys("one", ("acme", "ann", 40))
    retention = house.retention("one", clock=ahead)
    with pytest.raises(RetentionDoubted, match="clock is ahead of the database's"):
        await retention.tend()
    assert house.left("one") == ["ann 40"]
    ahead.jump(-3600)
    await retention.tend()
    assert house.left("one") == []


async def test_a_date_that_the_log_does_not_bear_out_destroys_nothing(house: House) -> None:
    await house.signed("acme", 0, 2, 3, 70)
    house.keys("one", ("acme", "ann", 40))
    retention = house.retention("one")
    await retention.tend()
    assert (house.left("one"), await house.retired()) == (["ann 40"], [])
    (standing,) = await house.stands()
    assert (standing.report.unsure, standing.report.due) == (1, 0)
    assert round(retention.overdue_s()) == 9 * 86_400


async def test_a_hold_stays_and_makes_nothing_late(house: House) -> None:
    await house.signed("acme", 0, 1, 2, 3)
    house.keys("one", ("acme", "ann", 40), ("acme", "bob", 40))
    hold = await house.custody.set_hold("cora", "acme", "ann", "a lawsuit")
    retention = house.retention("one")
    await retention.tend()
    assert (house.left("one"), retention.overdue_s()) == (["ann 40"], 0)
    (standing,) = await house.stands()
    assert (standing.report.held, standing.report.gone) == (1, 1)
    await house.custody.release_hold("cora", hold.id)
    await house.custody.release_hold("dan", hold.id)
    house.clock.advance(86_400)
    await retention.tend()
    assert house.left("one") == []


async def test_a_hold_that_is_set_before_keys_go_spares_those_that_it_covers(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was to go is on record by then: once more, as failed, and then what goes."""
    await house.signed("acme", 0, 1, 2, 3)
    house.keys("one", ("acme", "ann", 40), ("acme", "bob", 40))
    record = Deeds.record

    async def overtaken(*given: Any, **more: Any) -> Any:
        monkeypatch.setattr(Deeds, "record", record)
        written = await record(*given, **more)
        await house.custody.set_hold("leo", "acme", "ann", "a lawsuit")
        return written

    monkeypatch.setattr(Deeds, "record", overtaken)
    await house.retention("one").tend()
    assert house.left("one") == ["ann 40"]
    told = [(each.get("keys"), each["error"]) for each in await house.retired()]
    assert told == [("2", ""), (None, "held"), ("1", "")]
    (standing,) = await house.stands()
    assert (standing.report.held, standing.report.gone) == (1, 1)


async def test_two_workers_of_a_folder_take_turns_and_another_asks_again_within_the_day(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.signed("acme", 0, 1, 2, 3)
    house.keys("one", ("acme", "ann", 40), where="shared")
    house.keys("two", ("acme", "bob", 40), where="shared")
    one, two = house.retention("one", "shared"), house.retention("two", "shared")
    begun, may_end, destroy = asyncio.Event(), asyncio.Event(), keeping.destroy

    async def slowly(*given: Any) -> None:
        begun.set()
        await may_end.wait()
        await destroy(*given)

    with monkeypatch.context() as patched:
        patched.setattr(retaining, "destroy", slowly)
        first = asyncio.create_task(one.tend())
        await begun.wait()
        await two.tend()
        assert house.left("shared") == ["ann 40", "bob 40"]
        may_end.set()
        await first
    assert house.left("shared") == []
    (told,) = await house.retired()
    assert told["keys"] == "2"
    house.keys("two", ("acme", "cleo", 40), where="shared")
    await two.tend()
    assert house.left("shared") == [], "it was not its turn, so the day is not done"


async def test_who_comes_after_a_crash_destroys_what_was_recorded(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    class KilledDisk(Disk):
        def replace(self, *_: Any) -> None:
            raise Killed

    async def nothing(*_: object) -> None:
        """A killed process records nothing more."""

    await house.signed("acme", 0, 1, 2, 3)
    house.keys("one", ("acme", "ann", 40))
    with monkeypatch.context() as patched:
        patched.setattr("gateway.store.retention.keeping.Disk", KilledDisk)
        patched.setattr(retaining.Retention, "_failed", nothing)
        with pytest.raises(Killed):
            await house.retention("one").tend()
    assert house.left("one") == ["ann 40"]
    await house.retention("one").tend()
    assert house.left("one") == []
    assert [each["keys"] for each in await house.retired()] == ["1", "1"]


async def test_keys_that_the_database_took_go_too(house: House) -> None:
    await house.signed("acme", 0, 1, 2, 3)
    lines = [house.line("acme", "ann", days) for days in (40, 29)]
    async with house.database.writing() as connection:
        rows = [second_rows.line_of(each) for each in lines]
        await connection.execute(insert(audit_second_keys), rows)
    await house.retention("one").tend()
    left = await second_rows.SecondContents(house.database).matching_keys("acme", None)
    assert [each.key for each in left] == [lines[1].key]
    (standing,) = await house.stands()
    assert (standing.report.gone, standing.report.over_day) == (1, TODAY + 2)


async def test_many_organisations_lose_theirs_in_few_rewritings_of_a_key_file(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"o{number}" for number in range(retaining.TOGETHER + 1)]
    for name in names:
        await house.signed(name, 0, 1, 2, 3)
    for days_ago in (40, 2):
        house.keys("one", *((name, "ann", days_ago) for name in names))
    rewritten, destroy = list[int](), keeping.destroy

    async def counted(*given: Any) -> None:
        rewritten.append(len(given[2]))
        await destroy(*given)

    monkeypatch.setattr(retaining, "destroy", counted)
    await house.retention("one").tend()
    assert rewritten == [retaining.TOGETHER, 1]
    assert {len(house.left("one", name)) for name in names} == {1}


async def test_who_is_told_to_end_while_keys_go_says_of_none_that_it_stayed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.signed("acme", 0, 1, 2, 3)
    house.keys("one", ("acme", "ann", 40))
    begun, may_end = threading.Event(), threading.Event()

    class SlowDisk(Disk):
        def replace(self, *given: Any) -> None:
            begun.set()
            assert may_end.wait(60)
            super().replace(*given)

    monkeypatch.setattr("gateway.store.retention.keeping.Disk", SlowDisk)
    tending = asyncio.create_task(house.retention("one").tend())
    assert await asyncio.to_thread(begun.wait, 60)
    tending.cancel()
    await asyncio.wait([tending], timeout=0.1)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await tending
    assert house.left("one") == []
    assert [each["error"] for each in await house.retired()] == [""]


@pytest.mark.parametrize("fails", ["holds", "the second record"])
async def test_what_is_on_record_and_stays_is_on_record_as_failed(
    house: House, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    for name in ("acme", "umbra"):
        await house.signed(name, 0, 1, 2, 3)
    house.keys("one", ("acme", "ann", 40), ("umbra", "ann", 40))
    record, said = Deeds.record, 0

    async def refused(*given: Any, **more: Any) -> Any:
        nonlocal said
        said += 1
        if said == 2:
            raise AuditUnavailable("")
        return await record(*given, **more)

    async def silent(*_: Any) -> None:
        raise NotReady("")

    with monkeypatch.context() as patched:
        if fails == "holds":
            patched.setattr(retaining.Retention, "_spared", silent)
        else:
            patched.setattr(Deeds, "record", refused)
        with pytest.raises((AuditUnavailable, NotReady)):
            await house.retention("one").tend()
    told = [(each["organisation"], bool(each["error"])) for each in await house.retired()]
    begun = [name for name, is_failed in told if not is_failed]
    assert begun == [name for name, is_failed in told if is_failed]
    assert begun == (["acme", "umbra"] if fails == "holds" else ["acme"])
    assert (house.left("one"), house.left("one", "umbra")) == (["ann 40"], ["ann 40"])


async def test_what_went_wrong_is_told_where_the_log_has_no_room_for_it_either(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.signed("acme", 0, 1, 2, 3)
    house.keys("one", ("acme", "ann", 40))

    async def full(*_: Any) -> None:
        house.log.failing = True
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(retaining, "destroy", full)
    with pytest.raises(OSError, match="No space left"):
        await house.retention("one").tend()


async def test_what_came_after_the_first_look_of_a_day_is_looked_at_within_it(
    house: House,
) -> None:
    one = house.retention("one")
    await one.tend()
    await house.signed("acme", 0, 1, 2, 3)
    await one.tend()
    assert await house.stands() == [], "its log is there, and no key"
    house.keys("one", ("acme", "ann", 0))
    await one.tend()
    assert [each.report.over_day for each in await house.stands()] == [TODAY + 31]
    await house.signed("umbra", 0, 1, 2, 3)
    house.keys("one", ("umbra", "ann", 0))
    await one.tend()
    assert [each.report.over_day for each in await house.stands("umbra")] == [TODAY + 31]


@pytest.mark.parametrize("days", [10, 90])
async def test_a_folder_whose_worker_is_down_is_late_by_the_class_of_now(
    house: House, days: int
) -> None:
    await house.signed("acme", 0, 1, 2, 3)
    await house.signed("globex", 0, 1, 2, 3)
    house.says("typed")
    house.keys("one", ("acme", "ann", 40), ("globex", "ann", 20))
    await house.retention("one").tend()
    house.says("typed", days)
    two = house.retention("two")
    await two.tend()
    (standing,) = await house.stands()
    late_days = 29 if days == 10 else 0
    assert round(two.overdue_s() / 86_400) == late_days
    assert standing.report.overdue_us(house.clock.utc_us()) // DAY_US == late_days
    (standing,) = await house.stands("globex")
    assert standing.report.over_day == TODAY - 20 + 301


@pytest.mark.parametrize("fault", ["a lock that is none", "settings", "the log"])
async def test_where_nothing_can_be_destroyed_it_says_how_late_it_is(
    house: House, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    await house.signed("acme", 0, 1, 2, 3)
    house.keys("one", ("acme", "ann", 40))
    one = house.retention("one")
    match fault:
        case "a lock that is none":
            (house.folder / "one" / retaining.LOCK_NAME).mkdir()
        case "settings":
            house.says("daily", 31)
        case _:
            monkeypatch.setattr(house.log, "append", _refused)
    with pytest.raises((OSError, RetentionDoubted, AuditUnavailable)):
        await one.tend()
    assert house.left("one") == ["ann 40"]
    (standing,) = await house.stands()
    assert standing.report.due == 1
    assert round(one.overdue_s() / 86_400) == 9


async def _refused(*_: Any) -> None:
    raise AuditUnavailable("")


async def test_a_database_that_was_put_back_destroys_nothing_before_it_is_as_new_as_the_log(
    house: House,
) -> None:
    """Holds that were set since the backup are not in it."""
    await house.signed("acme", 0, 1, 2, 3)
    house.keys("one", ("acme", "ann", 40))
    one = house.retention("one")
    files = CheckpointFiles(house.folder / "one-lists", Disk())
    lost = SignedCheckpoint("acme", TODAY * DAY_US + 9, 5, b"r" * 32, "note")
    await asyncio.to_thread(files.append, lost)
    for _ in range(2):
        with pytest.raises(RetentionDoubted, match="was put back"):
            await one.tend()
    async with house.database.writing() as connection:
        row = {name: getattr(lost, name) for name in lost.__struct_fields__}
        await connection.execute(insert(audit_checkpoints), [row])
    awaited = AwaitedTable(house.database)
    await awaited.expect(["two"])
    with pytest.raises(RetentionDoubted, match="was put back"):
        await one.tend()
    assert house.left("one") == ["ann 40"]
    await awaited.finish()
    await one.tend()
    assert house.left("one") == []


async def test_a_key_in_the_database_that_a_clock_far_back_dated_stays(house: House) -> None:
    await house.signed("acme", 0, 1, 2, 3)
    async with house.database.writing() as connection:
        rows = [second_rows.line_of(house.line("acme", "ann", days)) for days in (TODAY, 40)]
        await connection.execute(insert(audit_second_keys), rows)
    await house.retention("one").tend()
    left = await second_rows.SecondContents(house.database).matching_keys("acme", None)
    assert [each.day for each in left] == [0]
    (standing,) = await house.stands()
    assert (standing.report.gone, standing.report.unsure) == (1, 1)
