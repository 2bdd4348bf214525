"""Text from tokens as they come: incomplete characters and possible stop strings are held back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


_REPLACEMENT = "\ufffd"


class IncrementalDetokenizer:
    """Gives out the text of a growing token list; all parts joined are the text of the whole.

    A token may end in the middle of a UTF-8 character. Only the last character of a decoded text
    can still change with the next token, so just that one is held back.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        # The tokens before the pending ones: some decoders treat a text's first token specially.
        self._context: list[int] = []
        self._context_chars = 0
        self._pending: list[int] = []
        self._released_chars = 0

    def push(self, token_id: int) -> str:
        """The text that became certain with this token, often one word, sometimes nothing."""
        self._pending.append(token_id)
        fresh = self._fresh()
        if fresh.endswith(_REPLACEMENT):
            certain = fresh[:-1]
            self._released_chars += len(certain)
            return certain
        self._context, self._pending = self._pending, []
        self._context_chars = len(self._decode(self._context))
        self._released_chars = 0
        return fresh

    def finish(self) -> str:
        """What is still held back, now that no token follows."""
        fresh = self._fresh() if self._pending else ""
        self._pending = []
        return fresh

    def _fresh(self) -> str:
        window = self._decode([*self._context, *self._pending])
        return window[self._context_chars + self._released_chars :]


@dataclass(frozen=True, slots=True)
class Release:
    """Text that may be shown, and the stop string that ended the output, if one did."""

    text: str
    stopped_by: str | None = None


class StopStringFilter:
    """Cuts the output before the first stop string, even if it arrives in pieces."""

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(stop)
        self._held = ""

    def push(self, text: str) -> Release:
        held = self._held + text
        # The one that is complete first wins, so that the cut does not depend on the pieces.
        found = [(at + len(stop), at, stop) for stop in self._stop if (at := held.find(stop)) >= 0]
        if found:
            self._held = ""
            _, start, stop = min(found)
            return Release(held[:start], stop)
        keep = self._longest_possible_start(held)
        self._held = held[len(held) - keep :]
        return Release(held[: len(held) - keep])

    def finish(self) -> str:
        """The held back text: it did not become a stop string."""
        held, self._held = self._held, ""
        return held

    def _longest_possible_start(self, text: str) -> int:
        """Length of the longest end of `text` with which some stop string begins."""
        longest = 0
        for stop in self._stop:
            for size in range(min(len(stop) - 1, len(text)), longest, -1):
                if text.endswith(stop[:size]):
                    longest = size
                    break
        return longest
