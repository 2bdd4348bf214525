"""What lies beside the checkpoints of each machine: the order of a log, whoever signed it."""

from pathlib import Path

import pytest

from gateway.audit.disk import Disk
from gateway.audit.projecting.projection import START, ProjectedRecord
from gateway.audit.projecting.projector import ProjectionBroken, Projector
from gateway.audit.proving.exported import CheckpointFiles
from gateway.audit.proving.integrator import Integrator
from gateway.audit.proving.leaves import LeafFiles
from gateway.audit.proving.merkle import HASH_BYTES, OpenTree
from gateway.store.engine import Database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.evidence.tree import DatabaseAuditTrees
from tests.gateway.audit.samples import journeys, running
from tests.gateway.store.evidence.test_stopped_signer import add, signer


pytestmark = pytest.mark.anyio


def hashes(first: int, last: int) -> bytes:
    return b"".join(number.to_bytes(HASH_BYTES, "big") for number in range(first, last + 1))


@pytest.mark.either
async def test_a_machine_keeps_what_another_one_signed(tmp_path: Path, database: Database) -> None:
    folder = tmp_path / "audit"
    await add(database, folder, 0)
    trees = DatabaseAuditTrees(database)
    await signer(folder, trees).sign_due()
    other = CheckpointFiles(tmp_path / "other", Disk())
    watching: Integrator = signer(folder, trees)
    watching._files = other
    assert await watching.sign_due() == 0

    theirs = CheckpointFiles(folder / "checkpoints", Disk()).newest_of_all()
    assert other.newest_of_all() == theirs != {}
    for organisation, known in theirs.items():
        leaves = b"".join(other.leaves.following(organisation, 0))
        tree = OpenTree()
        tree.extend([leaves[at : at + HASH_BYTES] for at in range(0, len(leaves), HASH_BYTES)])
        assert (tree.size, tree.root()) == (known.size, known.root)


def test_leaves_go_on_behind_a_line_that_a_crash_cut_off(tmp_path: Path) -> None:
    files = LeafFiles(tmp_path, Disk())
    files.append("acme", 1, hashes(1, 600))
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-40])
    again = LeafFiles(tmp_path, Disk())
    assert again.reach("acme") == 512
    again.append("acme", 513, hashes(513, 700))
    LeafFiles(tmp_path, Disk()).append("acme", 690, hashes(690, 710))

    assert b"".join(again.following("acme", 0)) == hashes(1, 710)
    assert b"".join(again.following("acme", 599)) == hashes(600, 710)
    again.append("acme", 712, hashes(712, 801))
    assert b"".join(again.following("acme", 700)) == hashes(701, 710)


@pytest.mark.either
async def test_nothing_is_numbered_where_a_position_went_back_behind_what_was_signed(
    tmp_path: Path, database: Database
) -> None:
    sink = DatabaseAuditSink(database, tmp_path)
    said: list[str | None] = [None, "it lacks a checkpoint", None]

    async def first() -> str | None:
        return said.pop(0)

    projector = Projector(tmp_path, sink, first=first)
    async with running(tmp_path) as log:
        await journeys(log, 0, 2)
        await projector.catch_up()
        here = (await sink.positions())[log.worker]
        lost: list[ProjectedRecord] = []
        assert await sink.store(lost, log.worker, here, START)  # As a restored backup has it.
        await journeys(log, 10, 2)
    with pytest.raises(ProjectionBroken, match=f"knows less of {log.worker} than before"):
        await projector.catch_up()
    assert "was put back" in projector.put_back
    assert await sink.positions() == {log.worker: START}
    # A failover that lost nothing that was signed heals by itself.
    assert await projector.catch_up() > 0
    assert not projector.put_back
