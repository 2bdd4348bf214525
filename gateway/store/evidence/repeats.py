"""Finds second outcomes of a request; they get a number but are counted nowhere.

Any worker may end a line that waited for a vendor, or a request that a dead worker left open. If
that worker is stopped just before it writes, or before others can read what it wrote, it may write
again after another worker has: nothing outside the database can prevent that. The first outcome
that gets a number is the request's outcome. Outcomes that a worker writes of its own requests come
once, and are not checked.
"""

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.audit.projecting.projection import ProjectedRecord
from gateway.store.schema.audit import audit_records
from gateway.telemetry import Event, logger
from gateway.types import AuditRecord


_AT_ONCE = 500


async def repeats(connection: AsyncConnection, batch: list[ProjectedRecord]) -> frozenset[int]:
    """Places of repeats in a batch of decoded records, under the lock on its organisations."""
    records = [each.known_record or each.record for each in batch]
    doubtful = {each.request_id for each in records if each.stage == "outcome" and _is_late(each)}
    if not doubtful:
        return frozenset()
    places: dict[str, list[int]] = {}
    for place, record in enumerate(records):
        if record.stage == "outcome" and record.request_id in doubtful:
            places.setdefault(record.request_id, []).append(place)
    known = await _ended(connection, sorted(places))
    found = frozenset(
        place for name, some in places.items() for place in (some if name in known else some[1:])
    )
    for place in sorted(found):
        worker, request_id = batch[place].worker, records[place].request_id
        logger().warning(Event.AUDIT_ENDED_AGAIN, worker=worker, request_id=request_id)
    return found


def _is_late(outcome: AuditRecord) -> bool:
    """Whether another outcome may have been written before, or at the same time.

    This is so for a line of a batch, for what was left open, and for what was refused though its
    intent exists.
    """
    detail = outcome.detail
    if detail and ("batch" in detail or detail.get("outcome") == "unknown"):
        return True
    return outcome.status == "refused" and outcome.intent != ""


async def _ended(connection: AsyncConnection, request_ids: list[str]) -> set[str]:
    """Those of these requests that have an outcome."""
    columns, known = audit_records.c, set[str]()
    for start in range(0, len(request_ids), _AT_ONCE):
        some = request_ids[start : start + _AT_ONCE]
        query = select(columns.request_id).where(
            columns.request_id.in_(some), columns.stage == "outcome"
        )
        known.update((await connection.execute(query)).scalars())
    return known
