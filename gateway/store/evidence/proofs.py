"""Proofs that a record is in its organisation's signed log, as `gatewright audit prove` prints."""

from pathlib import Path

from msgspec import Struct

from gateway.audit.projecting.projection import SequencedRecord
from gateway.audit.proving.checkpoints import verifier_keys
from gateway.audit.proving.exported import SignedCheckpoint
from gateway.audit.proving.merkle import HashesOfTile, inclusion_path
from gateway.store.evidence.tree import DatabaseAuditTrees


class Proof(Struct, frozen=True):
    """What the offline verifier and a browser check: record, path, signed root and its keys."""

    sequence: int
    """From 1; leaf `sequence - 1` of the tree."""
    record: str
    """The exact text that the leaf hash covers."""
    path: tuple[str, ...]
    """Hex hashes from the leaf's sibling up to the root."""
    checkpoint: str
    """The signed note."""
    keys: tuple[str, ...]
    """The log's own keys; whoever checks should know them from elsewhere."""


async def proof_of(
    row: SequencedRecord, checkpoint: SignedCheckpoint, trees: DatabaseAuditTrees, directory: Path
) -> Proof:
    """The proof of a record in a log of its size or larger; `directory` holds the segments.

    Raises:
        TreeDamaged: the stored tree is incomplete.
        NotReady: the database does not answer.
    """
    index, size = row.sequence - 1, checkpoint.size

    def path(tile: HashesOfTile) -> list[bytes]:
        return inclusion_path(index, size, tile)

    hashes = await trees.ask(checkpoint.organisation, path)
    return Proof(
        row.sequence,
        row.projected.raw_json.decode(),
        tuple(each.hex() for each in hashes),
        checkpoint.note,
        tuple(verifier_keys(directory)),
    )
