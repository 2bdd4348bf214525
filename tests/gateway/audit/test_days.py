"""A new day brings new data keys."""

from pathlib import Path

import pytest

from gateway.audit.content_keys.keys import read_keys
from gateway.audit.projecting.export import export_records, segment_rows
from gateway.clock import StoppedClock
from tests.gateway.audit.samples import KEYS, record, running


@pytest.mark.anyio
async def test_midnight_in_utc_changes_the_data_key_and_both_days_stay_readable(
    tmp_path: Path,
) -> None:
    clock = StoppedClock()
    async with running(tmp_path, clock=clock) as log:
        await log.append(record(1), b"today")
        await log.append(record(2), b"still today")
        clock.advance(86_400)
        await log.append(record(4), b"tomorrow")
    days = [key.day for key in read_keys(tmp_path / "w0")]
    assert days == [days[0], days[0] + 1]
    rows = export_records(segment_rows(tmp_path), directory=tmp_path, keys=KEYS)
    assert [line["content"] async for line in rows] == ["today", "still today", "tomorrow"]
