"""Which request a receipt is of: the record is read where the receipt says that it lies."""

import asyncio
from pathlib import Path

from gateway.audit.projection import ProjectedRecord
from gateway.audit.segments import read_entries
from gateway.audit.verify import parse_receipt


async def request_of(directory: Path, text: str, organisation: str) -> str | None:
    """The request's id; None for what is no receipt, does not hold or is of another log.

    One place is looked at, however long the log is. So it is None as well of a record that is not
    in the segments here: another machine's, or one that the database took while the disk could not.
    """
    receipt = parse_receipt(text)
    if receipt is None:
        return None
    place = (receipt.worker, receipt.segment, receipt.offset_bytes)
    raw = (await asyncio.to_thread(read_entries, directory, [place])).get(place)
    if raw is None:
        return None
    found = ProjectedRecord(*place, raw)
    if found.leaf_hash != receipt.leaf_hash or found.record.organisation != organisation:
        return None
    return found.record.request_id or None
