"""A database that lost its last seconds under two machines, of which one knows what was signed."""

import re
import sqlite3
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import encode
from msgspec.structs import replace
from sqlalchemy import event, func, select
from sqlalchemy.engine import make_url

from gateway.audit.disk import Disk
from gateway.audit.proving.exported import CheckpointFiles, SignedCheckpoint
from gateway.audit.proving.file_ends import lines_from_end
from gateway.audit.proving.integrator import LogPutBack
from gateway.audit.proving.kept_still import KeptStill, Moment
from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import StoppedClock
from gateway.configuration.settings import AuditSettings, Settings
from gateway.errors import NotReady
from gateway.oversight.workers import WorkerReport
from gateway.store.engine import Database, open_database
from gateway.store.evidence.awaited import AwaitedTable
from gateway.store.evidence.integration import Integration
from gateway.store.evidence.older_database import OlderDatabase
from gateway.store.evidence.recovery import Recovery
from gateway.store.evidence.tree import DatabaseAuditTrees
from gateway.store.schema.audit import audit_checkpoints
from gateway.store.workers import WorkerTable
from tests.gateway.audit.samples import KEYS, journeys, running


pytestmark = pytest.mark.anyio
PERIOD_S = 30.0


class TwoMachines:
    """One writes and the other signs; nothing of their disks is shared."""

    def __init__(self, folder: Path, url: str, database: Database) -> None:
        self.folder, self._database = folder, database
        self._file = Path(make_url(url).database or "")
        self.clock = StoppedClock()
        self.writes, self.signs = map(self.machine, ("writes", "signs"))
        self._began_us = self.clock.utc_us()

    def machine(self, name: str, log: SegmentedAuditLog | None = None) -> Integration:
        audit = AuditSettings(
            directory=f"{name}/audit", checkpoint_directory=f"{name}/checkpoints", worker=name
        )
        settings = Settings(source="a test", folder=str(self.folder), audit=audit)
        return Integration(settings, self._database, self.clock, KEYS, log)

    async def write(self, first: int) -> None:
        """Two requests, projected; both workers say that they live."""
        async with running(self.folder / "writes" / "audit", "writes", clock=self.clock) as log:
            await journeys(log, first, 2)
        await self.writes.project()
        await self.live()

    async def live(self) -> None:
        for name in ("writes", "signs"):
            report = WorkerReport(name, self.clock.utc_us(), started_us=self._began_us)
            await WorkerTable(self._database).put(report)

    async def sign(self, machine: Integration) -> None:
        self.clock.advance(PERIOD_S + 1.0)
        await machine.sign()

    def copy(self, *, to_standby: bool) -> None:
        """All that is in the database, or what the standby had of it; connections stay open."""
        files = [self._file, self._file.with_name("standby.db")]
        source, target = files if to_standby else reversed(files)
        with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
            one.backup(other)

    async def size(self) -> int:
        return (await DatabaseAuditTrees(self._database).trees())["acme"].size

    async def awaited(self) -> tuple[str, ...]:
        return (await AwaitedTable(self._database).now()).untold


@pytest.fixture
async def machines(tmp_path: Path, sqlite_url: str) -> AsyncIterator[TwoMachines]:
    database = open_database(sqlite_url)
    yield TwoMachines(tmp_path, sqlite_url, database)
    await database.close()


async def test_who_signed_what_a_failover_lost_notices_it_though_all_is_numbered_alike_again(
    machines: TwoMachines,
) -> None:
    await machines.signs.project()
    await machines.write(1)
    await machines.sign(machines.signs)
    machines.copy(to_standby=True)
    await machines.write(4)
    await machines.sign(machines.signs)
    size = await machines.size()
    machines.copy(to_standby=False)
    await machines.write(7)
    assert await machines.size() == size + 4
    assert not machines.writes.put_back

    for _ in range(2):
        with pytest.raises(LogPutBack, match="lacks a checkpoint of acme"):
            await machines.sign(machines.signs)
        assert "was put back" in machines.signs.put_back
        assert await machines.awaited() == ("signs", "writes")
    # Nor does it sign as the last thing before its end, or for who asks for a proof.
    with pytest.raises(LogPutBack):
        await machines.signs.checkpoint_of("acme", size + 4)
    await machines.signs.drain()
    assert machines.signs.files.newest_of_all()["acme"].size == size


