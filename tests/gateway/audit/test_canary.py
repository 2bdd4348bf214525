"""Canaries: content and keys show up in no file, no error, no log line and no repr."""

from pathlib import Path

import pytest

from gateway.audit.device import SealContent
from gateway.audit.projecting.export import export_records, segment_rows
from gateway.audit.segments import segment_path
from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import SystemClock
from gateway.errors import AuditUnavailable
from gateway.secrets.envelope import MasterKey, create_key_file, key_bytes
from gateway.secrets.secret import Secret
from gateway.secrets.sources import FileSecret
from tests.gateway.audit.samples import LIMITS, record


CANARY = b"canary-7f3a-do-not-show"


@pytest.mark.anyio
async def test_content_and_keys_are_nowhere_in_plain_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key_file, directory = tmp_path / "master.key", tmp_path / "audit"
    create_key_file(key_file)
    secret = FileSecret(key_file).load()
    keys = MasterKey(Secret(key_bytes(FileSecret(key_file).load().reveal(), "x.key", "master_key")))
    log = SegmentedAuditLog(directory, "w0", keys=keys, clock=SystemClock(), limits=LIMITS)
    await log.start()
    await log.append(record(1), b"before " + CANARY + b" after")
    segment_path(directory / "w0", 1).unlink()
    with pytest.raises(AuditUnavailable) as caught:
        await log.append(record(2), CANARY)
    await log.append(record(3), CANARY * 100)
    shown = (
        repr(SealContent("acme", b"", CANARY))
        + repr((log, keys, secret, caught.value, vars(log)))
        + f"{secret} {log.stats()}"
    )
    await log.close()
    out, err = capsys.readouterr()
    written = b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())
    everything = written + (shown + out + err).encode()
    assert len(written) > 2000
    assert "audit:write_failed" in out + err
    assert CANARY not in everything
    assert secret.reveal().encode() not in everything


@pytest.mark.anyio
async def test_an_export_without_the_key_shows_no_content(tmp_path: Path) -> None:
    key_file = tmp_path / "master.key"
    create_key_file(key_file)
    keys = MasterKey(Secret(key_bytes(FileSecret(key_file).load().reveal(), "x.key", "master_key")))
    log = SegmentedAuditLog(tmp_path / "audit", "w0", keys=keys, clock=SystemClock(), limits=LIMITS)
    await log.start()
    await log.append(record(1), CANARY)
    await log.close()
    lines = [line async for line in export_records(segment_rows(tmp_path / "audit"))]
    assert len(lines) == 1
    assert CANARY.decode() not in repr(lines)
