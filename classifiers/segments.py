"""The strings of a document in their order, and which of them belong together."""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, groupby, pairwise
from typing import Final

import msgspec

from classifiers.units import LEAD_LENGTH, SEAM, Chain, Unit


CODES: Final = "codes"
"""The kind of a segment whose text is written as numbers in the document."""

ASIDE: Final = "aside"
"""The kind of one beside the words of a message: who says them, how long they are cached."""


class Segment(msgspec.Struct, frozen=True):
    """One string of the request, its role, and its kind.

    The kind is value, key, number, piece, table, codes, json or aside.
    """

    text: str
    role: str
    kind: str

    def __repr__(self) -> str:
        return f"Segment(role={self.role!r}, kind={self.kind!r}, length={len(self.text)})"


class Extraction(msgspec.Struct, frozen=True):
    """All segments in document order, and what could not be turned into segments.

    `newest_user` are indices of the segments of the newest user turn, `parts` of the first segment
    of each part. `opaque_kinds` name content that is not text; `reasons` why the walk is partial.
    """

    segments: tuple[Segment, ...]
    newest_user: tuple[int, ...]
    opaque_kinds: tuple[str, ...]
    reasons: tuple[str, ...]
    parts: tuple[int, ...]
    chains: tuple[tuple[int, ...], ...] = ()
    """Groups of segments that are the texts of consecutive parts of one message."""
    blocks: tuple[tuple[int, int], ...] = ()
    """For each text or tool result in a message: its first segment, and the one after its last."""

    def __repr__(self) -> str:
        return f"Extraction(segments={len(self.segments)}, reasons={self.reasons})"

    def joined(self) -> str:
        return SEAM.join([segment.text for segment in self.segments])

    def said(self, first: int = 0, end: int | None = None) -> str:
        """The words of a part without what stands beside them; all of it if there are no words."""
        part = self.segments[first:end]
        words = [segment.text for segment in part if segment.kind != ASIDE]
        return SEAM.join(words or [segment.text for segment in part])

    def said_in_blocks(self) -> Iterator[list[str]]:
        """The texts of the blocks, for each message that has several."""
        if len(self.blocks) < 2:  # noqa: PLR2004 - alone, a block has no other.
            return
        for _, inside in groupby(self.blocks, lambda block: bisect_right(self.parts, block[0])):
            blocks = [*inside]
            if len(blocks) > 1:
                yield [self.said(*block) for block in blocks]

    def starts(self) -> list[int]:
        """Offset of each segment in the joined text."""
        lengths = (len(segment.text) + len(SEAM) for segment in self.segments)
        return [0, *accumulate(lengths)][: len(self.segments)]

    def units(self) -> list[tuple[Unit, int]]:
        """The units to judge, one for each part, with the index of its first segment."""
        texts = [segment.text for segment in self.segments]
        edges = sorted({*self.parts, len(texts)})
        units = []
        lead = ""
        chains = self._places()
        for first, end in pairwise(edges):
            text = SEAM.join(texts[first:end])
            inside = tuple(chains[at] for at in range(first, end) if at in chains) if chains else ()
            units.append((Unit(text, lead, inside), first))
            lead = text[-LEAD_LENGTH:]
        return units

    def places(self) -> tuple[Chain, ...]:
        """The places of a single part's chains in its text."""
        return tuple(self._places().values())

    def _places(self) -> dict[int, Chain]:
        """The place of each chain in the text of its part, by its first segment."""
        if not self.chains:
            return {}
        starts = self.starts()
        found: dict[int, Chain] = {}
        for chain in self.chains:
            base = starts[self.parts[bisect_right(self.parts, chain[0]) - 1]]
            found[chain[0]] = tuple(
                (starts[at] - base, starts[at] - base + len(self.segments[at].text)) for at in chain
            )
        return found

    def newest_user_text(self) -> str:
        return "\n".join([self.segments[index].text for index in self.newest_user])
