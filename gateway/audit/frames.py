"""Frames: how bytes lie in a segment file, and how a broken end differs from a broken middle.

A frame is `length u32 · kind u8 · crc32(length, kind) u32 · crc32(all) u32 · payload`, big-endian.
The first checksum covers only the head. When it holds and the payload is missing, a crash cut the
write off. When it does not hold, the file was changed, or the power failed during a write over
zeros: then any of its sectors may still be as it was before.
"""

import struct
from itertools import pairwise
from typing import BinaryIO, NamedTuple
from zlib import crc32


HEADER = 1
CONTENT = 2
RECORD = 3

CONTENT_MAX_BYTES = 8 * 1024 * 1024
_LENGTH_LIMITS = {HEADER: 4096, CONTENT: CONTENT_MAX_BYTES + 64, RECORD: 20 * 1024}

_HEAD = struct.Struct("!IBII")
_LENGTH_AND_KIND = struct.Struct("!IB")
HEAD_BYTES = _HEAD.size
_SECTOR_BYTES = 512
"""The unit that a disk writes completely or not at all; larger sectors are multiples of it."""


class BadFrame(Exception):
    """There is no complete frame at `offset_bytes`."""

    def __init__(
        self, offset_bytes: int, reason: str, *, torn: bool = False, lacks_a_sector: bool = False
    ) -> None:
        super().__init__(f"offset {offset_bytes}: {reason}")
        self.offset_bytes = offset_bytes
        self.reason = reason
        self.torn = torn
        """Whether it looks like a write cut off by a crash, which holds nothing acknowledged."""
        self.may_be_unsynced = torn or lacks_a_sector
        """Whether it may be an unacknowledged write that a power failure interrupted."""


class Frame(NamedTuple):
    offset_bytes: int
    kind: int
    payload: bytes
    end_bytes: int


def encode_frame(kind: int, payload: bytes) -> bytes:
    return frame_head(kind, payload) + payload


def frame_head(kind: int, payload: bytes) -> bytes:
    """The HEAD_BYTES before a payload; separate, so that a long payload is not copied."""
    length = len(payload)
    head_crc = crc32(_LENGTH_AND_KIND.pack(length, kind))
    return _HEAD.pack(length, kind, head_crc, crc32(payload, head_crc))


def read_frame(file: BinaryIO, offset_bytes: int, limit_bytes: int) -> Frame | None:
    """The frame at the file's current place, `offset_bytes`; None exactly at the limit.

    Raises:
        BadFrame: it is cut off, changed, or crosses the limit.
    """
    left = limit_bytes - offset_bytes
    if left <= 0:
        return None
    head = file.read(min(HEAD_BYTES, left))
    if len(head) < HEAD_BYTES:
        raise BadFrame(offset_bytes, "the frame's head is cut off", torn=True)
    length, kind, head_crc, payload_crc = _HEAD.unpack(head)
    if crc32(head[: _LENGTH_AND_KIND.size]) != head_crc:
        lacks = _lacks_a_sector(offset_bytes, head)
        raise BadFrame(offset_bytes, "the frame's head was changed", lacks_a_sector=lacks)
    if length > _LENGTH_LIMITS.get(kind, -1):
        raise BadFrame(offset_bytes, f"no frame of kind {kind} has {length} bytes")
    payload = file.read(min(length, left - HEAD_BYTES))
    if len(payload) < length:
        raise BadFrame(offset_bytes, "the frame is cut off", torn=True)
    if crc32(payload, head_crc) != payload_crc:
        lacks = _lacks_a_sector(offset_bytes, head + payload)
        raise BadFrame(offset_bytes, "the frame's bytes were changed", lacks_a_sector=lacks)
    return Frame(offset_bytes, kind, payload, offset_bytes + HEAD_BYTES + length)


def _lacks_a_sector(offset_bytes: int, raw: bytes) -> bool:
    """Whether some sector's share of these bytes is all zeros, as before they were written."""
    first = -offset_bytes % _SECTOR_BYTES
    places = [0, *range(first or _SECTOR_BYTES, len(raw), _SECTOR_BYTES), len(raw)]
    return any(not any(raw[begin:end]) for begin, end in pairwise(places))
