"""Whether a worker may take requests is said by its log and its ledger, and told once."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.app import DataPlane
from gateway.cli.init import prepare
from gateway.configuration.reading import load_settings
from gateway.store.evidence.integration import Integration
from gateway.worker.soundness import Soundness


pytestmark = pytest.mark.anyio


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[DataPlane]:
    await prepare(tmp_path)
    plane = DataPlane(load_settings(tmp_path / "gatewright.toml"))
    await plane._audit.start()
    yield plane
    await plane.close()


def healthy(plane: DataPlane) -> float | None:
    return plane.metrics.registry.get_sample_value("gatewright_audit_healthy")


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
