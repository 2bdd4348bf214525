"""The trees: RFC 6962 as written down naively, against tiles, proofs and the offline verifier."""

import hashlib
import random

import pytest

from gateway.audit.proving.merkle import (
    TILE_HASHES,
    OpenTree,
    TileKey,
    consistency_path,
    inclusion_path,
    outside_hashes,
    split_hashes,
    subtree_root,
)
from gateway.audit.proving.offline import (
    EMPTY_ROOT,
    Wrong,
    check_consistency,
    leaf_hash,
    root_from_path,
    root_of,
)


SIZES = (1, 2, 3, 7, 8, 255, 256, 257, 511, 512, 700, 65_536 + 300)
LEAVES = [leaf_hash(b"%d" % number) for number in range(max(SIZES))]


def naive_root(leaves: list[bytes]) -> bytes:
    """RFC 6962 §2.1, word for word."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    width = 1
    while 2 * width < len(leaves):
        width *= 2
    pair = naive_root(leaves[:width]) + naive_root(leaves[width:])
    return hashlib.sha256(b"\x01" + pair).digest()


class Tiles:
    """A tree with all its tiles in memory."""

    def __init__(self, size: int, step: int = 1000) -> None:
        self.open = OpenTree()
        self.full: dict[TileKey, list[bytes]] = {}
        for start in range(0, size, step):
            # Every batch goes on from what was stored, as in the database.
            self.open = OpenTree(self.open.size, self.open.encode())
            for tile in self.open.extend(LEAVES[start : min(size, start + step)]):
                self.full[tile.level, tile.number] = split_hashes(tile.hashes)

    def __call__(self, key: TileKey) -> list[bytes]:
        hashes = self.full.get(key) or self.open.hashes(key)
        assert hashes is not None, key
        return hashes


@pytest.fixture(scope="module")
def largest() -> Tiles:
    return Tiles(max(SIZES))


def test_the_root_is_the_one_of_the_rfc_for_every_size() -> None:
    assert OpenTree().root() == EMPTY_ROOT
    for size in SIZES:
        tree = Tiles(size).open
        assert tree.root() == naive_root(LEAVES[:size]) == root_of(LEAVES[:size])
    # RFC 6962's empty tree and single leaf, as certificate logs publish them.
    assert EMPTY_ROOT.hex().startswith("e3b0c44298fc1c14")
    assert leaf_hash(b"").hex().startswith("6e340b9cffb37a98")


def test_the_size_of_the_batches_does_not_matter() -> None:
    trees = [Tiles(700, step) for step in (1, 3, 256, 700)]
    assert len({tree.open.root() for tree in trees}) == 1
    assert all(tree.full == trees[0].full for tree in trees)
    assert set(trees[0].full) == {(0, 0), (0, 1)}


def test_open_tiles_of_another_size_are_refused() -> None:
    encoded = Tiles(300).open.encode()
    for size in (299, 301, 0):
        with pytest.raises(ValueError, match="not the open tiles"):
            OpenTree(size, encoded)


def test_a_tile_that_is_not_open_has_no_hashes() -> None:
    tree = Tiles(300).open
    assert len(tree.hashes((0, 1)) or []) == 300 - TILE_HASHES
    assert tree.hashes((0, 0)) is None
    assert tree.hashes((2, 0)) is None


@pytest.mark.parametrize("size", SIZES)
def test_inclusion_proofs_hold_and_hold_for_nothing_else(size: int, largest: Tiles) -> None:
    draw = random.Random(size)
    root = subtree_root(0, size, largest)
    assert root == naive_root(LEAVES[:size])
    for index in {0, size - 1, *(draw.randrange(size) for _ in range(20))}:
        path = inclusion_path(index, size, largest)
        assert root_from_path(LEAVES[index], index, size, path) == root
        assert len(path) <= 17
        if size > 1:
            other = (index + 1) % size
            assert _root_or_none(LEAVES[other], index, size, path) != root
            assert _root_or_none(LEAVES[index], other, size, path) != root
            assert _root_or_none(LEAVES[index], index, size, path[:-1]) != root
            assert _root_or_none(LEAVES[index], index, size, [*path, root]) != root
    with pytest.raises(Wrong):
        root_from_path(LEAVES[0], size, size, [])


def test_consistency_proofs_hold_and_hold_for_nothing_else(largest: Tiles) -> None:
    roots = {size: subtree_root(0, size, largest) for size in SIZES}
    for new in SIZES:
        for old in (size for size in SIZES if size <= new):
            path = consistency_path(old, new, largest)
            check_consistency(old, new, roots[old], roots[new], path)
            if old == new:
                continue
            for wrong in ([roots[new], *path[1:]], path[:-1], [*path, roots[old]]):
                with pytest.raises(Wrong):
                    check_consistency(old, new, roots[old], roots[new], wrong)
            with pytest.raises(Wrong):
                check_consistency(old, new, LEAVES[5], roots[new], path)
            with pytest.raises(Wrong):
                check_consistency(new, old, roots[new], roots[old], path)
    check_consistency(0, 7, EMPTY_ROOT, roots[7], [])


def test_what_lies_outside_a_range_leads_to_the_root(largest: Tiles) -> None:
    assert outside_hashes(0, 7, 7, largest) == []
    assert outside_hashes(0, 4, 8, largest) == [root_of(LEAVES[4:8])]
    assert outside_hashes(2, 3, 4, largest) == [root_of(LEAVES[0:2]), LEAVES[3]]


def _root_or_none(leaf: bytes, index: int, size: int, path: list[bytes]) -> bytes | None:
    try:
        return root_from_path(leaf, index, size, path)
    except Wrong:
        return None
