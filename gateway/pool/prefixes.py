"""Which member probably holds which prefix: chained hashes of blocks, in three precisions.

    approximate   what we sent there lately, in blocks of bytes; no tokenizer needed
    events        what the engine says it stores and drops, in order; a gap falls back
    exact         the same from our own engine, which also says when it starts anew

Keys are hashes only, salted by tenant: the index holds no prompt, and one tenant's prefixes tell
nothing about another's. Engines' own hashes are never trusted: they differ by engine and version.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from msgspec import Struct


Precision = Literal["approximate", "events", "exact"]
BLOCK_BYTES: Final = 512
BLOCKS_MAX: Final = 512
"""The longest prefix that is looked at: 256 KiB."""
BLOCKS_PER_MEMBER_MAX: Final = 65_536
KEPT_S: Final = 120.0
"""How long a prefix that we sent is believed to be kept (Dynamo's approximate index)."""


def chained(salt: bytes, blocks: Iterable[bytes | memoryview]) -> tuple[int, ...]:
    """One hash per block that also covers the salt and all blocks before it."""
    previous = hashlib.blake2b(salt, digest_size=8).digest()
    hashes: list[int] = []
    for block in blocks:
        previous = hashlib.blake2b(block, digest_size=8, key=previous).digest()
        hashes.append(int.from_bytes(previous))
    return tuple(hashes)


class Prompt(Struct, frozen=True):
    """What is known of a prompt for choosing a member: hashes and counts, no text."""

    blocks: tuple[int, ...]
    fingerprint: int
    """Of the whole prompt, also of the rest behind the last whole block."""
    tokens: float


def prompt_of(salt: bytes, body: bytes, bytes_per_token: float) -> Prompt:
    """The prompt of a request body as it is sent, hashed from its messages on.

    What stands before the messages may differ from turn to turn (limits, flags), what stands behind
    the common part does anyway.
    """
    at = max(body.find(b'"messages"'), 0)
    text = memoryview(body)[at:]
    whole = min(len(text) // BLOCK_BYTES, BLOCKS_MAX)
    blocks = chained(salt, (text[at * BLOCK_BYTES : (at + 1) * BLOCK_BYTES] for at in range(whole)))
    rest = hashlib.blake2b(body, digest_size=8, key=salt[:64]).digest()
    return Prompt(blocks, int.from_bytes(rest), len(text) / bytes_per_token)


class PrefixIndex:
    """Block hashes by member; how long a prefix each member holds is one pass over the blocks."""

    def __init__(self, members: Sequence[str], kept_s: float = KEPT_S) -> None:
        self._places = {name: place for place, name in enumerate(members)}
        self._masks: dict[int, int] = {}
        self._held: list[OrderedDict[int, float]] = [OrderedDict() for _ in members]
        self._precision: list[Precision] = ["approximate" for _ in members]
        self._expected: list[int | None] = [None for _ in members]
        self._kept_s = kept_s

    def precision(self, member: str) -> Precision:
        return self._precision[self._places[member]]

    def depths(self, blocks: Sequence[int], now_s: float) -> list[int]:
        """Leading blocks that each member holds, in the order of the members."""
        self._expire(now_s)
        found = [0] * len(self._held)
        alive = (1 << len(self._held)) - 1
        depth, masks = 0, self._masks
        for block in blocks:
            mask = masks.get(block, 0) & alive
            if mask != alive:
                _note(found, alive & ~mask, depth)
                alive = mask
                if not alive:
                    break
            depth += 1
        _note(found, alive, depth)
        return found

    def sent(self, member: str, blocks: Sequence[int], now_s: float) -> None:
        """A prompt went there: believed for a while, unless the member says what it holds."""
        place = self._places[member]
        if self._precision[place] == "approximate":
            self._store(place, blocks, now_s + self._kept_s)

    def stored(self, member: str, blocks: Sequence[int]) -> None:
        """The member says that it holds these."""
        self._store(self._places[member], blocks, float("inf"))

    def removed(self, member: str, blocks: Sequence[int]) -> None:
        """The member says that it dropped these."""
        place = self._places[member]
        for block in blocks:
            if block in self._held[place]:
                self._forget(place, block)

    def cleared(self, member: str) -> None:
        """The member started anew, cleared its cache, or serves another model now."""
        place = self._places[member]
        for block in list(self._held[place]):
            self._forget(place, block)

    def follow(self, member: str, precision: Precision, sequence: int) -> None:
        """Believe the member's own events from this number on."""
        place = self._places[member]
        self.cleared(member)
        self._precision[place] = precision
        self._expected[place] = sequence

    def heard(self, member: str, sequence: int) -> bool:
        """Whether an event with this number is the next one.

        After a gap nothing is known for sure: the member's index is dropped, and what we send there
        is believed again until somebody follows it anew.
        """
        place = self._places[member]
        expected = self._expected[place]
        if expected is None:
            return False
        if sequence == expected:
            self._expected[place] = sequence + 1
            return True
        self.cleared(member)
        self._precision[place] = "approximate"
        self._expected[place] = None
        return False

    def _store(self, place: int, blocks: Sequence[int], until_s: float) -> None:
        held, masks, bit = self._held[place], self._masks, 1 << place
        for block in blocks:
            mask = masks.get(block, 0)
            if mask & bit:
                held.move_to_end(block)
            else:
                masks[block] = mask | bit
            held[block] = until_s
        while len(held) > BLOCKS_PER_MEMBER_MAX:
            self._forget(place, next(iter(held)))

    def _expire(self, now_s: float) -> None:
        """Drop what is believed no longer; the oldest come first, so a look costs little."""
        for place, held in enumerate(self._held):
            while held:
                block = next(iter(held))
                if held[block] >= now_s:
                    break
                self._forget(place, block)

    def _forget(self, place: int, block: int) -> None:
        del self._held[place][block]
        mask = self._masks[block] & ~(1 << place)
        if mask:
            self._masks[block] = mask
        else:
            del self._masks[block]


def _note(found: list[int], members: int, depth: int) -> None:
    """Write a depth down for every member of a mask."""
    while members:
        lowest = members & -members
        found[lowest.bit_length() - 1] = depth
        members ^= lowest
