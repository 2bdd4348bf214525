"""Checkpoints: signed when due, also when idle, and never against what was signed before."""

import errno
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, func, insert, select, update
from structlog.testing import capture_logs

from gateway.audit.content_keys.keys import KEYS_NAME
from gateway.audit.disk import Disk
from gateway.audit.projecting.projector import ProjectionBroken
from gateway.audit.proving.checkpoints import (
    OTHERS_NAME,
    SIGNERS_NAME,
    Signer,
    open_signer,
    read_signers,
    verifier_keys,
)
from gateway.audit.proving.exported import CheckpointFiles, SignedCheckpoint
from gateway.audit.proving.fsck import BadLog, check_log
from gateway.audit.proving.integrator import Integrator, LogForked, LogPutBack, TreeDamaged
from gateway.audit.proving.merkle import OpenTree, consistency_path, inclusion_path
from gateway.audit.proving.offline import (
    Wrong,
    check_consistency,
    check_pack,
    open_checkpoint,
    parse_key,
)
from gateway.configuration.settings import AuditSettings, Settings
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from gateway.store.engine import Database
from gateway.store.evidence.integration import Integration
from gateway.store.evidence.sink import AuditQuery
from gateway.store.evidence.tree import DatabaseAuditTrees
from gateway.store.schema.audit import (
    audit_checkpoints,
    audit_positions,
    audit_records,
    audit_sequences,
    audit_tiles,
)
from tests.gateway.audit.samples import KEYS, record, running
from tests.gateway.store.ledgered import LOG, Ledgered, ledgered


pytestmark = pytest.mark.anyio


@pytest.fixture
async def log(tmp_path: Path, database_url: str) -> AsyncIterator[Ledgered]:
    async with ledgered(tmp_path, database_url) as made:
        yield made


@pytest.fixture
async def local(tmp_path: Path, sqlite_url: str) -> AsyncIterator[Ledgered]:
    """The same on SQLite only, for what does not depend on the database."""
    async with ledgered(tmp_path, sqlite_url) as made:
        yield made


async def checkpoints(log: Ledgered, organisation: str = "acme") -> list[SignedCheckpoint]:
    return list(await log.trees.between(organisation, 0, 2**62))


async def fsck(log: Ledgered, organisation: str = "acme") -> tuple[int, BadLog | None]:
    rows = log.sink.records(AuditQuery(organisation=organisation))
    signed = await checkpoints(log, organisation)
    return await check_log(organisation, rows, signed, log.trees, [log.signer.verifier_key])


async def test_every_record_is_a_leaf_and_every_checkpoint_extends_the_one_before(
    log: Ledgered,
) -> None:
    for first in range(0, 600, 200):
        await log.write(first, 200)
        await log.sign()
    signed = await checkpoints(log)
    assert [each.size for each in signed] == [266, 532, 800]
    key = parse_key(log.signer.verifier_key)
    for each in signed:
        expected = ("gatewright-test/acme", each.size, each.root, each.signed_us)
        assert open_checkpoint(each.note, [key]) == expected
    for old, new in pairwise(signed):
        path = await log.trees.ask("acme", partial(consistency_path, old.size, new.size))
        check_consistency(old.size, new.size, old.root, new.root, path)
    assert await fsck(log) == (800, None)
    assert await fsck(log, "globex") == (400, None)


async def test_an_idle_log_is_signed_again_when_its_checkpoint_is_old(local: Ledgered) -> None:
    await local.write(0, 3)
    integrator = local.integrator()
    assert await integrator.sign_due() == 2
    assert await integrator.sign_due() == 0
    local.clock.advance(29.0)
    assert await integrator.sign_due() == 0
    local.clock.advance(1.0)
    assert await integrator.sign_due() == 2
    first, second = await checkpoints(local)
    assert (first.size, first.root) == (second.size, second.root)
    assert second.signed_us - first.signed_us == 30_000_000


