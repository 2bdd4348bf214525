"""Finds the blocks of a prompt that are already computed, by a chain of salted SHA-256 hashes.

Only full blocks are hashed. The hash of a block covers its parent's hash and its own tokens, so
equal hashes mean equal prefixes. The chain starts at a salt that the server derives from tenant,
model and data class: two groups never meet, neither in content nor in timing.
"""

import hashlib
import hmac
from array import array
from collections import OrderedDict
from collections.abc import Sequence as Tokens


def group_salt(server_key: bytes, tenant: str, model_digest: str, data_class: str) -> bytes:
    """Where the chain of a group starts; never taken from a client.

    Lengths are included, so that no two groups give the same message.
    """
    parts = [part.encode() for part in (tenant, model_digest, data_class)]
    message = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hmac.digest(server_key, message, "sha256")


def chain_hash(parent: bytes, token_ids: Tokens[int]) -> bytes:
    """The hash of one full block that follows `parent`."""
    return hashlib.sha256(parent + array("I", token_ids).tobytes()).digest()


def extend_hashes(
    hashes: list[bytes], salt: bytes, token_ids: Tokens[int], num_tokens: int, block_size: int
) -> None:
    """Append the hashes of all blocks that the first `num_tokens` tokens fill."""
    for index in range(len(hashes), num_tokens // block_size):
        parent = hashes[-1] if hashes else salt
        tokens = token_ids[index * block_size : (index + 1) * block_size]
        hashes.append(chain_hash(parent, tokens))


class HostCache:
    """Evicted blocks in host memory, by hash; the least recently used slot is given up first."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._slots: OrderedDict[bytes, int] = OrderedDict()

    @property
    def num_used(self) -> int:
        return len(self._slots)

    def put(self, content_hash: bytes) -> int | None:
        """The slot to copy a block into, or `None` if its content is there already."""
        if content_hash in self._slots:
            self._slots.move_to_end(content_hash)
            return None
        slot = len(self._slots)
        if slot >= self.num_slots:
            _, slot = self._slots.popitem(last=False)
        self._slots[content_hash] = slot
        return slot

    def find(self, content_hash: bytes) -> int | None:
        slot = self._slots.get(content_hash)
        if slot is not None:
            self._slots.move_to_end(content_hash)
        return slot

    def clear(self) -> None:
        self._slots.clear()
