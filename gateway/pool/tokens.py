"""Maps an engine's blocks of tokens to our blocks of bytes.

Engines publish blocks of tokens, and we see bytes. The engine that got a prompt is asked once,
after the fact, how the prompt is cut into tokens; from then on the prompt's byte blocks are known
by the token blocks that must be there for them. The hashes are ours, made of token ids, because
each engine hashes in its own way; they are chained from the salt, so that tenants stay apart.
"""

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from typing import Final

from gateway.pool.kv_events import Cleared, Event, Hash, Removed, Stored
from gateway.pool.prefixes import BLOCK_BYTES, PrefixIndex, Prompt


BLOCKS_KNOWN_MAX: Final = 262_144


def token_chain(start: int, token_ids: Sequence[int], block_tokens: int) -> list[int]:
    """One hash per full block, each covering everything before it and the start."""
    chain: list[int] = []
    previous = start
    for at in range(0, len(token_ids) - block_tokens + 1, block_tokens):
        block = array("q", token_ids[at : at + block_tokens]).tobytes()
        digest = hashlib.blake2b(block, digest_size=8, key=previous.to_bytes(8)).digest()
        previous = int.from_bytes(digest)
        chain.append(previous)
    return chain


def start_of(salt: str) -> int:
    """The start of the chain of a prompt with this salt."""
    return int.from_bytes(hashlib.blake2b(salt.encode(), digest_size=8).digest())


class TokenMap:
    """The token block that each byte block of known prompts needs."""

    def __init__(self) -> None:
        self._needed: dict[int, int] = {}
        self._by_token_block: dict[int, list[int]] = {}

    def knows(self, prompt: Prompt) -> bool:
        """Whether there is nothing to learn from this prompt."""
        return not prompt.blocks or prompt.blocks[-1] in self._needed

    def learn(
        self,
        prompt: Prompt,
        length_bytes: float,
        salt: str,
        token_ids: Sequence[int],
        block_tokens: int,
    ) -> list[int]:
        """Note a prompt's token blocks; returns the token blocks that its byte blocks need."""
        chain = token_chain(start_of(salt), token_ids, block_tokens)
        return self.hang(prompt, length_bytes, chain, len(token_ids) / block_tokens)

    def hang(
        self, prompt: Prompt, length_bytes: float, chain: Sequence[int], blocks: float
    ) -> list[int]:
        """The same for a known chain; `blocks` also counts the last block, as a fraction.

        A byte block that ends at some share of the text needs the tokens of the same share.
        """
        if len(self._needed) >= BLOCKS_KNOWN_MAX:
            self._needed.clear()
            self._by_token_block.clear()
        hanging: list[int] = []
        for place, block in enumerate(prompt.blocks, start=1):
            share = place * BLOCK_BYTES / length_bytes
            needed = int(share * blocks)
            if block in self._needed or not 0 < needed <= len(chain):
                continue
            token_block = chain[needed - 1]
            self._needed[block] = token_block
            self._by_token_block.setdefault(token_block, []).append(block)
            hanging.append(token_block)
        return hanging

    def blocks_of(self, token_blocks: Iterable[int]) -> list[int]:
        """The byte blocks that need these token blocks."""
        return [block for each in token_blocks for block in self._by_token_block.get(each, ())]


class CacheMirror:
    """Mirrors the reported contents of one member's cache in the prefix index."""

    def __init__(self, member: str, index: PrefixIndex, tokens: TokenMap) -> None:
        self._member = member
        self._index = index
        self._tokens = tokens
        self._ours: dict[Hash, int] = {}
        self._held: set[int] = set()
        self.block_tokens = 0
        """As the member reports; 0 before."""
        self.tells_salts = False
        """Older engines do not report them: then all tenants' blocks look alike here."""

    def clear(self) -> None:
        """The cache is empty or unknown."""
        self._ours.clear()
        self._held.clear()
        self._index.cleared(self._member)

    def apply(self, events: Iterable[Event]) -> None:
        """Apply a batch."""
        for event in events:
            match event:
                case Stored():
                    self._store(event)
                case Removed(hashes):
                    gone = [self._ours.pop(each) for each in hashes if each in self._ours]
                    self._held.difference_update(gone)
                    self._index.removed(self._member, self._tokens.blocks_of(gone))
                case Cleared():
                    self.clear()

    def learnt(self, token_blocks: Iterable[int]) -> None:
        """Byte blocks were found to need these: those that are held count as held."""
        held = [each for each in token_blocks if each in self._held]
        self._index.stored(self._member, self._tokens.blocks_of(held))

    def _store(self, event: Stored) -> None:
        self.block_tokens = event.block_tokens
        start = start_of(event.salt) if event.parent is None else self._ours.get(event.parent)
        if start is None:
            return  # Its beginning was stored before we listened.
        self.tells_salts = self.tells_salts or bool(event.salt)
        size = event.block_tokens
        chain = token_chain(start, event.token_ids[: size * len(event.hashes)], size)
        self._ours.update(zip(event.hashes, chain, strict=True))
        self._held.update(chain)
        self._index.stored(self._member, self._tokens.blocks_of(chain))
