"""An old backup is restored: the worker refuses to start instead of writing history twice."""

import shutil
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
from sqlalchemy.engine import make_url

from gateway.app import DataPlane
from gateway.errors import StartupRefused
from tests.faults.envelopes import Caller, ask
from tests.running_gateway import GPT_TARGET, RunningGateway, Upstreams


pytestmark = pytest.mark.anyio
HEADER_BYTES_MAX = 400
Restore = Callable[[Path, Path], None]


def _segments(folder: Path, backup: Path) -> None:
    shutil.rmtree(folder / "var" / "audit")
    shutil.copytree(backup / "var" / "audit", folder / "var" / "audit")


def _database(folder: Path, backup: Path) -> None:
    for path in folder.glob("gateway.db*"):
        path.unlink()
    for path in backup.glob("gateway.db*"):
        shutil.copyfile(path, folder / path.name)


def _both(folder: Path, backup: Path) -> None:
    _segments(folder, backup)
    _database(folder, backup)


def _nothing_left(folder: Path, _: Path) -> None:
    """The audit folder is empty, and the database is not."""
    shutil.rmtree(folder / "var" / "audit")


async def _serve(gateway: RunningGateway, http: aiohttp.ClientSession, requests: int) -> None:
    async with gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        for _ in range(requests):
            reply = await caller.post("openai", ask("openai", model=GPT_TARGET))
            assert reply.status == 200


@pytest.mark.parametrize(
    ("restore", "reason"),
    [
        (_segments, "an old backup was restored, or records were removed"),
        (_nothing_left, "an old backup was restored, or records were removed"),
        (_both, "10 records of acme were signed and are in no log here: an old backup was"),
        (_database, None),
    ],
)
async def test_what_is_older_than_what_was_numbered_or_signed_is_not_added_to(
    tmp_path: Path,
    sqlite_url: str,
    own_upstreams: Upstreams,
    http: aiohttp.ClientSession,
    restore: Restore,
    reason: str | None,
) -> None:
    folder, backup = tmp_path, tmp_path / "backup"
    assert Path(make_url(sqlite_url).database or "").parent == folder

    def gateway() -> RunningGateway:
        return RunningGateway(folder, sqlite_url, own_upstreams, more="")

    await _serve(gateway(), http, 3)
    keep = ("backup", "checkpoints")
    shutil.copytree(folder, backup, ignore=shutil.ignore_patterns(*keep))
    newest = gateway()
    await _serve(newest, http, 5)
    restore(folder, backup)
    segments = {path.name for path in (backup / "var/audit/w0").glob("*.log")}

    again = DataPlane(newest.settings)
    if reason is None:
        # The database alone is a projection: it is brought up to date from the segments.
        await again.start()
        assert (await again._integration.trees.trees())["acme"].size == 16
    else:
        for _ in range(3):
            with pytest.raises(StartupRefused, match=reason):
                await again.start()
            await again.close()
            again = DataPlane(newest.settings)
        # No attempt wrote a record, and none began a segment where the database knows better ones.
        kept = set() if restore is _nothing_left else segments
        begun = [path for path in (folder / "var/audit/w0").glob("*.log") if path.name not in kept]
        assert all(path.stat().st_size < HEADER_BYTES_MAX for path in begun)
        assert restore is _both or begun == []
    await again.close()


async def test_a_segment_that_was_copied_in_use_is_no_longer_than_what_is_in_it(
    tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    """Its file goes on with zeros, behind the place that the database knows."""
    running = RunningGateway(tmp_path, sqlite_url, own_upstreams, more="")
    segment, copy = tmp_path / "var/audit/w0/00000001.log", tmp_path / "copy"
    async with running:
        caller = Caller(running, http, await running.issue_key())
        for number in range(4):
            if number == 2:
                shutil.copyfile(segment, copy)
            reply = await caller.post("openai", ask("openai", model=GPT_TARGET))
            assert reply.status == 200
    assert copy.stat().st_size > segment.stat().st_size
    shutil.copyfile(copy, segment)
    again = DataPlane(running.settings)
    with pytest.raises(StartupRefused, match="an old backup was restored, or records were removed"):
        await again.start()
    await again.close()
