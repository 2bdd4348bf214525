"""Whether a worker may take requests is said by its log and its ledger, and told once."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.app import DataPlane
from gateway.audit.device import AuditLimits
from gateway.audit.disk import Disk
from gateway.cli.init import prepare
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.secrets.credentials import master_key
from gateway.store.evidence.integration import Integration
from gateway.store.evidence.second_device import DatabaseDevice
from gateway.worker.soundness import Soundness
from tests.gateway.audit.samples import record


pytestmark = pytest.mark.anyio


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[DataPlane]:
    await prepare(tmp_path)
    plane = DataPlane(load_settings(tmp_path / "gatewright.toml"))
    await plane._audit.start()
    yield plane
    await plane.close()


def said(plane: DataPlane, name: str) -> float | None:
    return plane.metrics.registry.get_sample_value(f"gatewright_audit_{name}")


def healthy(plane: DataPlane) -> float | None:
    return said(plane, "healthy")


class BrokenDisk(Disk):
    def sync(self, descriptor: int) -> None:
        raise OSError("broken on purpose")


async def test_metrics_say_that_the_disk_fails_and_that_the_database_carries(
    plane: DataPlane,
) -> None:
    """With the database as the second device all stays healthy, and nobody looked at the disk."""
    await plane._soundness.report()
    assert (said(plane, "carried"), said(plane, "write_failures_total")) == (0.0, 0.0)
    keys, limits = master_key(plane._settings), AuditLimits()
    second = DatabaseDevice(plane._database, "w0", keys, SystemClock(), limits)
    plane._evidence._second = second
    plane._audit._device._disk = BrokenDisk()
    await plane._evidence.append(record(1))
    for _ in range(2):
        await plane._soundness.report()
        assert (said(plane, "carried"), said(plane, "write_failures_total")) == (1.0, 1.0)


async def test_a_worker_is_sound_while_its_log_can_be_added_to(plane: DataPlane) -> None:
    sound = plane._soundness
    await sound.report()
    assert (sound.audit_reason(), sound.problems(), healthy(plane)) == ("", (), 1.0)

    await plane._audit.close()
    await sound.report()
    assert sound.audit_reason() == "The audit log cannot be written."
    assert sound.problems() == (sound.audit_reason(),)
    assert healthy(plane) == 0.0


@pytest.mark.parametrize(
    ("found", "said"),
    [("problem", "contradicts a signed checkpoint"), ("is_retired", "was retired")],
)
async def test_a_log_that_is_heard_no_more_takes_nothing(
    plane: DataPlane, monkeypatch: pytest.MonkeyPatch, found: str, said: str
) -> None:
    monkeypatch.setattr(Integration, found, found)
    assert said in plane._soundness.audit_reason()


async def test_a_worker_whose_database_was_put_back_meanwhile_takes_nothing(
    plane: DataPlane,
) -> None:
    """After a failover that lost what was signed nothing was numbered, and all was called well."""
    plane._soundness._integration.projector.put_back = "the database knows less of w0 than before"
    assert plane._soundness.audit_reason() == "The database knows less of w0 than before."
    assert plane._soundness.problems() == (plane._soundness.audit_reason(),)


async def test_what_the_database_says_of_itself_is_a_problem_that_people_see(
    plane: DataPlane,
) -> None:
    plane._watcher._put_back = True
    (told,) = plane._soundness.problems()
    assert "was put back" in told


async def test_spending_that_cannot_be_reported_is_told_once_and_refuses_nobody(
    plane: DataPlane,
) -> None:
    sound: Soundness = plane._soundness
    told = []
    for is_reporting in (True, False, False, True, False):
        plane._ledger.is_reporting = is_reporting
        with capture_logs() as logs:
            await sound.report()
        told.append([log["event"] for log in logs])
        assert sound.problems() == (() if is_reporting else ("What was spent cannot be reported.",))
        assert sound.audit_reason() == ""
    once = ["ledger:flush_failed"]
    assert told == [[], once, [], [], once]
