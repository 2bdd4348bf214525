"""Intents that a crash left without an outcome: found in the segments when their worker starts.

Nobody knows what became of such a request. It is closed as incomplete, at what was set aside for
it: an upstream may have answered and will charge for it, so it is never free.
"""

from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from gateway.audit.entries import decode_entry, leaf_hash
from gateway.audit.frames import BadFrame
from gateway.audit.segments import SegmentReader, declared_end, list_segments, segment_path
from gateway.types import AuditRecord


READ_BYTES_MAX: Final = 64 * 1024 * 1024
"""So far back from the end; a crash loop leaves many short segments."""
CRASHED: Final = "worker_crashed"
_KEPT: Final = (
    *("request_id", "organisation", "workspace", "project", "key_id", "endpoint", "dialect"),
    *("model_requested", "target", "provider", "jurisdiction", "decision", "policy_digest"),
    *("data_class", "subject"),
)


class _Head(Struct, frozen=True):
    stage: str
    request_id: str


class _Line(Struct, frozen=True):
    record: _Head


_DECODER = msgspec.json.Decoder(_Line)


class OpenIntent(Struct, frozen=True):
    """An intent without an outcome in its worker's segments."""

    record: AuditRecord
    leaf_hash: str


def open_intents(folder: Path, below: int) -> list[OpenIntent]:
    """Those of a worker's segments before one; what is damaged there, the verifier names.

    Lines of batches are left out: some wait for a vendor for a day, whoever has their batch then.
    """
    found: dict[str, bytes] = {}
    ended: set[str] = set()
    left_bytes = READ_BYTES_MAX
    for number in reversed([each for each in list_segments(folder) if each < below]):
        if left_bytes <= 0:
            break
        with suppress(BadFrame, OSError, msgspec.MsgspecError):
            left_bytes -= _read(folder, number, found, ended)
    intents = [OpenIntent(decode_entry(raw).record, leaf_hash(raw).hex()) for raw in found.values()]
    return [
        each
        for each in intents
        if each.record.request_id not in ended and "batch" not in each.record.detail
    ]


def _read(folder: Path, number: int, found: dict[str, bytes], ended: set[str]) -> int:
    """Intents and outcomes of one segment; how long it is."""
    end = declared_end(folder, number)
    with SegmentReader(segment_path(folder, number), end) as reader:
        for stored in reader.records():
            head = _DECODER.decode(stored.raw).record
            if head.stage == "outcome":
                ended.add(head.request_id)
            elif head.stage == "intent":
                found[head.request_id] = stored.raw
        return reader.limit_bytes


def closing(intent: OpenIntent, utc_us: int) -> AuditRecord:
    """The outcome of a request of which nothing more is known."""
    begun = intent.record
    return AuditRecord(
        stage="outcome",
        utc_us=utc_us,
        intent=intent.leaf_hash,
        status="incomplete",
        error=CRASHED,
        cost_microusd=begun.reserved_microusd,
        detail={"cost": "reserved", "outcome": "unknown"},
        **{name: getattr(begun, name) for name in _KEPT},
    )
