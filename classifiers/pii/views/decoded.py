"""A text with parts of it decoded, and the map from every place back to the original."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct


# Start and end in the original, and what stands there once decoded.
Change = tuple[int, int, str]
CUT: Final = "\x1e"
_AROUND = 128


class Decoded(Struct, frozen=True):
    """A decoded text. Change i is at `places[i]` and came from `starts[i]` to `ends[i]`."""

    text: str
    places: tuple[int, ...]
    lengths: tuple[int, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    def __repr__(self) -> str:
        return f"Decoded(length={len(self.text)}, changes={len(self.places)})"

    def touches(self, start: int, end: int) -> bool:
        """Whether a place of the decoded text owes anything to a change.

        A place directly after one also does: the digits of an escape lengthen the number there.
        """
        index = bisect_right(self.places, end - 1) - 1
        if index < 0 or self.places[index] + self.lengths[index] < start:
            return False
        return CUT not in self.text[max(0, start - 1) : end]

    def is_behind(self, start: int) -> bool:
        """Whether a change ends where a place of the decoded text starts."""
        index = bisect_right(self.places, start - 1) - 1
        return index >= 0 and self.places[index] + self.lengths[index] == start

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """The place in the original that a place of the decoded text came from."""
        return self._back(start, at_end=False), self._back(end, at_end=True)

    def _back(self, offset: int, *, at_end: bool) -> int:
        index = bisect_right(self.places, offset - at_end) - 1
        if index < 0:
            return offset
        into = offset - self.places[index]
        if into - at_end < self.lengths[index]:
            return self.ends[index] if at_end else self.starts[index]
        return self.ends[index] + into - self.lengths[index]


def with_changes(text: str, changes: Iterable[Change]) -> Decoded | None:
    """The surroundings of every (start, end, replacement), replaced; None if there is none.

    Stretches without a change are cut to `_AROUND` characters on both sides and a cut mark.
    """
    parts: list[str] = []
    places, lengths, starts, ends = [], [], [], []
    at = reached = 0
    for change in _with_cuts(changes, len(text)):
        start, end, replacement = change
        parts += [text[reached:start], replacement]
        at += start - reached
        places.append(at)
        lengths.append(len(replacement))
        starts.append(start)
        ends.append(end)
        at += len(replacement)
        reached = end
    if not places:
        return None
    parts.append(text[reached:])
    return Decoded("".join(parts), tuple(places), tuple(lengths), tuple(starts), tuple(ends))


def _with_cuts(changes: Iterable[Change], length: int) -> Iterator[Change]:
    before = 0
    for change in changes:
        if change[0] - before > 2 * _AROUND:
            yield before + (_AROUND if before else 0), change[0] - _AROUND, CUT
        yield change
        before = change[1]
    if before and length - before > _AROUND:
        yield before + _AROUND, length, CUT
