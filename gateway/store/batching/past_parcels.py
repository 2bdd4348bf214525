"""Parcels that were finished and dropped, in case their sender hears from the vendor only later.

While a sender was away, another worker may have found the vendor's batch, read it and had it
deleted. Without this list the sender would take the vendor's late answer for a second batch.
"""

from typing import Final

from sqlalchemy import and_, delete, insert, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.schema.parcels import past_parcels


KEPT_US: Final = 30 * 86_400_000_000
"""How long a sender may be away."""
_PAST = past_parcels.c


async def remember(
    connection: AsyncConnection, parcel_id: str, vendor_id: str, now_us: int
) -> None:
    """Called in the transaction that releases a parcel its vendor had; may be repeated."""
    same = and_(_PAST.id == parcel_id, _PAST.vendor_id == vendor_id)
    old = _PAST.gone_us < now_us - KEPT_US
    await connection.execute(delete(past_parcels).where(or_(old, same)))
    row = {"id": parcel_id, "vendor_id": vendor_id, "gone_us": now_us}
    await connection.execute(insert(past_parcels), row)


async def is_past(connection: AsyncConnection, parcel_id: str, vendor_id: str) -> bool:
    """Whether this batch at a vendor was found, and released."""
    query = select(_PAST.id).where(_PAST.id == parcel_id, _PAST.vendor_id == vendor_id)
    return (await connection.execute(query)).first() is not None