async def test_what_others_sign_after_it_hides_no_checkpoint_that_was_lost(
    machines: TwoMachines,
) -> None:
    await machines.write(1)
    await machines.sign(machines.signs)
    machines.copy(to_standby=True)
    await machines.sign(machines.signs)
    machines.copy(to_standby=False)
    await machines.sign(machines.writes)
    with pytest.raises(LogPutBack):
        await machines.sign(machines.signs)


async def test_who_came_since_is_awaited_as_soon_as_he_notices(machines: TwoMachines) -> None:
    """The database knows nothing of him: a start elsewhere would take his records for lost."""
    machines.copy(to_standby=True)
    async with running(machines.folder / "writes" / "audit", "writes", clock=machines.clock) as log:
        worker = machines.machine("writes", log)
        await journeys(log, 1, 2)
        await worker.project()
        await machines.sign(worker)
        machines.copy(to_standby=False)
        with pytest.raises(LogPutBack):
            await machines.sign(worker)

    assert await machines.awaited() == ("writes",)


async def test_who_signed_nothing_that_is_lost_goes_on(machines: TwoMachines) -> None:
    await machines.write(1)
    await machines.sign(machines.signs)
    machines.copy(to_standby=True)
    await machines.write(4)
    machines.copy(to_standby=False)
    await machines.write(7)
    for machine in (machines.signs, machines.writes, machines.signs):
        await machines.sign(machine)
        assert not machine.put_back
    assert await machines.awaited() == ()


async def test_a_checkpoint_is_asked_for_until_a_later_one_of_its_log_was_there_too() -> None:
    """Whoever looks, signs and exports may do so on both sides of a failover."""
    kept = {("acme", 1), ("acme", 2)}
    asked = list[set[Moment]]()

    async def lacking(moments: Collection[Moment]) -> set[Moment]:
        asked.append({*moments})
        return {*moments} - kept

    still = KeptStill(lacking)
    lines = [("acme", 1), ("acme", 2)]
    assert await still.lost(lines, [("acme", 2)]) == []
    assert await still.lost(lines, [("acme", 2)]) == []
    assert asked == [{("acme", 1)}]
    kept -= {("acme", 2)}  # Lost after it was looked for, and the next one is signed and exported.
    kept |= {("acme", 3)}
    for _ in range(2):
        assert await still.lost([*lines, ("acme", 3)], [("acme", 3)]) == [("acme", 2)]
    assert asked[1:] == [{("acme", 2)}] * 2


async def test_what_is_asked_of_a_year_of_checkpoints_is_looked_up_in_their_index(
    database: Database,
) -> None:
    """Every few seconds; a list of pairs made SQLite read all of a table that only grows."""
    asked = list[tuple[str, Any]]()

    def note(_: object, __: object, statement: str, values: Any, *___: object) -> None:
        if "audit_checkpoints" in statement:
            asked.append((statement, values))

    row = {"organisation": "acme", "size": 1, "root": bytes(32), "note": "", "signed_us": 3}
    async with database.writing() as connection:
        await connection.execute(audit_checkpoints.insert(), [row])
    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    moments = {(name, at) for name in ("acme", "globex") for at in range(1, 400)}
    lacking = await DatabaseAuditTrees(database).lacking(moments)
    event.remove(database.engine.sync_engine, "before_cursor_execute", note)
    assert lacking == moments - {("acme", 3)}
    assert len(asked) == 2
    plan = "EXPLAIN QUERY PLAN" if database.kind == "sqlite" else "EXPLAIN"
    for statement, values in asked:
        async with database.reading() as connection:
            if database.kind == "postgresql":
                await connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
            said = str((await connection.exec_driver_sql(f"{plan} {statement}", values)).all())
        assert "SCAN audit_checkpoints" not in said
        assert re.search(r"organisation ?= ?.*signed_us ?= ?", said)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.postgres
