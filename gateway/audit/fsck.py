"""Checks a whole log against its trees and checkpoints, from the bytes up.

`verify` looks at the segments alone; this one also at what the database says about them: dense
numbers, every leaf, every tile, every root that was ever signed.
"""

from collections.abc import AsyncIterator, Sequence

from msgspec import Struct

from gateway.audit.integrator import SignedCheckpoint, TreeDamaged, TreeStore
from gateway.audit.merkle import TILE_HASHES, OpenTree, Tile, split_hashes
from gateway.audit.offline import Wrong, open_checkpoint, parse_key
from gateway.audit.projection import SequencedRecord


class BadLog(Struct, frozen=True):
    """The first thing that is wrong with an organisation's log."""

    organisation: str
    sequence: int
    """Of the first record that is affected; 0 when it is a checkpoint."""
    reason: str

    def __str__(self) -> str:
        place = (
            f"{self.organisation}, record {self.sequence}" if self.sequence else self.organisation
        )
        return f"{place}: {self.reason}"


async def check_log(
    organisation: str,
    rows: AsyncIterator[SequencedRecord],
    checkpoints: Sequence[SignedCheckpoint],
    trees: TreeStore,
    keys: Sequence[str],
) -> tuple[int, BadLog | None]:
    """How many records were checked, and the first thing that is wrong.

    `checkpoints` from wherever they are kept; each is checked against one of the verifier `keys`.
    """
    waiting = sorted(checkpoints, key=lambda checkpoint: checkpoint.size)
    for checkpoint in waiting:
        reason = _bad_note(checkpoint, keys)
        if reason:
            return 0, BadLog(organisation, 0, reason)
    tree = OpenTree()
    try:
        async for row in rows:
            bad = await _add(organisation, tree, row, trees)
            if bad is not None:
                return tree.size, bad
            while waiting and waiting[0].size <= tree.size:
                checkpoint = waiting.pop(0)
                if checkpoint.size == tree.size and checkpoint.root != tree.root():
                    reason = f"not what was signed at {checkpoint.size} records"
                    return tree.size, BadLog(organisation, tree.size, reason)
        stored = (await trees.trees()).get(organisation, OpenTree())
    except TreeDamaged as error:
        return tree.size, BadLog(organisation, tree.size, str(error))
    return tree.size, _compare_ends(organisation, tree, stored, is_short=bool(waiting))


def _compare_ends(
    organisation: str, tree: OpenTree, stored: OpenTree, *, is_short: bool
) -> BadLog | None:
    """The open tiles of the derived and of the stored tree."""
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


async def _add(
    organisation: str, tree: OpenTree, row: SequencedRecord, trees: TreeStore
) -> BadLog | None:
    expected = tree.size + 1
    if row.sequence != expected:
        return BadLog(organisation, expected, "the record is missing")
    if not row.projected.raw_json:
        return BadLog(organisation, expected, "the record is damaged or missing in its segment")
    for tile in tree.extend([bytes.fromhex(row.projected.leaf_hash)]):
        bad = await _compare(organisation, tile, trees)
        if bad is not None:
            return bad
    return None


async def _compare(organisation: str, tile: Tile, trees: TreeStore) -> BadLog | None:
    """A full tile against the stored one; the first hash that differs names the record."""
    stored = await trees.ask(organisation, lambda read: read((tile.level, tile.number)))
    width = TILE_HASHES**tile.level
    start = tile.number * TILE_HASHES
    for number, (mine, kept) in enumerate(zip(split_hashes(tile.hashes), stored, strict=False)):
        if mine != kept:
            sequence = (start + number) * width + 1
            return BadLog(organisation, sequence, "not the record that was numbered")
    return None


def _bad_note(checkpoint: SignedCheckpoint, keys: Sequence[str]) -> str:
    """Empty when the note is signed by one of the keys and says what its row says."""
    try:
        _, size, root, utc_us = open_checkpoint(checkpoint.note, [parse_key(key) for key in keys])
    except Wrong as error:
        return f"the checkpoint of {checkpoint.signed_us}: {error}"
    if (size, root, utc_us) != (checkpoint.size, checkpoint.root, checkpoint.signed_us):
        return f"the checkpoint of {checkpoint.signed_us} says something else than its note"
    return ""
