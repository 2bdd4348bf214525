"""Turns tokens into text as they come: holds back partial characters and possible stops."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


_REPLACEMENT = "\ufffd"
# A character has at most four bytes: if this many tokens do not complete one, it is not text.
_MOST_PENDING, _MOST_BYTES = 64, 4
_MOST_CONTEXT = 8


class IncrementalDetokenizer:
    """Gives out the text of a growing token list; all parts joined are the complete text.

    A token may end in the middle of a UTF-8 character, which reads as U+FFFD until it is complete:
    as one, or, if bytes are tokens of their own, as one for each byte. So trailing characters of
    that kind are held back. A character that is never completed is not shown; a U+FFFD that was
    meant is, and `encode` tells the two apart.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        encode: Callable[[str], list[int]],
        is_inside: Callable[[int], bool] = lambda _token_id: False,
        *,
        after: Sequence[int] = (),
    ) -> None:
        """`is_inside` says whether a token is one byte, and not the first of a character.

        `after` are the tokens of a text that this one continues.
        """
        self._decode = decode
        self._encode = encode
        self._is_inside = is_inside
        # The tokens before the pending ones: some decoders treat a text's first token specially.
        self._context, self._context_text = self._end_of(after)
        self._pending: list[int] = []
        self._num_released = 0
        """How many characters of the pending text were given out."""
        self._num_told = 0
        self._unsure = ""
        """The text of the pending tokens before the last one was added."""
        self.offset = 0
        """Where the last token's text begins: how many characters come before it in the text.

        A token that continues a character begun by others has the same offset as they.
        """

    def push(self, token_id: int) -> str:
        """The text that became certain with this token, often one word, sometimes nothing."""
        self._pending.append(token_id)
        text = self._pending_text()
        if len(self._pending) == 1:
            self.offset = self._num_told
        elif not self._is_inside(token_id):
            before = self._num_told - self._num_released
            self.offset = before + _num_untouched(self._unsure, text)
        self._unsure = text
        fresh = self._certain_part_of(text)
        self._num_told += len(fresh)
        return fresh

    def _certain_part_of(self, text: str) -> str:
        """The part of the pending tokens' text that may be given out now."""
        certain = text.rstrip(_REPLACEMENT)
        fresh = certain[self._num_released :]
        self._num_released = max(self._num_released, len(certain))
        if len(certain) == len(text):
            self._start_after(self._pending, certain)
        elif len(self._pending) > _MOST_PENDING:
            fresh += self._give_up(text)
        return fresh

    def finish(self) -> str:
        """The held back text, now that nothing follows, if its tokens encode exactly this."""
        pending, text = self._pending, self._pending_text()
        # Some tokenizers put a space before any text, so only the end is compared.
        is_meant = bool(pending) and self._encode(text)[-len(pending) :] == pending
        return text[self._num_released :] if is_meant else ""

    def _pending_text(self) -> str:
        window = self._decode([*self._context, *self._pending])
        if window.startswith(self._context_text):
            return window[len(self._context_text) :]
        # An incomplete character right after complete ones of single bytes makes all of them
        # unreadable.
        return self._decode(self._pending)

    def _give_up(self, text: str) -> str:
        """Drop bytes that are not text, except the last ones: the cost per token stays bounded."""
        size = len(self._pending)
        for cut in range(size - _MOST_BYTES, size - 2 * _MOST_BYTES, -1):
            old, rest = self._pending[:cut], self._pending[cut:]
            old_text = self._decode(old)
            if old_text + self._decode(rest) == text:
                fresh = old_text[self._num_released :]
                self._context, self._context_text = [], ""
                self._pending, self._num_released = rest, 0
                self._unsure = text[len(old_text) :]
                return fresh
        return ""

    def _end_of(self, token_ids: Sequence[int]) -> tuple[list[int], str]:
        """The fewest last tokens of a text that are visible and complete, and their text."""
        found: tuple[list[int], str] = [], ""
        for size in range(1, min(len(token_ids), _MOST_PENDING) + 1):
            context = list(token_ids[-size:])
            text = self._decode(context)
            if _REPLACEMENT not in text:
                found = context, text
            if found[1]:
                break
        return found

    def _start_after(self, token_ids: list[int], text: str) -> None:
        if not text:
            # A control token is not visible, so what comes after it still follows what was before.
            if not self._context_text:
                self._context = [*self._context, *token_ids][-_MOST_CONTEXT:]
            elif len(self._context) < _MOST_CONTEXT:
                self._context = [*self._context, *token_ids]
            self._pending, self._num_released = [], 0
            return
        # The text of these tokens when they come first: some decoders drop a space there.
        is_told_apart = text.startswith(" ")
        self._context_text = self._decode(token_ids) if is_told_apart else text
        self._context = token_ids
        self._pending, self._num_released = [], 0


def _num_untouched(before: str, after: str) -> int:
    """How many characters the next token leaves as they are, in a text ending in partial ones.

    A part that reads the same has become longer: the token belongs to the same character.
    """
    if after == before:
        return max(0, len(before) - before.endswith(_REPLACEMENT))
    pairs = enumerate(zip(before, after, strict=False))
    return next((at for at, (old, new) in pairs if old != new), min(len(before), len(after)))


@dataclass(frozen=True, slots=True)
class Release:
    """Text that may be shown, and the stop string that ended the output, if one did."""

    text: str
    stopped_by: str | None = None


class StopStringFilter:
    """Cuts the output before or behind the first stop string, even if it arrives in pieces."""

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
