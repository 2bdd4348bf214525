"""A start on a database that was put back: it waits until somebody decides what no log can say."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url
from structlog.testing import capture_logs

from gateway.audit.segments import segment_path
from gateway.clock import StoppedClock
from gateway.configuration.settings import AuditSettings, Settings
from gateway.errors import StartupRefused
from gateway.money.budgets import Limit
from gateway.oversight.deeds import OPERATORS, Deeds
from gateway.pacing import rhythm
from gateway.store.engine import Database, open_database
from gateway.store.evidence.awaited import AwaitedTable
from gateway.store.evidence.deeds_again import needs_decision
from gateway.store.evidence.integration import Integration
from gateway.store.money.leases import LeaseTable
from tests.gateway.audit.samples import KEYS, running


pytestmark = pytest.mark.anyio


class Installation:
    """One worker and a command line beside it."""

    def __init__(self, folder: Path, url: str) -> None:
        audit = AuditSettings(directory="audit", checkpoint_directory="checkpoints")
        self.settings = Settings(source="a test", folder=str(folder), audit=audit)
        self.folder, self._url = folder, url
        self.clock = StoppedClock()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[Database, Integration]]:
        database = open_database(self._url)
        try:
            yield database, Integration(self.settings, database, self.clock, KEYS)
        finally:
            await database.close()

    async def order(self, *deeds: tuple[str, object], error: str = "") -> None:
        """Record deeds; a minute later they are projected and signed, as at a worker's end."""
        async with self.opened() as (_, integration):
            async with running(self.folder / "audit", "w0-operators", clock=self.clock) as log:
                for action, after in deeds:
                    write = partial(Deeds(log, self.clock).record, "os:root", action, "acme")
                    await write(after=after)
                    if error:
                        await write(error=error)
            self.clock.advance(60.0)
            await integration.open()
            await integration.drain()

    def copy(self, source: str, target: str) -> None:
        """The database's file beside its place."""
        path = Path(make_url(self._url).database or "")
        shutil.copyfile(path.with_name(source), path.with_name(target))

    @property
    def name(self) -> str:
        return Path(make_url(self._url).database or "").name


@pytest.fixture
def put_back(tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Installation:
    monkeypatch.setattr(rhythm, "AWAITED_S", 0.01)
    return Installation(tmp_path, sqlite_url)


@asynccontextmanager
async def waiting(put_back: Installation, *actions: str) -> AsyncIterator[Database]:
    """A start that waits for a decision about these deeds, until it is made or the start ends."""
    with capture_logs() as lines:
        async with put_back.opened() as (database, integration):
            starting = asyncio.create_task(integration.open())
            while not any(line["event"] == "audit:database_waits" for line in lines):
                assert not starting.done()
                await asyncio.sleep(0.01)
            assert [each.action for each in (await AwaitedTable(database).now()).deeds] == [
                *actions
            ]
            yield database
            if await AwaitedTable(database).workers():
                assert not starting.done()
                starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            assert starting.cancelled() or starting.exception() is None


async def test_a_start_waits_until_somebody_decides_about_what_no_log_can_do_again(
    put_back: Installation,
) -> None:
    async with put_back.opened() as (database, _):
        await LeaseTable(database, put_back.clock).set_limit(Limit("org:acme", 1_000))
    await put_back.order(("policy.publish", {"level": "org:acme", "number": 1}))
    put_back.copy(put_back.name, "old.db")
    lower = {"account": "org:acme", "limit_microusd": "10", "window": "total"}
    await put_back.order(("budget.set", lower), ("policy.edited", {}))
    await put_back.order(("policy.publish", {}), error="conflict")
    put_back.copy("old.db", put_back.name)

    for _ in range(2):  # A start that ends meanwhile takes nothing back, and the next one waits.
        async with waiting(put_back, "policy.publish") as database:
            (budget,) = await LeaseTable(database, put_back.clock).budgets()
            assert budget.limit.limit_microusd == 10
    for _ in range(2):
        async with put_back.opened() as (database, integration):
            await AwaitedTable(database).finish()
            await integration.open()


async def test_a_clock_that_was_set_back_since_the_backup_hides_no_deed(
    put_back: Installation,
) -> None:
    await put_back.order(("policy.publish", {}))
    put_back.copy(put_back.name, "old.db")
    put_back.clock.jump(-3_600.0)
    await put_back.order(("hold.set", {}))
    put_back.copy("old.db", put_back.name)
    async with put_back.opened() as (_, integration):
        # Nor does a command that brings the records back and signs before anybody starts.
        assert await integration.checkpoint_of(OPERATORS, 2) is not None
    async with waiting(put_back, "hold.set") as database:
        await AwaitedTable(database).finish()


@pytest.mark.parametrize("leaves", [b"", b'\n{"first":1,"leaves":"%s"}\n' % (b"A" * 86 + b"==")])
async def test_without_the_leaves_that_were_signed_records_are_numbered_as_they_come(
    put_back: Installation, leaves: bytes
) -> None:
    """One worker's come in the order in which they came before; other leaves are not believed."""
    put_back.copy(put_back.name, "old.db")
    await put_back.order(("session.began", {}), ("session.ended", {}))
    put_back.copy("old.db", put_back.name)
    (path,) = (put_back.folder / "checkpoints").glob("*.leaves")
    path.write_bytes(leaves)
    async with put_back.opened() as (_, integration):
        await integration.open()
        assert (await integration.trees.trees())[OPERATORS].size == 2


async def test_who_starts_with_a_damaged_segment_takes_no_database_for_put_back_again(
    put_back: Installation,
) -> None:
    """It has brought what there is; a minute later it would await everybody, at every start."""
    put_back.copy(put_back.name, "old.db")
    await put_back.order(("session.began", {}), ("session.ended", {}))
    put_back.copy("old.db", put_back.name)
    path = segment_path(put_back.folder / "audit" / "w0-operators", 1)
    damaged = bytearray(path.read_bytes())
    damaged[-60] ^= 0xFF
    path.write_bytes(damaged)
    async with put_back.opened() as (database, integration):
        with pytest.raises(StartupRefused, match="were signed and are in no log here"):
            await integration.open()
        await AwaitedTable(database).give_up(put_back.clock.utc_us())
    for _ in range(2):
        async with put_back.opened() as (database, integration):
            await integration.open()
            put_back.clock.advance(60.0)
            await integration.sign()
            assert not integration.put_back
            assert await integration.recovery.begin() is None
            assert await AwaitedTable(database).workers() == []


async def test_a_database_that_awaits_nobody_any_more_lacks_nothing_either(
    put_back: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who starts then, or looks, would await everybody again, also those who were heard."""
    put_back.copy(put_back.name, "old.db")
    await put_back.order(("session.began", {}), ("session.ended", {}))
    put_back.copy("old.db", put_back.name)
    found = list[object]()
    real = AwaitedTable.finish

    async with put_back.opened() as (_, integration), put_back.opened() as (_, other):

        async def finish(self: AwaitedTable) -> None:
            await real(self)
            found.append(await other.recovery.begin())

        monkeypatch.setattr(AwaitedTable, "finish", finish)
        await integration.open()
    assert found == [None]


def test_what_may_have_narrowed_something_needs_a_decision_also_where_it_is_not_known() -> None:
    narrows = ("policy.publish", "policy.stop", "hold.set", "secret.removed", "batch.cancelled")
    assert all(map(needs_decision, (*narrows, "team.archived", "something.new", "policy.new")))
    opens = ("policy.drafted", "hold.released", "key.revoked", "session.began", "pool.resumed")
    assert not any(map(needs_decision, opens))
