"""Pieces of a stream that differ from one before them in their words alone, as most of it do.

Such a piece need not be parsed again: it is the same bytes around other words. What is the same
was read in full when it came first, so nothing is believed of a piece that was not seen.
"""

from gateway.dialects.sse import Splitter


PIECE_BYTES_MAX = 16 * 1024
LESSONS_MAX = 16
"""Where a stream's pieces are never alike, looking for what they share stops after so many."""


class PlainPieces:
    """Knows what stands around the words of a stream's pieces, once it has seen one."""

    __slots__ = ("_after", "_before", "_begin", "_end", "_lessons_left", "_splitter")

    def __init__(self, splitter: Splitter) -> None:
        self._splitter = splitter
        self._before = self._after = b""
        self._begin = self._end = 0
        """Where in a piece its words are, counted from its beginning and from its end."""
        self._lessons_left = LESSONS_MAX

    def learn(self, raw: bytes, text: str) -> None:
        """Look for the words of an event that says nothing but `text`.

        Without a backslash each string of its JSON stands as it reads: where `text` stands in
        quotes once, that is where it was read.
        """
        if self._before or not self._lessons_left or not text:
            return
        self._lessons_left -= 1
        quoted = b'"%b"' % text.encode("utf-8", "replace")
        start = raw.find(quoted)
        if b"\\" in raw or b"\r" in raw or start < 0 or raw.find(quoted, start + 1) >= 0:
            return
        self._before, self._after = raw[: start + 1], raw[start + len(quoted) - 1 :]
        self._begin, self._end = len(self._before), -len(self._after)

    def forget(self) -> None:
        """Something else came: what is like the pieces before it may mean another thing now."""
        self._before = b""

    def end(self) -> None:
        """It was said why the answer stopped: words behind that are none of the usual."""
        self._before = b""
        self._lessons_left = 0

    def text_of(self, data: bytes) -> str | None:
        """The words of a read that is one such piece, whole; None leaves it to the parser."""
        before = self._before
        if not before or not data.startswith(before) or not data.endswith(self._after):
            return None
        try:
            text = data[self._begin : self._end].decode()
        except UnicodeDecodeError:
            return None
        if (
            '"' in text
            or "\\" in text
            or not text.isprintable()
            or len(data) > PIECE_BYTES_MAX
            or self._splitter.rest
        ):
            return None
        return text or None
