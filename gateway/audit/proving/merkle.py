"""The Merkle tree of an organisation's log: it grows leaf by leaf, and proves what it holds.

RFC 6962 trees, cut into tiles of 256 hashes as in C2SP's tlog-tiles: a full tile never changes, and
its root is one hash in a tile of the level above. To go on, only the open tiles are needed.
"""

from collections.abc import Callable

from msgspec import Struct

from gateway.audit.proving.offline import EMPTY_ROOT, node_hash, root_of, split_point


TILE_HASHES = 256
_TILE_BITS = 8
HASH_BYTES = 32

TileKey = tuple[int, int]
"""Level and number: tile (level, number) covers 256 subtrees of 256**level leaves each."""
HashesOfTile = Callable[[TileKey], list[bytes]]


class Tile(Struct, frozen=True):
    """256 hashes that will never change."""

    level: int
    number: int
    hashes: bytes


class OpenTree:
    """The growing end of a tree: for each level the hashes that fill no tile yet."""

    def __init__(self, size: int = 0, encoded: bytes = b"") -> None:
        """Raises ValueError if the bytes are not the open tiles of a tree of this size."""
        self.size = size
        self._levels: list[list[bytes]] = []
        start = 0
        while size >> (_TILE_BITS * len(self._levels)):
            count = (size >> (_TILE_BITS * len(self._levels))) % TILE_HASHES
            end = start + count * HASH_BYTES
            self._levels.append(
                [encoded[at : at + HASH_BYTES] for at in range(start, end, HASH_BYTES)]
            )
            start = end
        if start != len(encoded):
            raise ValueError("these are not the open tiles of this tree")

    def encode(self) -> bytes:
        """The open tiles, lowest level first; how many hashes each has follows from the size."""
        return b"".join(hash_ for level in self._levels for hash_ in level)

    def extend(self, leaves: list[bytes]) -> list[Tile]:
        """Add leaf hashes; returns the tiles that became full."""
        full: list[Tile] = []
        done = 0
        while done < len(leaves):
            taken = leaves[done : done + TILE_HASHES - self.size % TILE_HASHES]
            self._level(0).extend(taken)
            self.size += len(taken)
            done += len(taken)
            if self.size % TILE_HASHES == 0:
                full += self._close_tiles()
        return full

    def root(self) -> bytes:
        """The Merkle tree hash of all leaves."""
        result = b""
        for level in self._levels:
            for subtree in reversed(_full_subtrees(level)):
                result = node_hash(subtree, result) if result else subtree
        return result or EMPTY_ROOT

    def hashes(self, key: TileKey) -> list[bytes] | None:
        """The hashes of an open tile; None if this tile is not open."""
        level, number = key
        if level >= len(self._levels) or number != self.size >> (_TILE_BITS * (level + 1)):
            return None
        return self._levels[level]

    def _level(self, level: int) -> list[bytes]:
        while len(self._levels) <= level:
            self._levels.append([])
        return self._levels[level]

    def _close_tiles(self) -> list[Tile]:
        full: list[Tile] = []
        level = 0
        while len(self._level(level)) == TILE_HASHES:
            hashes = self._levels[level]
            number = (self.size >> (_TILE_BITS * (level + 1))) - 1
            full.append(Tile(level, number, b"".join(hashes)))
            self._level(level + 1).append(root_of(hashes))
            self._levels[level] = []
            level += 1
        return full


def split_hashes(hashes: bytes) -> list[bytes]:
    """The hashes of a stored tile."""
    return [hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES)]


def subtree_root(low: int, high: int, tile: HashesOfTile) -> bytes:
    """The Merkle tree hash of the leaves low..high (high exclusive) of a tree made of tiles."""
    width = high - low
    if width <= 0:
        return EMPTY_ROOT
    if width & (width - 1) == 0 and low % width == 0:
        level = (width.bit_length() - 1) // _TILE_BITS
        unit = _TILE_BITS * level
        begin = (low >> unit) % TILE_HASHES
        hashes = tile((level, low >> (unit + _TILE_BITS)))
        return root_of(hashes[begin : begin + (width >> unit)])
    middle = low + split_point(width)
    return node_hash(subtree_root(low, middle, tile), subtree_root(middle, high, tile))


def inclusion_path(index: int, size: int, tile: HashesOfTile) -> list[bytes]:
    """RFC 6962 §2.1.1: the path from leaf `index` (from 0) to the root of `size` leaves."""
    path: list[bytes] = []
    low, high = 0, size
    while high - low > 1:
        middle = low + split_point(high - low)
        if index < middle:
            path.append(subtree_root(middle, high, tile))
            high = middle
        else:
            path.append(subtree_root(low, middle, tile))
            low = middle
    return path[::-1]


def consistency_path(old: int, new: int, tile: HashesOfTile) -> list[bytes]:
    """RFC 6962 §2.1.2: the proof that the tree of `new` leaves begins with that of `old`."""
    if old in (0, new):
        return []
    path: list[bytes] = []
    low, high, is_whole = 0, new, True
    while old != high - low:
        width = split_point(high - low)
        middle = low + width
        if old <= width:
            path.append(subtree_root(middle, high, tile))
            high = middle
        else:
            path.append(subtree_root(low, middle, tile))
            low, old, is_whole = middle, old - width, False
    if not is_whole:
        path.append(subtree_root(low, high, tile))
    return path[::-1]


def outside_hashes(begin: int, end: int, size: int, tile: HashesOfTile) -> list[bytes]:
    """The roots of all subtrees without a leaf of begin..end, in the order of a walk.

    With the leaves between them they give the root of `size` leaves; see `offline._range_root`.
    """
    found: list[bytes] = []
    waiting = [(0, size)]
    while waiting:
        low, high = waiting.pop()
        if high <= begin or low >= end:
            found.append(subtree_root(low, high, tile))
        elif not (begin <= low and high <= end):
            middle = low + split_point(high - low)
            waiting += [(middle, high), (low, middle)]
    return found


def _full_subtrees(hashes: list[bytes]) -> list[bytes]:
    """Roots of the full binary trees that a row of equal subtrees falls into, largest first."""
    roots: list[bytes] = []
    start = 0
    for bit in reversed(range(len(hashes).bit_length())):
        width = 1 << bit
        if len(hashes) & width:
            roots.append(root_of(hashes[start : start + width]))
            start += width
    return roots
