"""Exports records as flat JSON objects for people and other systems, decrypted on request.

Rows come from the database (any async iterator of SequencedRecord) or straight from the segments.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from gateway.audit.content_keys.keys import (
    KEY_ELSEWHERE,
    KEYS_NAME,
    ContentOpener,
    ContentUnreadable,
    KeyWrapper,
    WrappedKey,
)
from gateway.audit.entries import ContentReference, content_aad
from gateway.audit.frames import HEAD_BYTES
from gateway.audit.lying_here import lies_here
from gateway.audit.memory import MemoryAuditSink
from gateway.audit.projecting.projection import ProjectedRecord, SequencedRecord
from gateway.audit.projecting.projector import Projector
from gateway.audit.second import is_second
from gateway.audit.segments import Place, segment_path


class SealedContent(Struct, frozen=True):
    """Content in the database, and its key; None if that was destroyed."""

    sealed: bytes
    key: WrappedKey | None


class DatabaseContents(Protocol):
    """Contents of the second device's records."""

    async def sealed(self, place: Place) -> SealedContent | None: ...


async def export_records(
    rows: AsyncIterator[SequencedRecord],
    *,
    directory: Path | None = None,
    keys: KeyWrapper | None = None,
    second: DatabaseContents | None = None,
) -> AsyncIterator[dict[str, object]]:
    """One flat object per row; with `directory` and `keys`, `content` is decrypted into it.

    `second` has the contents of records that never were in a segment. Unreadable content becomes
    `content_error`, and an unreadable record `record_error`, so that an export never stops
    half-way.
    """
    openers: dict[str, ContentOpener] = {}
    async for row in rows:
        line = export_line(row)
        projected = row.projected
        is_whole = bool(projected.raw_json)
        has_content = is_whole and keys is not None and projected.content is not None
        if has_content and is_second(projected.worker):
            line |= await _second_fields(projected, second, keys)
        elif has_content and directory and keys:
            folder = directory / projected.worker
            if not lies_here(folder / KEYS_NAME):
                line |= {"content_error": _elsewhere(projected.worker)}
                yield line
                continue
            if projected.worker not in openers:
                openers[projected.worker] = await asyncio.to_thread(ContentOpener, folder, keys)
            opener = openers[projected.worker]
            line |= await asyncio.to_thread(_content_fields, folder, projected, opener)
        yield line


def export_line(row: SequencedRecord) -> dict[str, object]:
    """Number, place and hash of a record, then all its fields, including defaults.

    With `ended_again` if it is not its request's first outcome: sums leave it out.
    """
    projected = row.projected
    place = {
        "sequence": row.sequence,
        "worker": projected.worker,
        "segment": projected.segment,
        "offset_bytes": projected.offset_bytes,
    }
    if row.is_again:
        place |= {"ended_again": True}
    if not projected.raw_json:
        return place | {"record_error": "the record is damaged or missing in its segment"}
    record = projected.record
    return {
        **place,
        "leaf_hash": projected.leaf_hash,
        **{name: msgspec.to_builtins(getattr(record, name)) for name in record.__struct_fields__},
        "content_reference": msgspec.to_builtins(projected.content),
    }


async def segment_rows(directory: Path) -> AsyncIterator[SequencedRecord]:
    """All records of a directory, numbered by the projector's rule, worker after worker.

    With one worker these are the database's numbers; with several they differ, because only the
    database knows the order of projection. All rows are held in memory.
    """
    sink = MemoryAuditSink()
    await Projector(directory, sink).catch_up()
    for row in sink.rows:
        yield row


def read_content(
    folder: Path, projected: ProjectedRecord, reference: ContentReference, opener: ContentOpener
) -> bytes:
    """Raises ContentUnreadable if the key is gone or the bytes are not the recorded ones."""
    opener.require(reference.key)
    start = projected.offset_bytes - reference.length_bytes
    if start <= HEAD_BYTES:
        raise ContentUnreadable("the content's place does not exist")
    try:
        with segment_path(folder, projected.segment).open("rb") as file:
            file.seek(start)
            sealed = file.read(reference.length_bytes)
    except OSError as error:
        raise ContentUnreadable("the content's segment cannot be read") from error
    return opener.open(reference.key, sealed, content_aad(projected.record))


async def _second_fields(
    projected: ProjectedRecord, second: DatabaseContents | None, keys: KeyWrapper | None
) -> dict[str, object]:
    place = (projected.worker, projected.segment, projected.offset_bytes)
    found = await second.sealed(place) if second else None
    if found is None or keys is None:
        return {"content_error": "the content is in a database that was not asked"}
    opener = ContentOpener.of_lines([found.key] if found.key else [], keys)
    return _opened(projected, lambda key, aad: opener.open(key, found.sealed, aad))


def _content_fields(
    folder: Path, projected: ProjectedRecord, opener: ContentOpener
) -> dict[str, object]:
    reference = projected.content
    if reference is None:
        return {}
    return _opened(projected, lambda _, __: read_content(folder, projected, reference, opener))


def _elsewhere(worker: str) -> str:
    """The error if a content's key file is elsewhere: its key may or may not be destroyed."""
    return f"{KEY_ELSEWHERE}: read it where worker {worker} has its folder"


def _opened(projected: ProjectedRecord, read: Callable[[str, bytes], bytes]) -> dict[str, object]:
    if projected.content is None:
        return {}
    try:
        content = read(projected.content.key, content_aad(projected.record))
    except ContentUnreadable as error:
        return {"content_error": str(error)}
    return {"content": content.decode("utf-8", "backslashreplace")}
