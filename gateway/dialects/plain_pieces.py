"""Fast path for stream pieces that differ from an earlier one only in their text, as most do.

Such a piece, or several of them in one read, need not be parsed again: it is the same bytes around
other text. Those bytes were parsed in full when they first came, so nothing is taken on trust. Two
other things may differ, because nobody reads them here: the piece's number, and the padding that
hides how long the text is.
"""

import re

from gateway.dialects.sse import Splitter


_IDLE = re.compile(rb'"obfuscation":"[A-Za-z0-9]*"|"sequence_number":(?:0|[1-9]\d{0,8})')
_HOLE = b"\0"
"""Placeholder for one of these: it is in no JSON, and in no words that are passed on."""
READ_BYTES_MAX = 16 * 1024
LESSONS_MAX = 16
"""If a stream's pieces are never alike, the search for what they share stops after so many."""


class PlainPieces:
    """Knows what surrounds the words of a stream's pieces, once it has seen one."""

    __slots__ = (
        *("_after", "_before", "_begin", "_end", "_holes", "_lessons_left", "_seam"),
        "_splitter",
    )

    def __init__(self, splitter: Splitter) -> None:
        self._splitter = splitter
        self._before = self._after = b""
        self._seam = ""
        """The bytes between the words of two pieces that come in one read."""
        self._holes = 0
        """How many idle values are in a piece; they are left out of `_before` and `_after`."""
        self._begin = self._end = 0
        """Where in a piece its words are, counted from its beginning and from its end."""
        self._lessons_left = LESSONS_MAX

    def learn(self, raw: bytes, text: str) -> None:
        """Look for the words of an event that says nothing but `text`.

        Without a backslash each string of its JSON is written as it reads: if `text` is in quotes
        exactly once, that is where it was read.
        """
        if self._before or not self._lessons_left or not text:
            return
        self._lessons_left -= 1
        quoted = b'"%b"' % text.encode("utf-8", "replace")
        start = raw.find(quoted)
        if b"\\" in raw or b"\r" in raw or start < 0 or raw.find(quoted, start + 1) >= 0:
            return
        before, holes = _IDLE.subn(_HOLE, raw[: start + 1])
        after, more = _IDLE.subn(_HOLE, raw[start + len(quoted) - 1 :])
        if _HOLE in raw:
            return
        self._before, self._after, self._holes = before, after, holes + more
        self._begin, self._end = len(before), -len(after)
        self._seam = (after + before).decode("utf-8", "replace")

    def forget(self) -> None:
        """Something else came: pieces like the earlier ones may now mean something else."""
        self._before = b""

    def end(self) -> None:
        """The reason why the answer stopped has come: later words are not ordinary ones."""
        self._before = b""
        self._lessons_left = 0

    def words_of(self, data: bytes) -> list[str] | None:
        """The words of each piece in a read of complete pieces; None leaves it to the parser."""
        before = self._before
        if not before or len(data) > READ_BYTES_MAX:
            return None
        holes = 0
        if self._holes:
            data, holes = _IDLE.subn(_HOLE, data)
        if not data.startswith(before) or not data.endswith(self._after):
            return None
        try:
            words = data[self._begin : self._end].decode().split(self._seam)
        except UnicodeDecodeError:
            return None
        text = "".join(words)
        if (
            '"' in text
            or "\\" in text
            or not text.isprintable()
            or "" in words
            # Where as many are left out as there are, each is where one was: words have no hole.
            or holes != self._holes * len(words)
            or self._splitter.is_within
        ):
            return None
        return words