async def test_a_thousand_idle_logs_are_signed_with_few_questions(
    log: Ledgered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction and two questions for each would be a fifth of a worker's core."""
    tree = OpenTree()
    tree.extend([bytes(32)] * 3)
    rows = [
        {"organisation": f"o{number}", "next_sequence": 4, "open_tiles": tree.encode()}
        for number in range(120)
    ]
    async with log.database.writing() as connection:
        await connection.execute(insert(audit_sequences), rows)
    integrator = log.integrator()
    assert await integrator.sign_due() == 120
    log.clock.advance(31.0)
    asked = Counter[str]()
    for name in ("reading", "writing", "peek"):
        real = getattr(Database, name)

        def counted(self: Database, *given: Any, name: str = name, real: Any = real) -> Any:
            asked[name] += 1
            return real(self, *given)

        monkeypatch.setattr(Database, name, counted)
    assert await integrator.sign_due() == 120
    assert await integrator.sign_due() == 0
    assert asked == {"peek": 4, "writing": 3, "reading": 1}
    monkeypatch.undo()
    assert len(await checkpoints(log, "o77")) == 2
    assert log.files.newest_of_all()["o119"].size == 3


async def test_what_another_worker_signs_during_a_start_is_no_fork(local: Ledgered) -> None:
    """Trees that were read before its checkpoint looked like an old backup, and nobody started."""
    await local.write(0, 3)
    await local.sign()

    class Meanwhile(DatabaseAuditTrees):
        """After whatever is read first, another worker writes and signs."""

        is_first = True

        async def _another(self) -> None:
            if self.is_first:
                self.is_first = False
                await local.write(3, 30)
                await local.sign()

        async def trees(self) -> dict[str, OpenTree]:
            found = await super().trees()
            await self._another()
            return found

        async def newest_of_all(self) -> dict[str, SignedCheckpoint]:
            found = await super().newest_of_all()
            await self._another()
            return found

    files = CheckpointFiles(local.directory / "of another machine", Disk())
    trees = Meanwhile(local.database)
    starting = Integrator(trees, local.signer, files, local.clock, log_name=LOG, period_s=30.0)
    await starting.check()
    assert not trees.is_first
    assert [each.size for each in await checkpoints(local)] == [4, 44]


async def test_a_clock_set_back_neither_stops_reorders_nor_multiplies_checkpoints(
    local: Ledgered,
) -> None:
    """One that was a year ahead for a moment would have every look sign for a year."""
    await local.write(0, 3)
    integrator = local.integrator()
    await integrator.sign_due()
    local.clock.jump(-3600.0)
    signed = []
    for _ in range(7):
        signed.append(await integrator.sign_due())
        local.clock.advance(10.0)
    assert signed == [0, 0, 0, 2, 0, 0, 2]
    assert await local.integrator().sign_due() == 2, "who has just started knows of no other age"
    first, *more = await checkpoints(local)
    assert [each.signed_us - first.signed_us for each in more] == [1, 2, 3]
    local.clock.advance(3600.0)
    assert await integrator.sign_due() == 2


async def test_what_was_signed_is_also_kept_outside_the_database(local: Ledgered) -> None:
    await local.write(0, 3)
    await local.sign()
    await local.sign()
    newest = local.files.newest_of_all()
    assert newest == {
        organisation: (await checkpoints(local, organisation))[-1]
        for organisation in ("acme", "globex")
    }


async def test_a_disk_that_is_full_while_a_checkpoint_is_exported_stops_no_signing(
    local: Ledgered,
) -> None:
    """Half a line may be left there; the next one begins on a line of its own."""

    class FullDisk(Disk):
        is_full = True

        def append_durably(self, path: Path, data: bytes) -> None:
            if self.is_full:
                super().append_durably(path, data[: len(data) // 2])
                raise OSError(errno.ENOSPC, "No space left on device")
            super().append_durably(path, data)

    disk = FullDisk()
    local.files = CheckpointFiles(local.files.directory, disk)
    await local.write(0, 3)
    for _ in range(2):
        await local.sign()
    disk.is_full = False
    await local.sign()
    signed = await checkpoints(local)
    assert len(signed) == 3
    assert local.files.newest_of_all()["acme"] == signed[-1]
    lines = list(local.files.every("acme"))
    assert lines == [None] * (len(lines) - 1) + [signed[-1]]
    await local.integrator().check()


async def test_a_restored_old_backup_is_noticed_and_nothing_is_signed(local: Ledgered) -> None:
    await local.write(0, 3)
    saved = local.directory.with_name("backup")
    shutil.copytree(local.directory, saved)
    await local.write(3, 30)
    await local.sign()
    shutil.rmtree(local.directory)
    saved.rename(local.directory)
    async with local.database.writing() as connection:
        for table in (audit_records, audit_positions, audit_sequences, audit_checkpoints):
            await connection.execute(delete(table))
    await local.project()
    integrator = local.integrator()
    with pytest.raises(LogForked, match="an old backup was restored"):
        await integrator.check()
    with pytest.raises(LogForked):
        await integrator.sign_due()
    assert "was put back" in integrator.problem
    assert await checkpoints(local) == []


async def test_a_backup_restored_under_running_workers_is_told_from_what_another_exported(
    local: Ledgered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who signs seldom, because others were faster, has not seen their newest checkpoints."""
    await local.write(0, 3)
    seldom = local.integrator()
    assert await seldom.sign_due() == 2
    saved = local.directory.with_name("backup")
    shutil.copytree(local.directory, saved)
    await local.write(3, 30)
    await local.sign()
    shutil.rmtree(local.directory)
    saved.rename(local.directory)
    async with local.database.writing() as connection:
        for table in (audit_records, audit_positions, audit_sequences, audit_checkpoints):
            await connection.execute(delete(table))
    await local.project()
    local.clock.advance(60.0)
    with pytest.raises(LogPutBack, match="a checkpoint of acme that was exported"):
        await seldom.sign_due()
    with pytest.raises(LogForked, match="a checkpoint of 44 was signed"):
        await seldom.check()
    assert await checkpoints(local) == []

    # A folder that cannot be read for a while stops nobody who has read it before.
    def unreadable(self: CheckpointFiles) -> list[SignedCheckpoint]:
        raise PermissionError

    monkeypatch.setattr(CheckpointFiles, "recent", unreadable)
    with pytest.raises(LogForked):
        await seldom.sign_due()
    with pytest.raises(PermissionError):
        await local.integrator().check()


def test_exported_checkpoints_that_cannot_be_listed_are_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = CheckpointFiles(tmp_path / "checkpoints", Disk())
    files.append(SignedCheckpoint("acme", 1, 3, bytes(32), "note"))
    assert [each.size for each in files.recent()] == [3]

    def forbidden(path: object = ".") -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("os.listdir", forbidden)
    monkeypatch.setattr("os.scandir", forbidden)
    with pytest.raises(PermissionError):
        files.recent()


async def test_a_database_restored_alone_is_brought_up_to_date_from_the_segments(
    local: Ledgered,
) -> None:
    await local.write(0, 300)
    await local.sign()
    before = await checkpoints(local)
    async with local.database.writing() as connection:
        for table in (audit_records, audit_positions, audit_sequences, audit_tiles):
            await connection.execute(delete(table))
    await local.project()
    await local.integrator().check()
    assert await checkpoints(local) == before
    assert await fsck(local) == (400, None)


async def test_a_log_that_was_rewritten_is_not_signed(local: Ledgered) -> None:
    await local.write(0, 3)
    await local.sign()
    async with local.database.writing() as connection:
        row = (await connection.execute(select(audit_sequences))).all()[0]
        changed = bytes([row.open_tiles[0] ^ 1]) + row.open_tiles[1:]
        where = audit_sequences.c.organisation == row.organisation
        await connection.execute(update(audit_sequences).where(where).values(open_tiles=changed))
    with pytest.raises(LogForked, match="is not the one that was signed"):
        await local.integrator().check()
    count, bad = await fsck(local)
    assert (count, bad.sequence if bad else 0) == (4, 1)


async def test_a_tree_that_lost_a_tile_is_named(local: Ledgered) -> None:
    await local.write(0, 300)
    await local.sign()
    async with local.database.writing() as connection:
        await connection.execute(delete(audit_tiles))
    with pytest.raises(TreeDamaged, match="missing"):
        await local.trees.ask("acme", partial(inclusion_path, 7, 400))
    _, bad = await fsck(local)
    assert bad is not None
    assert "missing" in bad.reason


async def test_a_tile_that_is_cut_off_is_damaged_where_what_is_left_is_right(
    local: Ledgered,
) -> None:
    await local.write(0, 300)
    await local.sign()
    half = func.substr(audit_tiles.c.hashes, 1, 32 * 100)
    async with local.database.writing() as connection:
        await connection.execute(update(audit_tiles).values(hashes=half))
    _, bad = await fsck(local)
    assert str(bad) == "acme, record 256: tile (0, 0) of the tree of acme is cut off"


@pytest.mark.parametrize("grows", [False, True])
async def test_a_damaged_tree_stops_the_signer_which_says_whose_it_is(
    local: Ledgered, *, grows: bool
) -> None:
    """Where nothing was signed of it, no request went on either: it was served, and not signed."""
    await local.write(0, 3)
    await local.sign()
    mine = audit_sequences.c.organisation == "acme"
    async with local.database.writing() as connection:
        await connection.execute(update(audit_sequences).where(mine).values(open_tiles=bytes(31)))
    said = "the open tiles of the tree of acme are not those of its size"
    if grows:
        with pytest.raises(ProjectionBroken, match=said):
            await local.write(3, 3)
    integrator = local.integrator()
    for sign in (integrator.sign_due, integrator.sign_grown):
        integrator.problem = ""
        with pytest.raises(TreeDamaged, match=said):
            await sign()
        assert integrator.problem == said
    assert await local.trees.sizes() == {"acme": 4, "globex": 2}
    _, bad = await fsck(local)
    assert bad is not None
    assert said in bad.reason
    assert await fsck(local, "globex") == (2, None)


async def test_the_signing_key_outlives_restarts_and_only_its_master_key_opens_it(
    local: Ledgered,
) -> None:
    folder = local.directory / "w0"
    again = open_signer(folder, local.signer.name, KEYS, local.clock, Disk())
    assert again.verifier_key == local.signer.verifier_key
    other = MasterKey(Secret(bytes(32)))
    with pytest.raises(ValueError, match="another master key"):
        open_signer(folder, local.signer.name, other, local.clock, Disk())
    assert len(read_signers(folder)) == 1
    assert bytes(32).hex() not in repr(local.signer)


async def test_a_damaged_line_of_a_file_beside_the_log_hides_no_other_and_stops_no_start(
    local: Ledgered,
) -> None:
    """A flipped bit makes bytes that are no text; a crash only cuts lines off."""
    await local.write(0, 3)
    await local.sign()
    (known,) = await checkpoints(local)
    exported = local.files.directory / "acme.jsonl"
    signers = local.directory / "w0" / SIGNERS_NAME
    for file in (exported, signers):
        (line,) = filter(None, file.read_bytes().split(b"\n"))
        for damaged in (line[:40], line.replace(b"gatewright-test", b"gatewright\xfftest")):
            file.write_bytes(file.read_bytes() + b"\n" + damaged + b"\n")

    assert local.files.newest_of_all()["acme"] == known
    assert list(local.files.every("acme")) == [known, None, None]
    assert verifier_keys(local.directory) == [local.signer.verifier_key]
    await local.integrator().check()


async def test_a_checkpoint_signed_with_another_key_is_found(local: Ledgered) -> None:
    await local.write(0, 3)
    local.clock.advance(60.0)
    await local.integrator(Signer(local.signer.name, bytes(32))).sign_due()
    _, bad = await fsck(local)
    assert bad is not None
    assert "not signed by the log's key" in bad.reason
    assert bad.sequence == 0


async def test_a_worker_of_another_machine_is_known_by_the_key_that_an_operator_put_there(
    local: Ledgered, tmp_path: Path
) -> None:
    """Its segments lie elsewhere, and with them its key; its checkpoints are in this database."""
    await local.write(0, 3)
    there = tmp_path / "another machine" / "w1"
    signer = open_signer(there, "gatewright-test/w1", KEYS, local.clock, Disk())
    local.clock.advance(60.0)
    await local.integrator(signer).sign_due()
    await local.sign()

    async def checked() -> BadLog | None:
        rows, signed = local.sink.records(AuditQuery(organisation="acme")), await checkpoints(local)
        keys = verifier_keys(local.directory)
        return (await check_log("acme", rows, signed, local.trees, keys))[1]

    bad = await checked()
    assert "not signed by the log's key" in str(bad)
    await local.pack(tmp_path / "pack.zip", 1, 4)
    with pytest.raises(Wrong, match="not signed by the log's key"):
        check_pack(tmp_path / "pack.zip", verifier_keys(local.directory))

    file = local.directory / OTHERS_NAME
    file.write_text("".join(f"{key}\n" for key in verifier_keys(there.parent)))
    assert await checked() is None
    assert check_pack(tmp_path / "pack.zip", verifier_keys(local.directory))["checkpoints"] == 2
    file.write_bytes(b"\xff nonsense\n")
    assert "not an Ed25519 key" in str(await checked())


@pytest.mark.parametrize("number", [1, 2, 255, 256, 257, 400])
async def test_the_full_check_names_the_record_that_was_put_in_anothers_place(
    local: Ledgered, number: int
) -> None:
    await local.write(0, 300)
    columns = audit_records.c
    other = 399 if number != 399 else 1
    async with local.database.writing() as connection:
        query = select(columns.offset_bytes, columns.segment).where(
            columns.organisation == "acme", columns.sequence == other
        )
        place = (await connection.execute(query)).one()
        where = (columns.organisation == "acme") & (columns.sequence == number)
        moved = {"offset_bytes": place.offset_bytes, "segment": place.segment}
        await connection.execute(update(audit_records).where(where).values(**moved))
    _, bad = await fsck(local)
    assert bad is not None
    assert bad.sequence == number


async def test_the_full_check_finds_records_that_are_missing(local: Ledgered) -> None:
    await local.write(0, 30)
    columns = audit_records.c
    for number in (40, 7):
        async with local.database.writing() as connection:
            where = (columns.organisation == "acme") & (columns.sequence == number)
            await connection.execute(delete(audit_records).where(where))
        _, bad = await fsck(local)
        assert bad is not None
        assert bad.sequence == number


async def test_the_full_check_goes_on_with_the_leaves_of_what_was_declared_lost(
    local: Ledgered,
) -> None:
    await local.write(0, 3)
    await local.sign()
    raw = await local.trees.leaves("acme", 0, 4)
    leaves = {number: raw[32 * number - 32 : 32 * number] for number in (1, 4)}
    columns = audit_records.c
    gone = (columns.organisation == "acme") & columns.sequence.in_(leaves)
    async with local.database.writing() as connection:
        await connection.execute(delete(audit_records).where(gone))

    async def checked(lost: dict[int, bytes]) -> tuple[int, BadLog | None]:
        rows, signed = local.sink.records(AuditQuery(organisation="acme")), await checkpoints(local)
        keys = [local.signer.verifier_key]
        return await check_log("acme", rows, signed, local.trees, keys, lost)

    assert await checked(leaves) == (4, None)
    other = BadLog("acme", 4, "not what was signed at 4 records")
    assert await checked({**leaves, 1: bytes(32)}) == (4, other)
    short = BadLog("acme", 4, "records are missing at the end")
    assert await checked({1: leaves[1]}) == (3, short)


async def test_checkpoints_of_logs_that_were_signed_at_one_moment_are_told_apart(
    log: Ledgered,
) -> None:
    await log.write(0, 3)
    sizes = {"acme": (4, 4, 5, 8, 8), "globex": (2, 9, 9, 9, 9)}
    every = {
        name: [SignedCheckpoint(name, at, size, b"", "") for at, size in enumerate(some, 1)]
        for name, some in sizes.items()
    }
    for acme, globex in zip(*every.values(), strict=True):
        assert await log.trees.keep([acme, globex]) == [acme, globex]
    acme, globex = every["acme"], every["globex"]

    assert await log.trees.keep([acme[-1], globex[0]]) == [], "they are there, or behind"
    assert [await log.trees.covering("acme", size) for size in (1, 5, 6, 8, 9)] == [
        *(acme[0], acme[2], acme[3], acme[3], None),
    ]
    assert await log.trees.covering("globex", 3) == globex[1]
    assert await log.trees.latest("acme", 2) == acme[:2:-1]
    assert await log.trees.newest("globex") == globex[-1]
    assert await log.trees.newest("initech") is None
    assert await log.trees.newest_of_all() == {"acme": acme[-1], "globex": globex[-1]}
    assert await log.trees.spread("acme", 1, 5, 2) == (4, [acme[0], acme[2]])
    assert await log.trees.between("acme", 2, 5, 2) == acme[1:3]


async def test_of_a_long_period_the_database_chooses_checkpoints_evenly(log: Ledgered) -> None:
    """An idle year has a million: whoever wants a few of them must not load all."""
    every = [SignedCheckpoint("acme", at, 7, b"", "") for at in range(1, 1235)]
    await log.trees.keep(every)
    for count_max, step in ((500, 3), (1234, 1), (5000, 1), (1, 1234), (617, 2), (616, 3)):
        total, kept = await log.trees.spread("acme", 0, 2**62, count_max)
        assert (total, kept) == (1234, every[::step])
        assert len(kept) <= count_max
    assert await log.trees.spread("acme", 1000, 1003, 2) == (3, [every[999], every[1001]])
    assert await log.trees.spread("globex", 0, 2**62, 500) == (0, [])
    assert await log.trees.between("acme", 3, 2**62, 2) == every[2:4]


async def test_a_start_says_which_line_of_a_key_file_is_damaged_and_lets_it_be(
    local: Ledgered, tmp_path: Path
) -> None:
    async with running(local.directory, clock=local.clock) as log:
        await log.append(record(1), b"words")
    path = local.directory / "w0" / KEYS_NAME
    path.write_bytes(path.read_bytes().replace(b'"day"', b'"d\xffy"'))
    damaged = path.read_bytes()
    audit = AuditSettings(directory="audit", checkpoint_directory="checkpoints")
    settings = Settings(source="a test", folder=str(tmp_path), audit=audit)
    with capture_logs() as lines:
        await Integration(settings, local.database, local.clock, KEYS).open()
    (said,) = [line for line in lines if line["event"] == "audit:key_damaged"]
    assert (said["worker"], said["log_level"]) == ("w0", "error")
    assert said["reason"].startswith("worker w0, line 2 of keys.jsonl")
    assert path.read_bytes() == damaged
