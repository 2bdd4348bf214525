"""Text from tokens as they come: incomplete characters and possible stop strings are held back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


_REPLACEMENT = "\ufffd"
# A character has four bytes at most: what so many tokens did not make whole is no text at all.
_MOST_PENDING, _MOST_BYTES = 64, 4


class IncrementalDetokenizer:
    """Gives out the text of a growing token list; all parts joined are the text of the whole.

    A token may end in the middle of a UTF-8 character, which reads as U+FFFD until it is whole: as
    one, or, where bytes are tokens of their own, as one for each byte. So whatever the text ends
    with of that kind is held back. A character that never becomes whole is not shown; a U+FFFD that
    was meant is, and `encode` tells the two apart.
    """

    def __init__(
        self, decode: Callable[[Sequence[int]], str], encode: Callable[[str], list[int]]
    ) -> None:
        self._decode = decode
        self._encode = encode
        # The tokens before the pending ones: some decoders treat a text's first token specially.
        self._context: list[int] = []
        self._context_text = ""
        self._pending: list[int] = []
        self._num_released = 0
        """Of the characters that are pending."""

    def push(self, token_id: int) -> str:
        """The text that became certain with this token, often one word, sometimes nothing."""
        self._pending.append(token_id)
        text = self._pending_text()
        certain = text.rstrip(_REPLACEMENT)
        fresh = certain[self._num_released :]
        self._num_released = max(self._num_released, len(certain))
        if len(certain) == len(text):
            self._start_after(self._pending, certain)
        elif len(self._pending) > _MOST_PENDING:
            fresh += self._give_up(text)
        return fresh

    def finish(self) -> str:
        """The held back text, now that nothing follows, if its tokens are those of just this."""
        pending, text = self._pending, self._pending_text()
        # Some tokenizers put a space before any text, so only the end is compared.
        is_meant = bool(pending) and self._encode(text)[-len(pending) :] == pending
        return text[self._num_released :] if is_meant else ""

    def _pending_text(self) -> str:
        window = self._decode([*self._context, *self._pending])
        if window.startswith(self._context_text):
            return window[len(self._context_text) :]
        # A part of a character right after whole ones of single bytes makes all of them unreadable.
        return self._decode(self._pending)

    def _give_up(self, text: str) -> str:
        """Let go of bytes that are no text, but for the last: the cost of a token stays bounded."""
        size = len(self._pending)
        for cut in range(size - _MOST_BYTES, size - 2 * _MOST_BYTES, -1):
            old, rest = self._pending[:cut], self._pending[cut:]
            old_text = self._decode(old)
            if old_text + self._decode(rest) == text:
                fresh = old_text[self._num_released :]
                self._context, self._context_text = [], ""
                self._pending, self._num_released = rest, 0
                return fresh
        return ""

    def _start_after(self, token_ids: list[int], text: str) -> None:
        # What these tokens read as where they come first: some decoders drop a space there.
        is_told_apart = text.startswith(" ")
        self._context_text = self._decode(token_ids) if is_told_apart else text
        self._context = token_ids
        self._pending, self._num_released = [], 0


@dataclass(frozen=True, slots=True)
class Release:
    """Text that may be shown, and the stop string that ended the output, if one did."""

    text: str
    stopped_by: str | None = None


class StopStringFilter:
    """Cuts the output at the first stop string, even if it arrives in pieces: before or behind."""

    def __init__(self, stop: Sequence[str], *, includes_stop: bool = False) -> None:
        self._stop = tuple(stop)
        self._includes_stop = includes_stop
        self._held = ""

    def push(self, text: str) -> Release:
        held = self._held + text
        # The one that is complete first wins, so that the cut does not depend on the pieces.
        found = [(at + len(stop), at, stop) for stop in self._stop if (at := held.find(stop)) >= 0]
        if found:
            self._held = ""
            end, start, stop = min(found)
            return Release(held[: end if self._includes_stop else start], stop)
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
