"""A worker that is stopped before it keeps a checkpoint, while another one signs the log."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from gateway.audit.disk import Disk
from gateway.audit.projecting.projector import Projector
from gateway.audit.proving.checkpoints import open_signer
from gateway.audit.proving.exported import CheckpointFiles, SignedCheckpoint
from gateway.audit.proving.integrator import Integrator
from gateway.audit.proving.merkle import OpenTree
from gateway.clock import SystemClock
from gateway.store.engine import Database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.evidence.tree import DatabaseAuditTrees
from tests.gateway.audit.samples import KEYS, journeys, running


pytestmark = pytest.mark.anyio


class Stopped(DatabaseAuditTrees):
    """Of a worker that is away between making a checkpoint and keeping it."""

    def __init__(self, database: Database, folder: Path) -> None:
        super().__init__(database)
        self._theirs = database
        self._folder = folder

    async def keep(self, checkpoints: Sequence[SignedCheckpoint]) -> list[SignedCheckpoint]:
        await add(self._theirs, self._folder, 100)
        await signer(self._folder, DatabaseAuditTrees(self._theirs)).sign_grown()
        return await super().keep(checkpoints)


class Overtaken(DatabaseAuditTrees):
    """Of a worker that is away between reading the trees and looking at what was exported."""

    def __init__(self, database: Database, folder: Path) -> None:
        super().__init__(database)
        self._theirs = database
        self._folder = folder

    async def trees(self) -> dict[str, OpenTree]:
        found = await super().trees()
        await self._overtake()
        return found

    async def tree(self, organisation: str) -> OpenTree:
        found = await super().tree(organisation)
        await self._overtake()
        return found

    async def _overtake(self) -> None:
        await add(self._theirs, self._folder, 100)
        await signer(self._folder, DatabaseAuditTrees(self._theirs)).sign_grown()


def signer(folder: Path, trees: DatabaseAuditTrees) -> Integrator:
    clock = SystemClock()
    key = open_signer(folder / "w0", "test/w0", KEYS, clock, Disk())
    files = CheckpointFiles(folder / "checkpoints", Disk())
    return Integrator(trees, key, files, clock, log_name="test", period_s=30.0)


async def add(database: Database, folder: Path, first: int) -> None:
    async with running(folder) as log:
        await journeys(log, first, 4)
    await Projector(folder, DatabaseAuditSink(database, folder)).catch_up()


async def test_it_keeps_and_exports_nothing_that_proves_less(
    tmp_path: Path, database: Database
) -> None:
    folder = tmp_path / "audit"
    await add(database, folder, 0)
    stopped = signer(folder, Stopped(database, folder))
    assert await stopped.sign_due() > 0
    assert stopped._signed_s == {}
    trees = DatabaseAuditTrees(database)
    sizes = {name: tree.size for name, tree in (await trees.trees()).items()}
    newest = await trees.newest_of_all()
    assert {name: each.size for name, each in newest.items()} == sizes
    exported = CheckpointFiles(folder / "checkpoints", Disk())
    assert {name: each.size for name, each in exported.newest_of_all().items()} == sizes


async def test_one_that_is_exported_late_is_not_the_newest(tmp_path: Path) -> None:
    files = CheckpointFiles(tmp_path, Disk())
    files.append(SignedCheckpoint("acme", 2, 20, bytes(32), ""))
    files.append(SignedCheckpoint("acme", 1, 10, bytes(32), ""))
    assert files.newest_of_all()["acme"].size == 20


async def test_a_checkpoint_that_is_asked_for_is_the_one_that_covers_it(
    tmp_path: Path, database: Database
) -> None:
    folder = tmp_path / "audit"
    await add(database, folder, 0)
    stopped = signer(folder, Stopped(database, folder))
    signed = await stopped.sign_now("acme", 1)
    assert signed is not None
    assert signed == await DatabaseAuditTrees(database).newest("acme")


@pytest.mark.parametrize(
    "sign",
    [Integrator.sign_due, Integrator.sign_grown, lambda each: each.sign_now("acme", 1)],
    ids=["due", "grown", "now"],
)
async def test_what_another_exported_since_the_trees_were_read_is_no_fork(
    tmp_path: Path, database: Database, sign: Callable[[Integrator], Awaitable[object]]
) -> None:
    """It was told from an old backup by nothing: service was refused until the next round."""
    folder = tmp_path / "audit"
    await add(database, folder, 0)
    overtaken = signer(folder, Overtaken(database, folder))
    await sign(overtaken)
    assert overtaken.problem == ""
    assert overtaken._signed_s == {}