async def test_a_server_that_follows_another_is_not_asked_what_was_lost(
    database_url: str, database: Database
) -> None:
    """After a failover the old one may come back behind: it gets what it lacks in a moment."""
    name = database.url.database
    async with database.writing() as connection:
        await connection.exec_driver_sql(
            f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'
        )
        row = {"organisation": "acme", "size": 1, "root": bytes(32), "note": "", "signed_us": 3}
        await connection.execute(audit_checkpoints.insert(), [row])
    follows = open_database(database_url)
    trees = DatabaseAuditTrees(follows)
    assert await trees.lacking({("acme", 3)}) == set()
    with pytest.raises(NotReady, match="takes no writes"):
        await trees.lacking({("acme", 3), ("acme", 4)})
    await follows.close()


async def test_a_start_finds_all_that_was_lost_and_brings_it_back(
    machines: TwoMachines, tmp_path: Path
) -> None:
    """A day's checkpoints are no ten; what was lost and given up before stays as it is."""
    database, clock = machines.signs.database, machines.clock
    files = CheckpointFiles(tmp_path / "many", Disk())
    await machines.write(1)
    await machines.sign(machines.signs)
    (known,) = await DatabaseAuditTrees(database).latest("acme", 1)
    given_up = _of(known, range(-40, -20))
    kept, lost = _of(known, range(-20, 0)), _of(known, range(1, 2_000))
    for each in (*given_up, *kept, known):
        files.append(each)
    async with database.writing() as connection:
        rows = [{name: getattr(each, name) for name in each.__struct_fields__} for each in kept]
        await connection.execute(audit_checkpoints.insert(), rows)
    text = b"".join(b"\n" + encode(each) + b"\n" for each in lost)
    with (files.directory / "acme.jsonl").open("ab") as file:
        file.write(text)

    older = OlderDatabase(database, files, clock)
    found = await older.found()
    assert found is not None
    assert (found.lacks, found.last_us) == (lost[0], lost[-1].signed_us)
    pieces = [piece async for piece in older.lost()]
    assert sorted(each.signed_us for piece in pieces for each in piece) == [
        each.signed_us for each in lost
    ]
    assert len(pieces) > 2
    recovery = Recovery(database, older, files, clock, tmp_path)
    await recovery.keep_signed()
    assert await older.found() is None
    counted = select(func.count()).select_from(audit_checkpoints)
    async with database.reading() as connection:
        mine = counted.where(audit_checkpoints.c.organisation == "acme")
        assert (await connection.execute(mine)).scalar_one() == len(kept) + 1 + len(lost)


def _of(known: SignedCheckpoint, numbers: Iterable[int]) -> list[SignedCheckpoint]:
    """The same, signed so many half minutes later."""
    later = [known.signed_us + number * 30_000_000 for number in numbers]
    return [replace(known, signed_us=signed_us) for signed_us in later]


def test_a_file_is_read_from_its_end_in_whole_lines_of_it(tmp_path: Path) -> None:
    lines = [b"%d" % number * (number % 7) for number in range(400)]
    path = tmp_path / "lines"
    path.write_bytes(b"\n".join(lines) + b"\n")
    for first, then in ((1, 1), (10, 3), (64, 1_000), (5_000, 7)):
        pieces = [*lines_from_end(path, first, then)]
        assert [each for piece in reversed(pieces) for each in piece] == [*filter(None, lines)]
    path.write_bytes(b"")
    assert [*lines_from_end(path, 10, 10)] == []
