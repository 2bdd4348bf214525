"""Evidence packs: records of one organisation with everything that proves them, and a verifier.

A zip file, written while the records are read: memory holds 32 bytes for each record and no record
twice. All that a stranger needs to check it is inside; `offline.py` is the one file that does it.
"""

import asyncio
import hashlib
import json
import os
import zipfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

from msgspec import Struct

from gateway.audit.projecting.projection import SequencedRecord
from gateway.audit.proving import offline
from gateway.audit.proving.exported import SignedCheckpoint
from gateway.audit.proving.integrator import TreeStore
from gateway.audit.proving.merkle import HashesOfTile, consistency_path, outside_hashes


CHECKPOINTS_MAX = 500
_PIECE_BYTES = 1 << 18
_VERIFIER = Path(offline.__file__).read_bytes()
_README = """Evidence of {origin}, records {first} to {last}

    python3 -m zipfile -e PACK.zip pack
    python3 pack/verify.py PACK.zip --key "KEYS"

with Python 3.11 or newer and nothing to install; where it is called py or python, type that.
PACK.zip is the file that this stands in, whatever it is called with you.
KEYS is what the operator of the log gave you another way, a key for each worker that signs; those
of keys.txt should be among them.
Whoever trusts the maker of this pack with nothing takes verify.py from another place, too.
records.jsonl      one record a line, the very bytes that were hashed (RFC 6962 leaf: 0x00 + line)
leaves.bin         the leaf hashes, 32 bytes each
checkpoints.jsonl  signed sizes and roots (C2SP checkpoints), each proved to extend the one before
policies/          policy documents, each named by its SHA-256; a record names its policy's digest
manifest.json      SHA-256 of every file, and the hashes that stand for the log's other records

Nobody signs the manifest. When it was made, for whom, and how many checkpoints were left out is its
maker's word; whatever else it says is checked against the signed log.
Where a request has several outcomes, the one of the lowest number counts. The others are numbered
in `ended_again`; of one whose first outcome lies before this pack, that is the operator's word.
"""


class PackRefused(Exception):
    """A pack of these records could not be verified; the message says why."""


class PackRequest(Struct, frozen=True):
    """What goes into a pack."""

    origin: str
    organisation: str
    first_sequence: int
    last_sequence: int
    keys: tuple[str, ...]
    """Verifier keys of the signers."""
    policies: Mapping[str, str]
    """Documents by their digest, which is the SHA-256 of the text."""
    created_us: int
    recipient: str = ""
    """For whom it is, as its maker stated; part of the manifest."""
    checkpoints_left_out: int = 0
    """How many more were signed in the period: a pack has at most CHECKPOINTS_MAX."""


async def write_pack(
    path: Path,
    request: PackRequest,
    rows: AsyncIterator[SequencedRecord],
    checkpoints: Sequence[SignedCheckpoint],
    trees: TreeStore,
) -> int:
    """Write a pack; returns how many records it has. `checkpoints` in order, the last covers all.

    Raises:
        PackRefused: a record is missing or damaged, or no checkpoint covers the last.
        OSError: the file cannot be written.
    """
    first, last = request.first_sequence, request.last_sequence
    if not checkpoints or checkpoints[-1].size < last:
        raise PackRefused(f"no checkpoint covers record {last}")
    with _Writer(path) as writer:
        leaves, again = await _write_records(writer, request, rows)
        await writer.add_pieces("leaves.bin", _cut(leaves))
        writer.add("checkpoints.jsonl", await _checkpoint_lines(request, checkpoints, trees))
        writer.add("keys.txt", "".join(f"{key}\n" for key in request.keys).encode())
        for digest, text in sorted(request.policies.items()):
            writer.add(f"policies/{digest}.json", text.encode())
        writer.add("verify.py", _VERIFIER)
        about = _README.format(origin=request.origin, first=first, last=last)
        writer.add("README.txt", about.encode())
        outside = await trees.ask(request.organisation, _outside(first, last, checkpoints[-1].size))
        manifest = {
            "format": offline.FORMAT,
            "origin": request.origin,
            "organisation": request.organisation,
            "first_sequence": first,
            "last_sequence": last,
            "created_us": request.created_us,
            "recipient": request.recipient,
            "keys": list(request.keys),
            "checkpoints_left_out": request.checkpoints_left_out,
            "ended_again": again,
            "outside": [hash_.hex() for hash_ in outside],
            "files": writer.digests,
        }
        writer.add("manifest.json", json.dumps(manifest, indent=1).encode())
    return last - first + 1


class _Writer:
    """A zip file being written, and the digest of each file in it; removed after a failure.

    Only its owner can read it, who passes it on.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.fdopen(os.open(path, flags, 0o600), "wb")
        self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
        self.digests: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        is_whole = False
        try:
            with self._file:
                self._zip.close()  # Closing also writes: the disk may fill up only now.
            is_whole = error is None
        finally:
            if not is_whole:
                self._path.unlink()

    def add(self, name: str, data: bytes) -> None:
        self._zip.writestr(name, data)
        self.digests[name] = hashlib.sha256(data).hexdigest()

    async def add_pieces(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        digest = hashlib.sha256()
        with self._zip.open(name, "w", force_zip64=True) as file:
            async for piece in pieces:
                digest.update(piece)
                file.write(piece)
        self.digests[name] = digest.hexdigest()


async def _write_records(
    writer: _Writer, request: PackRequest, rows: AsyncIterator[SequencedRecord]
) -> tuple[bytearray, list[int]]:
    """The leaf hashes of what was written, and the numbers of outcomes that do not count."""
    leaves, again = bytearray(), list[int]()

    async def lines() -> AsyncIterator[bytes]:
        expected = request.first_sequence
        async for row in rows:
            if row.sequence != expected or not row.projected.raw_json:
                raise PackRefused(f"record {expected} is damaged or missing in its segment")
            again.extend([expected] if row.is_again else [])
            leaves.extend(offline.leaf_hash(row.projected.raw_json))
            yield row.projected.raw_json + b"\n"
            expected += 1
            if expected > request.last_sequence:
                return
        raise PackRefused(f"record {expected} is missing")

    await writer.add_pieces("records.jsonl", lines())
    return leaves, again


async def _cut(data: bytearray) -> AsyncIterator[bytes]:
    """In pieces, so that others get their turn and memory does not hold two more copies."""
    for start in range(0, len(data), _PIECE_BYTES):
        await asyncio.sleep(0)
        yield bytes(data[start : start + _PIECE_BYTES])


async def _checkpoint_lines(
    request: PackRequest, checkpoints: Sequence[SignedCheckpoint], trees: TreeStore
) -> bytes:
    sizes = [checkpoint.size for checkpoint in checkpoints]

    def paths(tile: HashesOfTile) -> list[list[bytes]]:
        return [consistency_path(old, new, tile) for old, new in pairwise(sizes)]

    proofs = [[], *await trees.ask(request.organisation, paths)]
    lines = (
        {"note": checkpoint.note, "consistency": [hash_.hex() for hash_ in proof]}
        for checkpoint, proof in zip(checkpoints, proofs, strict=True)
    )
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()


def _outside(first: int, last: int, size: int) -> Callable[[HashesOfTile], list[bytes]]:
    return lambda tile: outside_hashes(first - 1, last, size, tile)
