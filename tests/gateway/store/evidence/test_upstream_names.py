"""What upstreams call it: written once with whatever says so, by either way in, and found again."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.audit.content_keys.keys import WrappedKey
from gateway.audit.projecting.projection import START, ProjectedRecord
from gateway.audit.second import SECOND_SUFFIX
from gateway.passage import NATIVE, NATIVE_FILES
from gateway.store.engine import Database
from gateway.store.evidence.second_rows import SecondRecord
from gateway.store.evidence.second_writing import SecondWriter
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.evidence.upstream_names import (
    FOUND_MAX,
    LENGTH_MAX,
    UpstreamNames,
    names_in,
)
from gateway.store.schema.parcels import parcels
from gateway.types import Attempt, AuditRecord
from tests.databases import BOTH
from tests.gateway.batching.parking_lot import Lot
from tests.gateway.store.evidence.test_sink import batch_of


pytestmark = pytest.mark.anyio
BATCH = f"batch_{'a' * 48}"
NOTHING: tuple[Sequence[SecondRecord], Sequence[WrappedKey]] = ((), ())


def outcome(number: int, *names: str, organisation: str = "acme", **detail: str) -> AuditRecord:
    attempts = tuple(Attempt("small", 200, "", 9, 5, upstream_ids=(name,)) for name in names)
    return AuditRecord(
        *("outcome", f"req_{number}", organisation, 1_800_000_000_000_000 + number),
        attempts=attempts,
        detail=detail,
    )


def line(number: int, *names: str) -> AuditRecord:
    native = {"path": NATIVE, NATIVE: "batch_v1", NATIVE_FILES: "file-1 file-2"}
    return outcome(number, *names, batch=BATCH, line=str(number), **native)


def known(records: Sequence[AuditRecord]) -> list[ProjectedRecord]:
    return [ProjectedRecord("w0", 1, 100, b"{}", record, "00" * 32) for record in records]


async def test_calls_lead_to_requests_and_a_vendors_batch_and_files_to_the_batch_of_all_lines(
    database: Database,
) -> None:
    sink, names = DatabaseAuditSink(database), UpstreamNames(database)
    first = batch_of("w1", [outcome(1, "early", "late"), line(2, "call-2"), line(3, "call-3")])
    assert await sink.store(first, "w1", START, (1, 300))
    # The same names again, by another worker: nothing breaks, and nothing is there twice.
    second = batch_of("w2", [line(4, "call-4"), outcome(5, "late"), outcome(6, organisation="b")])
    assert await sink.store(second, "w2", START, (1, 300))

    found = {name: await names.lead_to("acme", name) for name in ("early", "late", "call-4")}
    assert found == {"early": ["req_1"], "late": ["req_1", "req_5"], "call-4": ["req_4"]}
    for name in ("batch_v1", "file-1", "file-2"):
        assert await names.lead_to("acme", name) == [BATCH]
        assert await names.lead_to("b", name) == []
    assert await names.lead_to("acme", "EARLY") == []


async def test_however_many_bear_one_name_a_few_are_found(database: Database) -> None:
    sink, names = DatabaseAuditSink(database), UpstreamNames(database)
    many = batch_of("w1", [outcome(number, "same") for number in range(100, 280)])
    assert await sink.store(many, "w1", START, (1, 18_000))
    found = await names.lead_to("acme", "same")
    assert found == [f"req_{number}" for number in range(100, 100 + FOUND_MAX)]


async def test_a_batch_that_its_vendor_is_working_on_is_found(database: Database) -> None:
    lot, names = Lot(database), UpstreamNames(database)
    await lot.begin(1)
    batch, now_us = lot.batch, lot.clock.utc_us()
    row = {
        "id": "gwp-1",
        "batch_id": batch.batch_id,
        "provider": "p",
        "state": "submitted",
        "vendor_id": "batch_v7",
        "lines": 1,
        "made_us": now_us,
        "due_us": now_us,
        "tries": 0,
        "tender": "",
        "tended_until_us": 0,
    }
    async with database.writing() as connection:
        await connection.execute(parcels.insert(), row)
    assert await names.lead_to(batch.project.organisation, "batch_v7") == [batch.batch_id]
    assert await names.lead_to("other", "batch_v7") == []
    assert await names.lead_to(batch.project.organisation, "batch_v8") == []


@pytest.mark.parametrize("database_url", BOTH[1:], indirect=True)
async def test_what_the_second_device_takes_is_found_too(database: Database) -> None:
    names, writer = UpstreamNames(database), SecondWriter(database)
    worker = f"w1{SECOND_SUFFIX}"
    sink = DatabaseAuditSink(database)
    assert await sink.store([], worker, START, (1, 0))
    group = batch_of(worker, [line(1, "call-1"), line(2, "call-2"), outcome(3)])
    assert await writer.store(worker, (1, 0), (1, 300), group, NOTHING)
    again = batch_of(worker, [line(4, "call-1")], 300)
    assert await writer.store(worker, (1, 300), (1, 400), again, NOTHING)
    await writer.let_go()
    assert await names.lead_to("acme", "call-1") == ["req_1", "req_4"]
    assert await names.lead_to("acme", "file-2") == [BATCH]


@given(st.text(max_size=300), st.sampled_from(["intent", "outcome", "admin"]))
def test_only_outcomes_name_anything_and_nothing_that_no_index_takes(name: str, stage: str) -> None:
    record = AuditRecord(
        *(stage, "req_1", "acme", 1),  # type: ignore[arg-type]
        attempts=(Attempt("small", 200, "", 9, 5, upstream_ids=(name, name)),),
    )
    clean = name.replace("\x00", "\ufffd")
    is_named = stage == "outcome" and 0 < len(name) <= LENGTH_MAX
    assert names_in(known([record, record])) == ([("acme", clean, "req_1")] if is_named else [])
