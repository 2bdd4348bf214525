"""The pool of KV blocks: which sequences hold each block, and which free one is taken next.

All blocks are made once. The free list is intrusive and doubly linked, so a block can leave it from
the middle (a prefix hit) as cheaply as from its head (an allocation). A free block keeps its hash
until it is taken for something else: the free list *is* the cache's LRU order.
"""

from collections.abc import Callable

from local_engine.core.events import AllBlocksCleared, BlockRemoved, BlockStored, EventLog


class Block:
    """One block of the pool; `content_hash` is set while its content can be found by hash."""

    __slots__ = ("block_id", "content_hash", "newer", "older", "ref_count")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_count = 0
        self.content_hash: bytes | None = None
        # Neighbours in the free list: `older` is taken before this block, `newer` after it.
        self.older: Block = self
        self.newer: Block = self


class BlockPool:
    """Blocks 1 … `num_blocks`; number 0 is the null block that padded rows may point to.

    `on_evict(block_id, content_hash)` is called before cached content is given up.
    """

    def __init__(
        self,
        num_blocks: int,
        events: EventLog,
        on_evict: Callable[[int, bytes], None] = lambda _block_id, _content_hash: None,
    ) -> None:
        if num_blocks < 1:
            raise ValueError("a pool needs at least one block")
        self.num_blocks = num_blocks
        self.num_free = 0
        self._events = events
        self._on_evict = on_evict
        self._found: dict[bytes, Block] = {}
        self._blocks = [Block(block_id) for block_id in range(num_blocks + 1)]
        # The null block is the ring's fixed point: its `newer` is the next block to be taken.
        self._ring = self._blocks[0]
        for block in self._blocks[1:]:
            self._append_free(block)

    def take(self) -> int:
        """Take the least recently freed block for new content; it is held once."""
        block = self._ring.newer
        assert block is not self._ring, "take() without looking at num_free first"
        self._unlink(block)
        if block.content_hash is not None:
            self._on_evict(block.block_id, block.content_hash)
            self._forget(block)
        block.ref_count = 1
        return block.block_id

    def hold(self, block_id: int) -> None:
        """Count one more user of a block that was found by its hash."""
        block = self._blocks[block_id]
        if block.ref_count == 0:
            self._unlink(block)
        block.ref_count += 1

    def release(self, block_ids: list[int]) -> list[int]:
        """Count one user less of each; tails are freed first, so heads stay findable longest.

        Returns the blocks that are not held any more.
        """
        freed = []
        for block_id in reversed(block_ids):
            block = self._blocks[block_id]
            assert block.ref_count > 0, "a block was released twice"
            block.ref_count -= 1
            if block.ref_count == 0:
                self._append_free(block)
                freed.append(block_id)
        return freed

    def find(self, content_hash: bytes) -> int | None:
        block = self._found.get(content_hash)
        return None if block is None else block.block_id

    def publish(self, block_id: int, content_hash: bytes) -> None:
        """Make a full block findable; of two blocks with equal content the first one is kept."""
        block = self._blocks[block_id]
        if content_hash in self._found or block.content_hash is not None:
            return
        block.content_hash = content_hash
        self._found[content_hash] = block
        self._events.append(BlockStored(content_hash, block_id))

    def forget(self, block_id: int) -> None:
        """Make a block's content unfindable; sequences that hold it keep it."""
        block = self._blocks[block_id]
        if block.content_hash is not None:
            self._forget(block)

    def clear(self) -> None:
        """Forget every hash; held blocks stay held."""
        for block in self._found.values():
            block.content_hash = None
        self._found.clear()
        self._events.append(AllBlocksCleared())

    def holders(self) -> dict[int, int]:
        """How many users hold each block; free blocks are left out."""
        return {block.block_id: block.ref_count for block in self._blocks if block.ref_count}

    def check(self) -> None:
        """Raise `AssertionError` unless every block is either free, once, or held."""
        seen = set()
        block = self._ring.newer
        while block is not self._ring:
            assert block.ref_count == 0, "a held block is in the free list"
            assert block.newer.older is block, "the free list is broken"
            seen.add(block.block_id)
            block = block.newer
        assert len(seen) == self.num_free, "the free list has another length than counted"
        held = sum(block.ref_count > 0 for block in self._blocks)
        assert len(seen) + held == self.num_blocks, "a block is neither free nor held"
        for content_hash, block in self._found.items():
            assert block.content_hash == content_hash, "a block is found under a foreign hash"

    def _append_free(self, block: Block) -> None:
        newest = self._ring.older
        block.older, block.newer = newest, self._ring
        newest.newer = block
        self._ring.older = block
        self.num_free += 1

    def _unlink(self, block: Block) -> None:
        block.older.newer, block.newer.older = block.newer, block.older
        self.num_free -= 1

    def _forget(self, block: Block) -> None:
        assert block.content_hash is not None
        del self._found[block.content_hash]
        self._events.append(BlockRemoved(block.content_hash, block.block_id))
        block.content_hash = None
