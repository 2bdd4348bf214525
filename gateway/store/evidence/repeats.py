"""Outcomes of lines of batches that are not their requests' first: numbered, and counted nowhere.

Any worker may end a line that waited for a vendor. One that was stopped just before it wrote, or
before others could read what it wrote, does so again when another one has: nothing outside of the
database can keep it from that. The first that gets a number is the request's outcome.
"""

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.audit.projection import ProjectedRecord
from gateway.store.schema.audit import audit_records
from gateway.telemetry import Event, logger


_AT_ONCE = 500


async def repeats(connection: AsyncConnection, batch: list[ProjectedRecord]) -> frozenset[int]:
    """Their places in a batch of decoded records, while its organisations' numbers are held."""
    places: dict[str, list[int]] = {}
    for place, projected in enumerate(batch):
        record = projected.known_record or projected.record
        if record.detail and record.stage == "outcome" and "batch" in record.detail:
            places.setdefault(record.request_id, []).append(place)
    if not places:
        return frozenset()
    known = await _ended(connection, sorted(places))
    found = frozenset(
        place for name, some in places.items() for place in (some if name in known else some[1:])
    )
    for place in sorted(found):
        projected = batch[place]
        record = projected.known_record or projected.record
        logger().warning(
            Event.AUDIT_ENDED_AGAIN, worker=projected.worker, request_id=record.request_id
        )
    return found


async def _ended(connection: AsyncConnection, request_ids: list[str]) -> set[str]:
    """Of these requests, those that have an outcome."""
    columns, known = audit_records.c, set[str]()
    for start in range(0, len(request_ids), _AT_ONCE):
        some = request_ids[start : start + _AT_ONCE]
        query = select(columns.request_id).where(
            columns.request_id.in_(some), columns.stage == "outcome"
        )
        known.update((await connection.execute(query)).scalars())
    return known
