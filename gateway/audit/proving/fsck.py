"""Checks a whole log against its trees and checkpoints, from the bytes up.

`verify` checks the segments alone; this also checks what the database says about them: dense
numbers, every leaf, every tile, every root that was ever signed.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec import Struct

from gateway.audit.projecting.projection import SequencedRecord
from gateway.audit.proving.exported import SignedCheckpoint
from gateway.audit.proving.integrator import TreeDamaged, TreeStore
from gateway.audit.proving.merkle import TILE_HASHES, OpenTree, Tile, split_hashes
from gateway.audit.proving.offline import Wrong, open_checkpoint, parse_key


class BadLog(Struct, frozen=True):
    """The first thing that is wrong with an organisation's log."""

    organisation: str
    sequence: int
    """The first record that is affected; 0 if it is a checkpoint."""
    reason: str

    def __str__(self) -> str:
        place = (
            f"{self.organisation}, record {self.sequence}" if self.sequence else self.organisation
        )
        return f"{place}: {self.reason}"


NOTHING_LOST: Mapping[int, bytes] = MappingProxyType({})


class SignedRoots:
    """The signed roots of one log, each note checked; an idle log's million share one root."""

    def __init__(self, organisation: str, keys: Sequence[str]) -> None:
        self.organisation = organisation
        self._keys = keys
        self.count = 0
        self.bad: BadLog | None = None
        self.roots: dict[int, bytes] = {}

    def add(self, checkpoints: Iterable[SignedCheckpoint]) -> "SignedRoots":
        for checkpoint in checkpoints:
            self.count += 1
            reason = _bad_note(checkpoint, self._keys)
            if self.roots.setdefault(checkpoint.size, checkpoint.root) != checkpoint.root:
                reason = reason or f"two checkpoints of {checkpoint.size} records contradict"
            if reason and self.bad is None:
                self.bad = BadLog(self.organisation, 0, reason)
        return self


async def check_log(
    organisation: str,
    rows: AsyncIterator[SequencedRecord],
    checkpoints: Sequence[SignedCheckpoint],
    trees: TreeStore,
    keys: Sequence[str],
    lost: Mapping[int, bytes] = NOTHING_LOST,
) -> tuple[int, BadLog | None]:
    """How many numbers were checked, and the first fault.

    `checkpoints` may come from anywhere; each is checked against one of the verifier `keys`. `lost`
    are the leaves of numbers whose records were declared lost: they are in the tree.
    """
    signed = SignedRoots(organisation, keys).add(checkpoints)
    return await check_signed(signed, rows, trees, lost)


async def check_signed(
    signed: SignedRoots,
    rows: AsyncIterator[SequencedRecord],
    trees: TreeStore,
    lost: Mapping[int, bytes] = NOTHING_LOST,
) -> tuple[int, BadLog | None]:
    """The same for checkpoints that were added before, a few at a time."""
    organisation = signed.organisation
    if signed.bad is not None:
        return 0, signed.bad
    tree = OpenTree()
    try:
        async for leaf in _leaves(rows, lost):
            bad = await _add(organisation, tree, leaf, trees)
            if bad is not None:
                return tree.size, bad
            if tree.size in signed.roots and signed.roots[tree.size] != tree.root():
                reason = f"not what was signed at {tree.size} records"
                return tree.size, BadLog(organisation, tree.size, reason)
        stored = await trees.tree(organisation)
    except TreeDamaged as error:
        return tree.size, BadLog(organisation, tree.size, str(error))
    is_short = max(signed.roots, default=0) > tree.size
    return tree.size, _compare_ends(organisation, tree, stored, is_short=is_short)


def _compare_ends(
    organisation: str, tree: OpenTree, stored: OpenTree, *, is_short: bool
) -> BadLog | None:
    """Compare the open tiles of the derived and of the stored tree."""
    place = (0, tree.size // TILE_HASHES)
    derived, kept = tree.hashes(place) or [], stored.hashes(place) or []
    for number, (mine, theirs) in enumerate(zip(derived, kept, strict=False)):
        if mine != theirs:
            sequence = tree.size - len(derived) + number + 1
            return BadLog(organisation, sequence, "not the record that was numbered")
    if stored.size != tree.size or is_short:
        return BadLog(organisation, tree.size + 1, "records are missing at the end")
    if stored.encode() != tree.encode():
        return BadLog(organisation, tree.size, "the tree's open tiles are not those of its records")
    return None


async def _leaves(
    rows: AsyncIterator[SequencedRecord], lost: Mapping[int, bytes]
) -> AsyncIterator[bytes | str]:
    """The leaf of each number in order, or what is wrong with it."""
    expected = 1
    async for row in rows:
        while expected in lost:
            yield lost[expected]
            expected += 1
        if row.sequence != expected:
            yield "the record is missing"
        if not row.projected.raw_json:
            yield "the record is damaged or missing in its segment"
        yield bytes.fromhex(row.projected.leaf_hash)
        expected += 1
    while expected in lost:
        yield lost[expected]
        expected += 1


async def _add(
    organisation: str, tree: OpenTree, leaf: bytes | str, trees: TreeStore
) -> BadLog | None:
    if isinstance(leaf, str):
        return BadLog(organisation, tree.size + 1, leaf)
    for tile in tree.extend([leaf]):
        bad = await _compare(organisation, tile, trees)
        if bad is not None:
            return bad
    return None


async def _compare(organisation: str, tile: Tile, trees: TreeStore) -> BadLog | None:
    """Compare a full tile with the stored one; the first differing hash identifies the record."""
    stored = await trees.ask(organisation, lambda read: read((tile.level, tile.number)))
    width = TILE_HASHES**tile.level
    start = tile.number * TILE_HASHES
    for number, (mine, kept) in enumerate(zip(split_hashes(tile.hashes), stored, strict=False)):
        if mine != kept:
            sequence = (start + number) * width + 1
            return BadLog(organisation, sequence, "not the record that was numbered")
    return None


def _bad_note(checkpoint: SignedCheckpoint, keys: Sequence[str]) -> str:
    """Empty if the note is signed by one of the keys and agrees with its row."""
    try:
        known = [_parsed(key) for key in keys]
        _, size, root, utc_us = open_checkpoint(checkpoint.note, known, _holds)
    except Wrong as error:
        return f"the checkpoint of {checkpoint.signed_us}: {error}"
    if (size, root, utc_us) != (checkpoint.size, checkpoint.root, checkpoint.signed_us):
        return f"the checkpoint of {checkpoint.signed_us} says something else than its note"
    return ""


_parsed = lru_cache(parse_key)


def _holds(public: bytes, signature: bytes, message: bytes) -> bool:
    """Like `offline.ed25519_holds`, but forty times as fast: a year has a million signatures."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True
