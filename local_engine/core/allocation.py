"""Gives sequences their blocks: prefix hits, growth, publishing, copies to and from the host."""

from collections import defaultdict
from dataclasses import dataclass
from enum import Enum, auto

from local_engine.core.block_pool import BlockPool
from local_engine.core.events import EventLog
from local_engine.core.prefix_cache import HostCache, extend_hashes
from local_engine.core.sequence import Sequence


class CopyKind(Enum):
    """What the runner does with a block before it computes anything."""

    TO_HOST = auto()
    FROM_HOST = auto()
    ZERO = auto()


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """One copy or zeroing of a block; they are done in the order they were requested."""

    kind: CopyKind
    block_id: int
    host_slot: int = -1


class BlockAllocation:
    """The one owner of the pool: every block is taken and given back here."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        events: EventLog,
        *,
        num_host_blocks: int = 0,
        is_caching: bool = True,
    ) -> None:
        self.block_size = block_size
        self.pool = BlockPool(num_blocks, events, self._offload)
        self.held_by_tenant: dict[str, int] = defaultdict(int)
        """Numbers of blocks; a block that several sequences share counts once."""
        self._owners: dict[int, str] = {}
        self._is_caching = is_caching
        self._host = HostCache(num_host_blocks) if num_host_blocks else None
        self._copies: list[BlockCopy] = []

    @property
    def num_host_blocks_used(self) -> int:
        """Evicted blocks that are kept in host memory."""
        return 0 if self._host is None else self._host.num_used

    @property
    def has_copies(self) -> bool:
        """Whether copies were requested since the last `take_copies`."""
        return bool(self._copies)

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def take_copies(self) -> tuple[BlockCopy, ...]:
        """The copies requested since the last call."""
        copies, self._copies = tuple(self._copies), []
        return copies

    def adopt_prefix(self, sequence: Sequence) -> None:
        """Give a sequence without blocks those of its longest known prefix.

        The last token is always computed again, because its scores are needed.
        """
        assert not sequence.block_ids, "a sequence adopts a prefix before anything else"
        size = self.block_size
        for content_hash in self.prefix_hashes(sequence):
            block_id = self.pool.find(content_hash)
            if block_id is not None:
                self.pool.hold(block_id)
            elif (block_id := self._restore(content_hash)) is None:
                break
            sequence.block_ids.append(block_id)
            self._own(block_id, sequence.tenant)
        num_found = len(sequence.block_ids)
        sequence.num_published = num_found
        sequence.num_computed_tokens = num_found * size
        if sequence.num_preemptions == 0:
            sequence.num_cached_tokens = num_found * size

    def num_adoptable_held(self, sequence: Sequence) -> int:
        """Blocks of a waiting sequence's prefix that others hold: it needs no new ones for them."""
        num_held = 0
        for content_hash in self.prefix_hashes(sequence):
            block_id = self.pool.find(content_hash)
            if block_id is None or block_id not in self._owners:
                break
            num_held += 1
        return num_held

    def prefix_hashes(self, sequence: Sequence) -> list[bytes]:
        """Hashes of the blocks that a sequence may adopt; none if it must compute everything."""
        if (
            not self._is_caching
            or sequence.is_zeroed
            or sequence.params.prompt_logprobs is not None
        ):
            return []
        size, last = self.block_size, len(sequence.token_ids) - 1
        extend_hashes(sequence.block_hashes, sequence.salt, sequence.token_ids, last, size)
        return sequence.block_hashes[: last // size]

    def is_read_by(self, sequence: Sequence, reader: Sequence) -> bool:
        """Whether the next block `reader` computes is in `sequence`'s prefix and not cached."""
        at, hashes = reader.num_published, self.prefix_hashes(sequence)
        if at >= min(len(hashes), len(reader.block_hashes)):
            return False
        # Equal hashes of a chain mean that all before them are equal.
        return hashes[at] == reader.block_hashes[at] and self.pool.find(hashes[at]) is None

    def grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Make room for `num_tokens` tokens; false, with nothing taken, if the pool cannot."""
        missing = self.blocks_for(num_tokens) - len(sequence.block_ids)
        if missing > self.pool.num_free:
            return False
        for _ in range(missing):
            block_id = self.pool.take()
            sequence.block_ids.append(block_id)
            self._own(block_id, sequence.tenant)
        return True

    def publish(self, sequence: Sequence, num_tokens: int) -> None:
        """Make the blocks findable that are filled by the first `num_tokens`, now computed."""
        num_full = num_tokens // self.block_size
        if num_full <= sequence.num_published or not self._is_caching or sequence.is_zeroed:
            return
        hashes = sequence.block_hashes
        extend_hashes(hashes, sequence.salt, sequence.token_ids, num_tokens, self.block_size)
        for index in range(sequence.num_published, num_full):
            self.pool.publish(sequence.block_ids[index], hashes[index])
        sequence.num_published = num_full

    def free(self, sequence: Sequence) -> None:
        """Take all blocks back; what was computed may still be found by its hash."""
        freed = self.pool.release(sequence.block_ids)
        if sequence.is_zeroed:
            self._copies += [BlockCopy(CopyKind.ZERO, block_id) for block_id in freed]
        for block_id in freed:
            tenant = self._owners.pop(block_id)
            self.held_by_tenant[tenant] -= 1
            if not self.held_by_tenant[tenant]:
                del self.held_by_tenant[tenant]
        sequence.block_ids = []
        sequence.num_computed_tokens = sequence.num_published = 0

    def disown(self, sequence: Sequence) -> None:
        """Make everything a sequence computed unfindable: it may be wrong."""
        for block_id in sequence.block_ids:
            self.pool.forget(block_id)
        if self._host is not None:
            self._host.clear()  # Some of it may be there, if the sequence was restarted.

    def clear_cache(self) -> None:
        self.pool.clear()
        if self._host is not None:
            self._host.clear()

    def _own(self, block_id: int, tenant: str) -> None:
        """Count a block for the tenant that holds it first."""
        if block_id not in self._owners:
            self._owners[block_id] = tenant
            self.held_by_tenant[tenant] += 1

    def _offload(self, block_id: int, content_hash: bytes) -> None:
        if self._host is not None and (slot := self._host.put(content_hash)) is not None:
            self._copies.append(BlockCopy(CopyKind.TO_HOST, block_id, slot))

    def _restore(self, content_hash: bytes) -> int | None:
        if self._host is None or not self.pool.num_free:
            return None
        if self._host.find(content_hash) is None:
            return None
        # Taking a block may push another one out to the host, and this content with it.
        block_id = self.pool.take()
        slot = self._host.find(content_hash)
        if slot is None:
            self.pool.release([block_id])
            return None
        self._copies.append(BlockCopy(CopyKind.FROM_HOST, block_id, slot))
        self.pool.publish(block_id, content_hash)
        return block_id
