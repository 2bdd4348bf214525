"""Index of which member probably holds which prefix: chained block hashes, three precisions.

    approximate   what we sent there lately, in blocks of bytes; no tokenizer needed
    events        what the engine says it stores and drops, in order (`listening`)
    exact         the same from our own engine, by the hashes that it looks blocks up with

Keys are hashes only, salted by tenant: the index holds no prompt, and one tenant's prefixes tell
nothing about another's. Engines' own hashes are never trusted: they differ by engine and version.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct


Precision = Literal["approximate", "events", "exact"]
BLOCK_BYTES: Final = 512
BLOCKS_MAX: Final = 512
"""The longest prefix that is considered: 256 KiB."""
BLOCKS_PER_MEMBER_MAX: Final = 65_536
KEPT_S: Final = 600.0
"""How long a prefix that we sent is assumed to be kept.

Dynamo's approximate index forgets after 120 s; engines that are not full keep prefixes longer, and
a wrong assumption costs only a worse estimate (`benchmarks.replicas`).
"""
UNTOLD_S: Final = 20.0
"""How long a prompt is assumed to be where we sent it while the member does not report it."""
FRESH_SHARE: Final = 0.875
"""Of that time: an entry that is valid for longer than this is not noted again."""
EXPIRY_LOOK_S: Final = 0.5
"""How often expired entries are looked for."""


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
    """A hash of the complete prompt, including the rest after the last full block."""
    tokens: float


def prompt_of(salt: bytes, body: bytes, bytes_per_token: float) -> Prompt:
    """The prompt of a request body as it is sent, hashed from its messages on.

    The part before the messages may differ from turn to turn (limits, flags), and the part after
    the common prefix does anyway.
    """
    at = max(body.find(b'"messages"'), 0)
    text = memoryview(body)[at:]
    whole = min(len(text) // BLOCK_BYTES, BLOCKS_MAX)
    blocks = chained(salt, (text[at * BLOCK_BYTES : (at + 1) * BLOCK_BYTES] for at in range(whole)))
    rest = hashlib.blake2b(body, digest_size=8, key=salt[:64]).digest()
    return Prompt(blocks, int.from_bytes(rest), len(text) / bytes_per_token)


class PrefixIndex:
    """Block hashes by member; one pass over the blocks gives the depth that each member holds."""

    def __init__(self, members: Sequence[str], kept_s: float = KEPT_S) -> None:
        self._places = {name: place for place, name in enumerate(members)}
        self._masks: dict[int, int] = {}
        self._held: list[OrderedDict[int, float]] = [OrderedDict() for _ in members]
        """What we assume, and until when."""
        self._told: list[dict[int, None]] = [{} for _ in members]
        """What members reported themselves."""
        self._precision: list[Precision] = ["approximate" for _ in members]
        self._kept_s = kept_s
        self._fresh_s = kept_s * FRESH_SHARE
        self._next_look_s = float("-inf")

    def precision(self, member: str) -> Precision:
        return self._precision[self._places[member]]

    def depths(self, blocks: Sequence[int], now_s: float) -> list[int]:
        """Leading blocks that each member holds, in the order of the members."""
        if now_s >= self._next_look_s:
            self._next_look_s = now_s + EXPIRY_LOOK_S
            self._expire(now_s)
        found = [0] * len(self._held)
        alive = (1 << len(self._held)) - 1
        depth, last = 0, -1
        # Most neighbours are held by the same members: a run of equal masks is skipped.
        for found_mask in map(self._masks.get, blocks):
            mask = found_mask or 0
            if mask != last:
                last = mask
                still = mask & alive
                if still != alive:
                    _note(found, alive & ~still, depth)
                    alive = still
                    if not alive:
                        break
            depth += 1
        _note(found, alive, depth)
        return found

    def sent(self, member: str, blocks: Sequence[int], now_s: float) -> None:
        """A prompt went there: assumed for a while, or until the member reports it."""
        place = self._places[member]
        if self._precision[place] == "approximate":
            fresh = _fresh(self._held[place], blocks, now_s + self._fresh_s)
            self._store(place, blocks[fresh:] if fresh else blocks, now_s + self._kept_s)
        else:
            told = self._told[place]
            self._store(place, [each for each in blocks if each not in told], now_s + UNTOLD_S)

    def stored(self, member: str, blocks: Sequence[int]) -> None:
        """The member reports that it holds these."""
        place = self._places[member]
        told, masks, bit = self._told[place], self._masks, 1 << place
        for block in blocks:
            told.pop(block, None)
            told[block] = None
            masks[block] = masks.get(block, 0) | bit
        while len(told) > BLOCKS_PER_MEMBER_MAX:
            self.removed(member, [next(iter(told))])

    def removed(self, member: str, blocks: Sequence[int]) -> None:
        """The member reports that it dropped these."""
        place = self._places[member]
        held, told = self._held[place], self._told[place]
        for block in blocks:
            if block in held or block in told:
                held.pop(block, None)
                told.pop(block, None)
                self._unmask(place, block)

    def cleared(self, member: str) -> None:
        """The member restarted, cleared its cache, or now serves another model."""
        place = self._places[member]
        self.removed(member, [*self._held[place], *self._told[place]])

    def follow(self, member: str, precision: Precision) -> None:
        """Trust the member's own reports from now on; nothing is known yet."""
        self.cleared(member)
        self._precision[self._places[member]] = precision

    def _store(self, place: int, blocks: Sequence[int], until_s: float) -> None:
        """The ends of prefixes first: a block dropped for lack of space only shortens a prefix."""
        held, masks, bit = self._held[place], self._masks, 1 << place
        for block in reversed(blocks):
            if block in held:
                held.move_to_end(block)
            else:
                masks[block] = masks.get(block, 0) | bit
            held[block] = until_s
        while len(held) > BLOCKS_PER_MEMBER_MAX:
            self._forget(place, next(iter(held)))

    def _expire(self, now_s: float) -> None:
        """Drop expired entries; the oldest come first, so a look costs little."""
        for place, held in enumerate(self._held):
            while held:
                block = next(iter(held))
                if held[block] >= now_s:
                    break
                self._forget(place, block)

    def _forget(self, place: int, block: int) -> None:
        del self._held[place][block]
        if block not in self._told[place]:
            self._unmask(place, block)

    def _unmask(self, place: int, block: int) -> None:
        mask = self._masks[block] & ~(1 << place)
        if mask:
            self._masks[block] = mask
        else:
            del self._masks[block]


def _fresh(held: Mapping[int, float], blocks: Sequence[int], until_s: float) -> int:
    """How many leading blocks need not be noted again.

    A block is never noted without those before it, so they are as fresh as it is.
    """
    low, high = 0, len(blocks)
    while low < high:
        middle = (low + high) // 2
        if held.get(blocks[middle], 0.0) > until_s:
            low = middle + 1
        else:
            high = middle
    return low


def _note(found: list[int], members: int, depth: int) -> None:
    """Note a depth for every member of a mask."""
    while members:
        lowest = members & -members
        found[lowest.bit_length() - 1] = depth
        members ^= lowest
