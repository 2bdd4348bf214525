"""Commands hold their log while they write: what takes long keeps no other from recording."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.audit.segments import list_segments
from gateway.audit.writer import SegmentedAuditLog
from gateway.cli import brief_log
from gateway.cli.brief_log import BriefLog
from gateway.cli.deeds import deed, opened_log
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.errors import RequestInvalid, StartupRefused
from gateway.oversight.deeds import OPERATORS
from gateway.secrets.credentials import master_key
from gateway.store.erasure import erasing
from gateway.store.erasure.erased_records import ErasedRecords
from gateway.store.retention import keeping, retaining
from gateway.types import AuditRecord
from tests.cli.operator import Operator
from tests.cli.test_keeping import limit, signed, spoken
from tests.gateway.audit.samples import LIMITS


MEANWHILE = AuditRecord("admin", "adm_meanwhile", OPERATORS, 1)
Work = Callable[..., Awaitable[Any]]


def recording_first(settings: Settings, work: Work) -> Work:
    """The same work, with another command that leaves a record before it."""

    async def run(*args: Any, **named: Any) -> Any:
        async with opened_log(settings) as log:
            await log.append(MEANWHILE)
        return await work(*args, **named)

    return run


def operators_folder(settings: Settings) -> Path:
    return settings.path(settings.audit.directory) / f"{settings.audit.worker}-operators"


def recorded(operator: Operator) -> str:
    return operator.config("audit", "export", "--organisation", OPERATORS).output


@pytest.fixture
def asked(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> str:
    """The case of an end user whose content somebody asks to be destroyed."""
    spoken(operator, "acme", "ann", 1, "w1")
    assert operator.config("audit", "export").status == 0
    monkeypatch.setattr("gateway.cli.audit.erasing.actor", lambda: "os:bob")
    erase = ("audit", "erase", "--organisation", "acme", "--user", "ann", "--ticket", "T-1")
    case = operator.config(*erase, "--yes").last_line
    monkeypatch.setattr("gateway.cli.audit.erasing.actor", lambda: "os:ann")
    return case


@pytest.mark.parametrize(
    ("whose", "name"), [(ErasedRecords, "rows"), (erasing, "destroy"), (ErasedRecords, "checked")]
)
def test_while_an_erasure_reads_or_destroys_others_record_what_they_do(
    operator: Operator, asked: str, monkeypatch: pytest.MonkeyPatch, whose: Any, name: str
) -> None:
    """It held the commands' log to its end: a key that leaked could not be revoked meanwhile."""
    settings = load_settings(operator.config_file)
    monkeypatch.setattr(whose, name, recording_first(settings, getattr(whose, name)))
    agreed = operator.config("audit", "erasure", "approve", asked, "--comment", "agreed")
    assert (agreed.status, agreed.errors) == (0, "")
    assert "1 keys destroyed" in agreed.output
    monkeypatch.undo()
    assert "adm_meanwhile" in recorded(operator)


def test_while_retention_destroys_others_record_what_they_do(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(operator)
    spoken(operator, "acme", "ann", 40, "w1")
    signed(operator, "acme", 0, 1, 2)
    settings = load_settings(operator.config_file)
    monkeypatch.setattr(retaining, "destroy", recording_first(settings, keeping.destroy))
    assert operator.config("audit", "retain", "--yes").status == 0
    monkeypatch.undo()
    told = recorded(operator)
    assert "adm_meanwhile" in told
    assert "content.retired" in told


def test_what_a_deed_does_keeps_no_other_from_recording(operator: Operator) -> None:
    settings = load_settings(operator.config_file)

    async def fail_slowly() -> None:
        async with deed(settings, "key.revoked", {"key_id": "k"}):
            async with opened_log(settings) as log:
                await log.append(MEANWHILE)
            raise RequestInvalid("went wrong")

    with pytest.raises(RequestInvalid, match="went wrong"):
        asyncio.run(fail_slowly())
    told = recorded(operator)
    assert told.index("adm_meanwhile") < told.index('"status": "failed"')


def test_who_may_not_write_is_refused_before_anything_is_begun(operator: Operator) -> None:
    settings = load_settings(operator.config_file)
    folder = operators_folder(settings)
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("no folder")

    async def write() -> None:
        async with opened_log(settings):
            pytest.fail("nothing is begun")

    with pytest.raises(StartupRefused):
        asyncio.run(write())


def test_records_that_follow_each_other_share_a_segment(operator: Operator) -> None:
    settings = load_settings(operator.config_file)

    async def write() -> None:
        async with opened_log(settings) as log:
            for _ in range(20):
                await log.append(MEANWHILE)

    asyncio.run(write())
    assert list_segments(operators_folder(settings)) == [1]


def test_who_writes_without_end_lets_others_write(
    operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brief_log, "TURN_S", 0.0)
    keys, taken = master_key(load_settings(operator.config_file)), list[str]()

    async def take(name: str) -> SegmentedAuditLog:
        while True:
            log = SegmentedAuditLog(tmp_path, "w", keys=keys, clock=SystemClock(), limits=LIMITS)
            try:
                await log.start()
            except StartupRefused:
                await asyncio.sleep(0.01)
                continue
            taken.append(name)
            return log

    async def write() -> None:
        busy, other = BriefLog("w", lambda: take("busy")), BriefLog("w", lambda: take("other"))
        await busy.append(MEANWHILE)
        waiting = asyncio.create_task(other.append(MEANWHILE))
        while "other" not in taken:
            await busy.append(MEANWHILE)
        await waiting
        await other.close()
        await busy.close()

    asyncio.run(write())
    assert taken.count("busy") > 1
